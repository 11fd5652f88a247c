"""Deadlines that hold whatever Ray does: the one place where a caller stops waiting.

Ray's own time-outs hold as long as its processes answer. One that is frozen keeps a call for ever, so calls
that may be kept are made on threads of their own, which are left behind where the time is up.
"""

from __future__ import annotations

import asyncio
import queue
import threading
from collections.abc import Callable
from concurrent.futures import CancelledError, Future
from concurrent.futures import TimeoutError as FutureTimeoutError
from typing import Any, TypeVar

from .errors import DeadlineExceeded

__all__ = ["GRACE_S", "awaited", "waited", "within"]

T = TypeVar("T")

GRACE_S = 0.5
"""What whoever does the work has to say so itself that the time is up."""
_IDLE_THREADS = 8

_idle: queue.LifoQueue[queue.SimpleQueue[Any]] = queue.LifoQueue(_IDLE_THREADS)


def within(call: Callable[[], T], timeout_s: float) -> T:
    """The outcome of a call that should end in time by itself; made on another thread.

    Raises:
        DeadlineExceeded: it did not.
    """
    outcome: Future[T] = Future()
    _hand(call, outcome)
    return waited(outcome, timeout_s)


def waited(outcome: Future[T], timeout_s: float | None) -> T:
    """The result of a future whose maker keeps `timeout_s` itself, if it can; cancels it where it does not.

    Raises:
        DeadlineExceeded: it did not.
    """
    try:
        return outcome.result(None if timeout_s is None else timeout_s + GRACE_S)
    except FutureTimeoutError:
        # Also what a call may raise that did end; that is an outcome.
        if outcome.done():
            raise
        outcome.cancel()
        raise _late(timeout_s) from None
    except CancelledError:
        raise
    except BaseException:
        outcome.cancel()
        raise


async def awaited(outcome: Future[T], timeout_s: float | None) -> T:
    """As `waited`, for coroutines. Cancelled, it cancels the future."""
    wrapped = asyncio.wrap_future(outcome)
    try:
        # Not `wait_for`, which before Python 3.12 can swallow a cancellation.
        await asyncio.wait({wrapped}, timeout=None if timeout_s is None else timeout_s + GRACE_S)
        if not wrapped.done():
            raise _late(timeout_s)
        return await wrapped
    finally:
        wrapped.cancel()


def _late(timeout_s: float | None) -> DeadlineExceeded:
    return DeadlineExceeded(f"nothing was heard within {timeout_s:g} s; Ray may be frozen or gone")


def _hand(call: Callable[[], T], outcome: Future[T]) -> None:
    try:
        jobs = _idle.get_nowait()
    except queue.Empty:
        jobs = queue.SimpleQueue()
        # A daemon: one that is kept for ever must not keep the interpreter.
        threading.Thread(target=_serve, args=(jobs,), name="mm-deadline", daemon=True).start()
    jobs.put((call, outcome))


def _serve(jobs: queue.SimpleQueue[Any]) -> None:
    while True:
        call, outcome = jobs.get()
        if outcome.set_running_or_notify_cancel():
            try:
                result = call()
            except BaseException as error:
                outcome.set_exception(error)
                error = None  # type: ignore[assignment]
            else:
                outcome.set_result(result)
                del result
        # What it held must not live until the next call.
        del call, outcome
        try:
            _idle.put_nowait(jobs)
        except queue.Full:
            return
