"""A program may end without closing its pool, with results, views and a stream still at hand; quietly."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

PROGRAM = """
import asyncio, ray
from pooling import photo, png
import sglang_mm_ray as smr

ray.init(address="local", num_cpus=1, object_store_memory=200 << 20, include_dashboard=False,
         log_to_driver=False, logging_level="ERROR")
files = [png(photo(seed, 60, 50)) for seed in range(8)]
pool = smr.PreprocessPool(num_workers=1, threads_per_worker=1, warm_bytes=0, metrics=False)
images = pool.preprocess(files)
view = images[3].array()[:1]
circle = [images]
circle.append(circle)
stream = pool.stream(files)

async def first():
    return await stream.__anext__()

print(len(images), view.shape[0], asyncio.run(first())[1].num_tokens > 0)
"""


def test_ending_without_closing_says_nothing() -> None:
    env = {**os.environ, "PYTHONPATH": f"{ROOT}:{ROOT / 'tests'}:{ROOT / 'bench'}"}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], env=env, cwd=ROOT, capture_output=True, text=True, timeout=120
    )
    assert (done.returncode, done.stdout) == (0, "8 1 True\n"), done.stderr
    # Ray's own processes may say that they end; whatever is ours would come with a traceback.
    assert "Traceback" not in done.stderr and "never retrieved" not in done.stderr, done.stderr
