"""How many workers a node gets, with how many threads: never more in sum than its CPUs."""

from __future__ import annotations

from typing import Any

import pytest

from sglang_mm_ray.config import PoolConfig
from sglang_mm_ray.messages import Node
from sglang_mm_ray.pool.slots import Settling, may_have_room, missing_slots, worker_counts


def node(name: str, cpus: float, free: float | None = None, *, gpu: bool = False, **labels: str) -> Node:
    return Node(name, cpus, cpus if free is None else free, gpu, labels)


def slots(
    nodes: list[Node], present: dict[str, int] | None = None, **fields: Any
) -> list[tuple[str, int, float]]:
    usable = {node.node_id for node in nodes}
    found = missing_slots(nodes, PoolConfig(**fields), present or {}, usable)
    return [(slot.node_id, slot.threads, slot.num_cpus) for slot in found]


def test_one_worker_for_each_node_with_all_of_its_cpus() -> None:
    assert slots([node("a", 4), node("b", 64)]) == [("b", 64, 64.0), ("a", 4, 4.0)]


def test_the_controllers_sliver_costs_no_thread() -> None:
    assert slots([node("a", 2, 1.99)]) == [("a", 2, 1.99)]
    assert slots([node("a", 2, 1.99)], num_workers=2) == [("a", 1, 1.0), ("a", 1, 0.99)]


def test_gpu_nodes_only_if_asked_or_labelled() -> None:
    nodes = [node("cpu", 8), node("gpu", 16, gpu=True, zone="x")]
    assert slots(nodes) == [("cpu", 8, 8.0)]
    assert [name for name, _, _ in slots(nodes, use_gpu_nodes=True)] == ["gpu", "cpu"]
    assert [name for name, _, _ in slots(nodes, node_labels={"zone": "x"})] == ["gpu"]
    assert slots(nodes, node_labels={"zone": "y"}) == []


def test_a_node_without_cpus_gets_none() -> None:
    assert slots([node("a", 0), node("b", 0.5)]) == []


@pytest.mark.parametrize("wanted", [1, 3, 7, 20])
def test_so_many_as_wanted_in_proportion_to_cpus_and_never_more_threads_than_cpus(wanted: int) -> None:
    nodes = [node("a", 4), node("b", 16)]
    counts = worker_counts(nodes, PoolConfig(num_workers=wanted))
    assert sum(counts.values()) == wanted and counts["b"] >= counts["a"]
    for name, cpus in (("a", 4), ("b", 16)):
        mine = [slot for slot in slots(nodes, num_workers=wanted) if slot[0] == name]
        assert sum(threads for _, threads, _ in mine) <= cpus
        assert sum(held for _, _, held in mine) <= cpus


def test_threads_that_are_asked_for_are_given_or_the_worker_waits() -> None:
    assert slots([node("a", 8)], threads_per_worker=3) == [("a", 3, 3.0)]
    assert slots([node("a", 8, 2.0)], threads_per_worker=3) == []
    assert slots([node("a", 8)], threads_per_worker=3, num_workers=4) == [("a", 3, 3.0), ("a", 3, 3.0)]


def test_what_is_there_is_not_started_again() -> None:
    nodes = [node("a", 4, 0.0), node("b", 4)]
    assert slots(nodes, {"a": 1}) == [("b", 4, 4.0)]
    assert slots(nodes, {"a": 1, "b": 1}) == []


def test_a_node_that_is_not_usable_now_gets_none_now() -> None:
    nodes = [node("a", 4), node("b", 4)]
    assert [slot.node_id for slot in missing_slots(nodes, PoolConfig(), {}, {"b"})] == ["b"]


def test_nodes_that_others_hold_are_passed_over_while_one_has_or_will_have_room() -> None:
    held, free = node("a", 8, 0.0), node("b", 2)
    assert worker_counts([held, free], PoolConfig(num_workers=1)) == {"a": 0, "b": 1}
    # Tasks end, so their CPUs count as room to come.
    tasks = Node("a", 8, 0.0, False, {}, other_cpus=8.0)
    assert worker_counts([tasks, free], PoolConfig(num_workers=1)) == {"a": 1, "b": 0}
    # A worker that is there stays, although it leaves no room beside it.
    assert worker_counts([held, free], PoolConfig(num_workers=1), {"a": 1}) == {"a": 1, "b": 0}
    # More than there is room for are wanted all the same.
    assert sum(worker_counts([held, node("b", 2, 0.0)], PoolConfig(num_workers=3)).values()) == 3


def test_waiting_is_in_vain_where_actors_hold_what_a_worker_needs() -> None:
    tasks = Node("a", 4, 0.0, False, {}, other_cpus=4.0)
    assert may_have_room([tasks], PoolConfig()) and may_have_room([node("a", 4, 0.96)], PoolConfig())
    assert not may_have_room([node("a", 4, 0.0)], PoolConfig())
    assert not may_have_room([node("a", 4)], PoolConfig(threads_per_worker=5))
    assert not may_have_room([node("a", 4, gpu=True)], PoolConfig()) and not may_have_room([], PoolConfig())


def test_a_count_that_actors_do_not_explain_is_used_only_once_it_has_lasted() -> None:
    settling = Settling()
    told, late = node("a", 4), Node("b", 4, 1.0, False, {}, other_cpus=3.0)

    def settled(nodes: list[Node], now_s: float) -> list[str]:
        return [found.node_id for found in settling.settled(nodes, now_s)]

    assert settled([told, late], 10.0) == ["a"]
    assert settled([told, late], 10.4) == ["a"]
    # The node has told of all that it was given back: no need to wait any more.
    assert settled([told, node("b", 4)], 10.5) == ["a", "b"]
    assert settled([told, late], 11.0) == ["a"]
    # Tasks that come and go must not keep a worker away for ever.
    others = Node("b", 4, 2.0, False, {}, other_cpus=2.0)
    assert settled([told, others], 12.6) == ["a", "b"]
