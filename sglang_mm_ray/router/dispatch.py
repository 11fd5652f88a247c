"""Sends batches to workers and takes their answers. Belongs to the router's loop."""

from __future__ import annotations

import asyncio
import logging
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from ray.exceptions import OutOfMemoryError, RayActorError

from ..arguments import to_arguments
from ..config import PoolConfig
from ..errors import (
    DeadlineExceeded,
    InternalError,
    PreprocessError,
    WorkerLost,
)
from ..messages import BatchReply, BatchRequest, Failure, Membership, WorkerRecord
from ..metrics import RouterMetrics
from ..results.image import ProcessedImage
from ..results.stored import StoredResult
from ..routing.batching import BatchLimits, Cost
from ..routing.placement import route_key
from ..routing.scheduler import Batch, Flight, Scheduler, SchedulerLimits
from ..sources.source import Source
from .arrivals import Arrivals
from .ledger import Ledger
from .requests import InFlight, Request, Waiter, poison_image
from .result_cache import ResultCache

__all__ = ["Dispatcher"]

logger = logging.getLogger("sglang_mm_ray.router")

# What a call ends with whose worker is gone; killed for its node's memory, it is no RayActorError.
_GONE = (RayActorError, OutOfMemoryError, asyncio.TimeoutError, TimeoutError)
# A batch without an answer for so long, on a worker whose heartbeat is well, is sent elsewhere.
_CALL_TIMEOUT_FACTOR = 3.0
# Ray notices the death of a worker by itself; that of a node takes it longer than the controller.
_GONE_GRACE_S = 3.0
_LONGEST_BACKOFF = 40
_SHARED_PART_OF_BUDGET = 16
# So many more lone crashes at most prove an image poisonous while workers die for other reasons.
_MORE_PROOF = 4


@dataclass(frozen=True, slots=True)
class _Call:
    call_id: str
    batch: Batch
    task: asyncio.Task[None]


class Dispatcher:
    """Images in flight, by content; batches under way, by worker."""

    def __init__(
        self,
        config: PoolConfig,
        ledger: Ledger,
        cache: ResultCache,
        metrics: RouterMetrics,
        report_lost: Callable[[str], None],
        report_poison: Callable[[bytes], None],
    ) -> None:
        self._config = config
        self._cache = cache
        self._arrivals = Arrivals(ledger, cache, metrics)
        self._shared_max_bytes = ledger.budget.budget_bytes // _SHARED_PART_OF_BUDGET
        self._metrics = metrics
        self._report_lost = report_lost
        self._report_poison = report_poison
        self._loop = asyncio.get_running_loop()
        limits = BatchLimits(config.chunk_max_images, config.chunk_max_bytes, config.chunk_max_pixels)
        self.scheduler = Scheduler(
            SchedulerLimits(limits, config.window_pixels_per_thread, config.max_inflight_bytes)
        )
        self._finish_with = (config.model, config.processor().parameters_json)
        self._records: dict[str, WorkerRecord] = {}
        self._methods: dict[tuple[str, int], Any] = {}
        self._images: dict[bytes, Flight] = {}
        self._poisoned: dict[bytes, float] = {}
        self._calls: dict[int, _Call] = {}
        self._closing = False
        self._pump_due = False
        self._homeless_since: float | None = None
        self.lost_workers = 0
        self.retries = 0

    # Images

    def add(self, request: Request, index: int, source: Source, cost: Cost, handed_in: Any) -> None:
        """Answers one place of a request: from the cache, with a flight that is under way, or a new one."""
        identity = (b"\1" if source.exact else b"\0") + source.key
        if self._is_poisoned(identity):
            request.settle(index, poison_image(source, self._config.quarantine_s))
            return
        waiter = Waiter(request, index, handed_in)
        if source.exact:
            stored = self._cache.get(source.key)
            if stored is not None:
                self._metrics.count("router_images_total", result="router_cache")
                request.settle(index, self._image(stored, waiter, "router_cache", {}))
                return
        flight = self._images.get(identity)
        if flight is not None:
            flight.payload.waiters.append(waiter)
            request.follow(index, flight)
            return
        payload = InFlight(identity, source, [waiter], time.perf_counter())
        flight = Flight(route_key(source.key), request.request_id, cost, payload)
        self._images[identity] = flight
        request.follow(index, flight)
        self.scheduler.submit(flight)
        self._pump_soon()

    def abandon(self, request: Request) -> None:
        """Nobody waits for this request any more: what only it waits for is dropped, or cancelled."""
        stopped: set[int] = set()
        for _, flight in request.flights():
            payload: InFlight = flight.payload
            payload.waiters = [waiter for waiter in payload.waiters if waiter.request is not request]
            if payload.waiters:
                continue
            if self.scheduler.cancel(flight):
                self._images.pop(payload.identity, None)
            elif flight.batch_id is not None:
                stopped.add(flight.batch_id)
        for batch_id in stopped:
            self._cancel_call(batch_id)
        self._pump_soon()

    def _cancel_call(self, batch_id: int) -> None:
        call = self._calls.get(batch_id)
        if call is None or any(flight.payload.waiters for flight in call.batch.flights):
            return
        record = self._records.get(call.batch.worker_id)
        if record is not None:
            record.handle.cancel.remote(call.call_id)

    def _image(
        self, stored: StoredResult, waiter: Waiter, origin: str, times_s: dict[str, float]
    ) -> ProcessedImage:
        return ProcessedImage(stored, self._finish_with, origin=origin, times_s=times_s, source=waiter.source)

    def _settle(self, flight: Flight, outcome: StoredResult | PreprocessError, sent_at: float = 0.0) -> None:
        payload: InFlight = flight.payload
        self._images.pop(payload.identity, None)
        waiters, payload.waiters = payload.waiters, []
        if isinstance(outcome, PreprocessError):
            self._metrics.count("router_images_total", len(waiters), result="failed")
            self._metrics.count("router_refusals_total", len(waiters), reason=outcome.code)
            for waiter in waiters:
                waiter.request.settle(waiter.index, outcome)
            return
        facts = outcome.facts
        now = time.perf_counter()
        times_s = {**facts.times_s, "router": sent_at - payload.queued_at, "call": now - sent_at}
        for place, waiter in enumerate(waiters):
            origin = facts.origin if place == 0 else "joined"
            self._metrics.count("router_images_total", result=origin)
            self._metrics.observe("router_image_seconds", now - waiter.request.started)
            waiter.request.settle(waiter.index, self._image(outcome, waiter, origin, dict(times_s)))

    # Batches

    def _pump_soon(self) -> None:
        # Once for all that happens in one turn of the loop, so that what arrives together travels together.
        if not self._pump_due:
            self._pump_due = True
            self._loop.call_soon(self._pump)

    def _pump(self) -> None:
        self._pump_due = False
        for batch in self.scheduler.next_batches():
            call_id = uuid.uuid4().hex
            task = self._loop.create_task(self._call(batch, call_id))
            self._calls[batch.batch_id] = _Call(call_id, batch, task)
            task.add_done_callback(partial(self._call_ended, batch.batch_id))

    def _call_ended(self, batch_id: int, task: asyncio.Task[None]) -> None:
        self._calls.pop(batch_id, None)
        if not task.cancelled() and task.exception() is not None:
            logger.error("batch %d: %r", batch_id, task.exception())

    def _method(self, record: WorkerRecord, num_returns: int) -> Any:
        key = (record.worker_id, num_returns)
        if key not in self._methods:
            self._methods[key] = record.handle.process.options(num_returns=num_returns)
        return self._methods[key]

    async def _call(self, batch: Batch, call_id: str) -> None:
        record = self._records[batch.worker_id]
        sources = tuple(flight.payload.source for flight in batch.flights)
        estimated_bytes = sum(flight.cost.total_bytes for flight in batch.flights)
        requests = len({flight.request_id for flight in batch.flights})
        # Only neighbours of one request, which are likely to be let go of together, share an object; and not
        # much of the budget, since who keeps only one of them, as a stream's consumer, keeps them all.
        output_bytes = sum(flight.cost.output_bytes for flight in batch.flights)
        together = len(sources) > 1 and requests == 1 and output_bytes <= self._shared_max_bytes
        call = BatchRequest(call_id, sources, estimated_bytes, batch.work_px, together, requests)
        sent_at = time.perf_counter()
        try:
            refs = self._method(record, 2 if together else len(sources) + 1).remote(*to_arguments(call))
            self._metrics.count("router_sent_bytes_total", sum(source.transfer_bytes for source in sources))
            timeout_s = self._config.image_timeout_s * _CALL_TIMEOUT_FACTOR
            reply: BatchReply = await asyncio.wait_for(refs[0], timeout_s)
        except _GONE as error:
            self._lost(batch, error)
            return
        except asyncio.CancelledError:
            if not self._closing:
                self._lost(batch, WorkerLost("the worker left the cluster"))
            return
        except Exception as error:
            self._failed(batch, error)
            return
        self._metrics.observe("router_call_seconds", time.perf_counter() - sent_at)
        alive = [flight.batch_id == batch.batch_id for flight in batch.flights]
        self.scheduler.finish(batch, reply.busy_s)
        results = self._arrivals.take(reply.outcomes, refs[1:], record.node_id, together)
        self._deliver(batch, alive, results, sent_at)
        self._pump_soon()

    def _deliver(
        self, batch: Batch, alive: list[bool], results: list[StoredResult | Failure], sent_at: float
    ) -> None:
        for flight, result, wanted in zip(batch.flights, results, alive, strict=True):
            # A flight that was sent elsewhere meanwhile has its answer from there.
            if wanted:
                self._arrived(flight, result, batch.worker_id, sent_at)

    def _arrived(
        self, flight: Flight, result: StoredResult | Failure, worker_id: str, sent_at: float
    ) -> None:
        payload: InFlight = flight.payload
        if isinstance(result, StoredResult):
            self._settle(flight, result, sent_at)
        elif result.busy:
            flight.attempts -= 1
            payload.busy_retries += 1
            self._retry_later(flight, frozenset({worker_id}), "busy", payload.busy_retries)
        elif isinstance(result.error, DeadlineExceeded) and payload.waiters:
            # Cancelled for somebody who left, while somebody else had joined.
            self._retry_later(flight, frozenset(), "cancelled", 1)
        else:
            self._settle(flight, result.error)

    def _retry_later(self, flight: Flight, avoid: frozenset[str], reason: str, attempt: int) -> None:
        self.retries += 1
        self._metrics.count("router_retries_total", reason=reason)
        backoff_s = self._config.retry_backoff_s * min(2 ** (attempt - 1), _LONGEST_BACKOFF)
        self._loop.call_later(backoff_s, self._resubmit, flight, avoid)

    def _resubmit(self, flight: Flight, avoid: frozenset[str]) -> None:
        if not flight.payload.waiters:
            self._images.pop(flight.payload.identity, None)
            return
        flight.avoid = avoid
        self.scheduler.submit(flight)
        self._pump_soon()

    # What goes wrong

    def _failed(self, batch: Batch, error: Exception) -> None:
        """The worker lives, but the call failed as a whole: its store was full, or a fault of our own."""
        alive = [flight for flight in batch.flights if flight.batch_id == batch.batch_id]
        self.scheduler.finish(batch)
        reason = f"{type(error).__name__}: {str(error).strip().splitlines()[-1]}"
        logger.warning("batch on worker %s failed: %s", batch.worker_id, reason)
        for flight in alive:
            if flight.attempts >= self._config.max_attempts:
                self._settle(flight, InternalError(f"the worker failed {flight.attempts} times: {reason}"))
            else:
                self._retry_later(flight, frozenset({batch.worker_id}), "failed", flight.attempts)
        self._pump_soon()

    def _lost(self, batch: Batch, error: BaseException) -> None:
        """The worker died with this batch, and perhaps with others."""
        held = self.scheduler.running_on(batch.worker_id)
        if not any(other.batch_id == batch.batch_id for other in held):
            return
        self.lost_workers += 1
        self._metrics.count("router_workers_lost_total")
        logger.warning(
            "worker %s is lost with %d images (%s)",
            batch.worker_id,
            sum(len(other.flights) for other in held),
            type(error).__name__,
        )
        self._forget(batch.worker_id)
        lone = self.scheduler.lose(batch.worker_id)
        self._report_lost(batch.worker_id)
        for flight in (flight for other in held for flight in other.flights):
            self._judge(flight, flight in lone)
        self._pump_soon()

    def _judge(self, flight: Flight, lone: bool) -> None:
        payload: InFlight = flight.payload
        self.retries += 1
        self._metrics.count("router_retries_total", reason="worker_lost")
        error: PreprocessError | None = None
        if payload.losses == 0:
            payload.losses_before = self.lost_workers - 1
        payload.losses += 1
        # Where workers die without this image too, its own crashes prove less.
        elsewhere = self.lost_workers - payload.losses_before - payload.losses
        if flight.lone_crashes >= self._config.poison_crashes + min(elsewhere, _MORE_PROOF):
            self._poisoned[payload.identity] = time.monotonic() + self._config.quarantine_s
            self._report_poison(payload.identity)
            logger.error("image sha256:%s kills workers; quarantined", payload.source.key.hex()[:16])
            error = poison_image(payload.source, self._config.quarantine_s)
        elif flight.attempts >= self._config.max_attempts:
            error = WorkerLost(
                f"workers died {flight.attempts} times while they held the image (max_attempts)"
            )
        if error is not None or not payload.waiters:
            self.scheduler.cancel(flight)
            self._settle(flight, error or WorkerLost("nobody waits for the image any more"))
        elif lone:
            self.scheduler.retry(flight)

    def _is_poisoned(self, identity: bytes) -> bool:
        until = self._poisoned.get(identity)
        if until is None:
            return False
        if until < time.monotonic():
            del self._poisoned[identity]
            return False
        return True

    def _forget(self, worker_id: str) -> None:
        self._records.pop(worker_id, None)
        self._methods = {key: method for key, method in self._methods.items() if key[0] != worker_id}

    # Membership

    def apply(self, membership: Membership) -> None:
        """Follows what the controller says: who joined, who drains, who is gone, what is poison."""
        now = time.monotonic()
        for identity, left_s in membership.poisoned:
            self._poisoned.setdefault(identity, now + left_s)
        records = {record.worker_id: record for record in membership.workers}
        for worker_id, record in records.items():
            if worker_id not in self._records and not record.draining:
                self._records[worker_id] = record
                self.scheduler.join(worker_id, record.threads)
            elif record.draining:
                self.scheduler.drain(worker_id)
        for worker_id in [known for known in self._records if known not in records]:
            self.scheduler.drain(worker_id)
            for batch in self.scheduler.running_on(worker_id):
                self._loop.call_later(_GONE_GRACE_S, self._give_up, batch.batch_id)
            if not self.scheduler.running_on(worker_id):
                self._forget(worker_id)
        self._pump_soon()

    def _give_up(self, batch_id: int) -> None:
        call = self._calls.get(batch_id)
        if call is not None:
            call.task.cancel()

    def forget_results(self, alive_nodes: frozenset[str]) -> None:
        """Drops cached results whose node is gone."""
        self._cache.remove_if(lambda stored: stored.node_id not in alive_nodes)

    def tick(self, last_error: str, closed: PreprocessError | None) -> None:
        """Gives up on images for which there has been no worker for too long, or will be none."""
        waiting = self.scheduler.queued_images
        if self.scheduler.worker_ids or not waiting:
            self._homeless_since = None
            return
        now = time.monotonic()
        if self._homeless_since is None:
            self._homeless_since = now
        if closed is None and now - self._homeless_since < self._config.no_worker_timeout_s:
            return
        reason = last_error or "the controller does not say why"
        for flight in list(self._images.values()):
            if self.scheduler.cancel(flight):
                self._settle(flight, closed or WorkerLost(f"the pool has no worker ({reason})"))

    def close(self, make_error: Callable[[], PreprocessError]) -> None:
        """Ends everything that is under way."""
        self._closing = True
        for call in list(self._calls.values()):
            call.task.cancel()
        for flight in list(self._images.values()):
            self.scheduler.cancel(flight)
            self._settle(flight, make_error())
        self._cache.clear()
