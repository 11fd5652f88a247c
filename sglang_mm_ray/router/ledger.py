"""Who may have how much of the object store next. Belongs to the router's loop; readers' calls say so."""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import TimeoutError as FutureTimeoutError

from ..errors import PoolOverloaded
from ..routing.admission import StoreBudget

__all__ = ["Ledger"]

# A request that waited so long is overtaken no more, however small the others are.
_OVERTAKEN_AT_MOST_S = 2.0


class Ledger:
    """A `StoreBudget` with a queue: requests wait for their bytes, smaller ones may pass for a while.

    A request gets the bytes of all its images at once or waits, so that two that each hold half of what they
    need never wait for each other.
    """

    def __init__(
        self,
        budget: StoreBudget,
        wait_s: float,
        evict: Callable[[int], None],
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        self.budget = budget
        self._wait_s = wait_s
        self._evict = evict
        self._loop = loop
        self._waiting: deque[tuple[int, float, asyncio.Future[None]]] = deque()
        self._released: deque[int] = deque()
        self._release_due = False
        self._idle_since = loop.time()
        self._closed = False

    async def promise(self, size_bytes: int, images: int) -> None:
        """Sets bytes aside, waiting for others to let go if need be.

        Raises:
            PoolOverloaded: it could never fit, or nobody who holds results lets go of them.
        """
        if self._closed:
            return
        self.budget.check_possible(size_bytes, images)
        if not self._waiting and self._try(size_bytes):
            return
        granted: asyncio.Future[None] = self._loop.create_future()
        entry = (size_bytes, self._loop.time(), granted)
        self._waiting.append(entry)
        self._idle_since = self._loop.time()
        self._grant()
        try:
            await granted
        except asyncio.CancelledError:
            if granted.done() and not granted.cancelled() and granted.exception() is None:
                self.withdraw(size_bytes)
            raise
        finally:
            if entry in self._waiting:
                self._waiting.remove(entry)

    def _try(self, size_bytes: int) -> bool:
        if self.budget.promise(size_bytes):
            return True
        # Results kept for repeats give way to results that somebody waits for.
        self._evict(size_bytes - self.budget.free_bytes)
        self._collect()
        return self.budget.promise(size_bytes)

    def withdraw(self, size_bytes: int) -> None:
        """Gives promised bytes back: the image has its result, or will have none."""
        self.budget.withdraw(size_bytes)
        self._grant()

    def hold(self, size_bytes: int) -> None:
        """Counts a result that exists now."""
        self.budget.hold(size_bytes)

    @contextlib.contextmanager
    def claimed(self, size_bytes: int, timeout_s: float) -> Iterator[None]:
        """Sets bytes aside while a reader makes an object, which `adopt` counts. From any other thread.

        Raises:
            PoolOverloaded: as `promise`, or others took all that came free for as long as `timeout_s`.
        """
        promise = self.promise(size_bytes, 1)
        try:
            promised = asyncio.run_coroutine_threadsafe(promise, self._loop)
        except RuntimeError:
            # The router is closed, and nobody counts any more.
            promise.close()
            yield
            return
        try:
            promised.result(timeout_s)
        except BaseException as error:
            # Where it cannot be cancelled any more, it was made in that moment, or refused.
            if promised.cancel() and isinstance(error, FutureTimeoutError):
                raise PoolOverloaded(
                    f"{size_bytes} bytes for a copy of a result did not come free within {timeout_s:g} s "
                    "(object_store_budget_bytes)"
                ) from None
            if promised.cancelled() or promised.exception() is not None:
                raise
        try:
            yield
        finally:
            with contextlib.suppress(RuntimeError):
                self._loop.call_soon_threadsafe(self.withdraw, size_bytes)

    def adopt(self, size_bytes: int) -> None:
        """Counts a result that a reader made. From any thread, as `release`."""
        self.release(-size_bytes)

    def release(self, size_bytes: int) -> None:
        """Counts a result out. Called from finalizers: on any thread, at any moment, so it takes no lock."""
        self._released.append(size_bytes)
        if self._release_due:
            return
        # Once for all that go in one turn of the loop; waking it costs more than counting.
        self._release_due = True
        # Once the router is closed nobody counts any more.
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._on_release)

    def _on_release(self) -> None:
        # First: who lets go from now on wakes the loop again.
        self._release_due = False
        self._collect()
        self._grant()

    def _collect(self) -> None:
        while self._released:
            self.budget.release(self._released.popleft())

    def _grant(self) -> None:
        now = self._loop.time()
        for entry in list(self._waiting):
            size_bytes, since, granted = entry
            if granted.done():
                continue
            if self._try(size_bytes):
                granted.set_result(None)
                self._waiting.remove(entry)
                self._idle_since = now
            elif now - since > _OVERTAKEN_AT_MOST_S:
                return

    def close(self) -> None:
        """Counts no more, so that nobody waits who could wait for ever."""
        self._closed = True
        for _, _, granted in self._waiting:
            if not granted.done():
                granted.set_result(None)

    def tick(self) -> None:
        """Refuses those that wait although nothing runs whose end could help them."""
        now = self._loop.time()
        self._on_release()
        if not self._waiting or self.budget.promised_bytes > 0:
            self._idle_since = now
            return
        if now - self._idle_since < self._wait_s:
            return
        for size_bytes, _, granted in list(self._waiting):
            if not granted.done():
                granted.set_exception(
                    PoolOverloaded(
                        f"{size_bytes} bytes of results do not fit: results that are still referred to "
                        f"hold {self.budget.held_bytes} of {self.budget.budget_bytes} bytes "
                        "(object_store_budget_bytes); let go of some, of their views, and of images of the "
                        "same request, which may share an object"
                    )
                )
