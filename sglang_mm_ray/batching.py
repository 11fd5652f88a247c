"""Which images travel together: a fair queue for each worker, cut into bounded batches. No Ray, no clock.

A batch is cut only when a worker has room for it, so an image never waits for company: batches grow because
the worker is busy, not because a timer runs. Requests take turns, a batch each. Long requests do not share a
batch with others, since a batch returns as a whole and the image of a short one would wait for strangers.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

__all__ = ["BatchLimits", "Cost", "FairQueue", "Queued"]

# A request with at most so many images in a queue is short: several such share a batch.
_SHORT_IMAGES = 2


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
    """Images that wait for one worker, by request, in turns."""

    def __init__(self) -> None:
        # Dicts as ordered sets: an image is cancelled by identity in constant time.
        self._requests: OrderedDict[int, dict[T, None]] = OrderedDict()
        self._images = 0
        self._work_px = 0.0

    def __len__(self) -> int:
        return self._images

    @property
    def work_px(self) -> float:
        """Work of all that wait."""
        return self._work_px

    def push(self, image: T) -> None:
        """Adds an image behind those of its request; a new request goes behind all others."""
        self._requests.setdefault(image.request_id, {})[image] = None
        self._images += 1
        self._work_px += image.cost.work_px

    def remove(self, image: T) -> bool:
        """Takes an image out; False if it does not wait here."""
        waiting = self._requests.get(image.request_id)
        if waiting is None or image not in waiting:
            return False
        del waiting[image]
        if not waiting:
            del self._requests[image.request_id]
        self._forget(image)
        return True

    def _forget(self, image: T) -> None:
        self._images -= 1
        self._work_px = self._work_px - image.cost.work_px if self._images else 0.0

    def drain(self) -> list[T]:
        """Takes everything out."""
        images = [image for waiting in self._requests.values() for image in waiting]
        self._requests.clear()
        self._images, self._work_px = 0, 0.0
        return images

    def take(self, limits: BatchLimits) -> list[T]:
        """The next batch, at least one image if any waits; the request it came from goes to the back."""
        batch: list[T] = []
        left_bytes, left_px = limits.max_bytes, limits.max_work_px
        while self._requests:
            request_id, waiting = next(iter(self._requests.items()))
            short = len(waiting) <= _SHORT_IMAGES
            if batch and not short:
                break
            full = False
            while waiting:
                image = next(iter(waiting))
                cost = image.cost
                left_bytes -= cost.total_bytes
                left_px -= cost.work_px
                if batch and (len(batch) >= limits.max_images or left_bytes < 0 or left_px < 0):
                    full = True
                    break
                del waiting[image]
                self._forget(image)
                batch.append(image)
            if waiting:
                self._requests.move_to_end(request_id)
            else:
                del self._requests[request_id]
            if full or not short:
                break
        return batch
