"""The core's own threads: how many, under which settings, after a fork, and without the GIL."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import images
import numpy as np
import pytest

import sglang_mm_ray
from sglang_mm_ray import _core

PACKAGE = str(Path(sglang_mm_ray.__file__).parents[1])
CORES = len(os.sched_getaffinity(0))


def run(code: str, **variables: str) -> Any:
    """Runs code in a new process and returns what it printed, as JSON."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("SGL_MM_RS_")}
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**environment, "PYTHONPATH": PACKAGE, **variables},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


COUNT = """
import json, os, time
from pathlib import Path
import numpy as np
from sglang_mm_ray import _core
{before}
_core.processor("inkling").preprocess_rgb(np.zeros((64, 64, 3), np.uint8))
def running():
    names = [Path(f"/proc/self/task/{{task}}/comm").read_text() for task in os.listdir("/proc/self/task")]
    return sum(name.startswith("mm-core") for name in names)
threads, deadline_s = _core.build_info()["threads"], time.monotonic() + 20
# A thread names itself when it first runs, which on a busy machine may be late.
while running() < threads and time.monotonic() < deadline_s:
    time.sleep(0.01)
print(json.dumps([threads, running()]))
"""


def test_the_variable_sets_the_number_that_really_run() -> None:
    assert run(COUNT.format(before=""), SGL_MM_RS_THREADS="3") == [3, 3]


def test_by_default_there_are_as_many_as_cores_and_at_most_eight() -> None:
    assert run(COUNT.format(before="")) == [min(8, CORES)] * 2


@pytest.mark.parametrize("nonsense", ["", "0", "-1", "many", "1.5"])
def test_nonsense_in_the_variable_is_ignored(nonsense: str) -> None:
    assert run(COUNT.format(before=""), SGL_MM_RS_THREADS=nonsense) == [min(8, CORES)] * 2


def test_fewer_cores_by_affinity_are_fewer_threads() -> None:
    assert run(COUNT.format(before="os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})")) == [1, 1]


def test_a_budget_counts_unless_the_variable_is_set() -> None:
    assert run(COUNT.format(before="_core.set_thread_budget(2)")) == [2, 2]
    assert run(COUNT.format(before="_core.set_thread_budget(2)"), SGL_MM_RS_THREADS="3") == [3, 3]


def test_a_budget_after_the_first_image_is_refused() -> None:
    late = """
import json
import numpy as np
from sglang_mm_ray import _core
_core.set_thread_budget(2)
_core.processor("inkling").preprocess_rgb(np.zeros((64, 64, 3), np.uint8))
_core.set_thread_budget(2)
try:
    _core.set_thread_budget(5)
except _core.InvalidArgument as error:
    print(json.dumps(str(error)))
"""
    assert "before the first image" in run(late)
    with pytest.raises(_core.InvalidArgument, match="at least 1"):
        _core.set_thread_budget(0)


FORK = """
import json, os, warnings
warnings.simplefilter("ignore")
import numpy as np
from sglang_mm_ray import _core
processor = _core.processor("inkling")
array = np.arange(90 * 80 * 3, dtype=np.uint64).astype(np.uint8).reshape(90, 80, 3)
before = _core.common.resize_rgb(array, 300, 200).tobytes()
processor.preprocess_rgb(array)
answers = []
for generation in range(2):
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        same = _core.common.resize_rgb(array, 300, 200).tobytes() == before
        patches = processor.preprocess_rgb(array).tensors["patches"]
        grandchild = os.fork()
        if grandchild == 0:
            again = processor.preprocess_rgb(array).tensors["patches"]
            os._exit(0 if np.array_equal(patches, again) else 1)
        _, status = os.waitpid(grandchild, 0)
        os.write(writer, b"1" if same and status == 0 else b"0")
        os._exit(0)
    os.close(writer)
    answers.append(os.read(reader, 1).decode())
    os.waitpid(child, 0)
after = _core.common.resize_rgb(array, 300, 200).tobytes() == before
print(json.dumps([answers, after]))
"""


def test_children_and_grandchildren_of_a_fork_work_too() -> None:
    assert run(FORK, SGL_MM_RS_THREADS="2") == [["1", "1"], True]


LARGE = images.scene(2400, 1800)
PNG = images.encode(images.Image.fromarray(LARGE), "PNG", compress_level=1)
PROCESSOR = _core.processor("inkling")
PATCHES = np.empty(PROCESSOR.plan(2400, 1800, "bf16")["size_bytes"], np.uint8)
WORK: dict[str, Callable[[], object]] = {
    "resize_rgb": lambda: _core.common.resize_rgb(LARGE, 3000, 2200),
    "image_decode_rgb": lambda: _core.common.image_decode_rgb(PNG),
    "data_hash": lambda: _core.common.data_hash(LARGE),
    "content_digest": lambda: _core.common.content_digest(LARGE),
    "base64_decode": lambda: _core.common.base64_decode("QUJD" * 8_000_000),
    "preprocess_images": lambda: _core.inkling.preprocess_images([PNG], 40, None, None),
    "decode_patchify": lambda: _core.inkling.decode_patchify(PNG, 40, None, None),
    "patchify_rgb": lambda: _core.inkling.patchify_rgb(LARGE, 40),
    "preprocess_batch": lambda: PROCESSOR.preprocess_batch([PNG]),
    "preprocess_rgb": lambda: PROCESSOR.preprocess_rgb(LARGE),
}


@pytest.mark.parametrize("name", WORK)
def test_other_python_threads_run_meanwhile(name: str) -> None:
    """With the GIL held, the other thread could take no step between the start and the end of a call."""
    steps: list[float] = []
    stop = threading.Event()

    def step() -> None:
        while not stop.is_set():
            steps.append(time.perf_counter())
            time.sleep(0)

    other = threading.Thread(target=step)
    other.start()
    try:
        for _ in range(50):
            started_s = time.perf_counter()
            WORK[name]()
            ended_s = time.perf_counter()
            # The first and last tenth may belong to converting the arguments and the result.
            margin_s = (ended_s - started_s) / 10
            if (
                sum(started_s + margin_s < moment < ended_s - margin_s for moment in list(steps[-100_000:]))
                > 3
            ):
                return
    finally:
        stop.set()
        other.join()
    pytest.fail(f"{name} let no other thread run in 50 calls")
