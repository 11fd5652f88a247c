"""Where the images of all calls come in, and which calls are open. Belongs to the router's loop."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from ..cluster import connection
from ..config import PoolConfig
from ..errors import PoolClosed, PoolOverloaded, PreprocessError
from ..metrics import RouterMetrics
from ..routing.admission import QueueBounds, Waiting
from ..routing.batching import Cost
from ..sources.source import Source
from .dispatch import Dispatcher
from .intake import Intake
from .ledger import Ledger
from .requests import Request

__all__ = ["INTAKE_IMAGES", "Reception"]

logger = logging.getLogger("sglang_mm_ray.router")

INTAKE_IMAGES = 16
"""Images that are hashed together, off the loop; the first group goes out while the next is hashed."""

_RAY_IS_GONE = "is gone, since Ray was shut down in this process; start or connect to one again"
_WARN_EVERY_S = 10.0


class Reception:
    """What calls of many images and streams share: bounds, budget, and the way to the workers."""

    def __init__(
        self, pool: str, config: PoolConfig, ledger: Ledger, dispatcher: Dispatcher, metrics: RouterMetrics
    ) -> None:
        self._pool = pool
        self._dispatcher = dispatcher
        self.ledger = ledger
        self.metrics = metrics
        self.intake = Intake(config)
        self.waiting = Waiting(QueueBounds(config.max_queued_images, config.max_queued_bytes))
        self._connection = connection()
        self._hashers = ThreadPoolExecutor(2, thread_name_prefix="mm-intake")
        self._loop = asyncio.get_running_loop()
        self._open: set[Request] = set()
        self._closed_because: str | None = None
        self._missing: Callable[[], PreprocessError] | None = None
        self._holds = False
        self._warned_at = -_WARN_EVERY_S

    def add(
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
        """Notes a request, so that closing ends it."""
        self._open.add(request)

    def drop(self, request: Request, make_error: Callable[[], PreprocessError]) -> None:
        """Gives up whatever of a request is still open."""
        self._dispatcher.abandon(request)
        request.settle_all(make_error)

    def end(self, request: Request, make_error: Callable[[], PreprocessError]) -> None:
        """The same, and forgets it."""
        self._open.discard(request)
        self.drop(request, make_error)

    def refused(self, error: PoolOverloaded, images: int) -> None:
        """Counts images that were refused, and says so now and then."""
        self.metrics.count("router_refusals_total", images, reason=error.code)
        now = self._loop.time()
        if now - self._warned_at >= _WARN_EVERY_S:
            self._warned_at = now
            logger.warning("pool %s is saturated: %s", self._pool, error)

    async def off_loop(self, work: Callable[[Any], list[Any]], items: Any) -> list[Any]:
        """Runs work that takes long, or another's code, on a thread beside the loop."""
        return await self._loop.run_in_executor(self._hashers, work, items)

    def is_connected(self) -> bool:
        """Whether the Ray is still there that this began with. To be asked before a call of Ray."""
        return connection() is self._connection

    def closed(self) -> PreprocessError | None:
        """Why nothing is taken now; None while it is."""
        reason = self._closed_because
        if reason is None and not self.is_connected():
            reason = _RAY_IS_GONE
        if reason is not None:
            return self._error(reason)
        # Workers go on for a while without anybody who leads them.
        if self._missing is None or self._holds or self._dispatcher.scheduler.worker_ids:
            return None
        return self._missing()

    def _error(self, reason: str) -> PoolClosed:
        return PoolClosed(f"pool {self._pool!r} {reason}")

    def lose(self, make_error: Callable[[], PreprocessError], *, holds: bool) -> None:
        """No pool of the name is there now; what comes is refused, or with `holds` waits for the next one."""
        if self._missing is None:
            logger.warning("pool %s is lost: %s", self._pool, make_error())
        self._missing, self._holds = make_error, holds

    def find(self) -> None:
        """A pool of the name is there again."""
        if self._missing is not None:
            logger.warning("pool %s is found again", self._pool)
        self._missing = None

    def check_open(self) -> None:
        """Raises what `closed` gives, if anything."""
        closed = self.closed()
        if closed is not None:
            raise closed

    def stop_taking(self, reason: str) -> None:
        """From now on calls are refused; those that are open go on. The first reason stays."""
        self._closed_because = self._closed_because or reason

    def close(self, reason: str = _RAY_IS_GONE) -> None:
        """Refuses all that comes and ends all that is there, workers' calls included."""
        self.stop_taking(reason)

        def closed() -> PoolClosed:
            return self._error(reason)

        self._dispatcher.close(closed)
        for request in list(self._open):
            self.end(request, closed)
        self.ledger.close()

    def end_threads(self) -> None:
        """Lets the threads beside the loop go, once nothing is left to run there."""
        self._hashers.shutdown(wait=False)
