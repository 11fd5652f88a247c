"""The router: owns the requests of one process. A loop of its own on a thread; callers block or await."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
import threading
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from functools import partial
from typing import Any

from ray.exceptions import RayActorError, RayError

from ..cluster import alive_nodes, is_disconnecting, off_loop
from ..config import PoolConfig
from ..errors import InvalidArgument, PoolNotFound, PreprocessError
from ..messages import Membership
from ..metrics import RouterMetrics
from ..routing.admission import StoreBudget
from ..routing.batching import Cost
from ..sources.source import Source
from .collection import Collection
from .dispatch import Dispatcher
from .intake import is_cheap
from .ledger import Ledger
from .reception import INTAKE_IMAGES, Reception
from .requests import ImageOutcome
from .result_cache import ResultCache
from .stream import Stream
from .succession import look, successor_is_awaited

__all__ = ["Router"]

logger = logging.getLogger("sglang_mm_ray.router")

_TICK_S = 0.5
_DISCONNECTING_S = 0.05
_TICKS_PER_NODE_CHECK = 4
_MEMBERSHIP_TIMEOUT_S = 30.0
# A pool that has no room is not waited for any longer than it takes another one to end.
_HOPELESS_FOR_S = 10.0
_CANCELLATIONS = 10
_CANCELLED_WITHIN_S = 0.5


class Router:
    """Takes this process's requests to the workers of one pool. May be called from any thread."""

    def __init__(
        self, pool: str, config: PoolConfig, controller: Any, budget_bytes: int, *, follows: bool = False
    ) -> None:
        self._pool = pool
        self._config = config
        self._controller = controller
        self._metrics = RouterMetrics(config, pool)
        self._cache = ResultCache(min(config.router_cache_bytes, budget_bytes // 4))
        self._tasks: set[asyncio.Task[Any]] = set()
        self._last_error = ""
        self._version = 0
        self._wanted_workers: int | None = None
        self._hopeless_since: float | None = None
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name="mm-router", daemon=True)
        self._begun: Future[None] = Future()
        self._budget_bytes = budget_bytes
        self._follows = follows
        self._thread.start()
        self._begun.result()

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_until_complete(self._begin())
        except BaseException as error:
            self._begun.set_exception(error)
        else:
            self._begun.set_result(None)
            self._loop.run_forever()
        finally:
            self._loop.close()

    async def _begin(self) -> None:
        budget = StoreBudget(self._budget_bytes)
        self._ledger = Ledger(budget, self._config.store_wait_s, self._cache.free, self._loop)
        self._dispatcher = Dispatcher(
            self._config,
            self._ledger,
            self._cache,
            self._metrics,
            lambda worker_id: self._tell("report_lost", worker_id),
            lambda identity: self._tell("report_poison", identity),
        )
        self._reception = Reception(self._pool, self._config, self._ledger, self._dispatcher, self._metrics)
        self._members_changed = asyncio.Event()
        self._spawn(self._follow())
        self._spawn(self._tick_forever())

    def _spawn(self, work: Any) -> asyncio.Task[Any]:
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    def _tell(self, method: str, *args: Any) -> None:
        if not self._reception.is_connected():
            return
        try:
            getattr(self._controller, method).remote(*args)
        except Exception as error:
            logger.debug("the controller does not hear %s: %s", method, error)

    # Membership

    async def _follow(self) -> None:
        while self._reception.is_connected():
            try:
                membership: Membership = await asyncio.wait_for(
                    self._controller.membership.remote(self._version), _MEMBERSHIP_TIMEOUT_S
                )
            except (RayActorError, asyncio.TimeoutError, TimeoutError):
                # It restarts, or was replaced; workers go on without it, and so do we.
                await asyncio.sleep(_TICK_S)
                await self._search()
                continue
            except RayError as error:
                logger.warning("membership: %s", str(error).splitlines()[0])
                await asyncio.sleep(_TICK_S)
                continue
            self._version = membership.version
            self._last_error = membership.last_error
            self._wanted_workers = membership.wanted
            hopeless_s = membership.hopeless_s
            self._hopeless_since = self._loop.time() - hopeless_s if hopeless_s > 0 else None
            self._dispatcher.apply(membership)
            self._members_changed.set()
            self._members_changed = asyncio.Event()
            if membership.closed and self._follows:
                await self._search(ended=True)
            elif membership.closed:
                self._reception.stop_taking("was stopped")
                await asyncio.sleep(self._config.drain_timeout_s)

    async def _search(self, *, ended: bool = False) -> None:
        """Until the name has a controller, and another one than that which `ended`."""
        while self._reception.is_connected():
            seen = await off_loop(lambda: look(self._pool, self._config, self._controller))
            if seen.who == "other" and not seen.why_not:
                self._controller = seen.controller
                self._version = 0
                self._reception.find()
                return
            if not self._follows or (seen.who in ("same", "unknown") and not ended):
                return
            if seen.why_not:
                self._reception.lose(partial(_another_pool, self._pool, seen.why_not), holds=False)
            elif seen.who != "unknown":
                holds = await off_loop(lambda: successor_is_awaited(self._pool))
                self._reception.lose(partial(_no_pool, self._pool), holds=holds)
            await asyncio.sleep(_TICK_S)

    async def _tick_forever(self) -> None:
        nodes: frozenset[str] = frozenset()
        for tick in itertools.count():
            await asyncio.sleep(_TICK_S)
            if not self._reception.is_connected():
                while is_disconnecting():
                    await asyncio.sleep(_DISCONNECTING_S)
                self._reception.close()
                return
            self._ledger.tick()
            self._dispatcher.tick(self._last_error, self._reception.closed())
            self._report()
            if tick % _TICKS_PER_NODE_CHECK == 0:
                alive = await off_loop(_alive_nodes_or_none)
                if alive is not None:
                    if nodes - alive:
                        self._dispatcher.forget_results(alive)
                    nodes = alive

    def _report(self) -> None:
        scheduler, budget, metrics = self._dispatcher.scheduler, self._ledger.budget, self._metrics
        metrics.gauge("router_queued_images", scheduler.queued_images)
        metrics.gauge("router_running_images", scheduler.running_images)
        under_way = self._reception.waiting.images
        metrics.gauge("router_saturation_ratio", under_way / self._config.max_queued_images)
        metrics.gauge("router_store_held_bytes", budget.held_bytes)
        metrics.gauge("router_store_promised_bytes", budget.promised_bytes)
        metrics.gauge("router_store_budget_bytes", budget.budget_bytes)
        metrics.gauge("router_cache_bytes", self._cache.size_bytes)

    def wait_for_workers(self, timeout_s: float) -> int:
        """Blocks until so many workers are live as are wanted, or waiting is in vain; how many there are."""
        future = asyncio.run_coroutine_threadsafe(self._wait_for_workers(timeout_s), self._loop)
        return future.result()

    async def _wait_for_workers(self, timeout_s: float) -> int:
        until = self._loop.time() + timeout_s
        while True:
            live, now = len(self._dispatcher.scheduler.worker_ids), self._loop.time()
            if self._wanted_workers and live >= self._wanted_workers:
                return live
            ends = until
            if self._hopeless_since is not None:
                ends = min(until, self._hopeless_since + _HOPELESS_FOR_S)
            if now >= ends:
                return live
            with contextlib.suppress(asyncio.TimeoutError):
                await asyncio.wait_for(self._members_changed.wait(), ends - now)

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
            costs = self._reception.intake.estimate_all(sources)
            classified = self._reception.intake.classify_all(sources)
        return asyncio.run_coroutine_threadsafe(
            self._collect(sources, costs, classified, timeout_s, refuse_whole), self._loop
        )

    async def _collect(
        self,
        sources: list[Any],
        costs: list[Cost] | None,
        classified: list[Source | PreprocessError] | None,
        timeout_s: float | None,
        refuse_whole: bool,
    ) -> list[Any]:
        return await Collection(self._reception, sources, timeout_s).run(costs, classified, refuse_whole)

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
        stream = Stream(self._reception, put, timeout_s)
        return asyncio.run_coroutine_threadsafe(stream.run(iter(sources)), self._loop)

    # The rest

    def status(self) -> dict[str, Any]:
        """What this router has under way, as plain JSON values."""
        scheduler, budget = self._dispatcher.scheduler, self._ledger.budget
        return {
            "under_way_images": self._reception.waiting.images,
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

    @property
    def controller(self) -> Any:
        """The actor that leads the pool now."""
        return self._controller

    def is_connected(self) -> bool:
        """Whether the pool may be reached at all: Ray was not shut down here since."""
        return self._reception.is_connected()

    def forget(self, digest: bytes) -> None:
        """Drops a result from the cache."""
        self._cache.remove(digest)

    def close(self) -> None:
        """Ends all requests with `PoolClosed` and stops the loop."""
        if not self._thread.is_alive():
            return
        asyncio.run_coroutine_threadsafe(self._close(), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._reception.end_threads()

    async def _close(self) -> None:
        self._reception.close("was closed")
        # Whoever waits has the answer in this turn of the loop, before the tasks end.
        await asyncio.sleep(0.05)
        # Before Python 3.12 `wait_for` can swallow a cancellation, so once is not enough.
        for _ in range(_CANCELLATIONS):
            for task in self._tasks:
                task.cancel()
            if not self._tasks:
                break
            await asyncio.wait(set(self._tasks), timeout=_CANCELLED_WITHIN_S)


def _no_pool(pool: str) -> PoolNotFound:
    return PoolNotFound(
        f"no pool {pool!r} runs now; requests go on by themselves once one is started again "
        f"(`sglang-mm-ray start --name {pool}`)"
    )


def _another_pool(pool: str, difference: str) -> InvalidArgument:
    return InvalidArgument(
        f"pool {pool!r} is another one now, with other results: {difference}; connect to it anew, or start "
        "one as it was"
    )


def _alive_nodes_or_none() -> frozenset[str] | None:
    try:
        return alive_nodes()
    except Exception as error:
        logger.debug("the cluster does not say which nodes are alive: %s", error)
        return None
