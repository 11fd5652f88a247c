"""At most so many holders of a key at a time, for coroutines of one event loop."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Hashable

__all__ = ["Slots"]


class Slots:
    """Hands out `limit` slots for each key, first come, first served; a key in use takes memory."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._keys: dict[Hashable, tuple[asyncio.Semaphore, int]] = {}

    @contextlib.asynccontextmanager
    async def hold(self, key: Hashable) -> AsyncIterator[None]:
        """Waits for a slot of `key` and holds it."""
        semaphore, users = self._keys.get(key) or (asyncio.Semaphore(self._limit), 0)
        self._keys[key] = semaphore, users + 1
        try:
            async with semaphore:
                yield
        finally:
            users = self._keys[key][1] - 1
            if users:
                self._keys[key] = semaphore, users
            else:
                del self._keys[key]

    def __len__(self) -> int:
        """How many keys are in use."""
        return len(self._keys)
