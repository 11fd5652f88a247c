"""How a feature reaches SGLang's schedulers: as a plain tensor, or by reference."""

from __future__ import annotations

import uuid
from collections.abc import Awaitable
from typing import Any, TypeVar

from ..errors import DeadlineExceeded, FetchError, InputError, PoolOverloaded, PreprocessError
from .backend import Feature
from .settings import Settings
from .tensors import Layout, as_tensor, for_consumer

__all__ = ["FeatureSender", "reader_count"]

T = TypeVar("T")


def reader_count(server_args: Any) -> int:
    """How many scheduler processes read the features of one request.

    Every rank of a tensor-parallel group does, in every pipeline stage; with data-parallel attention only the
    ranks that share the request's waiting queue.
    """
    tp_size = int(getattr(server_args, "tp_size", 1) or 1)
    pp_size = int(getattr(server_args, "pp_size", 1) or 1)
    dp_size = int(getattr(server_args, "dp_size", 1) or 1)
    if getattr(server_args, "enable_dp_attention", False):
        tp_size //= dp_size
    return max(1, tp_size) * pp_size


class FeatureSender:
    """Makes the tensors that SGLang's items carry."""

    def __init__(self, settings: Settings, server_args: Any) -> None:
        self._settings = settings
        self._readers = settings.readers or reader_count(server_args)
        self._desk: tuple[str, Any] | None = None

    def tensor(self, feature: Feature, name: str, layout: Layout = "stored", temporal_copies: int = 1) -> Any:
        """The named tensor of an image as its consumer reads it, see `for_consumer`.

        With `features=reference` and a feature that has a reference, a `ReferencedTensor`.
        """
        stored = as_tensor(feature.tensors[name], feature.dtypes[name])
        tensor = for_consumer(stored, layout, temporal_copies)
        if self._settings.features != "reference" or feature.ref is None:
            return tensor
        from .by_reference import ReferencedTensor, Ticket, open_desk

        if self._desk is None:
            self._desk = open_desk()
        desk_name, desk = self._desk
        ticket = Ticket(
            desk=desk_name,
            feature_id=uuid.uuid4().hex,
            path=(*feature.path, *([list(feature.tensors).index(name)] if len(feature.tensors) > 1 else [])),
            dtype=feature.dtypes[name],
            layout=layout,
            temporal_copies=temporal_copies,
            address=self._settings.address,
            timeout_s=self._settings.timeout_s,
        )
        desk.hold.remote({ticket.feature_id: [feature.ref]}, self._readers, self._settings.lease_s)
        return ReferencedTensor.wrap(tensor, ticket, feature.ref)

    async def guard(self, work: Awaitable[T]) -> T:
        """Awaits `work`, with errors as SGLang's server expects them.

        Raises:
            ValueError: the input is at fault (answered with 400).
            fastapi.HTTPException: 503 if the pool is overloaded or unreachable, 504 past the deadline.
        """
        try:
            return await work
        except (InputError, FetchError):
            raise
        except PreprocessError as error:
            from fastapi import HTTPException

            status = 504 if isinstance(error, DeadlineExceeded) else 503 if _passing(error) else 500
            raise HTTPException(status_code=status, detail=str(error)) from error


def _passing(error: PreprocessError) -> bool:
    return isinstance(error, PoolOverloaded) or bool(getattr(error, "retriable", False))
