"""Is the core pixel-identical to the installed Pillow on these files?

Files are decoded by both in a child process, so that a crash or a hang on a hostile file is a line in the
report.
"""

from __future__ import annotations

import dataclasses
import io
import multiprocessing
import os
import time
import warnings
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

import numpy as np

from ..errors import InvalidArgument, PreprocessError, UnsupportedFormat
from ..sources.decode_fallback import NATIVE_FORMATS, decode_rgb
from ..sources.policy import SourcePolicy
from .damage import damaged

if TYPE_CHECKING:
    from numpy.typing import NDArray

T = TypeVar("T")
_Task: TypeAlias = "tuple[str, int | None]"  # a path, and the seed of a damaged copy

EQUAL = "equal"
REFUSED_ALIKE = "refused alike"
PIXELS_DIFFER = "pixels differ"
ONLY_CORE_ACCEPTS = "only the core accepts"
ONLY_PILLOW_ACCEPTS = "only Pillow accepts"
NOT_LISTED = "not in the policy"
CRASH = "crash"
HANG = "hang"
UNREADABLE = "unreadable"

GOOD = frozenset({EQUAL, REFUSED_ALIKE, NOT_LISTED})
"""Verdicts that leave the promise whole; a format that the policy leaves out is outside of it."""

_TIMED_RUNS = 3
_TIMED_SPAN_S = 0.3
# What a wait for a pipe can be given.
_TIMEOUT_MAX_S = 1_000_000
# To import numpy, Pillow and the core. No file is to blame for a machine that is busy.
_START_S = 300.0
_READY = "ready"


@dataclasses.dataclass(frozen=True, slots=True)
class FileReport:
    """What the two decoders made of one file."""

    path: str
    verdict: str
    format: str = "unknown"
    """As Pillow names it, or `"unknown"` if Pillow does not open the file."""
    decoder: str = ""
    """Which decoder of ours ran, if one did to the end."""
    width_px: int = 0
    height_px: int = 0
    core_s: float = 0.0
    """Best of a few runs, from encoded bytes to RGB; likewise `pillow_s`."""
    pillow_s: float = 0.0
    detail: str = ""
    """The first differing pixel, or why one of the two refused."""

    @property
    def good(self) -> bool:
        """Whether the promise holds for this file."""
        return self.verdict in GOOD


def compare(
    path: str, data: bytes, policy: SourcePolicy, stage: Callable[[str], None], runs: int = _TIMED_RUNS
) -> FileReport:
    """Decodes `data` both ways, `runs` times at most; calls `stage` with who is about to run."""
    stage("Pillow")
    theirs, pillow_s, format_name, their_error = _pillow(data, runs)
    stage("the core")
    ours, core_s, decoder, our_error = _core(data, policy, runs)
    height, width = theirs.shape[:2] if theirs is not None else (0, 0)
    if ours is None and theirs is None:
        verdict, detail = REFUSED_ALIKE, f"ours: {our_error}; Pillow's: {their_error}"
    elif ours is None:
        left_out = isinstance(our_error, UnsupportedFormat) and not _listed(our_error.format, policy)
        verdict, detail = NOT_LISTED if left_out else ONLY_PILLOW_ACCEPTS, str(our_error)
    elif theirs is None:
        verdict, detail = ONLY_CORE_ACCEPTS, their_error
    else:
        detail = first_difference(ours, theirs)
        verdict = PIXELS_DIFFER if detail else EQUAL
    return FileReport(path, verdict, format_name, decoder, width, height, core_s, pillow_s, detail)


def first_difference(ours: NDArray[np.uint8], theirs: NDArray[np.uint8]) -> str:
    """Where two images `[height, width, 3]` first differ and by how much in all; empty if they are equal."""
    if ours.shape != theirs.shape:
        return f"size {ours.shape[1]}x{ours.shape[0]}, Pillow has {theirs.shape[1]}x{theirs.shape[0]}"
    if np.array_equal(ours, theirs):
        return ""
    differs = (ours != theirs).any(axis=2)
    y, x = (int(index) for index in np.unravel_index(int(differs.argmax()), differs.shape))
    most = int(np.abs(ours.astype(np.int16) - theirs.astype(np.int16)).max())
    return (
        f"first at x={x} y={y}: {_triple(ours[y, x])}, Pillow has {_triple(theirs[y, x])};"
        f" {int(differs.sum())} of {differs.size} pixels, by up to {most}"
    )


def verify(
    paths: Iterable[str],
    policy: SourcePolicy | None = None,
    *,
    timeout_s: float = 60.0,
    jobs: int = 1,
    damaged_copies: int = 0,
    first_seed: int = 0,
) -> Iterator[FileReport]:
    """Compares the decoders on each file, in order; `jobs` files at a time.

    A file that takes either decoder longer than `timeout_s` is reported as a hang. After each file come so
    many damaged copies of it (`damage.damaged`), whose reports carry their seed in the path.

    Raises:
        InvalidArgument: `timeout_s`, `jobs` or `damaged_copies` is no number that can work.
    """
    if not _is_number(timeout_s, float) or not 0 < timeout_s <= _TIMEOUT_MAX_S:
        raise InvalidArgument(f"timeout_s must be positive and at most {_TIMEOUT_MAX_S}, not {timeout_s!r}")
    if not _is_number(jobs, int) or jobs < 1:
        raise InvalidArgument(f"jobs must be at least 1, not {jobs!r}")
    if not _is_number(damaged_copies, int) or damaged_copies < 0:
        raise InvalidArgument(f"damaged_copies must not be negative, not {damaged_copies!r}")
    seeds = [None, *range(first_seed, first_seed + damaged_copies)]
    tasks = ((path, seed) for path in paths for seed in seeds)
    return _reports(tasks, policy or SourcePolicy(), timeout_s, jobs)


def _is_number(value: object, kind: type) -> bool:
    return isinstance(value, (int, kind)) and not isinstance(value, bool)


def _reports(
    tasks: Iterable[_Task], policy: SourcePolicy, timeout_s: float, jobs: int
) -> Iterator[FileReport]:
    children: SimpleQueue[_Child] = SimpleQueue()
    everyone = [_Child(policy) for _ in range(jobs)]
    for child in everyone:
        children.put(child)

    def one(task: _Task) -> FileReport:
        child = children.get()
        try:
            return child.run(task, timeout_s)
        finally:
            children.put(child)

    try:
        with ThreadPoolExecutor(jobs) as threads:
            yield from threads.map(one, tasks)
    finally:
        for child in everyone:
            child.close()


class _Child:
    """A process that compares files until one of them kills it; then the next file gets a fresh one."""

    def __init__(self, policy: SourcePolicy) -> None:
        self._policy = policy
        self._process: BaseProcess | None = None
        self._pipe: Connection | None = None
        self._ready = False

    def run(self, task: _Task, timeout_s: float) -> FileReport:
        pipe = self._pipe or self._start()
        stage = "the start"
        try:
            if not self._ready:
                self._ready = pipe.poll(_START_S) and pipe.recv() == _READY
            pipe.send(task)
            while pipe.poll(timeout_s):
                message = pipe.recv()
                if isinstance(message, FileReport):
                    return message
                stage = message
            verdict, detail = HANG, f"in {stage}, after {timeout_s:g} s"
        except (EOFError, OSError):
            if self._process is not None:
                self._process.join()
            code = self._process.exitcode if self._process is not None else None
            verdict, detail = CRASH, f"in {stage}, exit code {code}"
        self.close()
        return FileReport(_name(task), verdict, detail=detail)

    def _start(self) -> Connection:
        # Spawned, not forked: the parent has threads.
        context = multiprocessing.get_context("spawn")
        ours, theirs = context.Pipe()
        self._process = context.Process(target=_serve, args=(theirs, self._policy), daemon=True)
        self._process.start()
        theirs.close()
        self._pipe = ours
        return ours

    def close(self) -> None:
        if self._process is not None and self._pipe is not None:
            self._pipe.close()
            self._process.kill()
            self._process.join()
        self._process = self._pipe = None
        self._ready = False


def _serve(pipe: Connection, policy: SourcePolicy) -> None:
    # Libraries below Pillow print what they think of a file.
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
    pipe.send(_READY)
    while True:
        try:
            path, seed = task = pipe.recv()
        except EOFError:
            return
        try:
            with open(path, "rb") as file:
                data = file.read()
        except OSError as error:
            pipe.send(FileReport(path, UNREADABLE, detail=os.strerror(error.errno or 0)))
            continue
        if seed is None:
            pipe.send(compare(path, data, policy, pipe.send))
        else:
            pipe.send(compare(_name(task), damaged(data, seed), policy, pipe.send, runs=1))


def _name(task: _Task) -> str:
    path, seed = task
    return path if seed is None else f"{path} (damaged, seed {seed})"


def _listed(format_name: str, policy: SourcePolicy) -> bool:
    return format_name in NATIVE_FORMATS or format_name in policy.pillow_formats


def _core(
    data: bytes, policy: SourcePolicy, runs: int
) -> tuple[NDArray[np.uint8] | None, float, str, PreprocessError | None]:
    def decode() -> tuple[NDArray[np.uint8], str]:
        return decode_rgb(data, policy)

    try:
        (pixels, decoder), seconds = _timed(decode, runs)
    except PreprocessError as error:
        return None, 0.0, "", error
    return pixels, seconds, decoder, None


def _pillow(data: bytes, runs: int) -> tuple[NDArray[np.uint8] | None, float, str, str]:
    from PIL import Image

    format_name = "unknown"

    def decode() -> Image.Image:
        nonlocal format_name
        with Image.open(io.BytesIO(data)) as image:
            format_name = image.format or "unknown"
            rgb: Image.Image = image.convert("RGB")
            return rgb

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            image, seconds = _timed(decode, runs)
        except Exception as error:
            return None, 0.0, format_name, type(error).__name__
    return np.asarray(image), seconds, format_name, ""


def _timed(work: Callable[[], T], runs: int) -> tuple[T, float]:
    best, begin = float("inf"), time.perf_counter()
    for _ in range(runs):
        start = time.perf_counter()
        result = work()
        now = time.perf_counter()
        best = min(best, now - start)
        if now - begin > _TIMED_SPAN_S:
            break
    return result, best


def _triple(pixel: NDArray[Any]) -> str:
    return "({},{},{})".format(*(int(value) for value in pixel))
