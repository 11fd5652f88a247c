"""A cache bounded in bytes, least recently used out first, keyed by the whole content digest."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable
from typing import Generic, TypeVar

__all__ = ["ENTRY_OVERHEAD_BYTES", "ByteCache"]

V = TypeVar("V")

ENTRY_OVERHEAD_BYTES = 1024
"""Key, dict slot, entry and the facts of a result: measured at under a kilobyte."""


class ByteCache(Generic[V]):
    """Values by digest; safe for threads. A value is published when it exists, never before."""

    def __init__(self, capacity_bytes: int, on_gone: Callable[[V], None] | None = None) -> None:
        """`on_gone` hears of every value that goes, outside the lock."""
        self.capacity_bytes = capacity_bytes
        self._on_gone = on_gone
        self._entries: OrderedDict[bytes, tuple[V, int]] = OrderedDict()
        self._lock = threading.Lock()
        self.size_bytes = 0
        self.hits = 0
        self.misses = 0
        self.evictions = 0

    def __len__(self) -> int:
        return len(self._entries)

    def get(self, digest: bytes) -> V | None:
        """The value, now the most recently used; None if there is none."""
        with self._lock:
            entry = self._entries.get(digest)
            if entry is None:
                self.misses += 1
                return None
            self._entries.move_to_end(digest)
            self.hits += 1
            return entry[0]

    def put(self, digest: bytes, value: V, size_bytes: int) -> bool:
        """Adds a value and evicts others to make room; False if it is larger than the whole cache."""
        size_bytes += ENTRY_OVERHEAD_BYTES
        if size_bytes > self.capacity_bytes:
            return False
        evicted: list[V] = []
        with self._lock:
            old = self._entries.pop(digest, None)
            if old is not None:
                self.size_bytes -= old[1]
            evicted = self._shrink(self.capacity_bytes - size_bytes)
            self._entries[digest] = (value, size_bytes)
            self.size_bytes += size_bytes
        if old is not None:
            evicted.append(old[0])
            del old
        self._tell(evicted)
        return True

    def _tell(self, gone: list[V]) -> None:
        # Outside the lock: what values release may call back.
        if self._on_gone is not None:
            for value in gone:
                self._on_gone(value)

    def _shrink(self, size_bytes: int) -> list[V]:
        evicted = []
        while self._entries and self.size_bytes > size_bytes:
            _, (value, freed) = self._entries.popitem(last=False)
            self.size_bytes -= freed
            self.evictions += 1
            evicted.append(value)
        return evicted

    def free(self, size_bytes: int) -> None:
        """Evicts until at least so many bytes more are free, or nothing is left."""
        with self._lock:
            evicted = self._shrink(max(0, self.size_bytes - size_bytes))
        self._tell(evicted)

    def remove(self, digest: bytes) -> None:
        """Forgets one value, if it is there."""
        with self._lock:
            entry = self._entries.pop(digest, None)
            if entry is not None:
                self.size_bytes -= entry[1]
        if entry is not None:
            self._tell([entry[0]])

    def remove_if(self, predicate: Callable[[V], bool]) -> None:
        """Forgets all values that `predicate` holds for."""
        with self._lock:
            gone = [digest for digest, (value, _) in self._entries.items() if predicate(value)]
        for digest in gone:
            self.remove(digest)

    def clear(self) -> None:
        """Forgets everything."""
        with self._lock:
            entries, self._entries = self._entries, OrderedDict()
            self.size_bytes = 0
        self._tell([value for value, _ in entries.values()])

    def counters(self) -> dict[str, int]:
        """Sizes and counts, for metrics and status."""
        return {
            "images": len(self._entries),
            "bytes": self.size_bytes,
            "capacity_bytes": self.capacity_bytes,
            "hits": self.hits,
            "misses": self.misses,
            "evictions": self.evictions,
        }
