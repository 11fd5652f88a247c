"""A request: some images of one call, answered in any order. Belongs to the router's loop."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

from ..errors import PoisonImage, PreprocessError, with_context
from ..results.image import ProcessedImage
from ..routing.batching import Cost
from ..routing.scheduler import Flight
from ..sources.source import Source

__all__ = ["ImageOutcome", "InFlight", "Request", "Waiter", "poison_image"]

ImageOutcome: TypeAlias = "ProcessedImage | PreprocessError"

_ids = itertools.count(1)


@dataclass(eq=False, slots=True)
class InFlight:
    """The payload of a flight: what to send, and who waits for the answer."""

    identity: bytes
    source: Source
    waiters: list[Waiter]
    queued_at: float
    busy_retries: int = 0
    losses: int = 0
    """Workers that died while they held it."""
    losses_before: int = 0
    """Workers of this router that had died before the first of them."""


@dataclass(frozen=True, eq=False, slots=True)
class Waiter:
    """A place in a request that an image in flight will fill."""

    request: Request
    index: int
    source: Any
    """As the caller handed it in."""


class Request:
    """The open places of one call. `on_outcome` hears of each exactly once."""

    def __init__(self, on_outcome: Callable[[int, Cost, ImageOutcome], None]) -> None:
        self.request_id = next(_ids)
        self.started = time.perf_counter()
        self._on_outcome = on_outcome
        self._open: dict[int, tuple[Cost, Flight | None]] = {}

    def expect(self, index: int, cost: Cost) -> None:
        """Opens a place."""
        self._open[index] = (cost, None)

    def follow(self, index: int, flight: Flight) -> None:
        """Notes which flight will fill a place."""
        cost, _ = self._open[index]
        self._open[index] = (cost, flight)

    def is_open(self, index: int) -> bool:
        """Whether a place still waits."""
        return index in self._open

    def flights(self) -> list[tuple[int, Flight]]:
        """The flights that open places wait for."""
        return [(index, flight) for index, (_, flight) in self._open.items() if flight is not None]

    def settle(self, index: int, outcome: ImageOutcome) -> None:
        """Fills a place; nothing happens if it is filled already."""
        place = self._open.pop(index, None)
        if place is None:
            return
        if isinstance(outcome, PreprocessError):
            outcome = with_context(_own_copy(outcome), index=index)
        self._on_outcome(index, place[0], outcome)

    def settle_all(self, make_error: Callable[[], PreprocessError]) -> None:
        """Fills all open places with errors."""
        for index in list(self._open):
            self.settle(index, make_error())


def _own_copy(error: PreprocessError) -> PreprocessError:
    # Several requests may wait for one image, each at another index, and a raised error grows a traceback.
    copy = type(error).__new__(type(error), *error.args)
    copy.__dict__.update(error.__dict__)
    copy.args = error.args
    return copy


def poison_image(source: Source, quarantine_s: float) -> PoisonImage:
    """Why an image is refused that has killed workers."""
    return PoisonImage(
        f"image {source.key.hex()[:16]} ({source.label}) has killed workers and is refused for "
        f"{quarantine_s:g} s (quarantine_s)"
    )
