"""Deadlines hold whatever becomes of Ray: frozen, gone, or left in the process that forked this one."""

from __future__ import annotations

import asyncio
import io
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import ray
from pooling import patches, photo, png
from ray._private.node import Node
from waiting import until

import sglang_mm_ray as smr
from sglang_mm_ray import deadline
from sglang_mm_ray.cluster import join_ray, start_ray

ROOT = Path(__file__).resolve().parents[2]
QUICK: dict[str, Any] = {"num_workers": 1, "threads_per_worker": 1, "warm_bytes": 0, "metrics": False}


@pytest.fixture(scope="module")
def pool(local_ray: None) -> Iterator[smr.PreprocessPool]:
    with smr.PreprocessPool(**QUICK, router_cache_bytes=0) as started:
        yield started


# The one place


def test_a_call_that_never_comes_back_is_left_behind() -> None:
    began = time.monotonic()
    with pytest.raises(smr.DeadlineExceeded, match=r"nothing was heard within 0\.1 s"):
        deadline.within(lambda: time.sleep(600), 0.1)
    with pytest.raises(smr.DeadlineExceeded):
        deadline.waited(Future(), 0.1)
    with pytest.raises(smr.DeadlineExceeded):
        asyncio.run(deadline.awaited(Future(), 0.1))
    assert 0.3 <= time.monotonic() - began < 300
    assert deadline.within(lambda: 7, 30.0) == 7
    with pytest.raises(TimeoutError, match="its own"):
        deadline.within(lambda: (_ for _ in ()).throw(TimeoutError("its own")), 30.0)


def test_who_gives_up_waiting_cancels_what_it_waited_for() -> None:
    never: Future[int] = Future()

    async def main() -> None:
        waiting = asyncio.ensure_future(deadline.awaited(never, None))
        await asyncio.sleep(0)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting

    asyncio.run(main())
    assert never.cancelled()


# Frozen, gone, forked

PROGRAM = """
import os, signal, sys, time, threading
import ray
import sglang_mm_ray as smr
from sglang_mm_ray.cluster import find_controller, start_ray
from pooling import photo, png

start_ray("local", num_cpus=1, object_store_memory=150 << 20, logging_level="ERROR")
pool = smr.PreprocessPool(num_workers=1, threads_per_worker=1, warm_bytes=0, metrics=False,
                          router_cache_bytes=0)
files = [png(photo(seed, 700, 500)) for seed in range(3)]
(image,) = pool.preprocess(files[:1])
processes = ray._private.worker._global_node.all_processes
pids = {
    "raylet": processes["raylet"][0].process.pid,
    "gcs": processes["gcs_server"][0].process.pid,
    "worker": pool.status()["workers"][0]["pid"],
    "controller": ray.get(find_controller(pool.name).pid.remote()),
}

def ends(what, call, allowed):
    began = time.monotonic()
    try:
        call()
        found = "a result"
    except smr.PreprocessError as error:
        found = error.code
    took_s = time.monotonic() - began
    print(what, "ok" if found in allowed else found, "late" if took_s > 30 else "in time", flush=True)

def try_all(state, files):
    late = ("deadline_exceeded", "a result")
    ends(state + " preprocess", lambda: pool.preprocess(files, timeout_s=1.0), late)
    ends(state + " stream", lambda: list(pool.stream_blocking(iter(files), timeout_s=1.0)), late)
    ends(state + " read", lambda: image.array(timeout_s=1.0), ("result_lost", "a result"))
"""

FROZEN = """
for name in ("worker", "controller", "gcs", "raylet"):
    os.kill(pids[name], signal.SIGSTOP)
    time.sleep(0.2)
    try_all(name, files)
    os.kill(pids[name], signal.SIGCONT)
    time.sleep(0.5)
os._exit(0)
"""

FORKED = """
child = os.fork()
if child == 0:
    closed = ("pool_closed",)
    ends("preprocess", lambda: pool.preprocess(files), closed)
    ends("stream", lambda: list(pool.stream_blocking(files)), closed)
    ends("status", pool.status, closed)
    ends("scale", lambda: pool.scale(1), closed)
    ends("read", image.array, ("result_lost",))
    ends("connect", lambda: smr.PreprocessPool.connect(pool.name), closed)
    ends("open", lambda: smr.PreprocessPool(), closed)
    ends("close", pool.close, ("a result",))
    os._exit(0)
os.waitpid(child, 0)
ends("parent", lambda: pool.preprocess(files), ("a result",))
pool.close()
"""


def _run(program: str) -> list[str]:
    env = {**os.environ, "PYTHONPATH": f"{ROOT}:{ROOT / 'tests'}:{ROOT / 'bench'}"}
    command = [sys.executable, "-c", PROGRAM + program]
    done = subprocess.run(command, env=env, cwd=ROOT, capture_output=True, text=True, timeout=400)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


@pytest.mark.timeout(420)
def test_no_call_outlives_its_deadline_where_processes_of_ray_are_frozen() -> None:
    calls = ("preprocess", "stream", "read")
    names = ("worker", "controller", "gcs", "raylet")
    # "in time" allows for a machine that is busy with other things; it is far from never.
    assert _run(FROZEN) == [f"{name} {call} ok in time" for name in names for call in calls]


@pytest.mark.timeout(420)
def test_a_forked_process_is_told_at_once() -> None:
    calls = ("preprocess", "stream", "status", "scale", "read", "connect", "open", "close", "parent")
    assert _run(FORKED) == [f"{call} ok in time" for call in calls]


# What comes from outside


@pytest.mark.parametrize("timeout_s", [float("nan"), float("inf"), -1.0, "3", True, np.float32("nan")])
def test_a_time_that_is_none_is_refused_wherever_it_comes_in(
    pool: smr.PreprocessPool, timeout_s: Any
) -> None:
    data = png(photo(1))
    (image,) = pool.preprocess([data])
    calls: list[Callable[[], Any]] = [
        lambda: pool.preprocess([data], timeout_s=timeout_s),
        lambda: asyncio.run(pool.preprocess_async([data], timeout_s=timeout_s)),
        lambda: pool.stream([data], timeout_s=timeout_s),
        lambda: pool.stream_blocking([data], timeout_s=timeout_s),
        lambda: pool.recompute(image, timeout_s=timeout_s),
        lambda: image.array(timeout_s=timeout_s),
        lambda: image.tensors(timeout_s=timeout_s),
    ]
    for call in calls:
        with pytest.raises(smr.InvalidArgument, match="timeout_s"):
            call()


def test_a_numpy_number_is_a_time(pool: smr.PreprocessPool) -> None:
    assert len(pool.preprocess([png(photo(2))], timeout_s=np.float32(60))) == 1


@pytest.mark.parametrize(
    "one", [io.BytesIO(b"x"), "text", b"x", memoryview(b"x"), np.zeros((4, 4, 3), np.uint8), Path("x"), 7]
)
def test_one_source_is_not_taken_for_many(pool: smr.PreprocessPool, one: Any) -> None:
    for call in (pool.preprocess, pool.stream, pool.stream_blocking):
        with pytest.raises(smr.InvalidArgument, match="pass a list of sources"):
            call(one)


class Broken(os.PathLike[str]):
    def __fspath__(self) -> str:
        raise RuntimeError("no such thing")


def test_what_cannot_be_looked_at_fails_alone(pool: smr.PreprocessPool) -> None:
    released = memoryview(b"x" * 10)
    released.release()
    data = png(photo(3))
    outcomes = pool.preprocess([released, data, Broken(), io.BytesIO(data)], on_error="return", timeout_s=60)
    assert [type(outcomes[at]) for at in (0, 2, 3)] == [smr.InvalidArgument] * 3
    np.testing.assert_array_equal(outcomes[1].array(), patches(data))
    assert [index for index, found in enumerate(outcomes) if getattr(found, "index", index) != index] == []


def test_a_blocking_stream_yields_what_the_other_one_does(pool: smr.PreprocessPool) -> None:
    files = [png(photo(10 + n, 60, 50)) for n in range(12)]
    found = dict(pool.stream_blocking(iter(files), timeout_s=60))
    assert sorted(found) == list(range(12))
    for index, image in found.items():
        np.testing.assert_array_equal(image.array(), patches(files[index]))
    errors = dict(pool.stream_blocking([b"no image", files[0]], on_error="return"))
    assert isinstance(errors[0], smr.DecodeError) and isinstance(errors[1], smr.ProcessedImage)
    with pytest.raises(smr.DecodeError):
        list(pool.stream_blocking([b"no image"]))
    # One that is left early leaves nothing behind.
    next(iter(pool.stream_blocking(iter(files))))
    until(lambda: not pool.status()["router"]["under_way_images"])


def test_a_task_that_swallows_a_cancellation_does_not_keep_close(local_ray: None) -> None:
    pool = smr.PreprocessPool(**QUICK)
    router = pool._live()
    begun: Future[None] = Future()

    async def swallow() -> None:
        begun.set_result(None)
        for _ in range(2):
            try:
                await asyncio.sleep(600)
            except asyncio.CancelledError:
                continue
        await asyncio.sleep(600)

    router._loop.call_soon_threadsafe(lambda: router._spawn(swallow()))
    begun.result(30)
    pool.close()
    assert not router._thread.is_alive()


def test_a_router_that_cannot_begin_says_so(
    local_ray: None, monkeypatch: pytest.MonkeyPatch, pool: smr.PreprocessPool
) -> None:
    import sglang_mm_ray.router.router as routing

    def fails(*_: Any) -> Any:
        raise RuntimeError("no reception")

    monkeypatch.setattr(routing, "Reception", fails)
    with pytest.raises(RuntimeError, match="no reception"):
        routing.Router("x", pool.config, None, 1 << 20)


# Addresses


@pytest.mark.parametrize(
    "address", ["http://127.0.0.1:8265", "127.0.0.1:6379/x", "a b:1", "ftp://x:1", "https://x", "ray://"]
)
def test_what_is_no_address_is_refused_before_anything_is_tried(address: str) -> None:
    for call in (join_ray, _opened):
        with pytest.raises(smr.InvalidArgument, match="is no address of a Ray cluster"):
            call(address)


def _opened(address: str) -> None:
    if ray.is_initialized():
        ray.shutdown()
    start_ray(address)


def test_blanks_about_an_address_mean_nothing_and_nobody_there_is_told(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if ray.is_initialized():
        ray.shutdown()
    for address in (" 127.0.0.1:1 ", "ray://127.0.0.1:1\n"):
        with pytest.raises(smr.PoolNotFound, match=r"no Ray cluster answers at .*127\.0\.0\.1:1"):
            smr.PreprocessPool(address=address)
        monkeypatch.setenv("RAY_ADDRESS", address)
        with pytest.raises(smr.PoolNotFound, match=r"127\.0\.0\.1:1"):
            smr.PreprocessPool.connect("x")
        monkeypatch.delenv("RAY_ADDRESS")


def test_a_ray_that_was_slow_to_start_is_started_again(monkeypatch: pytest.MonkeyPatch) -> None:
    if ray.is_initialized():
        ray.shutdown()
    tries: list[str] = []
    ended: list[Late] = []

    class Late(Node):
        def __init__(self) -> None:
            raise Exception("The current node timed out during startup. This could happen because ...")

        def kill_all_processes(self, *_: Any, **__: Any) -> None:
            ended.append(self)

    def init(**options: Any) -> None:
        tries.append(options["address"])
        if len(tries) < 3:
            Late()

    monkeypatch.setattr(ray, "init", init)
    assert start_ray("local") and tries == ["local"] * 3
    # What had come up of the late ones does not stay.
    assert len(ended) == 2
    tries.clear()
    monkeypatch.setattr(ray, "init", lambda **_: (_ for _ in ()).throw(ValueError("another fault")))
    with pytest.raises(ValueError, match="another fault"):
        start_ray("local")
