"""What a worker does with a batch: threads that take one image at a time, a cache, single flight. No Ray.

Short calls and long ones take turns image by image, so a single image that arrives beside large batches
waits for an image, not for a batch. Of each kind the oldest goes first: were all to share the threads, all
would end late and together, and the threads would wait for the next ones. Reading sources may block on disk
or network and has threads of its own.
"""

from __future__ import annotations

import threading
import time
from collections import OrderedDict, deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import Any

from ..cache import ByteCache
from ..config import PoolConfig
from ..errors import (
    DeadlineExceeded,
    InputError,
    InternalError,
    PoolOverloaded,
    PreprocessError,
    with_context,
)
from ..messages import BatchReply, BatchRequest, Failure, ImageFacts
from ..routing.batching import SHORT_IMAGES
from ..sources.source import Resolved, Source
from .process import Outcome, Processor

__all__ = ["Engine"]


@dataclass(eq=False, slots=True)
class _Call:
    request: BatchRequest
    outcomes: list[Outcome | None]
    unfinished: int
    done: threading.Event = field(default_factory=threading.Event)
    ready: deque[tuple[int, Resolved]] = field(default_factory=deque)
    cancelled: bool = False
    busy_s: float = 0.0
    arrived: float = field(default_factory=time.perf_counter)
    resolve_s: dict[int, float] = field(default_factory=dict)
    fetches: dict[int, Callable[[], object]] = field(default_factory=dict)
    """What gives up each fetch of the call; true if that was in time."""

    @property
    def kind(self) -> int:
        """0 if of short requests, 1 if of a long one."""
        return int(len(self.outcomes) > SHORT_IMAGES * self.request.requests)


class Engine:
    """Computes batches on `threads` threads. `run` blocks the calling thread; the rest answers at once."""

    def __init__(self, config: PoolConfig, threads: int, get: Callable[[Any], object] | None = None) -> None:
        self._config = config
        self._processor = Processor(config)
        self._get = get
        self._lock = threading.Lock()
        self._work = threading.Condition(self._lock)
        self._calls: dict[str, _Call] = {}
        # Calls with images that are ready to compute, short and long, each by arrival.
        self._turns: tuple[OrderedDict[str, _Call], ...] = (OrderedDict(), OrderedDict())
        self._next_kind = 0
        self._leaders: dict[bytes, list[tuple[_Call, int]]] = {}
        self._running: dict[int, tuple[float, bytes]] = {}
        self._free_threads = threads
        self._cache: ByteCache[Outcome] = ByteCache(config.worker_cache_bytes)
        self._held_bytes = 0
        self._held_px = 0.0
        self._closed = False
        self.completed_images = 0
        self.failed_images = 0
        self._fetchers = ThreadPoolExecutor(config.fetch_threads, thread_name_prefix="mm-fetch")
        self._threads = [
            threading.Thread(target=self._compute, name=f"mm-image-{index}", daemon=True)
            for index in range(threads)
        ]
        for thread in self._threads:
            thread.start()

    def run(self, request: BatchRequest) -> tuple[BatchReply, list[Any]]:
        """Preprocesses a batch: the facts, and one value (or None) to store for each image."""
        count = len(request.sources)
        call = _Call(request, [None] * count, count)
        with self._lock:
            if self._calls and self._is_full(request):
                return self._refusal(request), [None] * count
            self._held_bytes += request.estimated_bytes
            self._held_px += request.work_px
            self._calls[request.call_id] = call
        try:
            for index, source in enumerate(request.sources):
                if source.exact and source.frozen:
                    # The caller's side hashed just these bytes; who may send batches may be believed.
                    self._accept(call, index, self._processor.resolved(source), may_compute=count == 1)
                elif source.kind == "url":
                    # A slow server may hold a fetch for long, but none of the threads that read.
                    self._fetch(call, index, source)
                else:
                    self._fetchers.submit(self._resolve, call, index, source)
            call.done.wait()
        finally:
            with self._lock:
                self._calls.pop(request.call_id, None)
                self._turns[call.kind].pop(request.call_id, None)
                self._held_bytes -= request.estimated_bytes
                self._held_px = self._held_px - request.work_px if self._calls else 0.0
        outcomes = [outcome or _cancelled() for outcome in call.outcomes]
        facts = tuple(outcome.result for outcome in outcomes)
        reply = BatchReply(facts, call.busy_s)
        return reply, [outcome.value for outcome in outcomes]

    def _is_full(self, request: BatchRequest) -> bool:
        config = self._config
        return (
            self._closed
            or self._held_bytes + request.estimated_bytes > config.max_worker_bytes
            or self._held_px + request.work_px > config.max_worker_pixels
        )

    def _refusal(self, request: BatchRequest) -> BatchReply:
        error = PoolOverloaded(
            f"the worker holds {self._held_bytes} bytes and {self._held_px:.0f} pixels of work, too much to "
            "take more (max_worker_bytes, max_worker_pixels)"
        )
        return BatchReply((Failure(error, busy=True),) * len(request.sources), 0.0)

    # One image

    def _resolve(self, call: _Call, index: int, source: Source) -> None:
        if call.cancelled:
            self._settle(call, index, _cancelled())
            return
        started = time.perf_counter()
        reader = threading.get_ident()
        # Reading has limits of its own, but a disk that hangs heeds none; so it shows in the heartbeat too.
        with self._lock:
            self._running[reader] = (time.monotonic(), source.key)
        try:
            resolved = self._processor.resolve(source, self._get)
        finally:
            with self._lock:
                self._running.pop(reader, None)
        call.resolve_s[index] = time.perf_counter() - started
        self._accept(call, index, resolved)

    def _fetch(self, call: _Call, index: int, source: Source) -> None:
        started = time.perf_counter()

        def done(resolved: Resolved | PreprocessError) -> None:
            call.resolve_s[index] = time.perf_counter() - started
            self._accept(call, index, resolved)

        call.fetches[index] = self._processor.start_fetch(source, done)
        if call.cancelled:
            self._give_up_fetches(call)

    def _give_up_fetches(self, call: _Call) -> None:
        for index, give_up in list(call.fetches.items()):
            if give_up():
                self._settle(call, index, _cancelled())

    def _accept(
        self, call: _Call, index: int, resolved: Resolved | PreprocessError, may_compute: bool = False
    ) -> None:
        if isinstance(resolved, PreprocessError):
            self._settle(call, index, Outcome(Failure(resolved), None))
            return
        with self._lock:
            followers = self._leaders.get(resolved.digest)
            if followers is not None:
                followers.append((call, index))
                return
            # Under the lock, and after the look for a leader: one that ended meanwhile has filled the cache.
            cached = self._cache.get(resolved.digest)
            here = False
            if cached is None:
                self._leaders[resolved.digest] = []
                # A single image of an idle worker: the thread that waits for it may as well compute it.
                here = may_compute and self._free_threads > 0 and not any(self._turns)
                if here:
                    self._begin(resolved)
                else:
                    self._enqueue(call, index, resolved)
        if cached is not None:
            self._settle(call, index, cached.marked("worker_cache"))
        elif here:
            self._compute_one(call, index, resolved)

    def _enqueue(self, call: _Call, index: int, resolved: Resolved) -> None:
        call.ready.append((index, resolved))
        self._turns[call.kind].setdefault(call.request.call_id, call)
        self._work.notify()

    def _begin(self, resolved: Resolved) -> None:
        self._free_threads -= 1
        self._running[threading.get_ident()] = (time.monotonic(), resolved.digest)

    def _next(self) -> tuple[_Call, int, Resolved] | None:
        with self._lock:
            while True:
                while not any(self._turns) or self._free_threads == 0:
                    if self._closed:
                        return None
                    self._work.wait()
                turns = self._turns[self._next_kind] or self._turns[1 - self._next_kind]
                call_id, call = next(iter(turns.items()))
                self._next_kind = 1 - call.kind
                index, resolved = call.ready.popleft()
                if not call.ready:
                    del turns[call_id]
                self._begin(resolved)
                return call, index, resolved

    def _compute(self) -> None:
        while (job := self._next()) is not None:
            self._compute_one(*job)
            # A finished image must not be kept alive by this loop while it waits for the next one.
            del job

    def _compute_one(self, call: _Call, index: int, resolved: Resolved) -> None:
        started = time.perf_counter()
        try:
            # A cancelled leader computes on only if somebody follows it.
            if call.cancelled and not self._leaders.get(resolved.digest):
                outcome = _cancelled()
            else:
                outcome = self._processor.process(resolved)
        except BaseException as error:  # Whatever it is, the batch must end and the thread must live.
            outcome = Outcome(Failure(InternalError(f"{type(error).__name__}: {error}")), None)
        finished = time.perf_counter()
        facts = outcome.result
        if isinstance(facts, ImageFacts):
            times = {
                "queue": max(0.0, started - call.arrived - call.resolve_s.get(index, 0.0)),
                "resolve": call.resolve_s.get(index, 0.0),
                **facts.times_s,
            }
            outcome = replace(outcome, result=replace(facts, times_s=times))
            self._cache.put(facts.digest, outcome, facts.nbytes)
        with self._lock:
            self._running.pop(threading.get_ident(), None)
            self._free_threads += 1
            self._work.notify()
            followers = self._leaders.pop(resolved.digest, [])
            call.busy_s += finished - started
        self._settle(call, index, outcome)
        for follower, place in followers:
            if isinstance(outcome.result, Failure) and not isinstance(outcome.result.error, InputError):
                # The leader's own bad luck (it was cancelled, or memory was short) is not its followers'.
                self._accept(follower, place, resolved)
            else:
                self._settle(follower, place, outcome.marked("joined"))

    def _settle(self, call: _Call, index: int, outcome: Outcome) -> None:
        failure = outcome.result
        if isinstance(failure, Failure):
            with_context(failure.error, source=call.request.sources[index].label)
        with self._lock:
            if call.outcomes[index] is not None:
                return
            call.outcomes[index] = outcome
            call.unfinished -= 1
            if isinstance(failure, Failure):
                self.failed_images += 1
            else:
                self.completed_images += 1
            if call.unfinished == 0:
                call.done.set()

    # Control

    def cancel(self, call_id: str) -> bool:
        """Drops what a call has not started; its running images end, and are kept for the cache."""
        with self._lock:
            call = self._calls.get(call_id)
            if call is None:
                return False
            call.cancelled = True
        self._give_up_fetches(call)
        return True

    def close(self) -> None:
        """Ends the threads once nothing is left to compute."""
        with self._lock:
            self._closed = True
            self._work.notify_all()
        self._fetchers.shutdown(wait=False, cancel_futures=True)

    def waiting_images(self) -> int:
        """Images that were accepted and have no outcome yet, without those on a thread."""
        with self._lock:
            return sum(call.unfinished for call in self._calls.values()) - len(self._running)

    def oldest_running(self) -> tuple[int, float, bytes | None]:
        """How many images are on threads, and the age in seconds and digest of the oldest."""
        with self._lock:
            running = list(self._running.values())
        if not running:
            return 0, 0.0, None
        since, digest = min(running)
        return len(running), time.monotonic() - since, digest

    @property
    def backlog_px(self) -> float:
        """Work of all accepted calls."""
        return self._held_px

    def cache_counters(self) -> dict[str, int]:
        """Sizes and counts of the result cache."""
        return self._cache.counters()


def _cancelled() -> Outcome:
    return Outcome(Failure(DeadlineExceeded("the request was cancelled, or its time ran out")), None)
