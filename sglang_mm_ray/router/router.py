"""The router: owns the requests of one process. A loop of its own on a thread; callers block or await."""

from __future__ import annotations

import asyncio
import itertools
import logging
import threading
import time
from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

from ray.exceptions import RayActorError, RayError

from ..cluster import alive_nodes, find_controller, off_loop
from ..config import PoolConfig
from ..errors import DeadlineExceeded, PoolClosed, PoolNotFound, PoolOverloaded, PreprocessError
from ..messages import Membership
from ..metrics import RouterMetrics
from ..routing.admission import Amount, QueueBounds, StoreBudget, Waiting
from ..routing.batching import Cost
from ..sources.source import Source
from .dispatch import Dispatcher
from .intake import Intake, is_cheap
from .ledger import Ledger
from .requests import ImageOutcome, Request
from .result_cache import ResultCache
from .stream import INTAKE_IMAGES, Stream

__all__ = ["Router"]

logger = logging.getLogger("sglang_mm_ray.router")

_TICK_S = 0.5
_TICKS_PER_NODE_CHECK = 4
_WARN_EVERY_S = 10.0
_MEMBERSHIP_TIMEOUT_S = 30.0


class Router:
    """Takes this process's requests to the workers of one pool. May be called from any thread."""

    def __init__(self, pool: str, config: PoolConfig, controller: Any, budget_bytes: int) -> None:
        self._pool = pool
        self._config = config
        self._controller = controller
        self.intake = Intake(config)
        self._metrics = RouterMetrics(config, pool)
        self._cache = ResultCache(min(config.router_cache_bytes, budget_bytes // 4))
        self.waiting = Waiting(QueueBounds(config.max_queued_images, config.max_queued_bytes))
        self._hashers = ThreadPoolExecutor(2, thread_name_prefix="mm-intake")
        self._tasks: set[asyncio.Task[Any]] = set()
        self._requests: set[Request] = set()
        self._closed = False
        self._last_error = ""
        self._warned_at = -_WARN_EVERY_S
        self._version = 0
        self._wanted_workers: int | None = None
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name="mm-router", daemon=True)
        self._ready = threading.Event()
        self._budget_bytes = budget_bytes
        self._thread.start()
        self._ready.wait()

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_until_complete(self._begin())
        self._loop.run_forever()
        self._loop.close()

    async def _begin(self) -> None:
        budget = StoreBudget(self._budget_bytes)
        self.ledger = Ledger(budget, self._config.store_wait_s, self._cache.free, self._loop)
        self._dispatcher = Dispatcher(
            self._config,
            self.ledger,
            self._cache,
            self._metrics,
            lambda worker_id: self._tell("report_lost", worker_id),
            lambda identity: self._tell("report_poison", identity),
        )
        self._members_changed = asyncio.Event()
        self._spawn(self._follow())
        self._spawn(self._tick_forever())
        self._ready.set()

    def _spawn(self, work: Any) -> asyncio.Task[Any]:
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    def _tell(self, method: str, *args: Any) -> None:
        try:
            getattr(self._controller, method).remote(*args)
        except Exception as error:
            logger.debug("the controller does not hear %s: %s", method, error)

    # Membership

    async def _follow(self) -> None:
        while True:
            try:
                membership: Membership = await asyncio.wait_for(
                    self._controller.membership.remote(self._version), _MEMBERSHIP_TIMEOUT_S
                )
            except (RayActorError, asyncio.TimeoutError, TimeoutError):
                # It restarts, or was replaced; workers go on without it, and so do we.
                await asyncio.sleep(_TICK_S)
                await off_loop(self._find_again)
                continue
            except RayError as error:
                logger.warning("membership: %s", str(error).splitlines()[0])
                await asyncio.sleep(_TICK_S)
                continue
            self._version = membership.version
            self._last_error = membership.last_error
            self._wanted_workers = membership.wanted
            self._dispatcher.apply(membership)
            self._members_changed.set()
            self._members_changed = asyncio.Event()
            if membership.closed:
                self._closed = True
                await asyncio.sleep(self._config.drain_timeout_s)

    def _find_again(self) -> None:
        try:
            self._controller = find_controller(self._pool)
        except (PoolNotFound, RayError):
            logger.debug("the controller of pool %s is not there", self._pool)

    async def _tick_forever(self) -> None:
        nodes: frozenset[str] = frozenset()
        for tick in itertools.count():
            await asyncio.sleep(_TICK_S)
            closed = PoolClosed(f"pool {self._pool!r} was stopped") if self._closed else None
            self.ledger.tick()
            self._dispatcher.tick(self._last_error, closed)
            self._report()
            if tick % _TICKS_PER_NODE_CHECK == 0:
                alive = await off_loop(_alive_nodes_or_none)
                if alive is not None:
                    if nodes - alive:
                        self._dispatcher.forget_results(alive)
                    nodes = alive

    def _report(self) -> None:
        scheduler, budget, metrics = self._dispatcher.scheduler, self.ledger.budget, self._metrics
        metrics.gauge("router_queued_images", scheduler.queued_images)
        metrics.gauge("router_running_images", scheduler.running_images)
        metrics.gauge("router_saturation_ratio", self.waiting.images / self._config.max_queued_images)
        metrics.gauge("router_store_held_bytes", budget.held_bytes)
        metrics.gauge("router_store_promised_bytes", budget.promised_bytes)
        metrics.gauge("router_cache_bytes", self._cache.size_bytes)

    def _refused(self, error: PoolOverloaded, images: int) -> None:
        self._metrics.count("router_refusals_total", images, reason=error.code)
        now = self._loop.time()
        if now - self._warned_at >= _WARN_EVERY_S:
            self._warned_at = now
            logger.warning("pool %s is saturated: %s", self._pool, error)

    def wait_for_workers(self, count: int | None, timeout_s: float) -> int:
        """Blocks until so many workers are live (all that the pool wants, for None); how many there are."""
        future = asyncio.run_coroutine_threadsafe(self._wait_for_workers(count, timeout_s), self._loop)
        return future.result()

    async def _wait_for_workers(self, count: int | None, timeout_s: float) -> int:
        until = self._loop.time() + timeout_s
        while True:
            live = len(self._dispatcher.scheduler.worker_ids)
            wanted = count if count is not None else self._wanted_workers
            if wanted and live >= wanted:
                return live
            try:
                await asyncio.wait_for(self._members_changed.wait(), max(0.0, until - self._loop.time()))
            except asyncio.TimeoutError:
                return live

    @property
    def last_error(self) -> str:
        """Why workers are missing, if they are."""
        return self._last_error

    # Requests

    def submit(self, sources: list[Any], timeout_s: float | None, refuse_whole: bool) -> Future[list[Any]]:
        """Preprocesses all; the future holds an image or an error for each, in order.

        Past the queue's bound the whole request fails with `PoolOverloaded`, or with `refuse_whole` unset
        only the images that are too many. Cancelling the future drops what has not started.
        """
        # What is cheap is done here: each change of threads costs as much as hashing a small image.
        costs = classified = None
        if len(sources) <= INTAKE_IMAGES and is_cheap(sources):
            costs = self.intake.estimate_all(sources)
            classified = self.intake.classify_all(sources)
        work = self._collect(sources, costs, classified, timeout_s, refuse_whole)
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    async def _collect(
        self,
        sources: list[Any],
        costs: list[Cost] | None,
        classified: list[Source | PreprocessError] | None,
        timeout_s: float | None,
        refuse_whole: bool,
    ) -> list[Any]:
        outcomes: list[ImageOutcome | None] = [None] * len(sources)
        left = len(sources)
        finished = self._loop.create_future()

        def settled(index: int, cost: Cost, outcome: ImageOutcome) -> None:
            nonlocal left
            outcomes[index] = outcome
            left -= 1
            self.waiting.leave(Amount(1, cost.input_bytes))
            if index in promised:
                promised.discard(index)
                self.ledger.withdraw(cost.output_bytes)
            if left == 0 and not finished.done():
                finished.set_result(None)

        promised: set[int] = set()
        self.check_open()
        if costs is None:
            costs = await self.off_loop(self.intake.estimate_all, sources)
        admitted = len(sources) if refuse_whole else min(len(sources), self.waiting.room_images())
        request = Request(settled)
        try:
            self.waiting.enter(Amount(admitted, sum(cost.input_bytes for cost in costs[:admitted])))
        except PoolOverloaded as error:
            self._refused(error, admitted)
            raise
        self.begin(request)
        for index in range(admitted):
            request.expect(index, costs[index])
        for index in range(admitted, len(sources)):
            refusal = PoolOverloaded(
                f"{self.waiting.images} images are under way, the bound is {self._config.max_queued_images} "
                "(max_queued_images); try again later"
            )
            outcomes[index] = refusal
            self._refused(refusal, 1)
            left -= 1
        expiry = None
        if timeout_s is not None:
            expiry = self._loop.call_later(timeout_s, self._expire, request, timeout_s, finished)
        feeding = self._spawn(self._feed(request, sources[:admitted], costs, classified, promised))
        try:
            if left == 0 and not finished.done():
                finished.set_result(None)
            await asyncio.wait({feeding, finished}, return_when=asyncio.FIRST_COMPLETED)
            if not finished.done():
                feeding.result()  # An error of the request as a whole ends it here.
            await finished
        finally:
            if expiry is not None:
                expiry.cancel()
            feeding.cancel()
            self.end(request, lambda: DeadlineExceeded("the request was cancelled"))
        self._metrics.observe("router_request_seconds", time.perf_counter() - request.started)
        return outcomes

    async def _feed(
        self,
        request: Request,
        sources: list[Any],
        costs: list[Cost],
        classified: list[Source | PreprocessError] | None,
        promised: set[int],
    ) -> None:
        output_bytes = sum(cost.output_bytes for cost in costs[: len(sources)])
        await self.ledger.promise(output_bytes, len(sources))
        promised.update(range(len(sources)))
        for index in range(len(sources)):
            if not request.is_open(index):
                promised.discard(index)
                self.ledger.withdraw(costs[index].output_bytes)
        for start in range(0, len(sources), INTAKE_IMAGES):
            group = sources[start : start + INTAKE_IMAGES]
            # Hashed off the loop, a few at a time: the first are under way while the next are hashed.
            found = classified or await self.off_loop(self.intake.classify_all, group)
            for place in range(len(group)):
                self.add_one(request, start + place, found[place], costs[start + place], group[place])

    def add_one(
        self, request: Request, index: int, source: Source | PreprocessError, cost: Cost, handed_in: Any
    ) -> None:
        """Sends one classified source on its way, unless its place is filled already."""
        if not request.is_open(index):
            return
        if isinstance(source, Source):
            self._dispatcher.add(request, index, source, cost, handed_in)
        else:
            request.settle(index, source)

    def begin(self, request: Request) -> None:
        """Notes a request, so that closing the router ends it."""
        self._requests.add(request)

    def end(self, request: Request, make_error: Callable[[], PreprocessError]) -> None:
        """Drops whatever of a request is still open."""
        self._requests.discard(request)
        self._dispatcher.abandon(request)
        request.settle_all(make_error)

    def _expire(self, request: Request, timeout_s: float, finished: asyncio.Future[None]) -> None:
        self._dispatcher.abandon(request)
        request.settle_all(
            lambda: DeadlineExceeded(
                f"the request did not finish within {timeout_s:g} s; its rest was dropped"
            )
        )

    async def off_loop(self, work: Callable[[Any], list[Any]], items: Any) -> list[Any]:
        """Runs work that takes long, or another's code, on a thread beside the loop."""
        return await self._loop.run_in_executor(self._hashers, work, items)

    def check_open(self) -> None:
        """Raises `PoolClosed` once the pool is."""
        if self._closed:
            raise PoolClosed(f"pool {self._pool!r} is closed")

    def stream(
        self,
        sources: Iterable[Any],
        put: Callable[[tuple[int, ImageOutcome] | BaseException | None], None],
        timeout_s: float | None,
    ) -> Future[None]:
        """Preprocesses lazily: `put` hears of each image as it finishes, on the loop, and of the end by None.

        Sources are drawn only as there is room in the queue and the store, so there may be more of them than
        either could hold. Cancelling the future drops what has not started.
        """
        return asyncio.run_coroutine_threadsafe(Stream(self, put, timeout_s).run(iter(sources)), self._loop)

    # The rest

    def status(self) -> dict[str, Any]:
        """What this router has under way, as plain JSON values."""
        scheduler, budget = self._dispatcher.scheduler, self.ledger.budget
        return {
            "under_way_images": self.waiting.images,
            "queued_images": scheduler.queued_images,
            "running_images": scheduler.running_images,
            "workers": len(scheduler.worker_ids),
            "store_budget_bytes": budget.budget_bytes,
            "store_held_bytes": budget.held_bytes,
            "store_promised_bytes": budget.promised_bytes,
            "lost_workers": self._dispatcher.lost_workers,
            "retries": self._dispatcher.retries,
            "cache": self._cache.counters(),
        }

    def forget(self, digest: bytes) -> None:
        """Drops a result from the cache."""
        self._cache.remove(digest)

    def close(self) -> None:
        """Ends all requests with `PoolClosed` and stops the loop."""
        if not self._thread.is_alive():
            return
        self._closed = True
        asyncio.run_coroutine_threadsafe(self._close(), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._hashers.shutdown(wait=False)

    async def _close(self) -> None:
        def closed() -> PoolClosed:
            return PoolClosed(f"pool {self._pool!r} was closed during the call")

        self._dispatcher.close(closed)
        for request in list(self._requests):
            self.end(request, closed)
        # Whoever waits has the answer in this turn of the loop, before the tasks end.
        await asyncio.sleep(0.05)
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


def _alive_nodes_or_none() -> frozenset[str] | None:
    try:
        return alive_nodes()
    except Exception as error:
        logger.debug("the cluster does not say which nodes are alive: %s", error)
        return None
