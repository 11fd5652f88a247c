"""Which images travel together: a fair queue for each worker, cut into bounded batches. No Ray, no clock.

A batch is cut only when a worker has room for it, so an image never waits for company: batches grow because
the worker is busy, not because a timer runs. Requests take turns, a batch each. Long requests share a batch
with nobody, since a batch returns as a whole and the image of a short one would wait for strangers.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

__all__ = ["SHORT_IMAGES", "BatchLimits", "Cost", "FairQueue", "Queued"]

SHORT_IMAGES = 2
"""A request with at most so many images in a queue is short: several such share a batch."""


@dataclass(frozen=True, slots=True)
class Cost:
    """What one image is expected to take."""

    input_bytes: int
    output_bytes: int
    work_px: float
    """Pixels read plus pixels written."""

    @property
    def total_bytes(self) -> int:
        """Input and output together."""
        return self.input_bytes + self.output_bytes


@dataclass(frozen=True, slots=True)
class BatchLimits:
    """Bounds of one batch; its first image is exempt, or a large image could never travel."""

    max_images: int
    max_bytes: int
    max_work_px: float


class Queued(Protocol):
    """What a queue needs to know about an image."""

    @property
    def request_id(self) -> int: ...
    @property
    def cost(self) -> Cost: ...


T = TypeVar("T", bound=Queued)


class FairQueue(Generic[T]):
    """Images that wait for one worker, by request, in turns; short and long requests alternate."""

    def __init__(self) -> None:
        # Dicts as ordered sets: an image is cancelled by identity in constant time. A request that was long
        # once stays so until nothing of it waits.
        self._short: OrderedDict[int, dict[T, None]] = OrderedDict()
        self._long: OrderedDict[int, dict[T, None]] = OrderedDict()
        self._long_is_next = False
        self._images = 0
        self._work_px = 0.0

    def __len__(self) -> int:
        return self._images

    @property
    def work_px(self) -> float:
        """Work of all that wait."""
        return self._work_px

    @property
    def has_short(self) -> bool:
        """Whether an image of a short request waits."""
        return bool(self._short)

    def push(self, image: T) -> None:
        """Adds an image behind those of its request; a new request goes behind all others of its kind."""
        request_id = image.request_id
        waiting = self._long.get(request_id)
        if waiting is None:
            waiting = self._short.setdefault(request_id, {})
            if len(waiting) >= SHORT_IMAGES:
                self._long[request_id] = self._short.pop(request_id)
        waiting[image] = None
        self._images += 1
        self._work_px += image.cost.work_px

    def remove(self, image: T) -> bool:
        """Takes an image out; False if it does not wait here."""
        for requests in (self._short, self._long):
            waiting = requests.get(image.request_id)
            if waiting is not None and image in waiting:
                del waiting[image]
                if not waiting:
                    del requests[image.request_id]
                self._forget(image)
                return True
        return False

    def _forget(self, image: T) -> None:
        self._images -= 1
        self._work_px = self._work_px - image.cost.work_px if self._images else 0.0

    def drain(self) -> list[T]:
        """Takes everything out."""
        requests = [*self._short.values(), *self._long.values()]
        images = [image for waiting in requests for image in waiting]
        self._short.clear()
        self._long.clear()
        self._images, self._work_px = 0, 0.0
        return images

    def take(self, limits: BatchLimits) -> list[T]:
        """The next batch, at least one image if any waits: of one long request, or of any short ones."""
        if self._long and (self._long_is_next or not self._short):
            self._long_is_next = False
            request_id, waiting = next(iter(self._long.items()))
            batch = self._fill([], waiting, limits)
            if waiting:
                self._long.move_to_end(request_id)
            else:
                del self._long[request_id]
            return batch
        self._long_is_next = True
        return self.take_short(limits)

    def take_short(self, limits: BatchLimits) -> list[T]:
        """The next batch of short requests only; empty if there is none."""
        batch: list[T] = []
        while self._short:
            request_id, waiting = next(iter(self._short.items()))
            self._fill(batch, waiting, limits)
            if waiting:
                break
            del self._short[request_id]
        return batch

    def _fill(self, batch: list[T], waiting: dict[T, None], limits: BatchLimits) -> list[T]:
        left_bytes = limits.max_bytes - sum(image.cost.total_bytes for image in batch)
        left_px = limits.max_work_px - sum(image.cost.work_px for image in batch)
        while waiting:
            image = next(iter(waiting))
            left_bytes -= image.cost.total_bytes
            left_px -= image.cost.work_px
            if batch and (len(batch) >= limits.max_images or left_bytes < 0 or left_px < 0):
                break
            del waiting[image]
            self._forget(image)
            batch.append(image)
        return batch
