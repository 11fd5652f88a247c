"""Every error of the package, in one tree under `PreprocessError`.

Each class has a stable `code` for programs and says by `retriable` whether the same call may succeed later;
`FetchError` decides that per instance. Errors cross processes by pickle with their attributes. Messages name
the limit and the way out, and never quote payloads, URL queries or credentials.
"""

from __future__ import annotations

from typing import TypeVar

from ._core import (
    DecodeError,
    InputError,
    InternalError,
    InvalidArgument,
    LimitExceeded,
    PreprocessError,
    UnsupportedFormat,
)

__all__ = [
    "DeadlineExceeded",
    "DecodeError",
    "FetchError",
    "InputError",
    "InternalError",
    "InvalidArgument",
    "LimitExceeded",
    "PoisonImage",
    "PoolClosed",
    "PoolNotFound",
    "PoolOverloaded",
    "PreprocessError",
    "ResultLost",
    "SourceRefused",
    "UnsupportedFormat",
    "WorkerLost",
    "decode_error",
    "describe",
    "limit_exceeded",
    "with_context",
]

E = TypeVar("E", bound=PreprocessError)


class SourceRefused(InputError):
    """The source policy does not let the pool read this file or address."""

    code = "source_refused"


class FetchError(PreprocessError, ValueError):
    """A URL, a file or an ObjectRef could not be read. `status` is the HTTP status, if there was an answer.

    `retriable` if what went wrong passes: a time-out, a lost connection, a name that does not resolve at the
    moment, the statuses 408, 425, 429 and 5xx. Any other refusal (403, 404, ...) is taken at its word.
    """

    code = "fetch_failed"
    status: int | None = None
    retriable = False

    def __init__(self, message: str, *, status: int | None = None, retriable: bool = False) -> None:
        super().__init__(message)
        self.status = status
        self.retriable = retriable


class PoolOverloaded(PreprocessError):
    """The queue is at its bound; nothing of the request was started. Try again after a pause."""

    code = "pool_overloaded"
    retriable = True


class DeadlineExceeded(PreprocessError, TimeoutError):
    """The request's time ran out; what was still queued of it has been dropped."""

    code = "deadline_exceeded"
    retriable = True


class PoisonImage(InputError):
    """Workers die of this image; it was isolated and is refused from now on."""

    code = "poison_image"


class WorkerLost(PreprocessError):
    """Workers died or went away while they held the image, more often than the pool retries."""

    code = "worker_lost"
    retriable = True


class ResultLost(PreprocessError):
    """The node that held the result is gone, and the result with it; preprocess the image again."""

    code = "result_lost"
    retriable = True


class PoolNotFound(PreprocessError):
    """No pool of that name runs in the cluster now; start one with `sglang-mm-ray start`."""

    code = "pool_not_found"
    retriable = True


class PoolClosed(PreprocessError):
    """The pool was closed before or during the call."""

    code = "pool_closed"


def limit_exceeded(what: str, value: int, limit: int, remedy: str = "") -> LimitExceeded:
    """A `LimitExceeded` as the core words it: `what` with its unit, the `value` found and the `limit`."""
    error = LimitExceeded(f"{what} is {value}, over the limit of {limit}" + (f"; {remedy}" if remedy else ""))
    error.what, error.value, error.limit = what, value, limit
    return error


def decode_error(format_name: str, reason: str) -> DecodeError:
    """A `DecodeError` as the core words it; `format_name` as Pillow spells it, or `"unknown"`."""
    error = DecodeError(f"cannot decode {format_name} image: {reason}")
    error.format = format_name
    return error


def with_context(
    error: E, *, index: int | None = None, source: str | None = None, digest: bytes | None = None
) -> E:
    """Adds which image an error is about, keeping what an inner layer already knew; returns `error`.

    `index` is the place in the request, `source` a printable name (`Source.label`, never the payload),
    `digest` the SHA-256 of the encoded bytes.
    """
    for name, value in (("index", index), ("source", source), ("digest", digest)):
        if value is not None and getattr(error, name, None) is None:
            setattr(error, name, value)
    return error


def describe(error: BaseException) -> str:
    """One line for people and logs: which image, then what is wrong."""
    parts = []
    index, source, digest = (getattr(error, name, None) for name in ("index", "source", "digest"))
    if isinstance(index, int):
        parts.append(f"image {index}")
    if isinstance(source, str):
        parts.append(source)
    if isinstance(digest, bytes):
        parts.append(f"sha256:{digest.hex()[:16]}")
    subject = " ".join(parts)
    return f"{subject}: {error}" if subject else str(error)
