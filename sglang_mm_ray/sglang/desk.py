"""References to features, held for SGLang's schedulers until they have read them.

A reference that is pickled out of band is never freed by Ray, since nobody knows when the last reader is
done. So it stays with a `FeatureDesk`, an actor that hands it to readers over Ray's own channel (which counts
them) and lets it go when all expected readers have it, or when its lease ends.
"""

from __future__ import annotations

import threading
import time
import uuid
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import ray
from ray.exceptions import RayError

from ..errors import ResultLost
from .layout import Layout

__all__ = ["Desk", "FeatureDesk", "Ledger", "Ticket", "take"]

_NAMESPACE = "sglang-mm-ray"


@dataclass(frozen=True, slots=True)
class Ticket:
    """What travels instead of a feature."""

    desk: str
    """Name of the actor that holds the reference."""
    feature_id: str
    path: tuple[int, ...]
    """Where the tensor lies in the stored value, beside others and those of other images."""
    dtype: str
    shape: tuple[int, ...]
    """As the model reads it."""
    layout: Layout
    address: str
    """Ray address, for readers that are not connected yet."""


class Ledger:
    """Which references are held, for whom, until when. Pure; the clock is injected."""

    def __init__(self, clock: Any = time.monotonic) -> None:
        self._clock = clock
        self._held: OrderedDict[str, tuple[Any, int, float]] = OrderedDict()
        # A desk answers several readers at once, and of two who take the same feature none may find it gone.
        self._taking = threading.RLock()

    def hold(self, feature_id: str, value: Any, readers: int, lease_s: float) -> None:
        """Keeps `value` until `readers` have taken it, or for `lease_s`."""
        with self._taking:
            self.expire()
            self._held[feature_id] = (value, readers, self._clock() + lease_s)

    def take(self, feature_id: str) -> Any | None:
        """The value for one more reader, or None if it is gone."""
        with self._taking:
            self.expire()
            entry = self._held.pop(feature_id, None)
            if entry is None:
                return None
            value, readers, deadline = entry
            if readers > 1:
                self._held[feature_id] = (value, readers - 1, deadline)
            return value

    def drop(self, feature_ids: Sequence[str]) -> None:
        """Lets go at once: the request was cancelled."""
        with self._taking:
            for feature_id in feature_ids:
                self._held.pop(feature_id, None)

    def expire(self) -> int:
        """Lets go of what nobody fetched in time; how many that were."""
        now = self._clock()
        with self._taking:
            late = [feature_id for feature_id, (_, _, deadline) in self._held.items() if deadline <= now]
            self.drop(late)
        return len(late)

    def __len__(self) -> int:
        return len(self._held)


class FeatureDesk:
    """Actor that holds references for readers on other nodes. It never sees the data."""

    def __init__(self) -> None:
        self._ledger = Ledger()

    def hold(self, features: dict[str, list[Any]], readers: int, lease_s: float) -> None:
        """Keeps references (each in a list, so that Ray passes it on unread)."""
        for feature_id, wrapped in features.items():
            self._ledger.hold(feature_id, wrapped, readers, lease_s)

    def take(self, feature_ids: list[str]) -> list[list[Any] | None]:
        """The references, each in a list, for one more reader; None for one that is gone."""
        return [self._ledger.take(feature_id) for feature_id in feature_ids]

    def drop(self, feature_ids: list[str]) -> None:
        """Lets go at once."""
        self._ledger.drop(feature_ids)

    def held(self) -> int:
        """How many features wait for readers."""
        self._ledger.expire()
        return len(self._ledger)


class Desk:
    """This process's desk, which lives as long as its Ray job; another takes over from one that died."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._open: tuple[str, Any] | None = None

    def hold(
        self, references: Sequence[Any], readers: int, lease_s: float, timeout_s: float
    ) -> tuple[str, list[str]]:
        """Keeps each reference for so many readers; the desk's name and their ids. It has them on return.

        Raises:
            ResultLost: no desk answers.
        """
        ids = [uuid.uuid4().hex for _ in references]
        features = {feature_id: [reference] for feature_id, reference in zip(ids, references, strict=True)}
        error: RayError | None = None
        for _ in range(2):
            with self._lock:
                name, actor = self._open = self._open or _start()
            try:
                ray.get(actor.hold.remote(features, readers, lease_s), timeout=timeout_s)
                return name, ids
            except RayError as caught:
                error = caught
                with self._lock:
                    if self._open is not None and self._open[0] == name:
                        self._open = None
        raise ResultLost(f"nobody holds the features for their readers ({type(error).__name__})")


def _start() -> tuple[str, Any]:
    name = f"mm-features-{uuid.uuid4().hex}"
    actor: Any = ray.remote(FeatureDesk)
    options = {"num_cpus": 0, "max_concurrency": 16, "name": name, "namespace": _NAMESPACE}
    return name, actor.options(**options).remote()


def take(tickets: Sequence[Ticket], timeout_s: float) -> list[Any]:
    """The stored tensors of tickets, brought to this node; not yet in their layout. Blocks.

    Raises:
        ResultLost: a lease ended, all expected readers had a feature, its node or its desk is gone.
    """
    until = time.monotonic() + timeout_s
    references: dict[str, Any] = {}
    desks: dict[str, list[str]] = {}
    for ticket in tickets:
        desks.setdefault(ticket.desk, []).append(ticket.feature_id)
    try:
        for name, ids in desks.items():
            desk: Any = ray.get_actor(name, namespace=_NAMESPACE)
            answers = ray.get(desk.take.remote(ids), timeout=timeout_s)
            references.update(zip(ids, answers, strict=True))
        if None in references.values():
            raise ResultLost(
                "a feature is no longer held: its lease ended, or more processes read it than "
                "SGLANG_MM_RAY_READERS says"
            )
        # One call, so that what lies on other nodes comes side by side.
        wanted = [references[ticket.feature_id][0] for ticket in tickets]
        values = ray.get(wanted, timeout=max(0.001, until - time.monotonic()))
    except (ValueError, RayError) as error:
        raise ResultLost(f"a feature cannot be fetched ({type(error).__name__})") from error
    stored = []
    for value, ticket in zip(values, tickets, strict=True):
        for place in ticket.path:
            value = value[place]
        stored.append(value)
    return stored
