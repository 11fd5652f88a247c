"""Threads, forks, the GIL, memory: how the core behaves as a guest in a Python process."""

from __future__ import annotations

import json
import subprocess
import sys
import textwrap
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import reference
from images import encode, scene
from peak_memory import NEEDS_PEAK
from PIL import Image

from sglang_mm_ray import _core

ROOT = Path(__file__).resolve().parents[2]
pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")

PRELUDE = """
import io, json, os, resource, sys, time
import numpy as np
from PIL import Image
from sglang_mm_ray import _core
from sglang_mm_ray._core import common, inkling

def jpeg(width_px, height_px):
    y, x = np.mgrid[0:height_px, 0:width_px]
    pixels = np.dstack([x * 3 + y, x ^ y, x * y // 7]).astype(np.uint8)
    out = io.BytesIO()
    Image.fromarray(pixels).save(out, "JPEG", quality=90)
    return out.getvalue()

def core_threads():
    # A thread takes its name when it first runs, which may be after a short batch is done.
    deadline = time.monotonic() + 10
    while True:
        names = [open(f"/proc/self/task/{task}/comm").read() for task in os.listdir("/proc/self/task")]
        count = sum(name.startswith("mm-core-") for name in names)
        if count >= _core.build_info()["threads"] or time.monotonic() > deadline:
            return count
        time.sleep(0.01)
"""


def run(script: str, timeout_s: float = 500.0, **environment: str) -> Any:
    """What the script prints as JSON, run in a process of its own."""
    code = PRELUDE + textwrap.dedent(script)
    variables = {"PATH": "/usr/bin:/bin", "PYTHONPATH": str(ROOT), "PYTHONWARNINGS": "ignore", **environment}
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        timeout=timeout_s,
        env=variables,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def jpeg(width_px: int, height_px: int, seed: int = 0) -> bytes:
    return encode(Image.fromarray(scene(width_px, height_px, seed)), "JPEG", quality=90)


COUNT_THREADS = """
    inkling.preprocess_images([jpeg(60, 40)] * 8, 14)
    print(json.dumps([_core.build_info()["threads"], core_threads()]))
"""


def test_the_variable_sets_the_number_of_threads() -> None:
    assert run(COUNT_THREADS, SGL_MM_RS_THREADS="3") == [3, 3]


def test_a_number_that_no_machine_could_hold_is_cut() -> None:
    script = """
    before = _core.build_info()["threads"]
    _core.set_thread_budget(1 << 40)
    print(json.dumps([before, _core.build_info()["threads"]]))
    """
    assert run(script, SGL_MM_RS_THREADS="999999") == [1024, 1024]
    assert run(script)[1] == 1024


def test_by_default_as_many_threads_as_cores_but_eight_at_most() -> None:
    script = "os.sched_setaffinity(0, [min(os.sched_getaffinity(0))])\n" + textwrap.dedent(COUNT_THREADS)
    assert run(script) == [1, 1]
    cores = run("print(json.dumps(len(os.sched_getaffinity(0))))")
    assert run(COUNT_THREADS) == [min(8, cores)] * 2


def test_a_budget_holds_and_the_variable_wins() -> None:
    script = "_core.set_thread_budget(5)\n" + textwrap.dedent(COUNT_THREADS)
    assert run(script) == [5, 5]
    assert run(script, SGL_MM_RS_THREADS="2") == [2, 2]


def test_a_budget_that_comes_too_late_is_refused() -> None:
    script = """
    _core.set_thread_budget(2)
    inkling.preprocess_images([jpeg(60, 40)], 14)
    _core.set_thread_budget(2)
    errors = []
    for threads in (3, 0):
        try:
            _core.set_thread_budget(threads)
        except _core.InvalidArgument as error:
            errors.append(str(error))
    print(json.dumps(errors))
    """
    late, zero = run(script)
    assert "already runs 2 threads" in late and "at least 1" in zero


def test_threads_that_cannot_start_are_an_error_and_no_crash() -> None:
    script = """
    data = jpeg(60, 40)
    used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + (48 << 20), resource.RLIM_INFINITY))
    try:
        inkling.preprocess_images([data], 14)
    except _core.InternalError as error:
        print(json.dumps([str(error), isinstance(error, RuntimeError)]))
    """
    message, is_runtime_error = run(script, SGL_MM_RS_THREADS="200")
    assert "cannot start the threads" in message and is_runtime_error


@pytest.mark.parametrize("busy", [False, True], ids=["idle", "while-working"])
def test_a_fork_after_use_works(busy: bool) -> None:
    script = f"""
    import threading
    datas = [jpeg(200 + at, 150) for at in range(8)]
    want = [image[2].tobytes() for image in inkling.preprocess_images(datas, 14, 2.0, 2048)]
    stop = threading.Event()
    def work():
        while not stop.is_set():
            inkling.preprocess_images(datas, 14, 2.0, 2048)
    worker = threading.Thread(target=work, daemon=True)
    if {busy}:
        worker.start()
    same = True
    for _ in range(8):
        child = os.fork()
        if child == 0:
            got = [image[2].tobytes() for image in inkling.preprocess_images(datas, 14, 2.0, 2048)]
            os._exit(0 if got == want and core_threads() > 0 else 1)
        same &= os.waitpid(child, 0)[1] == 0
    stop.set()
    if {busy}:
        worker.join()
    got = [image[2].tobytes() for image in inkling.preprocess_images(datas, 14, 2.0, 2048)]
    print(json.dumps(same and got == want))
    """
    assert run(script) is True


def test_other_python_threads_run_during_a_batch() -> None:
    datas = [jpeg(1200, 900, seed) for seed in range(6)]
    ticks = 0
    stop = threading.Event()

    def tick() -> None:
        nonlocal ticks
        while not stop.is_set():
            ticks += 1
            time.sleep(0.0001)

    ticker = threading.Thread(target=tick)
    ticker.start()
    try:
        pixels = scene(2000, 1500)
        out = np.zeros(2 * 38 * 51 * 40 * 40 * 3, np.uint8)
        processor = _core.processor("inkling")
        calls = {
            "preprocess_images": lambda: _core.inkling.preprocess_images(datas, 40, 2.0, 2048),
            "preprocess_batch": lambda: processor.preprocess_batch(datas),
            "decode_patchify": lambda: [_core.inkling.decode_patchify(data, 40, 2.0, 2048) for data in datas],
            "rescale_patchify_hash": lambda: _core.inkling.rescale_patchify_hash(pixels, b"", 40, 2.0, 4000),
            "resize_rgb": lambda: _core.common.resize_rgb(pixels, 3000, 3000),
            "data_hash": lambda: _core.common.data_hash(bytes(100_000_000)),
            "finish_batch": lambda: [processor.finish_batch([pixels], "bf16", out) for _ in range(20)],
        }
        for name, call in calls.items():
            most = 0
            end = time.monotonic() + 60
            # A call may be over before the other thread is woken, where cores are fast or others have them.
            while most < 3:
                assert time.monotonic() < end, f"{name}: {most} ticks at most"
                before = ticks
                call()
                # Had the call kept the GIL, a tick could fall only before it begins and after it ends.
                most = max(most, ticks - before)
    finally:
        stop.set()
        ticker.join()


def test_many_python_threads_at_once_get_their_own_results() -> None:
    datas = [jpeg(90 + seed, 60, seed) for seed in range(12)]
    want = [reference.inkling(data, 14)[2].reshape(-1) for data in datas]
    failures: list[str] = []

    def work(start: int) -> None:
        for _ in range(5):
            mine = datas[start:] + datas[:start]
            results = _core.inkling.preprocess_images(mine, 14, 2.0, 2048)
            for result, bits in zip(results, want[start:] + want[:start], strict=True):
                if not np.array_equal(result[2], bits):
                    failures.append(f"thread {start}")

    threads = [threading.Thread(target=work, args=(start,)) for start in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures


@NEEDS_PEAK
@pytest.mark.parametrize("kind", ["bytes", "bytearray", "memoryview", "array"])
def test_encoded_bytes_are_borrowed_and_not_copied(kind: str) -> None:
    """A file of 200 MB, most of it behind the end of the image, must not add its size to the peak."""
    script = f"""
    image = jpeg(60, 40)
    data = image + bytes(200_000_000)
    if {kind!r} != "bytes":
        data = bytearray(data)
        data = {{"bytearray": bytearray, "memoryview": memoryview, "array": np.asarray}}[{kind!r}](data)
    inkling.decode_patchify(image, 14)
    open("/proc/self/clear_refs", "w").write("5")
    current = int(open("/proc/self/statm").read().split()[1]) * resource.getpagesize() >> 10
    inkling.preprocess_images([data], 14)
    inkling.decode_patchify(data, 14)
    common.data_hash(data)
    peak = next(int(line.split()[1]) for line in open("/proc/self/status") if line.startswith("VmHWM"))
    print(json.dumps(peak - current))
    """
    assert run(script) < 50_000, "KiB over what was there before the calls"


@NEEDS_PEAK
def test_pixels_are_borrowed_and_not_copied() -> None:
    script = """
    pixels = np.zeros((10_000, 6_000, 3), np.uint8)
    pixels[:] = 3
    processor = _core.processor("inkling", '{"rescale_frac": null, "rescale_cap": null}')
    [(_, shape)] = processor.finished(6_000, 10_000).values()
    out = np.zeros(shape, np.uint16).reshape(-1).view(np.uint8)
    out[:] = 1
    open("/proc/self/clear_refs", "w").write("5")
    current = int(open("/proc/self/statm").read().split()[1]) * resource.getpagesize() >> 10
    processor.finish(pixels, "bf16", out)
    processor.finish_batch([pixels], "bf16", out)
    peak = next(int(line.split()[1]) for line in open("/proc/self/status") if line.startswith("VmHWM"))
    print(json.dumps(peak - current))
    """
    assert run(script) < 20_000, "KiB over what was there before the calls"


def test_a_buffer_cannot_be_resized_while_it_is_read() -> None:
    data = bytearray(jpeg(1500, 1000))
    refused = threading.Event()

    def grow() -> None:
        for _ in range(2000):
            try:
                data.append(0)
            except BufferError:
                refused.set()
                return
            data.pop()
            time.sleep(0.0002)

    thread = threading.Thread(target=grow)
    thread.start()
    while thread.is_alive() and not refused.is_set():
        _core.inkling.decode_patchify(data, 40)
    thread.join()
    assert refused.is_set()


def test_a_warm_batch_takes_hardly_a_page_fault() -> None:
    script = """
    datas = [jpeg(512, 512), jpeg(1000, 700), jpeg(300, 900)] * 4
    def batch():
        return sum(image[2].nbytes for image in inkling.preprocess_images(datas, 40, 2.0, 2048))
    for _ in range(4):
        nbytes = batch()
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(4):
        batch()
    faults = resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before
    print(json.dumps([faults / 4, nbytes / 4096]))
    """
    faults, pages = run(script, SGL_MM_RS_THREADS="2")
    assert faults < pages / 50, f"{faults} faults a batch, whose output alone has {pages} pages"
