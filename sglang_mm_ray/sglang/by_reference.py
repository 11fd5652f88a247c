"""Features that travel between SGLang's nodes as Ray references.

SGLang with more than one node sends a request to its scheduler processes by pickle, once over a socket and
once more as a broadcast. A `ReferencedTensor` pickles as a ticket of some hundred bytes, and what arrives is
a `PendingFeature`: unpickling neither waits nor fails. Each rank then fetches, before it starts the request
(see `materialise`), from the object store of its own node, through a sidecar of its own.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from typing import Any

import torch

from .desk import Ticket

__all__ = ["PendingFeature", "ReferencedTensor"]

_TORCH = {
    "bfloat16": torch.bfloat16,
    "float16": torch.float16,
    "float32": torch.float32,
    "uint8": torch.uint8,
    "int32": torch.int32,
    "int64": torch.int64,
}


class ReferencedTensor(torch.Tensor):  # type: ignore[misc]
    """A tensor without memory (on the device `meta`) that has a feature's shape and pickles as its ticket.

    It is not on the CPU, so SGLang leaves it alone where it moves features to shared memory.
    """

    ticket: Ticket

    # Results of operations are plain tensors: a slice must not pickle as the whole.
    __torch_function__ = torch._C._disabled_torch_function_impl

    @staticmethod
    def of(ticket: Ticket) -> ReferencedTensor:
        """What travels as `ticket`."""
        empty = torch.empty(ticket.shape, dtype=_TORCH[ticket.dtype], device="meta")
        tensor: ReferencedTensor = torch.Tensor._make_subclass(ReferencedTensor, empty)
        tensor.ticket = ticket
        return tensor

    def __reduce_ex__(self, protocol: Any) -> Any:
        return _pending, (self.ticket,)

    def __deepcopy__(self, memo: dict[int, Any]) -> ReferencedTensor:
        return ReferencedTensor.of(self.ticket)


@dataclass(frozen=True, slots=True)
class PendingFeature:
    """A feature that has not been fetched yet, in a process that received its ticket."""

    ticket: Ticket

    def __reduce__(self) -> Any:
        return _pending, (self.ticket,)


def _pending(ticket: Ticket) -> PendingFeature:
    # The first ticket of a process. Without the hook SGLang fails on the feature itself, which says so.
    with contextlib.suppress(Exception):
        from .materialise import install

        install()
    return PendingFeature(ticket)
