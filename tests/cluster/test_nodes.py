"""Several nodes on one machine: a worker for each, and nodes that come and go."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from pooling import patches, photo, png

import sglang_mm_ray as smr

pytestmark = pytest.mark.cluster

FAST: dict[str, Any] = {
    "warm_bytes": 0,
    "heartbeat_interval_s": 0.2,
    "metrics": False,
    "router_cache_bytes": 0,
}


def until(condition: Callable[[], bool], timeout_s: float = 90.0) -> None:
    end = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < end, "it never happened"
        time.sleep(0.1)


def workers_by_node(pool: smr.PreprocessPool) -> Counter[str]:
    return Counter(worker["node_id"] for worker in pool.status()["workers"] if worker["state"] == "live")


def check(files: list[bytes], images: list[Any]) -> None:
    for data, image in zip(files, images, strict=True):
        np.testing.assert_array_equal(image.array(), patches(data))


def test_one_worker_a_node_with_the_nodes_threads_and_nodes_that_come_and_go(cluster: Any, grow: Any) -> None:
    first, second = grow(cluster, 1), grow(cluster, 2)
    gpu = grow(cluster, 1, num_gpus=1)
    with smr.PreprocessPool(**FAST) as pool:
        assert set(workers_by_node(pool)) == {first.node_id, second.node_id}
        threads = {worker["node_id"]: worker["threads"] for worker in pool.status()["workers"]}
        assert threads == {first.node_id: 1, second.node_id: 2}
        assert gpu.node_id not in threads

        third = grow(cluster, 1)
        until(lambda: third.node_id in workers_by_node(pool))
        files = [png(photo(seed, 100, 80)) for seed in range(60)]
        images = pool.preprocess(files)
        check(files, images)
        made_on = Counter(image.stored.node_id for image in images)
        assert set(made_on) == {first.node_id, second.node_id, third.node_id}

        cluster.remove_node(second)
        until(lambda: second.node_id not in workers_by_node(pool))
        # No request is lost with a node, and what it held says so when it is read.
        more = [png(photo(seed, 100, 80)) for seed in range(100, 140)]
        check(more, pool.preprocess(more, timeout_s=60))
        lost = kept = 0
        for data, image in zip(files, images, strict=True):
            try:
                array = image.array(timeout_s=20)
            except smr.ResultLost as error:
                assert image.stored.node_id == second.node_id and error.retriable
                lost += 1
                if lost <= 3:
                    check([data], [pool.recompute(image)])
            else:
                np.testing.assert_array_equal(array, patches(data))
                kept += 1
        # Small results travel to their owner at once and outlive even the node; none was read wrongly.
        assert kept >= made_on[first.node_id] + made_on[third.node_id] and lost + kept == 60


def test_a_node_that_dies_under_load_loses_no_request(cluster: Any, grow: Any) -> None:
    grow(cluster, 1)
    doomed = grow(cluster, 1)
    with smr.PreprocessPool(**FAST) as pool:
        files = [png(photo(seed, 150, 120)) for seed in range(200)]
        request = pool._live().submit(files, 120.0, True)
        until(lambda: pool._live().status()["running_images"] > 0)
        cluster.remove_node(doomed, allow_graceful=False)
        images = request.result(timeout=120)
        wrong = [image for image in images if isinstance(image, smr.PreprocessError)]
        assert not wrong
        again = [image if _readable(image) else pool.recompute(image) for image in images]
        check(files, again)


def _readable(image: smr.ProcessedImage) -> bool:
    try:
        image.array(timeout_s=20)
    except smr.ResultLost:
        return False
    return True


def test_scaling_and_labels(cluster: Any, grow: Any) -> None:
    labelled = grow(cluster, 2, labels={"zone": "a"})
    other = grow(cluster, 2)
    with smr.PreprocessPool(**FAST, num_workers=2, threads_per_worker=1, node_labels={"zone": "a"}) as pool:
        assert workers_by_node(pool) == {labelled.node_id: 2}
        assert other.node_id not in workers_by_node(pool)
        pool.scale(1)
        until(lambda: workers_by_node(pool) == {labelled.node_id: 1})
        files = [png(photo(seed)) for seed in range(20)]
        check(files, pool.preprocess(files))
        pool.scale(2)
        until(lambda: workers_by_node(pool) == {labelled.node_id: 2})


def test_a_pool_without_room_says_why(cluster: Any) -> None:
    with pytest.raises(smr.WorkerLost, match="no node has room"):
        smr.PreprocessPool(**FAST, start_timeout_s=5)
