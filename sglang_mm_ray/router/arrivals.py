"""What came back from a worker: its facts and references, made into results that are counted and kept."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..messages import Failure, ImageFacts
from ..metrics import RouterMetrics
from ..results.stored import StoredObject, StoredResult
from .ledger import Ledger
from .result_cache import ResultCache

__all__ = ["Arrivals"]


class Arrivals:
    """Takes answers in: each object is counted once, by the bytes of all that lies in it."""

    def __init__(self, ledger: Ledger, cache: ResultCache, metrics: RouterMetrics) -> None:
        self._metrics = metrics
        self._ledger = ledger
        self._cache = cache

    def take(
        self, outcomes: Sequence[ImageFacts | Failure], refs: Sequence[Any], node_id: str, together: bool
    ) -> list[StoredResult | Failure]:
        """A result for each image that has one; `refs` are one for each image, or one for all `together`."""
        if together:
            return self._shelved(outcomes, refs[0], node_id)
        return [
            self._shelved([outcome], ref, node_id, alone=True)[0]
            for outcome, ref in zip(outcomes, refs, strict=True)
        ]

    def _shelved(
        self, outcomes: Sequence[ImageFacts | Failure], ref: Any, node_id: str, alone: bool = False
    ) -> list[StoredResult | Failure]:
        size_bytes = sum(facts.nbytes for facts in outcomes if isinstance(facts, ImageFacts))
        self._ledger.hold(size_bytes)
        self._metrics.count("router_result_bytes_total", size_bytes)
        stored_object = StoredObject(ref, node_id, size_bytes, self._ledger)
        taken: list[StoredResult | Failure] = [
            facts if isinstance(facts, Failure) else StoredResult(facts, stored_object, None if alone else at)
            for at, facts in enumerate(outcomes)
        ]
        self._cache.put([result for result in taken if isinstance(result, StoredResult)])
        return taken
