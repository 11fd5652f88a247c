"""Preprocessed images on disk: safetensors shards of bounded size, and a manifest of where each image is.

The format is that of https://github.com/huggingface/safetensors (8 bytes of header length, a JSON header, the
values). bfloat16 is stored as BF16 from its bits, which no numpy dtype could express.
"""

from __future__ import annotations

import concurrent.futures
import contextlib
import dataclasses
import json
import os
import re
import threading
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

import numpy as np

from ..errors import InvalidArgument, PreprocessError

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["MANIFEST", "ImageRecord", "ShardWriter", "write_safetensors"]

MANIFEST = "manifest.jsonl"

_DTYPES = {
    "bfloat16": ("BF16", 2),
    "float16": ("F16", 2),
    "float32": ("F32", 4),
    "uint8": ("U8", 1),
    "int32": ("I32", 4),
    "int64": ("I64", 8),
}
_SHARD_NAME = re.compile(r"shard-\d{5}\.safetensors\Z")
_ALIGN_BYTES = 8


@dataclasses.dataclass(frozen=True, slots=True)
class ImageRecord:
    """One preprocessed image, as the writer takes it."""

    digest: str
    """`sha256:` and 64 hex digits of the encoded image."""
    height: int
    """After resizing, in pixels."""
    width: int
    grid: tuple[int, int, int]
    """Patches: temporal, rows, columns."""
    num_tokens: int
    decoder: str
    tensors: Sequence[tuple[str, str, NDArray[Any]]]
    """Name, dtype tag (`bfloat16` with its bits in uint16, `float32`, `uint8`, `int64`), values of each."""

    @property
    def nbytes(self) -> int:
        """Bytes of all tensors."""
        return sum(array.nbytes for _, _, array in self.tensors)


def write_safetensors(
    path: Path, tensors: Iterable[tuple[str, str, NDArray[Any]]], metadata: Mapping[str, str]
) -> None:
    """Writes a safetensors file at once or not at all: a reader never sees a part of it.

    Args:
        path: the file; one of that name is replaced.
        tensors: name, dtype tag and values of each; C-contiguous, of any shape.
        metadata: free text for the header.

    Raises:
        InvalidArgument: an unknown dtype tag, or values of another item size.
        OSError: the disk does not take it.
    """
    # The largest items first, so that every tensor is aligned to its own.
    ordered = sorted(tensors, key=lambda item: -item[2].itemsize)
    header: dict[str, Any] = {"__metadata__": dict(metadata)}
    end = 0
    for name, tag, array in ordered:
        if tag not in _DTYPES or _DTYPES[tag][1] != array.itemsize:
            raise InvalidArgument(f"{array.dtype} values cannot be stored as {tag}")
        begin, end = end, end + array.nbytes
        header[name] = {"dtype": _DTYPES[tag][0], "shape": list(array.shape), "data_offsets": [begin, end]}
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % _ALIGN_BYTES)
    with _Replacing(path) as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for _, _, array in ordered:
            file.write(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)


class _Replacing:
    """Opens a temporary file beside `path` that takes its name when all went well, and vanishes if not."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._partial = path.with_name(f".{path.name}.{os.getpid()}.partial")

    def __enter__(self) -> Any:
        self._file = open(self._partial, "wb")
        return self._file

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        try:
            with self._file:
                if kind is None:
                    self._file.flush()
                    # Before the name, or a power cut could leave the name on an empty file.
                    os.fsync(self._file.fileno())
            if kind is None:
                os.replace(self._partial, self._path)
        finally:
            with contextlib.suppress(FileNotFoundError):
                self._partial.unlink()


class ShardWriter:
    """Collects images into shards and writes the manifest at the end.

    Values are copied when they are added, so that nothing holds on to the object store. A full shard is
    written by a thread while the next one fills; memory stays below two shards and one image. Equal contents
    are stored once. The manifest has one line for each image in the order of `index`, and is written last:
    what it names is there and whole.

    Args:
        folder: made if it does not exist.
        metadata: what made the tensors; in the header of every shard.
        max_shard_bytes: a shard is closed before it would grow beyond; an image larger than that is alone.
        overwrite: replace the shards and the manifest of an earlier run.

    Raises:
        InvalidArgument: the folder has a manifest or shards already.
        OSError: the folder cannot be made.
    """

    def __init__(
        self,
        folder: str | os.PathLike[str],
        metadata: Mapping[str, str],
        *,
        max_shard_bytes: int = 512 << 20,
        overwrite: bool = False,
    ) -> None:
        self._folder = Path(folder)
        self._metadata = {"format": "sglang-mm-ray/1", **metadata}
        self._max_shard_bytes = max_shard_bytes
        self._records: dict[int, dict[str, Any]] = {}
        self._stored: dict[str, dict[str, Any]] = {}
        self._open: list[tuple[str, str, NDArray[Any]]] = []
        self._open_bytes = 0
        self._thread = concurrent.futures.ThreadPoolExecutor(1, thread_name_prefix="sglang-mm-ray-shards")
        self._pending: concurrent.futures.Future[None] | None = None
        self._lock = threading.Lock()
        self.num_shards = 0
        self.stored_bytes = 0
        self._folder.mkdir(parents=True, exist_ok=True)
        self._make_room(overwrite)

    def _make_room(self, overwrite: bool) -> None:
        # The manifest first: without one, a folder does not claim to be complete.
        present = [self._folder / MANIFEST] if (self._folder / MANIFEST).exists() else []
        present += sorted(path for path in self._folder.iterdir() if _SHARD_NAME.match(path.name))
        if present and not overwrite:
            raise InvalidArgument(
                f"the output folder holds {present[0].name} already; choose another one, or --overwrite"
            )
        for path in present:
            path.unlink()

    def add(self, index: int, file: str, image: ImageRecord) -> None:
        """Stores an image under the name `<index>.<tensor>`; `file` is what the manifest calls it."""
        with self._lock:
            where = self._stored.get(image.digest)
            if where is None:
                where = self._stored[image.digest] = self._store(index, image)
            self._records[index] = {"index": index, "file": file, "digest": image.digest, **where}

    def _store(self, index: int, image: ImageRecord) -> dict[str, Any]:
        if self._open and self._open_bytes + image.nbytes > self._max_shard_bytes:
            self._flush()
        described = []
        for name, tag, array in image.tensors:
            full_name = f"{index:08d}.{name}"
            self._open.append((full_name, tag, np.array(array)))
            described.append({"name": full_name, "dtype": _DTYPES[tag][0], "shape": list(array.shape)})
        self._open_bytes += image.nbytes
        self.stored_bytes += image.nbytes
        return {
            "shard": _shard_name(self.num_shards),
            "tensors": described,
            "height": image.height,
            "width": image.width,
            "grid": list(image.grid),
            "tokens": image.num_tokens,
            "bytes": image.nbytes,
            "decoder": image.decoder,
        }

    def has(self, index: int) -> bool:
        """Whether the image of this index was added or has failed."""
        with self._lock:
            return index in self._records

    def fail(self, index: int, file: str, error: BaseException) -> None:
        """Notes an image that has no tensors, and why."""
        record: dict[str, Any] = {"index": index, "file": file}
        digest = getattr(error, "digest", None)
        if isinstance(digest, bytes):
            record["digest"] = f"sha256:{digest.hex()}"
        code = error.code if isinstance(error, PreprocessError) else "internal_error"
        record["error"] = {
            "code": code,
            "type": type(error).__name__,
            "message": str(error),
            "retriable": bool(getattr(error, "retriable", False)),
        }
        with self._lock:
            self._records[index] = record

    def _flush(self) -> None:
        if not self._open:
            return
        self._wait()
        path = self._folder / _shard_name(self.num_shards)
        self._pending = self._thread.submit(write_safetensors, path, self._open, self._metadata)
        self._open, self._open_bytes = [], 0
        self.num_shards += 1

    def _wait(self) -> None:
        pending, self._pending = self._pending, None
        if pending is not None:
            pending.result()

    def close(self) -> None:
        """Writes the last shard and the manifest.

        Raises:
            OSError: the disk does not take it; there is no manifest then.
        """
        with self._lock:
            try:
                self._flush()
                self._wait()
                with _Replacing(self._folder / MANIFEST) as file:
                    for index in sorted(self._records):
                        file.write(json.dumps(self._records[index]).encode() + b"\n")
            finally:
                self._thread.shutdown()

    def __enter__(self) -> ShardWriter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        # After an interruption too, so that what is finished can be used.
        self.close()


def _shard_name(number: int) -> str:
    return f"shard-{number:05d}.safetensors"
