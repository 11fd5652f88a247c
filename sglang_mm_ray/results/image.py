"""`ProcessedImage`: what a pool answers with. The facts are here; the tensors stay in the object store."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ..messages import ImageFacts
from .stored import StoredObject, StoredResult, read

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from ray import ObjectRef

__all__ = ["ProcessedImage"]

_READ_TIMEOUT_S = 60.0


class _Held:
    """Memory of the store, and what keeps it counted: the base of every view of it, and of their views."""

    __slots__ = ("__array_interface__", "_kept")

    def __init__(self, array: NDArray[Any], stored_object: StoredObject) -> None:
        self.__array_interface__ = array.__array_interface__
        self._kept = (array, stored_object)


def _counted(array: NDArray[Any], stored_object: StoredObject) -> NDArray[Any]:
    """The same memory; while a slice of it lives, the router's budget counts its object as held."""
    return np.asarray(_Held(array, stored_object))


class ProcessedImage:
    """One preprocessed image.

    Hold it for as long as the tensors are needed: the bytes in the store are freed with the last reference,
    in a request of many images those of one batch together.
    It may be pickled to other processes of the Ray cluster, which then hold a reference of their own.
    """

    __slots__ = ("_finish_with", "_source", "_stored", "origin", "times_s")

    def __init__(
        self,
        stored: StoredResult,
        finish_with: tuple[str, str],
        *,
        origin: str,
        times_s: dict[str, float],
        source: Any = None,
    ) -> None:
        self._stored = stored
        self._finish_with = finish_with
        self._source = source
        self.origin = origin
        """How it came about: `computed`, `joined`, `worker_cache` or `router_cache`."""
        self.times_s = times_s
        """Seconds by stage; what did not happen for this image is missing."""

    def __reduce__(self) -> Any:
        stored = self._stored
        # Neither the source, which may be large, nor the budget of the router goes along.
        return _unpickled, (stored.facts, stored.at, self._finish_with, self.origin, self.times_s)

    def __repr__(self) -> str:
        return (
            f"ProcessedImage({self.content_digest[:23]}..., {self.width}x{self.height}, "
            f"{self.num_tokens} tokens, {self.nbytes} bytes)"
        )

    @property
    def facts(self) -> ImageFacts:
        """All that is known beside the tensors."""
        return self._stored.facts

    @property
    def feature(self) -> ObjectRef[Any]:
        """The reference, owned by the process that asked: one array, or a tuple where there are several.

        An image of a request of many lies in one object with its neighbours; it is copied to an object of its
        own, on this node, when this is first asked for, which also ends its hold on theirs. Images may be
        passed to tasks and actors as they are, without a copy.

        Raises:
            ResultLost: the node that held it is gone.
            PoolOverloaded: the copy has no place in the router's `object_store_budget_bytes`, also after
                `store_wait_s`, as in `preprocess`.
        """
        return self._stored.own_ref(_READ_TIMEOUT_S)

    @property
    def content_hash(self) -> int:
        """First 8 bytes of the SHA-256 of the content, big-endian: SGLang's `data_hash`."""
        return self._stored.facts.content_hash

    @property
    def content_digest(self) -> str:
        """`sha256:` and 64 hex digits."""
        return f"sha256:{self._stored.facts.digest.hex()}"

    @property
    def height(self) -> int:
        """Height after resizing, in pixels."""
        return self._stored.facts.height

    @property
    def width(self) -> int:
        """Width after resizing, in pixels."""
        return self._stored.facts.width

    @property
    def grid_hw(self) -> tuple[int, int]:
        """Rows and columns of patches."""
        return self._stored.facts.grid[1:]

    @property
    def grid_thw(self) -> tuple[int, int, int]:
        """Temporal patches, rows and columns."""
        return self._stored.facts.grid

    @property
    def num_tokens(self) -> int:
        """Placeholder tokens that stand for the image."""
        return self._stored.facts.num_tokens

    @property
    def nbytes(self) -> int:
        """Bytes of all tensors as they are stored."""
        return self._stored.facts.nbytes

    @property
    def decoder(self) -> str:
        """Which decoder made the pixels; `pixels` where the source was pixels."""
        return self._stored.facts.decoder

    @property
    def tensor_names(self) -> tuple[str, ...]:
        """Names of the tensors."""
        return tuple(name for name, _, _ in self._stored.facts.tensors)

    @property
    def dtype(self) -> str:
        """Dtype tag of the first tensor: `bfloat16` (bits in uint16), `float32`, `uint8` or `int64`."""
        return self._stored.facts.tensors[0][1]

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the first tensor as it is stored."""
        return self._stored.facts.tensors[0][2]

    def array(self, name: str | None = None, *, timeout_s: float = _READ_TIMEOUT_S) -> NDArray[Any]:
        """A tensor, the first one by default, as a read-only view of the object store; no copy on this node.

        The view, and any slice of it, keeps the store's memory in use and counted for as long as it lives.

        Raises:
            ResultLost: the node that held it is gone, or does not send it in time; see `recompute`.
            KeyError: there is no tensor of that name.
        """
        names = self.tensor_names
        at = 0 if name is None else _place(names, name)
        value, stored_object = read(self._stored, timeout_s)
        return _counted(value if len(names) == 1 else value[at], stored_object)

    def tensors(self, *, timeout_s: float = _READ_TIMEOUT_S) -> dict[str, NDArray[Any]]:
        """All tensors by name, as `array` gives them."""
        names = self.tensor_names
        value, stored_object = read(self._stored, timeout_s)
        values = (value,) if len(names) == 1 else value
        return {name: _counted(array, stored_object) for name, array in zip(names, values, strict=True)}

    def finished(self) -> tuple[tuple[str, str, tuple[int, ...]], ...]:
        """Name, dtype tag and shape of the tensors once `gather` has normalised them."""
        facts = self._stored.facts
        return facts.finished or facts.tensors

    @property
    def finish_with(self) -> tuple[str, str]:
        """Model family and its parameters as JSON: what finishes `uint8` pixels."""
        return self._finish_with

    @property
    def stored(self) -> StoredResult:
        """The shared result."""
        return self._stored

    @property
    def source(self) -> Any:
        """What the caller handed in; None after pickling."""
        return self._source


def _unpickled(
    facts: ImageFacts,
    at: tuple[StoredObject, int | None],
    finish_with: tuple[str, str],
    origin: str,
    times_s: dict[str, float],
) -> ProcessedImage:
    return ProcessedImage(StoredResult(facts, *at), finish_with, origin=origin, times_s=times_s)


def _place(names: tuple[str, ...], name: str) -> int:
    try:
        return names.index(name)
    except ValueError:
        raise KeyError(f"no tensor {name!r}; there are {', '.join(names)}") from None
