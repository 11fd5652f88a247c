"""How a batch travels to a worker: inside the call, as far as Ray carries it there.

Ray puts an argument of more than 100 KiB into the object store, from where the worker has to fetch it and
the caller to free it, which takes longer than sending some hundreds of kilobytes. So a short request goes as
its pickle, cut into arguments below that size. In the call each byte is copied some eight times, in the store
once: beyond half a megabyte the store is faster, four times so at four megabytes.
"""

from __future__ import annotations

import pickle
from typing import Any, cast

from .messages import BatchRequest

__all__ = ["PIECE_BYTES", "cut", "from_arguments", "to_arguments"]

PIECE_BYTES = 96 << 10
"""Of one argument; with what Ray adds it stays below 100 KiB."""
_MOST_BYTES = 512 << 10
"""Of one call."""


def to_arguments(request: BatchRequest) -> tuple[Any, ...]:
    """The arguments that `from_arguments` takes."""
    references = any(source.kind == "ref" for source in request.sources)
    size_bytes = sum(source.transfer_bytes for source in request.sources)
    # Ray must see its references, or it would not know that they are on their way.
    if references or size_bytes > _MOST_BYTES:
        return (request,)
    data = pickle.dumps(request, protocol=5)
    return cut(data)


def cut(data: bytes) -> tuple[bytes, ...]:
    """`data` in pieces that Ray carries inside a call."""
    return tuple(data[start : start + PIECE_BYTES] for start in range(0, len(data), PIECE_BYTES))


def from_arguments(arguments: tuple[Any, ...]) -> BatchRequest:
    """The inverse of `to_arguments`."""
    if isinstance(arguments[0], bytes):
        return cast(BatchRequest, pickle.loads(b"".join(arguments)))
    return cast(BatchRequest, arguments[0])
