"""What a caller may hand in, and how it becomes encoded bytes or pixels.

`classify` runs in the caller's process: it looks at the object alone, reads no file and opens no connection.
`resolve` runs on the worker, under the pool's `SourcePolicy`. What a text means:

1. `data:` in any case is a data URL, `http://` and `https://` are fetched, `file:` is a path; any other
   `scheme://` is refused.
2. A path starts with `/`, `./`, `../` or `~`, or ends in a file-name extension (`.` and one to eight letters
   or digits). Base64 that starts with `/9j/` (JPEG) or `/0//` (JPEG 2000) is no path, nor is text that is
   longer than 4096 characters or has line breaks. A `pathlib.Path` is always a path.
3. The rest is base64.

Only a short base64 text of a format that starts with a byte of 0xFC or more could be mistaken for a path, and
no supported format but those two does. A mistaken path never reaches the disk unless a root is allowed.
"""

from __future__ import annotations

import dataclasses
import os
import pickle
import re
import sys
from collections.abc import Callable
from hashlib import sha256
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import numpy as np

from .._core import common
from ..errors import (
    InternalError,
    InvalidArgument,
    PreprocessError,
    SourceRefused,
    limit_exceeded,
    with_context,
)
from . import data_url, files
from .policy import SourcePolicy

if TYPE_CHECKING:
    from concurrent.futures import Future

    from numpy.typing import NDArray

    from .fetch import Fetcher

SourceKind: TypeAlias = Literal["bytes", "pixels", "path", "data_url", "base64", "url", "ref"]
Encoded: TypeAlias = "bytes | memoryview | NDArray[np.uint8]"

_PATH_MAX_CHARS = 4096
_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.\-]*):")
_EXTENSION = re.compile(r"\.[A-Za-z0-9]{1,8}\Z")
_SPACE = " \t\r\n"
_ARRAY_TAG = b"sglang-mm-ray/array/1"


@dataclasses.dataclass(frozen=True, slots=True)
class Source:
    """One input, classified. It travels to a worker by pickle; buffers travel out of band, without a copy."""

    kind: SourceKind
    payload: Any
    """Bytes-like for `bytes`; uint8 `[height, width, 3]` for `pixels`; text; or an `ObjectRef`."""
    key: bytes
    """32 bytes by which the image is routed."""
    exact: bool
    """Whether `key` is the digest of the content; that of a text is a hint that only equal texts share."""
    transfer_bytes: int
    """How many bytes go to the worker with the request."""
    label: str
    """A printable name for messages: never the payload, a query or credentials."""
    frozen: bool = False
    """Whether nobody can have written to the payload since `key` was computed of it."""

    def __reduce_ex__(self, protocol: Any) -> Any:
        payload = self.payload
        if self.kind == "bytes" and protocol >= 5:
            payload = pickle.PickleBuffer(payload)
        rest = (self.key, self.exact, self.transfer_bytes, self.label, self.frozen)
        return _unpickle, (self.kind, payload, *rest)


def _unpickle(kind: SourceKind, payload: Any, *rest: Any) -> Source:
    if kind == "bytes" and not isinstance(payload, (bytes, bytearray)):
        payload = memoryview(payload).cast("B")
    return Source(kind, payload, *rest)


@dataclasses.dataclass(frozen=True, slots=True)
class Resolved:
    """A source on the worker: either encoded `data` or `pixels` (uint8 `[height, width, 3]`)."""

    data: Encoded | None
    pixels: NDArray[np.uint8] | None
    digest: bytes
    """SHA-256 of `data`, or `array_digest` of `pixels`: computed of the very memory that is here."""


def array_digest(array: NDArray[Any]) -> bytes:
    """SHA-256 over a version tag, the shape, the dtype and the values, each with its length.

    The same bytes in another shape or dtype are another content; a strided view equals its copy.
    """
    digest = sha256()
    shape = ",".join(str(side) for side in array.shape).encode()
    for part in (_ARRAY_TAG, shape, array.dtype.str.encode()):
        digest.update(len(part).to_bytes(8, "big") + part)
    values = np.ascontiguousarray(array)
    digest.update(values.nbytes.to_bytes(8, "big"))
    digest.update(values.reshape(-1).view(np.uint8).data)
    return digest.digest()


def classify(source: object) -> Source:
    """Says what `source` is, without reading a file or opening a connection.

    Accepts bytes-likes (1-D uint8 arrays too), uint8 arrays `[height, width, 3]`, `PIL.Image`, text (rules
    above), `os.PathLike` and Ray `ObjectRef`. A buffer must not be written to until the call returns.

    Raises:
        InvalidArgument: nothing of these.
        DecodeError: a lazily opened `PIL.Image` turned out to be broken.
    """
    if isinstance(source, str):
        return _classify_text(source)
    if isinstance(source, (bytes, bytearray, memoryview)):
        return _encoded(source)
    if isinstance(source, np.ndarray):
        return _classify_array(source)
    image_module = sys.modules.get("PIL.Image")
    if image_module is not None and isinstance(source, image_module.Image):
        from .decode_fallback import pixels_of_image

        return _pixels(pixels_of_image(source), frozen=True)
    if isinstance(source, os.PathLike):
        return _path(os.fsdecode(source))
    ray = sys.modules.get("ray")
    if ray is not None and hasattr(ray, "ObjectRef") and isinstance(source, ray.ObjectRef):
        return Source("ref", source, _hint(source.binary()), False, 0, "an ObjectRef")
    raise InvalidArgument(
        f"cannot read an image from {type(source).__name__}; pass encoded bytes, a uint8 array"
        " [height, width, 3], a PIL image, a path, a data: URL, base64, an http(s) URL or an ObjectRef of"
        " one of these"
    )


def _encoded(buffer: bytes | bytearray | memoryview | NDArray[np.uint8]) -> Source:
    if isinstance(buffer, memoryview):
        if not buffer.c_contiguous:
            raise InvalidArgument("the buffer is not contiguous; pass bytes(...) of it")
        buffer = buffer.cast("B") if buffer.nbytes else b""
    size = len(buffer)
    # hashlib lets other threads run, takes any buffer and copies nothing.
    key = sha256(buffer).digest()  # type: ignore[arg-type]
    return Source("bytes", buffer, key, True, size, f"{size} bytes", isinstance(buffer, bytes))


def _classify_array(array: NDArray[Any]) -> Source:
    if array.dtype == np.uint8 and array.ndim == 1:
        return _encoded(np.ascontiguousarray(array))
    # The last axis is the channel axis, never guessed: a picture may well be three pixels high.
    if array.dtype != np.uint8 or array.ndim != 3 or array.shape[2] != 3 or 0 in array.shape:
        raise InvalidArgument(
            "expected a uint8 array [height, width, 3] that is not empty, found"
            f" {array.dtype} {list(array.shape)}"
        )
    return _pixels(np.ascontiguousarray(array))


def _pixels(pixels: NDArray[np.uint8], frozen: bool = False) -> Source:
    height, width, _ = pixels.shape
    label = f"an array of {width}x{height} pixels"
    return Source("pixels", pixels, array_digest(pixels), True, pixels.nbytes, label, frozen)


def _hint(data: bytes) -> bytes:
    return sha256(data).digest()


def _classify_text(text: str) -> Source:
    text = text.strip(_SPACE)
    if not text:
        raise InvalidArgument("the text is empty; pass a path, a URL or base64")
    match = _SCHEME.match(text, 0, 64)
    scheme = match.group(1).lower() if match else ""
    if scheme == "data":
        return _text("data_url", text, f"a data: URL of {len(text)} characters")
    if scheme in ("http", "https"):
        from .url_target import url_label

        return _text("url", text, url_label(text))
    if scheme == "file":
        return _path(text, files.path_of_file_url)
    if scheme and text.startswith("//", len(scheme) + 1):
        raise InvalidArgument(f"URLs of scheme {scheme} are not read; use data:, file:, http: or https:")
    if _looks_like_path(text):
        return _path(text)
    return _text("base64", text, f"base64 text of {len(text)} characters")


def _looks_like_path(text: str) -> bool:
    if len(text) > _PATH_MAX_CHARS or "\n" in text or "\r" in text:
        return False
    if text.startswith(("/9j/", "/0//")):
        return False
    return text.startswith(("/", "./", "../", "~")) or _EXTENSION.search(text) is not None


def _text(kind: SourceKind, text: str, label: str) -> Source:
    octets = text.encode("utf-8", "surrogatepass")
    return Source(kind, text, _hint(octets), False, len(octets), label)


def _path(path: str, read: Callable[[str], str] = str) -> Source:
    try:
        path = read(path)
        octets = os.fsencode(path)
    except UnicodeEncodeError:
        raise InvalidArgument("the path has a character that no file name can have") from None
    # Relative to the caller, whose working directory the worker does not share. `..` stays, to be refused.
    if not os.path.isabs(path):
        path = os.path.join(os.getcwd(), path)
        octets = os.fsencode(path)
    printable = path.encode("utf-8", "replace").decode().encode("unicode_escape").decode()
    known = _EXTENSION.search(path) is not None and len(printable) <= 256
    label = printable if known else f"a path of {len(path)} characters"
    return Source("path", path, _hint(octets), False, len(octets), label)


def resolve(
    source: Source,
    policy: SourcePolicy,
    *,
    fetcher: Fetcher | None = None,
    get: Callable[[Any], object] | None = None,
) -> Resolved:
    """Reads a source under `policy`; blocks on disk and network, so call it on a thread that may.

    `fetcher` fetches URLs (by default the process's own for this policy); `get` reads an `ObjectRef` (by
    default `ray.get`).

    Raises:
        SourceRefused: the policy does not allow it.
        FetchError: a file or URL could not be read.
        LimitExceeded, InvalidArgument, DecodeError: what it holds cannot be accepted.
    """
    try:
        resolved = _resolve(source, policy, fetcher, get)
        if source.exact and resolved.digest != source.key:
            raise InvalidArgument("the buffer was written to while its image was under way; pass a copy")
        return resolved
    except PreprocessError as error:
        raise with_context(error, source=source.label) from None


def start_fetch(
    source: Source,
    policy: SourcePolicy,
    done: Callable[[Resolved | PreprocessError], None],
    *,
    fetcher: Fetcher | None = None,
) -> Callable[[], object]:
    """As `resolve` for a source of kind `url`, without blocking; returns what gives it up.

    `done` is called once, on a thread of the fetcher or on the caller's, with what came of it; not called
    if it was given up in time. A slow server so holds a fetch, but no thread of whoever waits for it.
    """

    def fail(error: PreprocessError) -> None:
        done(with_context(error, source=source.label))

    def finish(future: Future[bytes]) -> None:
        if future.cancelled():
            return
        error = future.exception()
        if error is None:
            data = future.result()
            done(Resolved(data, None, bytes(common.content_digest(data))))
        elif isinstance(error, PreprocessError):
            fail(error)
        else:
            fail(InternalError(f"fetching failed ({type(error).__name__})"))

    try:
        future = _fetcher(policy, fetcher).submit(source.payload)
    except PreprocessError as error:
        fail(error)
        return lambda: None
    future.add_done_callback(finish)
    return future.cancel


def _resolve(
    source: Source, policy: SourcePolicy, fetcher: Fetcher | None, get: Callable[[Any], object] | None
) -> Resolved:
    payload = source.payload
    if source.kind == "ref":
        if get is None:
            import ray

            get = ray.get
        inner = classify(get(payload))
        if inner.kind == "ref":
            raise InvalidArgument("an ObjectRef of an ObjectRef is not read; pass the inner one")
        return _resolve(inner, policy, fetcher, get)
    if source.kind == "pixels":
        height, width, _ = payload.shape
        if height * width > policy.max_pixels:
            raise limit_exceeded("image size in pixels", height * width, policy.max_pixels)
        return Resolved(None, payload, array_digest(payload))
    data = _read(source, policy, fetcher)
    if len(data) > policy.max_input_bytes:
        raise limit_exceeded("encoded size in bytes", len(data), policy.max_input_bytes)
    return Resolved(data, None, bytes(common.content_digest(data)))


def _read(source: Source, policy: SourcePolicy, fetcher: Fetcher | None) -> Encoded:
    payload = source.payload
    if source.kind == "bytes":
        return payload  # type: ignore[no-any-return]
    if source.kind == "data_url":
        return data_url.decode_data_url(payload, policy.max_input_bytes)
    if source.kind == "base64":
        return data_url.decode_base64(payload, policy.max_input_bytes)
    if source.kind == "path":
        return files.read_beneath(payload, policy.allowed_roots, policy.max_input_bytes)
    return _fetcher(policy, fetcher).fetch(payload)


def _fetcher(policy: SourcePolicy, fetcher: Fetcher | None) -> Fetcher:
    if not policy.allowed_schemes:
        raise SourceRefused("URLs are not fetched; see SourcePolicy.allowed_schemes")
    if fetcher is None:
        from .fetch import shared_fetcher

        fetcher = shared_fetcher(policy)
    return fetcher
