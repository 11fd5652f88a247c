"""Rendezvous hashing with bounded load: stickiness, balance, moved keys, unequal workers."""

from __future__ import annotations

import hashlib
from collections import Counter

import pytest

from sglang_mm_ray.routing.placement import Placement, route_key

KEYS = [route_key(hashlib.sha256(str(number).encode()).digest()) for number in range(6_000)]


def placement(workers: int, capacity: float = 1.0, window_px: float = 1e9) -> Placement:
    pool = Placement(window_px)
    for number in range(workers):
        pool.join(f"worker-{number}", capacity)
    return pool


def first_choices(pool: Placement) -> list[str]:
    return [next(pool.preference(key)) for key in KEYS]


def test_an_image_goes_to_the_same_worker_every_time_and_in_every_process() -> None:
    one, other = placement(7), Placement(1e9)
    for number in reversed(range(7)):  # Another process may have heard of the workers in another order.
        other.join(f"worker-{number}", 1.0)
    assert first_choices(one) == first_choices(other)
    assert all(one.place(key, 0.0) == next(one.preference(key)) for key in KEYS[:500])


def test_equal_workers_get_equal_shares() -> None:
    shares = Counter(first_choices(placement(10)))
    # Binomial: mean 600, standard deviation 23.
    assert all(abs(share - 600) < 5 * 23 for share in shares.values())


def test_shares_follow_capacity() -> None:
    pool = Placement(1e9)
    for number, threads in enumerate([1, 2, 4, 8, 16]):
        pool.join(f"worker-{number}", threads)
    shares = Counter(first_choices(pool))
    for number, threads in enumerate([1, 2, 4, 8, 16]):
        assert shares[f"worker-{number}"] == pytest.approx(6_000 * threads / 31, rel=0.25)


def test_a_worker_that_joins_moves_only_what_it_wins() -> None:
    pool = placement(9)
    before = first_choices(pool)
    pool.join("new", 1.0)
    after = first_choices(pool)
    moved = [new for old, new in zip(before, after, strict=True) if old != new]
    assert set(moved) == {"new"}
    assert len(moved) == pytest.approx(6_000 / 10, rel=0.2)


def test_a_worker_that_leaves_moves_only_what_it_had_and_to_the_second_choice() -> None:
    pool = placement(10)
    before = [tuple(pool.preference(key))[:2] for key in KEYS[:4000]]
    pool.leave("worker-3")
    for (first, second), key in zip(before, KEYS, strict=False):
        assert next(pool.preference(key)) == (second if first == "worker-3" else first)


def test_a_worker_that_comes_back_has_its_keys_again() -> None:
    pool = placement(5)
    before = first_choices(pool)
    pool.leave("worker-2")
    pool.join("worker-2", 1.0)
    assert first_choices(pool) == before


def test_a_hot_key_spills_to_its_next_choices_in_order() -> None:
    pool = placement(6, window_px=100.0)
    key = KEYS[0]
    order = list(pool.preference(key))
    placed = []
    for _ in range(6):
        worker = pool.place(key, 100.0)
        assert worker is not None
        pool.add_load(worker, 100.0)
        placed.append(worker)
    assert placed == order


@pytest.mark.parametrize("keys", [KEYS[:1] * 3000, KEYS[:3000]], ids=["one hot key", "many keys"])
def test_no_worker_is_loaded_far_above_the_mean(keys: list[int]) -> None:
    pool = placement(8, window_px=1.0)
    for key in keys:
        worker = pool.place(key, 10.0)
        assert worker is not None
        pool.add_load(worker, 10.0)
    mean = len(keys) * 10.0 / 8
    assert max(pool.load_px(f"worker-{number}") for number in range(8)) <= 1.25 * mean + 10.0


def test_an_idle_worker_is_never_full() -> None:
    pool = placement(2, window_px=1.0)
    assert pool.place(KEYS[0], 1e12) == next(pool.preference(KEYS[0]))


def test_workers_to_avoid_are_avoided_while_there_are_others() -> None:
    pool = placement(3)
    order = list(pool.preference(KEYS[5]))
    assert pool.place(KEYS[5], 1.0, frozenset(order[:1])) == order[1]
    assert pool.place(KEYS[5], 1.0, frozenset(order[:2])) == order[2]
    assert pool.place(KEYS[5], 1.0, frozenset(order)) == order[0]


def test_without_workers_there_is_no_place() -> None:
    pool = placement(1)
    pool.leave("worker-0")
    assert pool.place(KEYS[0], 1.0) is None
    assert len(pool) == 0


def test_a_slow_worker_gets_less_but_keeps_its_keys() -> None:
    pool = placement(2, window_px=100.0)
    choices = first_choices(pool)
    for _ in range(50):
        pool.observe("worker-0", 100.0, 4.0)
        pool.observe("worker-1", 100.0, 1.0)
    assert first_choices(pool) == choices
    for key in KEYS[:2000]:
        worker = pool.place(key, 10.0)
        assert worker is not None
        pool.add_load(worker, 10.0)
    assert pool.load_px("worker-1") > 2 * pool.load_px("worker-0")


def test_load_is_given_back() -> None:
    pool = placement(3)
    for _ in range(1000):
        pool.add_load("worker-1", 0.1)
    for _ in range(1000):
        pool.add_load("worker-1", -0.1)
    assert pool.load_px("worker-1") == 0.0
    pool.add_load("gone", 5.0)  # Late news of a worker that left changes nothing.


@pytest.mark.parametrize("capacity", [0, -1, float("nan")])
def test_a_worker_without_capacity_is_refused(capacity: float) -> None:
    with pytest.raises(ValueError, match="capacity"):
        placement(0).join("worker", capacity)


def test_a_worker_joins_once() -> None:
    with pytest.raises(ValueError, match="joined already"):
        placement(1).join("worker-0", 1.0)
