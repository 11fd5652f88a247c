"""What a pool survives on one node: workers and controllers killed at any moment, poison, stuck workers."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import ray
from deadly import Deadly, Hanging, marks
from pooling import patches, photo, png

import sglang_mm_ray as smr
from sglang_mm_ray.cluster import find_controller

FAST: dict[str, Any] = {
    "num_workers": 2,
    "threads_per_worker": 1,
    "warm_bytes": 0,
    "heartbeat_interval_s": 0.2,
    "metrics": False,
    "router_cache_bytes": 0,
}


@pytest.fixture(scope="module")
def pool(local_ray: None) -> Iterator[smr.PreprocessPool]:
    with smr.PreprocessPool(**FAST, name="mortal") as started:
        yield started


def until(condition: Callable[[], bool], timeout_s: float = 60.0) -> None:
    end = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < end, "it never happened"
        time.sleep(0.05)


def pids(pool: smr.PreprocessPool) -> list[int]:
    return [worker["pid"] for worker in pool.status()["workers"] if worker["state"] == "live"]


def all_live(pool: smr.PreprocessPool) -> bool:
    return len(pids(pool)) == 2 and pool.status()["router"]["workers"] == 2


def kill(pid: int) -> None:
    os.kill(pid, signal.SIGKILL)


def check(files: list[bytes], images: list[Any]) -> None:
    for data, image in zip(files, images, strict=True):
        np.testing.assert_array_equal(image.array(), patches(data))


def test_results_outlive_the_workers_that_made_them(pool: smr.PreprocessPool) -> None:
    until(lambda: all_live(pool))
    files = [png(photo(seed, 200, 150)) for seed in range(6)]
    images = pool.preprocess(files)
    old = pids(pool)
    for pid in old:
        kill(pid)
    until(lambda: all_live(pool) and not set(old) & set(pids(pool)))
    check(files, images)


def test_what_the_death_of_its_worker_costs_a_request(
    local_ray: None, capsys: pytest.CaptureFixture[str]
) -> None:
    """Prints it: 5 s at most where the machine is idle, the start of another worker included."""
    costs_s = []
    with smr.PreprocessPool(num_workers=1, threads_per_worker=1, metrics=False, router_cache_bytes=0) as one:
        for turn in range(3):
            files = [png(photo(100 * turn + seed, 400, 300)) for seed in range(9500, 9508)]
            # Frozen, so that the request is under way when it dies, however fast it is.
            (pid,) = pids(one)
            os.kill(pid, signal.SIGSTOP)
            request = one._live().submit(files, None, True)
            until(lambda: one.status()["router"]["running_images"] > 0)
            killed = time.monotonic()
            kill(pid)
            check(files, request.result(timeout=120))
            costs_s.append(time.monotonic() - killed)
            assert pids(one) != [pid]
            until(lambda: len(pids(one)) == 1)
    with capsys.disabled():
        print("\nrecovery from a killed worker, s:", *(f"{cost:.1f}" for cost in costs_s))


def test_killing_workers_at_random_loses_nothing(pool: smr.PreprocessPool) -> None:
    until(lambda: all_live(pool))
    stop = threading.Event()
    killed: list[int] = []
    chance = random.Random(5)

    def assassin() -> None:
        while not stop.wait(chance.uniform(0.3, 1.2)):
            alive = pids(pool)
            if alive and len(killed) < 6:
                killed.append(chance.choice(alive))
                try:
                    kill(killed[-1])
                except ProcessLookupError:
                    killed.pop()

    thread = threading.Thread(target=assassin)
    thread.start()
    try:
        seed = 1000
        while len(killed) < 4:
            files = [png(photo(seed + number, 120, 90)) for number in range(40)]
            seed += 40
            check(files, pool.preprocess(files))
    finally:
        stop.set()
        thread.join()
    until(lambda: all_live(pool))
    router = pool.status()["router"]
    assert router["under_way_images"] == router["queued_images"] == router["running_images"] == 0
    assert router["store_promised_bytes"] == 0


def test_an_image_that_kills_workers_fails_alone_and_is_quarantined(
    pool: smr.PreprocessPool, tmp_path: Path
) -> None:
    until(lambda: all_live(pool))
    marker = tmp_path / "deaths"
    poison = ray.put(Deadly(marker))
    files = [png(photo(seed, 60, 50)) for seed in range(2000, 2024)]
    sources: list[Any] = [*files[:12], poison, *files[12:]]
    outcomes = pool.preprocess(sources, on_error="return")
    assert isinstance(outcomes[12], smr.PoisonImage) and outcomes[12].index == 12  # type: ignore[attr-defined]
    check(files, outcomes[:12] + outcomes[13:])
    first = marks(marker)
    # In its batch, in halves, and alone until it is sure.
    assert 3 <= first <= 9
    with pytest.raises(smr.PoisonImage, match="quarantine_s"):
        pool.preprocess([poison])
    assert marks(marker) == first
    # Whoever comes to the pool later knows it too.
    other = smr.PreprocessPool.connect("mortal")
    try:
        until(lambda: other.status()["quarantined_images"] == 1)
        with pytest.raises(smr.PoisonImage):
            other.preprocess([poison])
    finally:
        other.close()
    assert marks(marker) == first


def test_a_worker_that_is_stopped_is_found_by_its_heartbeat_and_replaced(local_ray: None) -> None:
    with smr.PreprocessPool(**FAST, heartbeat_timeout_s=2.0) as pool:
        until(lambda: all_live(pool))
        stopped = pids(pool)[0]
        os.kill(stopped, signal.SIGSTOP)
        files = [png(photo(seed, 80, 60)) for seed in range(3000, 3030)]
        check(files, pool.preprocess(files, timeout_s=60))
        until(lambda: all_live(pool) and stopped not in pids(pool))
        assert not _exists(stopped), "the stopped worker still holds its memory"


def _exists(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
    except OSError:
        return False
    return state != "Z"


def test_a_worker_that_is_stuck_on_an_image_is_replaced_by_its_own_account(
    local_ray: None, tmp_path: Path
) -> None:
    marker = tmp_path / "hangs"
    with smr.PreprocessPool(**FAST, image_timeout_s=1.5) as pool:
        files = [png(photo(seed, 80, 60)) for seed in range(3100, 3110)]
        outcomes = pool.preprocess([*files, ray.put(Hanging(marker))], on_error="return", timeout_s=90)
        check(files, outcomes[:-1])
        assert isinstance(outcomes[-1], smr.PoisonImage)
        assert 3 <= marks(marker) <= 6
        assert "stuck" in pool.status()["last_error"]


def test_work_goes_on_while_the_controller_is_dead_and_after(pool: smr.PreprocessPool) -> None:
    until(lambda: all_live(pool))

    @ray.remote(num_cpus=0)
    def pid_of(controller: Any) -> int:
        return ray.get(controller.pid.remote())  # type: ignore[no-any-return]

    old = ray.get(pid_of.remote(find_controller("mortal")))
    kill(old)
    files = [png(photo(seed, 80, 60)) for seed in range(4000, 4030)]
    check(files, pool.preprocess(files, timeout_s=90))
    until(lambda: _status_works(pool) and all_live(pool))
    check(files, pool.preprocess(files, timeout_s=60))


def test_what_scale_said_holds_after_the_controller_died(local_ray: None) -> None:
    with smr.PreprocessPool(threads_per_worker=1, num_workers=1, warm_bytes=0, metrics=False) as pool:
        pool.scale(2)
        until(lambda: len(pids(pool)) == 2)
        old = ray.get(find_controller(pool.name).pid.remote())
        kill(old)
        until(lambda: _status_works(pool) and _controller_pid(pool) != old and len(pids(pool)) == 2)


def _controller_pid(pool: smr.PreprocessPool) -> int:
    try:
        return ray.get(find_controller(pool.name).pid.remote())  # type: ignore[no-any-return]
    except (ray.exceptions.RayError, smr.PoolNotFound):
        return 0


def _status_works(pool: smr.PreprocessPool) -> bool:
    try:
        return bool(pool.status())
    except smr.PoolClosed:
        return False


def test_a_deadline_ends_the_request_and_frees_what_waits(pool: smr.PreprocessPool) -> None:
    until(lambda: all_live(pool))
    files = [png(photo(seed, 300, 250)) for seed in range(5000, 5120)]
    started = time.monotonic()
    outcomes = pool.preprocess(files, timeout_s=0.3, on_error="return")
    assert time.monotonic() - started < 5
    late = [outcome for outcome in outcomes if isinstance(outcome, smr.DeadlineExceeded)]
    assert late and "0.3 s" in str(late[0])
    for data, outcome in zip(files, outcomes, strict=True):
        if not isinstance(outcome, smr.PreprocessError):
            check([data], [outcome])
    router = pool.status()["router"]
    assert router["under_way_images"] == router["queued_images"] == router["store_promised_bytes"] == 0
    with pytest.raises(TimeoutError):
        pool.preprocess(files, timeout_s=0.001)


def test_a_cancelled_request_leaves_nothing_behind(pool: smr.PreprocessPool) -> None:
    until(lambda: all_live(pool))
    files = [png(photo(seed, 300, 250)) for seed in range(6000, 6120)]

    async def main() -> float:
        call = asyncio.ensure_future(pool.preprocess_async(files))
        await asyncio.sleep(0.3)
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        started = time.monotonic()
        (image,) = await pool.preprocess_async([png(photo(6999, 50, 50))])
        check([png(photo(6999, 50, 50))], [image])
        return time.monotonic() - started

    # What runs may end; the rest of the request must not stand in the way.
    assert asyncio.run(main()) < 4
    until(lambda: pool.status()["router"]["running_images"] == 0)
    router = pool.status()["router"]
    assert router["under_way_images"] == router["queued_images"] == router["store_promised_bytes"] == 0


def test_joining_a_request_that_is_cancelled_is_safe(pool: smr.PreprocessPool) -> None:
    until(lambda: all_live(pool))
    files = [png(photo(seed, 500, 400)) for seed in range(7000, 7020)]

    async def main() -> list[Any]:
        first = asyncio.ensure_future(pool.preprocess_async(files))
        await asyncio.sleep(0.15)
        second = asyncio.ensure_future(pool.preprocess_async(files))
        await asyncio.sleep(0.05)
        first.cancel()
        return await second

    check(files, asyncio.run(main()))


def test_recompute_gives_the_same_result_and_notices_changed_sources(pool: smr.PreprocessPool) -> None:
    until(lambda: all_live(pool))
    data = png(photo(8000))
    (image,) = pool.preprocess([data])
    again = pool.recompute(image)
    assert again.content_digest == image.content_digest
    check([data], [again])
    with pytest.raises(smr.ResultLost, match="other content"):
        pool.recompute(image, png(photo(8001)))
