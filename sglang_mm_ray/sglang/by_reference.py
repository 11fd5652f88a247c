"""Features that travel between nodes as Ray references.

SGLang with more than one node sends a request to its scheduler processes by pickle, once over a socket and
once more as a broadcast. A `ReferencedTensor` is a tensor to whoever computes with it, but pickles as a
ticket of some hundred bytes; unpickling fetches the array from the object store of the reader's own node,
where Ray brings it once for all readers of that node.

A reference that is pickled out of band is never freed by Ray, since nobody knows when the last reader is
done. So the reference stays with a `FeatureDesk`, an actor that hands it to readers over Ray's own channel
(which counts them) and lets it go when all expected readers have it, or when its lease ends. A reader's
tensor holds the reference for as long as it lives, and no longer.
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
import torch

from ..errors import ResultLost
from .tensors import Layout, as_tensor, for_consumer

__all__ = ["FeatureDesk", "ReferencedTensor", "Ticket", "open_desk"]

_NAMESPACE = "sglang-mm-ray"
# Ray delivers the calls of two callers in any order, so a reader may reach the desk before the sender does.
_OVERTAKING_S = 0.5
_PAUSE_S = 0.01


@dataclass(frozen=True, slots=True)
class Ticket:
    """What travels instead of a feature."""

    desk: str
    """Name of the actor that holds the reference."""
    feature_id: str
    path: tuple[int, ...]
    """Where the tensor lies in the stored value, beside others and those of other images."""
    dtype: str
    layout: Layout
    """What the consumer makes of it, see `for_consumer`."""
    temporal_copies: int
    address: str
    """Ray address, for readers that are not connected yet."""
    timeout_s: float


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
        self.expired = 0

    def hold(self, features: dict[str, list[Any]], readers: int, lease_s: float) -> None:
        """Keeps references (each in a list, so that Ray passes it on unread)."""
        self.expired += self._ledger.expire()
        for feature_id, wrapped in features.items():
            self._ledger.hold(feature_id, wrapped, readers, lease_s)

    def take(self, feature_id: str) -> list[Any] | None:
        """The reference, in a list, for one more reader."""
        return self._ledger.take(feature_id)

    def drop(self, feature_ids: list[str]) -> None:
        """Lets go at once."""
        self._ledger.drop(feature_ids)

    def held(self) -> int:
        """How many features wait for readers."""
        self.expired += self._ledger.expire()
        return len(self._ledger)


def open_desk() -> tuple[str, Any]:
    """Starts a desk that lives as long as this process's Ray job: its name and handle."""
    name = f"mm-features-{uuid.uuid4().hex}"
    actor: Any = ray.remote(FeatureDesk)
    options = {"num_cpus": 0, "max_concurrency": 16, "name": name, "namespace": _NAMESPACE}
    return name, actor.options(**options).remote()


class ReferencedTensor(torch.Tensor):  # type: ignore[misc]
    """A tensor over the object store that pickles as a `Ticket`.

    Every operation on it gives a plain tensor; only the object itself travels by reference.
    """

    ticket: Ticket
    _ref: Any

    # Results of operations are plain tensors: a slice must not pickle as the whole.
    __torch_function__ = torch._C._disabled_torch_function_impl

    @staticmethod
    def wrap(tensor: torch.Tensor, ticket: Ticket, ref: Any) -> ReferencedTensor:
        """`tensor`, which looks into the array of `ref`, as one that travels as `ticket`."""
        wrapped: ReferencedTensor = torch.Tensor._make_subclass(ReferencedTensor, tensor)
        wrapped.ticket = ticket
        wrapped._ref = ref
        return wrapped

    def __reduce_ex__(self, protocol: Any) -> Any:
        return fetch, (self.ticket,)


def fetch(ticket: Ticket) -> ReferencedTensor:
    """Turns a ticket into a tensor on the reader's node; called by pickle.

    Raises:
        ResultLost: the lease ended, all expected readers had it, or its node is gone.
    """
    if not ray.is_initialized():
        ray.init(address=ticket.address, namespace=_NAMESPACE, log_to_driver=False)
    try:
        desk = ray.get_actor(ticket.desk, namespace=_NAMESPACE)
        wrapped = _take(desk, ticket)
        if wrapped is None:
            raise ResultLost(
                f"feature {ticket.feature_id} is no longer held: its lease ended, or more processes read it "
                "than SGLANG_MM_RAY_READERS says"
            )
        [ref] = wrapped
        value = ray.get(ref, timeout=ticket.timeout_s)
    except (ValueError, ray.exceptions.RayError) as error:
        raise ResultLost(f"feature {ticket.feature_id} cannot be fetched: {type(error).__name__}") from error
    return ReferencedTensor.wrap(tensor_of(value, ticket), ticket, ref)


def _take(desk: Any, ticket: Ticket) -> list[Any] | None:
    answered_at: float | None = None
    while True:
        wrapped: list[Any] | None = ray.get(desk.take.remote(ticket.feature_id), timeout=ticket.timeout_s)
        # From the first answer on: until then the desk itself may be starting.
        answered_at = answered_at or time.monotonic()
        if wrapped is not None or time.monotonic() - answered_at >= _OVERTAKING_S:
            return wrapped
        time.sleep(_PAUSE_S)


def tensor_of(value: Any, ticket: Ticket) -> torch.Tensor:
    """The ticket's tensor of a stored value, in the shape that the consumer expects."""
    for place in ticket.path:
        value = value[place]
    return for_consumer(as_tensor(value, ticket.dtype), ticket.layout, ticket.temporal_copies)
