"""The body of an answer: its content codings undone, its size held to a limit while it arrives."""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Protocol

from ..errors import FetchError, limit_exceeded

__all__ = ["read_body"]

_SIZE = "size of the answer in bytes"
_STEP_BYTES = 1 << 20
_GZIP_MAGIC = b"\x1f\x8b"
# Codings that change the body (IANA, "HTTP Content Coding Registry") and are not undone here. What is no
# coding (`UTF-8`, `none`, `binary`) and S3's `aws-chunked` say nothing about it, as for requests and aiohttp.
_FOREIGN = frozenset({"br", "zstd", "compress", "x-compress", "dcb", "dcz", "exi", "pack200-gzip"})
_MAX_CODINGS = 4


class _Decoder(Protocol):
    def feed(self, data: bytes) -> Iterator[bytes]: ...
    def finish(self) -> None: ...


async def read_body(
    chunks: AsyncIterator[bytes], announced_bytes: int | None, coding: str, max_bytes: int
) -> list[bytes]:
    """Reads a body to its end; returns its parts, undone of the codings of the Content-Encoding `coding`.

    Neither what arrives nor what any coding inflates it to gets larger than `max_bytes` and one step more.
    Others on the event loop get their turn between steps.

    Raises:
        LimitExceeded: more than `max_bytes`, compressed or not.
        FetchError: the coding is broken, or none that is known here.
    """
    decoders = _decoders(coding, max_bytes)
    if announced_bytes is not None and announced_bytes > max_bytes:
        raise limit_exceeded(_SIZE, announced_bytes, max_bytes)
    parts: list[bytes] = []
    received = 0
    async for chunk in chunks:
        received += len(chunk)
        if received > max_bytes:
            raise limit_exceeded(_SIZE, received, max_bytes)
        for part in _through(decoders, chunk):
            parts.append(part)
            if decoders:
                await asyncio.sleep(0)
    for decoder in decoders:
        decoder.finish()
    return parts


def _decoders(coding: str, max_bytes: int) -> list[_Decoder]:
    known: dict[str, Callable[[int], _Decoder]] = {"gzip": _Gzip, "x-gzip": _Gzip, "deflate": _Deflate}
    # Named in the order in which they were applied (RFC 9110, 8.4).
    names = [name.strip().lower() for name in reversed(coding.split(","))]
    foreign = _FOREIGN.intersection(names)
    if foreign:
        raise FetchError(f"the answer has the content-encoding {min(foreign)}, which was not asked for")
    decoders = [known[name](max_bytes) for name in names if name in known]
    if len(decoders) > _MAX_CODINGS:
        raise FetchError(f"the answer has more than {_MAX_CODINGS} content-encodings")
    return decoders


def _through(decoders: list[_Decoder], data: bytes) -> Iterator[bytes]:
    if not decoders:
        yield data
        return
    for part in decoders[0].feed(data):
        yield from _through(decoders[1:], part)


class _Inflate:
    """Inflates in steps of at most `_STEP_BYTES`."""

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._size = 0
        self._inflate = zlib.decompressobj()

    def _inflated(self, data: bytes) -> Iterator[bytes]:
        part = b""
        # A full step may have left output behind even where no input is.
        while not self._inflate.eof and (data or len(part) == _STEP_BYTES):
            try:
                part = self._inflate.decompress(data, _STEP_BYTES)
            except zlib.error:
                raise FetchError("the answer's content-encoding is broken") from None
            data = self._inflate.unconsumed_tail
            self._size += len(part)
            if self._size > self._max_bytes:
                raise limit_exceeded(_SIZE, self._size, self._max_bytes)
            yield part

    def finish(self) -> None:
        if not self._inflate.eof:
            raise FetchError("the answer's content-encoding ended early")


class _Gzip(_Inflate):
    """All members of a gzip file (RFC 1952, 2.2). What is no further member is ignored, as gzip does."""

    def __init__(self, max_bytes: int) -> None:
        super().__init__(max_bytes)
        self._inflate = zlib.decompressobj(31)
        self._between = b""

    def feed(self, data: bytes) -> Iterator[bytes]:
        while data:
            if self._inflate.eof:
                data = self._between + data
                if len(data) < len(_GZIP_MAGIC):
                    self._between = data
                    return
                self._between = b""
                if not data.startswith(_GZIP_MAGIC):
                    self._between = data[:2]
                    return
                self._inflate = zlib.decompressobj(31)
            yield from self._inflated(data)
            data = self._inflate.unused_data if self._inflate.eof else b""


class _Deflate(_Inflate):
    """A zlib stream (RFC 9110, 8.4.1.2), or the bare deflate data that some servers send instead."""

    def __init__(self, max_bytes: int) -> None:
        super().__init__(max_bytes)
        self._head: bytes | None = b""

    def feed(self, data: bytes) -> Iterator[bytes]:
        if self._head is not None:
            data = self._head + data
            # The two octets of a zlib header tell (RFC 1950, 2.2).
            if len(data) < 2:
                self._head = data
                return
            self._head = None
            if data[0] & 15 != 8 or int.from_bytes(data[:2], "big") % 31:
                self._inflate = zlib.decompressobj(-zlib.MAX_WBITS)
        yield from self._inflated(data)
