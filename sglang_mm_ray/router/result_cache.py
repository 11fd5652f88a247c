"""What a router keeps for repeats: references to results, bounded in bytes of the objects that hold them."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ..cache import ENTRY_OVERHEAD_BYTES, ByteCache
from ..results.stored import StoredResult

__all__ = ["ResultCache"]


@dataclass(frozen=True, eq=False, slots=True)
class _Shelf:
    """The results of one object, which stay and go together: the last of them would hold all the memory."""

    key: bytes
    results: dict[bytes, StoredResult]


class ResultCache:
    """Results by whole content digest, least recently used objects out first; safe for threads.

    A kept result that is copied to an object of its own counts by its old one, so what the cache holds may
    be up to twice what it counts; the budget of the store counts it all.
    """

    def __init__(self, capacity_bytes: int) -> None:
        self._shelves: ByteCache[_Shelf] = ByteCache(capacity_bytes, self._gone)
        self._index: dict[bytes, bytes] = {}
        self._lock = threading.Lock()
        self._keys = itertools.count()
        self.misses = 0

    @property
    def size_bytes(self) -> int:
        """Bytes of the objects that are kept."""
        return self._shelves.size_bytes

    def get(self, digest: bytes) -> StoredResult | None:
        """The result, its object now the most recently used; None if there is none."""
        key = self._index.get(digest)
        shelf = None if key is None else self._shelves.get(key)
        result = None if shelf is None else shelf.results.get(digest)
        if result is None:
            self.misses += 1
        return result

    def put(self, results: Sequence[StoredResult]) -> None:
        """Keeps the results of one object; in place of older ones of the same content."""
        if not results:
            return
        shelf = _Shelf(
            next(self._keys).to_bytes(8, "big"), {result.facts.digest: result for result in results}
        )
        size_bytes = max(results[0].at[0].nbytes, sum(result.facts.nbytes for result in results))
        size_bytes += ENTRY_OVERHEAD_BYTES * (len(results) - 1)
        with self._lock:
            self._index.update(dict.fromkeys(shelf.results, shelf.key))
        if not self._shelves.put(shelf.key, shelf, size_bytes):
            self._gone(shelf)

    def _gone(self, shelf: _Shelf) -> None:
        with self._lock:
            for digest in shelf.results:
                if self._index.get(digest) == shelf.key:
                    del self._index[digest]

    def free(self, size_bytes: int) -> None:
        """Lets go until at least so many bytes more are free, or nothing is left."""
        self._shelves.free(size_bytes)

    def remove(self, digest: bytes) -> None:
        """Forgets one result, and its neighbours with it if it is kept."""
        key = self._index.get(digest)
        if key is not None:
            self._shelves.remove(key)

    def remove_if(self, predicate: Callable[[StoredResult], bool]) -> None:
        """Forgets all objects of whose results `predicate` holds for any."""
        self._shelves.remove_if(lambda shelf: any(map(predicate, shelf.results.values())))

    def clear(self) -> None:
        """Forgets everything."""
        self._shelves.clear()

    def counters(self) -> dict[str, int]:
        """Sizes and counts, for metrics and status."""
        return {**self._shelves.counters(), "images": len(self._index), "misses": self.misses}
