"""A pool that ends and is started again under its name: who was connected goes on there."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from pooling import patches, photo, png
from waiting import until

import sglang_mm_ray as smr

QUICK: dict[str, Any] = {
    "num_workers": 1,
    "threads_per_worker": 1,
    "warm_bytes": 0,
    "metrics": False,
    "heartbeat_interval_s": 0.2,
    "router_cache_bytes": 0,
}


def outcome_of(pool: smr.PreprocessPool, data: bytes) -> Any:
    try:
        (image,) = pool.preprocess([data], timeout_s=60)
    except smr.PreprocessError as error:
        return error
    np.testing.assert_array_equal(image.array(), patches(data))
    return image


@pytest.fixture
def connected(local_ray: None) -> Iterator[smr.PreprocessPool]:
    """A connection to a pool that another one started."""
    starter = smr.PreprocessPool.start("phoenix", **QUICK)
    pool = smr.PreprocessPool.connect("phoenix")
    starter.close()
    yield pool
    pool.close()
    for name in smr.PreprocessPool.names():
        last = smr.PreprocessPool.connect(name)
        last.stop(drain=False)


def test_a_connection_follows_its_name(
    connected: smr.PreprocessPool, caplog: pytest.LogCaptureFixture
) -> None:
    data = png(photo(1))
    with caplog.at_level(logging.INFO, "sglang_mm_ray.router"):
        assert isinstance(outcome_of(connected, data), smr.ProcessedImage)
        other = smr.PreprocessPool.connect("phoenix")
        other.stop()
        until(lambda: isinstance(outcome_of(connected, data), smr.PoolNotFound))
        error = outcome_of(connected, data)
        assert error.retriable and "sglang-mm-ray start --name phoenix" in str(error)

        # Another one of that name, whose results would be others.
        again = smr.PreprocessPool.start("phoenix", **QUICK, transport="uint8")
        until(lambda: isinstance(outcome_of(connected, data), smr.InvalidArgument))
        error = outcome_of(connected, data)
        assert not error.retriable and "transport is uint8, and was bf16" in str(error)
        again.stop()

        again = smr.PreprocessPool.start("phoenix", **QUICK)
        until(lambda: isinstance(outcome_of(connected, data), smr.ProcessedImage))
        assert connected.status()["workers"][0]["worker_id"] == again.status()["workers"][0]["worker_id"]
        again.close()
    said = [record.getMessage() for record in caplog.records if "phoenix" in record.getMessage()]
    # The other connections of this process lose it too, and only this one is still there when it is found.
    assert any("is lost: no pool 'phoenix' runs now" in line for line in said)
    assert sum("is found again" in line for line in said) == 1


def test_replacing_a_pool_costs_no_request(connected: smr.PreprocessPool) -> None:
    wrong: list[BaseException] = []
    done = 0
    stop = threading.Event()

    def ask(seed: int) -> None:
        nonlocal done
        while not stop.is_set():
            seed += 100
            found = outcome_of(connected, png(photo(seed, 40, 30)))
            if isinstance(found, BaseException):
                wrong.append(found)
            done += 1

    threads = [threading.Thread(target=ask, args=(n,)) for n in range(3)]
    for thread in threads:
        thread.start()
    try:
        until(lambda: done > 5)
        before = {worker["worker_id"] for worker in connected.status()["workers"]}
        newer = smr.PreprocessPool.start("phoenix", **QUICK, replace=True)
        after = {worker["worker_id"] for worker in newer.status()["workers"]}
        assert not before & after
        reached = done
        until(lambda: done > reached + 5)
        newer.close()
    finally:
        stop.set()
        for thread in threads:
            thread.join(120)
    assert not any(thread.is_alive() for thread in threads)
    assert wrong == []
