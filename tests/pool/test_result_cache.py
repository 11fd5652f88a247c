"""The router's cache: bounded by the objects that its results hold, which stay and go together."""

from __future__ import annotations

from typing import Any

from sglang_mm_ray.messages import ImageFacts
from sglang_mm_ray.results.stored import StoredObject, StoredResult
from sglang_mm_ray.router.result_cache import ResultCache


class _Account:
    def __init__(self) -> None:
        self.bytes = 0

    def adopt(self, size_bytes: int) -> None:
        self.bytes += size_bytes

    def release(self, size_bytes: int) -> None:
        self.bytes -= size_bytes


def _digest(number: int) -> bytes:
    return number.to_bytes(32, "big")


def _object(account: _Account, *numbers: int, nbytes: int = 100_000) -> list[StoredResult]:
    facts: list[Any] = [
        ImageFacts(_digest(number), number, 1, 1, (1, 1, 1), 1, (), nbytes, "png", {}, "computed")
        for number in numbers
    ]
    account.adopt(nbytes * len(facts))
    stored = StoredObject(None, "node", nbytes * len(facts), account)
    return [StoredResult(each, stored, place) for place, each in enumerate(facts)]


def test_what_it_holds_is_what_it_counts() -> None:
    account = _Account()
    cache = ResultCache(1_000_000)
    for first in range(0, 400, 4):
        cache.put(_object(account, *range(first, first + 4)))
        # A hot image keeps its neighbours; that is counted.
        assert cache.get(_digest(0)) is not None
        assert account.bytes <= cache.size_bytes <= 1_000_000
    assert cache.get(_digest(1)) is not None and cache.get(_digest(5)) is None
    assert cache.get(_digest(399)) is not None
    counters = cache.counters()
    assert counters["images"] == account.bytes // 100_000 and counters["misses"] == 1
    cache.free(1)
    assert account.bytes < cache.size_bytes + 400_000
    cache.clear()
    assert account.bytes == 0 and cache.counters()["images"] == 0


def test_a_newer_object_of_the_same_content_takes_its_place() -> None:
    account = _Account()
    cache = ResultCache(1_000_000)
    cache.put(_object(account, 1, 2))
    newer = _object(account, 2, 3)
    cache.put(newer)
    assert cache.get(_digest(2)) is newer[0]
    cache.remove(_digest(1))
    assert cache.get(_digest(2)) is newer[0] and cache.get(_digest(1)) is None
    cache.remove_if(lambda result: result.facts.digest == _digest(3))
    assert cache.get(_digest(2)) is None
    del newer
    assert account.bytes == 0


def test_an_object_larger_than_the_cache_is_not_kept() -> None:
    account = _Account()
    cache = ResultCache(150_000)
    cache.put(_object(account, 1, 2))
    assert cache.get(_digest(1)) is None and account.bytes == 0 and cache.counters()["images"] == 0


def test_many_small_results_in_one_object_are_counted_with_what_is_known_of_them() -> None:
    """Each has a digest, facts and a place in the index, whatever its pixels take."""
    account = _Account()
    cache = ResultCache(200_000)
    for first in range(0, 16_000, 16):
        cache.put(_object(account, *range(first, first + 16), nbytes=6))
    assert 150 < cache.counters()["images"] <= 200
