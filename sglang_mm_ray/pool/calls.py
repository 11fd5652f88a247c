"""The border of a pool: what callers pass, checked once, and how streams reach them."""

from __future__ import annotations

import asyncio
import contextlib
import queue
import time
from collections import deque
from collections.abc import AsyncIterator, Iterable, Iterator
from typing import Any, Literal, TypeAlias

from ..config import PoolConfig
from ..deadline import GRACE_S
from ..errors import DeadlineExceeded, InvalidArgument, PreprocessError
from ..router.requests import ImageOutcome
from ..router.router import Router

__all__ = ["OnError", "blocking_stream", "checked", "configured", "many", "pool_name", "raises", "stream"]

OnError: TypeAlias = Literal["raise", "return"]
_Item: TypeAlias = "tuple[int, ImageOutcome] | BaseException | None"


def configured(model: str | None, config: PoolConfig | None, fields: dict[str, Any]) -> PoolConfig:
    """A configuration from whatever of these there is."""
    if model is not None:
        fields = {"model": model, **fields}
    try:
        return PoolConfig(**fields) if config is None else config.replace(**fields)
    except TypeError as error:
        raise InvalidArgument(f"PoolConfig: {error}") from None


def pool_name(name: str) -> str:
    """The name, if it can be one."""
    if not isinstance(name, str) or not name or "/" in name or not name.isprintable():
        raise InvalidArgument(f"a pool's name must be printable and without slashes, not {name!r}")
    return name


def many(sources: Any) -> Any:
    """The sources, unless they are a single one."""
    # A text, a file or one image would be taken apart, and each character, line or row refused.
    single = isinstance(sources, (str, bytes, bytearray, memoryview)) or hasattr(sources, "read")
    if single or getattr(sources, "ndim", 1) != 1 or not hasattr(sources, "__iter__"):
        hint = ", with the bytes of the file" if hasattr(sources, "read") else ""
        raise InvalidArgument(f"pass a list of sources{hint}, not one {type(sources).__name__}")
    return sources


def raises(on_error: str) -> bool:
    """Whether the first error is to be raised."""
    if on_error not in ("raise", "return"):
        raise InvalidArgument(f'on_error must be "raise" or "return", not {on_error!r}')
    return on_error == "raise"


def checked(outcomes: list[Any]) -> list[Any]:
    """The outcomes, if none is an error."""
    for outcome in outcomes:
        if isinstance(outcome, PreprocessError):
            raise outcome
    return outcomes


async def stream(
    router: Router, sources: Iterable[Any], timeout_s: float | None, raises: bool
) -> AsyncIterator[tuple[int, Any]]:
    """See `PreprocessPool.stream`."""
    loop = asyncio.get_running_loop()
    finished: deque[_Item] = deque()
    arrived = asyncio.Event()

    def put(item: _Item) -> None:
        finished.append(item)
        # One wake for all that come before the consumer looks; one whose loop is closed hears nothing.
        if len(finished) == 1:
            with contextlib.suppress(RuntimeError):
                loop.call_soon_threadsafe(arrived.set)

    running = router.stream(sources, put, timeout_s)
    until = _until(timeout_s)
    # The router says so itself that the time is up; this is for one that cannot.
    late = loop.call_later(max(0.0, until - time.monotonic()), put, _late(timeout_s)) if timeout_s else None
    try:
        while True:
            while not finished:
                arrived.clear()
                if not finished:
                    await arrived.wait()
            item = finished.popleft()
            if item is None:
                return
            index, outcome = _outcome(item, raises)
            del item
            yield index, outcome
            # A generator that waits for the next image must not keep the last one.
            del outcome
    finally:
        if late is not None:
            late.cancel()
        running.cancel()


def blocking_stream(
    router: Router, sources: Iterable[Any], timeout_s: float | None, raises: bool
) -> Iterator[tuple[int, Any]]:
    """See `PreprocessPool.stream_blocking`."""
    finished: queue.SimpleQueue[_Item] = queue.SimpleQueue()
    running = router.stream(sources, finished.put, timeout_s)
    until = _until(timeout_s)
    try:
        while True:
            try:
                item = finished.get(timeout=None if timeout_s is None else max(0.0, until - time.monotonic()))
            except queue.Empty:
                raise _late(timeout_s) from None
            if item is None:
                return
            index, outcome = _outcome(item, raises)
            del item
            yield index, outcome
            del outcome
    finally:
        running.cancel()


def _outcome(item: tuple[int, ImageOutcome] | BaseException, raises: bool) -> tuple[int, ImageOutcome]:
    if isinstance(item, BaseException):
        raise item
    if raises and isinstance(item[1], PreprocessError):
        raise item[1]
    return item


def _until(timeout_s: float | None) -> float:
    return time.monotonic() + (timeout_s or 0.0) + GRACE_S


def _late(timeout_s: float | None) -> DeadlineExceeded:
    return DeadlineExceeded(f"the stream heard nothing within {timeout_s:g} s; Ray may be frozen or gone")
