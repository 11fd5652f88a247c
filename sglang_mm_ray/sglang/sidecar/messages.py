"""What SGLang's process and its sidecar say to each other."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ...errors import PreprocessError
from ..layout import Layouts

__all__ = ["Call", "Cancel", "Delivered", "Down", "Failed", "Fetch", "Preprocess", "Up", "Value"]


@dataclass(frozen=True, slots=True)
class Preprocess:
    """Images for the pool."""

    sources: list[Any]
    dtype: str
    """`bf16` or `float32`: what pixels that are not normalised yet become."""
    layouts: Layouts
    readers: int = 0
    """Processes that fetch the features by reference; 0 asks for the values."""
    lease_s: float = 0.0
    address: str = ""
    """Ray address that the readers are told."""


@dataclass(frozen=True, slots=True)
class Fetch:
    """Features by reference, to be read here."""

    tickets: list[Any]


@dataclass(frozen=True, slots=True)
class Call:
    """A request to the sidecar; its answer has the same number."""

    number: int
    work: Preprocess | Fetch
    timeout_s: float


@dataclass(frozen=True, slots=True)
class Cancel:
    """Nobody waits for the answer any more."""

    number: int


@dataclass(frozen=True, slots=True)
class Up:
    """The pool is reached."""

    config_json: str
    workers: int


@dataclass(frozen=True, slots=True)
class Down:
    """The pool is not reached, or not any more; the sidecar keeps trying."""

    error: PreprocessError


@dataclass(frozen=True, slots=True)
class Value:
    """A preprocessed image: where its tensors lie in the shared memory, or how they are fetched."""

    digest: bytes
    content_hash: int
    grid: tuple[int, int, int]
    num_tokens: int
    tensors: tuple[tuple[str, str, tuple[int, ...]], ...]
    """Name, dtype tag and shape as the consumer reads them."""
    tickets: tuple[Any, ...] = ()
    """One for each tensor that travels by reference; none where they lie in memory."""
    source_size: tuple[int, int] | None = None
    """Width and height of the source, in pixels."""


@dataclass(frozen=True, slots=True)
class Delivered:
    """The answer to a call."""

    number: int
    values: list[Value]
    """Of `Preprocess`."""
    places: list[tuple[int, str, tuple[int, ...]]]
    """Arrays in the memory that comes along, one for each tensor."""


@dataclass(frozen=True, slots=True)
class Failed:
    """A call that has no answer."""

    number: int
    error: PreprocessError
