"""A program may end without closing its pool, or end Ray under it, with whatever still at hand; quietly."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

BEGIN = """
import asyncio, os, ray, signal, threading, time
from pooling import photo, png
import sglang_mm_ray as smr

def start_ray():
    ray.init(address="local", num_cpus=1, object_store_memory=200 << 20, include_dashboard=False,
             log_to_driver=False, logging_level="ERROR")

start_ray()
files = [png(photo(seed, 60, 50)) for seed in range(8)]
pool = smr.PreprocessPool(num_workers=1, threads_per_worker=1, warm_bytes=0, metrics=False)
"""

ENDS_WITHOUT_CLOSING = """
images = pool.preprocess(files)
view = images[3].array()[:1]
circle = [images]
circle.append(circle)
stream = pool.stream(files)

async def first():
    return await stream.__anext__()

print(len(images), view.shape[0], asyncio.run(first())[1].num_tokens > 0)
"""


# Ray's functions start another Ray where there is none, and then know nothing of the pool.
ENDS_RAY_UNDER_THE_POOL = """
def outcome(call):
    try:
        return call()
    except BaseException as error:
        return type(error).__name__

[worker] = pool.status()["workers"]
os.kill(worker["pid"], signal.SIGSTOP)
under_way = []
waits = threading.Thread(target=lambda: under_way.append(outcome(lambda: pool.preprocess(files))))
waits.start()
while not pool._router.status()["running_images"]:
    time.sleep(0.01)
ray.shutdown()
asked = outcome(lambda: pool.preprocess(files)), outcome(pool.status), outcome(lambda: pool.scale(2))
waits.join(60)
print(*asked, *under_way)
time.sleep(3)
print(ray.is_initialized())
start_ray()
print(outcome(lambda: pool.preprocess(files)), outcome(pool.close), ray.is_initialized())
"""


def _run(program: str) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, "PYTHONPATH": f"{ROOT}:{ROOT / 'tests'}:{ROOT / 'bench'}"}
    command = [sys.executable, "-c", program]
    return subprocess.run(command, env=env, cwd=ROOT, capture_output=True, text=True, timeout=500)


def test_ending_without_closing_says_nothing() -> None:
    done = _run(BEGIN + ENDS_WITHOUT_CLOSING)
    assert (done.returncode, done.stdout) == (0, "8 1 True\n"), done.stderr
    # Ray's own processes may say that they end; whatever is ours would come with a traceback.
    assert "Traceback" not in done.stderr and "never retrieved" not in done.stderr, done.stderr


def test_a_pool_whose_ray_was_shut_down_is_closed_and_starts_no_other() -> None:
    # Half a second in place of half a minute until the router asks again who is there.
    hasty = "import sglang_mm_ray.router.router as router\nrouter._MEMBERSHIP_TIMEOUT_S = 0.5\n"
    done = _run(hasty + BEGIN + ENDS_RAY_UNDER_THE_POOL)
    said = done.stdout.splitlines()
    assert (done.returncode, said) == (
        0,
        ["PoolClosed PoolClosed PoolClosed PoolClosed", "False", "PoolClosed None True"],
    ), done.stderr
    assert "Traceback" not in done.stderr and "never retrieved" not in done.stderr, done.stderr
