"""Several processes and pools on one cluster: detached pools, and what is left when processes are killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pooling import patches, photo, png

import sglang_mm_ray as smr
from sglang_mm_ray.cluster import find_controller, worker_names

pytestmark = pytest.mark.cluster

ROOT = Path(__file__).resolve().parents[2]
FAST: dict[str, Any] = {
    "warm_bytes": 0,
    "heartbeat_interval_s": 0.2,
    "metrics": False,
    "threads_per_worker": 1,
}


def until(condition: Callable[[], bool], timeout_s: float = 60.0) -> None:
    end = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < end, "it never happened"
        time.sleep(0.1)


def run(program: str, address: str, tmp_path: Path) -> subprocess.Popen[bytes]:
    """Starts another Python that is connected to the cluster."""
    script = tmp_path / f"program-{time.monotonic_ns()}.py"
    script.write_text(
        f"import logging, ray, sys, time\nray.init(address={address!r}, log_to_driver=False)\n"
        f"import sglang_mm_ray as smr\nfast = {FAST!r}\n{program}"
    )
    env = {**os.environ, "PYTHONPATH": f"{ROOT}:{ROOT / 'tests'}:{ROOT / 'bench'}"}
    return subprocess.Popen([sys.executable, str(script)], env=env, cwd=ROOT)


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


def pids_of(pool: smr.PreprocessPool) -> list[int]:
    return [worker["pid"] for worker in pool.status()["workers"] if worker["state"] == "live"]


def store_used() -> float:
    import ray

    total, free = ray.cluster_resources(), ray.available_resources()
    return total["object_store_memory"] - free["object_store_memory"]


def check(files: list[bytes], images: list[Any]) -> None:
    for data, image in zip(files, images, strict=True):
        np.testing.assert_array_equal(image.array(), patches(data))


def test_a_driver_that_is_killed_leaves_nothing(cluster: Any, grow: Any, tmp_path: Path) -> None:
    import ray

    grow(cluster, 2)
    told = tmp_path / "pids"
    driver = run(
        "from pooling import photo, png\n"
        "pool = smr.PreprocessPool(**fast, num_workers=2)\n"
        "images = pool.preprocess([png(photo(seed, 300, 200)) for seed in range(20)])\n"
        "pids = [worker['pid'] for worker in pool.status()['workers']]\n"
        f"open({str(told)!r}, 'w').write(' '.join(map(str, pids)))\n"
        "pool.preprocess([png(photo(seed, 300, 200)) for seed in range(100, 2000)])\n",
        cluster.address,
        tmp_path,
    )
    try:
        until(lambda: told.exists() and len(told.read_text().split()) == 2)
        pids = [int(pid) for pid in told.read_text().split()]
        assert all(alive(pid) for pid in pids)
        until(lambda: store_used() > 0, 30)  # Nodes report what they hold now and then.
        time.sleep(0.5)
    finally:
        driver.send_signal(signal.SIGKILL)
        driver.wait()
    until(lambda: not any(alive(pid) for pid in pids), 30)
    until(lambda: store_used() == 0, 30)
    until(lambda: ray.available_resources().get("CPU") == 3, 30)
    assert smr.PreprocessPool.names() == []


def test_a_detached_pool_serves_many_processes_and_outlives_its_starter_and_controller(
    cluster: Any, grow: Any, tmp_path: Path
) -> None:
    grow(cluster, 2)
    starter = run(
        "smr.PreprocessPool.start('vision', **fast, num_workers=2, lease_s=5.0, router_cache_bytes=0)\n",
        cluster.address,
        tmp_path,
    )
    assert starter.wait(90) == 0
    with pytest.raises(smr.PoolNotFound, match="vision"):
        smr.PreprocessPool.connect("audio")
    pool = smr.PreprocessPool.connect("vision")
    assert smr.PreprocessPool.names() == ["vision"]
    assert pool.config.num_workers == 2 and pool.status()["detached"]
    files = [png(photo(seed, 100, 80)) for seed in range(30)]
    check(files, pool.preprocess(files))

    # Another process uses the same workers at the same time, and meets their warm caches.
    done = tmp_path / "origins"
    other = run(
        "from pooling import photo, png\n"
        "pool = smr.PreprocessPool.connect('vision')\n"
        "images = pool.preprocess([png(photo(seed, 100, 80)) for seed in range(30)])\n"
        f"open({str(done)!r}, 'w').write(' '.join(image.origin for image in images))\n"
        "pool.close()\n",
        cluster.address,
        tmp_path,
    )
    more = [png(photo(seed, 100, 80)) for seed in range(1000, 1060)]
    check(more, pool.preprocess(more))
    assert other.wait(90) == 0
    origins = done.read_text().split()
    assert len(origins) == 30 and origins.count("worker_cache") >= 15

    # The next controller takes over the workers that it finds, caches and all.
    before = sorted(pids_of(pool))
    os.kill(_pid_of_controller("vision"), signal.SIGKILL)
    check(files, pool.preprocess(files, timeout_s=60))
    until(lambda: _pids_or_none(pool) == before)

    # Without any controller the workers do not stay for ever.
    import ray

    ray.kill(find_controller("vision"))
    until(lambda: not any(alive(pid) for pid in before), 40)
    pool.close()


def test_pools_stand_side_by_side_and_stop_alone(cluster: Any, grow: Any) -> None:
    import ray

    grow(cluster, 2)
    one = smr.PreprocessPool.start("one", **FAST, num_workers=1)
    two = smr.PreprocessPool.start("two", **FAST, num_workers=1, transport="uint8")
    try:
        assert smr.PreprocessPool.names() == ["one", "two"]
        assert one.status()["fingerprint"] != two.status()["fingerprint"]
        files = [png(photo(seed, 100, 80)) for seed in range(10)]
        check(files, one.preprocess(files))
        np.testing.assert_array_equal(
            smr.gather(two.preprocess(files)), np.concatenate([patches(data) for data in files])
        )
        # Leaving a detached pool does not stop it.
        one.close()
        again = smr.PreprocessPool.connect("one")
        check(files, again.preprocess(files))
        again.stop()
        assert smr.PreprocessPool.names() == ["two"] and worker_names("one") == []
        assert len(two.preprocess(files)) == 10
    finally:
        two.stop()
    assert smr.PreprocessPool.names() == []
    until(lambda: ray.available_resources().get("CPU") == 3, 30)


def _pid_of_controller(name: str) -> int:
    import ray

    return ray.get(find_controller(name).pid.remote(), timeout=30)  # type: ignore[no-any-return]


def _pids_or_none(pool: smr.PreprocessPool) -> list[int] | None:
    try:
        return sorted(pids_of(pool))
    except smr.PoolClosed:
        return None
