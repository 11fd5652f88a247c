"""How much may wait, and how much of the object store may be held. No Ray, no clock.

Ray does not refuse when its store is full: it spills to disk, or maps memory elsewhere, or waits. So the
bytes of results, those that exist and those that running requests will need, are counted here.
"""

from __future__ import annotations

from dataclasses import dataclass

from ..errors import PoolOverloaded

__all__ = ["Amount", "QueueBounds", "StoreBudget", "Waiting"]


@dataclass(frozen=True, slots=True)
class Amount:
    """Images with the encoded bytes that the queue keeps alive for them."""

    images: int
    input_bytes: int


@dataclass(frozen=True, slots=True)
class QueueBounds:
    """The most that may be under way in one router, waiting or running."""

    max_images: int
    max_input_bytes: int


class Waiting:
    """Counts what is under way in a router and refuses what goes beyond."""

    def __init__(self, bounds: QueueBounds) -> None:
        self.bounds = bounds
        self.images = 0
        self.input_bytes = 0

    def room_images(self) -> int:
        """How many more images may come."""
        return max(0, self.bounds.max_images - self.images)

    def enter(self, amount: Amount) -> None:
        """Counts a request in, or refuses it as a whole.

        Raises:
            PoolOverloaded: over a bound, which the message names.
        """
        bounds = self.bounds
        if self.images + amount.images > bounds.max_images:
            raise PoolOverloaded(
                f"{self.images} images are under way and {amount.images} more would pass the bound of "
                f"{bounds.max_images} (max_queued_images); send fewer at a time, or use stream()"
            )
        if self.input_bytes + amount.input_bytes > bounds.max_input_bytes and self.images:
            raise PoolOverloaded(
                f"{self.input_bytes} bytes of input are under way and {amount.input_bytes} more would pass "
                f"the bound of {bounds.max_input_bytes} (max_queued_bytes); try again later"
            )
        self.images += amount.images
        self.input_bytes += amount.input_bytes

    def leave(self, amount: Amount) -> None:
        """Counts it out again."""
        self.images -= amount.images
        self.input_bytes -= amount.input_bytes


class StoreBudget:
    """Bytes of the object store: promised to running requests, or held by results that exist."""

    def __init__(self, budget_bytes: int) -> None:
        self.budget_bytes = budget_bytes
        self.promised_bytes = 0
        self.held_bytes = 0

    @property
    def free_bytes(self) -> int:
        """What is neither promised nor held; negative if results came out larger than expected."""
        return self.budget_bytes - self.promised_bytes - self.held_bytes

    def check_possible(self, size_bytes: int, images: int) -> None:
        """Refuses what would not fit into an empty store.

        Raises:
            PoolOverloaded: the results of the request alone are over the budget.
        """
        if size_bytes > self.budget_bytes:
            raise PoolOverloaded(
                f"{images} results of about {size_bytes} bytes in all cannot be held at once within the "
                f"object store budget of {self.budget_bytes} bytes (object_store_budget_bytes); use stream() "
                "and let results go as you use them, or send fewer at a time"
            )

    def promise(self, size_bytes: int) -> bool:
        """Sets bytes aside; False, and nothing set aside, if they are not free."""
        if size_bytes > self.free_bytes:
            return False
        self.promised_bytes += size_bytes
        return True

    def withdraw(self, size_bytes: int) -> None:
        """Gives promised bytes back."""
        self.promised_bytes -= size_bytes

    def hold(self, size_bytes: int) -> None:
        """Counts a result that exists now."""
        self.held_bytes += size_bytes

    def release(self, size_bytes: int) -> None:
        """Counts a result out that nobody refers to any more."""
        self.held_bytes -= size_bytes
