"""A pool that finds less room than it believed: it asks again by what is free, or says who holds it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from typing import Any

import pytest
import ray
from waiting import until

import sglang_mm_ray as smr
from sglang_mm_ray import cluster
from sglang_mm_ray.cluster import kill_pool, live_nodes
from sglang_mm_ray.config import PoolConfig
from sglang_mm_ray.messages import Node
from sglang_mm_ray.pool import controller as controlling
from sglang_mm_ray.pool.room import why_no_room
from sglang_mm_ray.reservations import Holder, actor_holders, other_holders, tell

QUICK: dict[str, Any] = {"warm_bytes": 0, "metrics": False, "heartbeat_interval_s": 0.2}


@pytest.fixture(scope="module")
def one_node() -> Iterator[None]:
    if ray.is_initialized():
        ray.shutdown()
    cluster.start_ray("local", num_cpus=2, object_store_memory=100 << 20, logging_level="ERROR")
    yield
    ray.shutdown()


@pytest.fixture
def two_cpus(one_node: None) -> Iterator[None]:
    """Two CPUs that nobody holds, before the test and after it."""
    until(lambda: live_nodes()[0].free_cpus == 2.0)
    yield
    until(lambda: live_nodes()[0].free_cpus == 2.0)


@ray.remote(num_cpus=0.5)
class Trainer:
    def ready(self) -> bool:
        return True


@ray.remote
def crunch(seconds: float) -> None:
    time.sleep(seconds)


def test_a_placed_actor_counts_although_its_node_has_not_told_of_it(
    two_cpus: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    trainer = Trainer.remote()
    ray.get(trainer.ready.remote())
    (node_id,) = cluster.alive_nodes()
    monkeypatch.setattr(cluster, "available_resources_per_node", lambda: {node_id: {"CPU": 2.0}})
    (node,) = live_nodes()
    assert (node.free_cpus, node.other_cpus) == (1.5, 0.0)
    # The other way round: given back, and not told yet.
    monkeypatch.setattr(cluster, "available_resources_per_node", lambda: {node_id: {}})
    (node,) = live_nodes()
    assert (node.free_cpus, node.other_cpus) == (0.0, 1.5)
    monkeypatch.undo()
    ray.kill(trainer)


def test_a_worker_that_no_node_takes_is_taken_back_and_asked_for_by_what_is_free(
    two_cpus: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A task, which no table lists at once, took a CPU while the node still tells of both.
    running = crunch.remote(600)
    (node_id,) = cluster.alive_nodes()
    until(lambda: live_nodes()[0].other_cpus == 1.0)
    told = [Node(node_id, 2.0, 2.0, False, {})] * 3

    def late() -> list[Node]:
        return [told.pop()] if told else live_nodes()

    monkeypatch.setattr(controlling, "live_nodes", late)
    config = PoolConfig(**QUICK)
    controller = controlling.PoolController(config.to_json(), "stale", detached=False)
    try:
        until(lambda: any(worker.live for worker in controller._workers.values()))
        (worker,) = controller._workers.values()
        assert worker.threads == 1 and not told
    finally:
        asyncio.run_coroutine_threadsafe(controller._drain(), controller._loop).result(60)
        controller._loop.call_soon_threadsafe(controller._loop.stop)
        until(lambda: not controller._loop.is_running())
        controller._loop.close()
        ray.cancel(running, force=True)


def test_who_holds_the_cpus_is_told_by_pool_actor_task_and_group(two_cpus: None) -> None:
    job = ray.get_runtime_context().get_job_id()
    trainer = Trainer.options(name="adam").remote()
    ray.get(trainer.ready.remote())
    group = ray.util.placement_group([{"CPU": 0.25}], name="reserve")
    ray.get(group.ready(), timeout=30)
    running = crunch.options(num_cpus=0.1).remote(600)
    with smr.PreprocessPool(**QUICK, name="first", threads_per_worker=1) as pool:
        until(lambda: any("crunch" in holder.what for holder in other_holders()))
        (node_id,) = cluster.alive_nodes()
        said = tell([*actor_holders(), *other_holders()], [node_id])
        began = time.monotonic()
        with pytest.raises(smr.WorkerLost) as caught:
            smr.PreprocessPool(**QUICK, start_timeout_s=300.0)
        # No clock decides: with what actors hold there is nothing to wait for, so it is not 300 s.
        assert time.monotonic() - began < 100
        assert pool.status()["workers"]
    ray.cancel(running, force=True)
    ray.util.remove_placement_group(group)
    ray.kill(trainer)
    for holder in (
        "worker of pool 'first': 1",
        f"actor Trainer 'adam' of job {job}: 0.5",
        f"placement group 'reserve' of job {job}: 0.25",
        f"task crunch of job {job}: 0.1",
    ):
        assert holder in said and holder in str(caught.value)
    assert "threads_per_worker" in str(caught.value)


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"node_labels": {"zone": "b"}}, "node_labels"),
        ({"threads_per_worker": 9}, "no node has more than 8"),
        ({}, "held by worker of pool 'vision': 7.99"),
    ],
)
def test_each_reason_has_its_words(fields: dict[str, Any], words: str) -> None:
    nodes = [Node("a" * 8, 8.0, 0.01, False, {})]
    said = why_no_room(nodes, PoolConfig(**fields), [Holder("worker of pool 'vision'", "a" * 8, 7.99)])
    assert said.startswith("no node has room for a worker") and words in said
    gpus = why_no_room([Node("b", 8.0, 8.0, True, {})], PoolConfig(), [])
    assert "use_gpu_nodes" in gpus


def test_a_pool_can_be_started_the_moment_another_of_its_name_is_ended(two_cpus: None) -> None:
    for _ in range(3):
        pool = smr.PreprocessPool.start("again", **QUICK)
        assert [worker["threads"] for worker in pool.status()["workers"]] == [2]
        pool.stop(drain=False)
        assert smr.PreprocessPool.names() == [] and cluster.worker_names("again") == []


def test_two_pools_that_start_at_once_share_or_one_says_why(two_cpus: None) -> None:
    from concurrent.futures import ThreadPoolExecutor

    def start(name: str) -> Any:
        try:
            return smr.PreprocessPool.start(name, **QUICK, start_timeout_s=60.0)
        except smr.WorkerLost as error:
            return error

    with ThreadPoolExecutor(2) as threads:
        outcomes = list(threads.map(start, ["one", "two"]))
    pools = [outcome for outcome in outcomes if isinstance(outcome, smr.PreprocessPool)]
    errors = [str(outcome) for outcome in outcomes if isinstance(outcome, smr.WorkerLost)]
    threads_held = sum(worker["threads"] for pool in pools for worker in pool.status()["workers"])
    assert pools and 1 <= threads_held <= 2
    assert all("of pool 'one'" in error or "of pool 'two'" in error for error in errors)
    for pool in pools:
        pool.stop(drain=False)
    for name in smr.PreprocessPool.names():
        kill_pool(name, cluster.find_controller(name))


def test_a_cluster_without_cpus_is_not_said_to_be_held_by_anybody() -> None:
    if ray.is_initialized():
        ray.shutdown()
    cluster.start_ray("local", num_cpus=0, logging_level="ERROR")
    try:
        with pytest.raises(smr.WorkerLost, match="none of the 1 nodes has CPUs") as caught:
            smr.PreprocessPool(**QUICK, start_timeout_s=300.0)
        assert "held" not in str(caught.value) and "pool that" not in str(caught.value)
    finally:
        ray.shutdown()
