"""One GET over one connection: to a pinned address, before a deadline, up to a size.

On `http.client`, since no client library bounds the whole exchange: their time-outs start anew with each byte
that a slow peer drips. Here every read from the socket gets what is left of the one deadline.
"""

from __future__ import annotations

import dataclasses
import http.client
import select
import socket
import ssl
import time
import zlib
from typing import TYPE_CHECKING, Any

from .. import _core
from ..errors import FetchError, limit_exceeded
from .url_target import DEFAULT_PORTS, Target

if TYPE_CHECKING:
    from typing_extensions import Buffer

_CHUNK_BYTES = 256 << 10
_SIZE = "size of the answer in bytes"
_ENCODINGS = {"gzip": 31, "x-gzip": 31, "deflate": 15}


@dataclasses.dataclass(frozen=True, slots=True)
class Answer:
    """What a server answered; `body` only for status 200."""

    status: int
    location: str | None
    body: bytes
    reusable: bool
    """Whether the connection may carry another request."""


def remaining_s(deadline: float) -> float:
    """Seconds left until `deadline` (of `time.monotonic`).

    Raises:
        TimeoutError: none are left.
    """
    left = deadline - time.monotonic()
    if left <= 0:
        raise TimeoutError
    return left


class _DeadlineSocket(socket.socket):
    deadline = 0.0

    def recv_into(self, *args: Any, **kwargs: Any) -> int:
        self.settimeout(remaining_s(self.deadline))
        return super().recv_into(*args, **kwargs)

    def sendall(self, data: Buffer, flags: int = 0, /) -> None:
        self.settimeout(remaining_s(self.deadline))
        super().sendall(data, flags)


class _DeadlineTlsSocket(ssl.SSLSocket):
    deadline = 0.0

    def recv_into(self, *args: Any, **kwargs: Any) -> int:
        self.settimeout(remaining_s(self.deadline))
        return super().recv_into(*args, **kwargs)

    def sendall(self, data: Buffer, flags: int = 0) -> None:
        self.settimeout(remaining_s(self.deadline))
        super().sendall(data, flags)


def tls_context() -> ssl.SSLContext:
    """A context that verifies certificates against the system's authorities."""
    context = ssl.create_default_context()
    context.sslsocket_class = _DeadlineTlsSocket
    return context


class Connection:
    """A connection of one origin to one address, kept open between requests."""

    def __init__(
        self, target: Target, address: str, tls: ssl.SSLContext, deadline: float, connect_timeout_s: float
    ) -> None:
        self.origin = target.origin
        self.address = address
        self.idle_since = 0.0
        self._socket = self._connect(target, tls, deadline, connect_timeout_s)
        self._client = http.client.HTTPConnection(target.host, target.port)
        # Without this the Host header of https would name its default port.
        self._client.default_port = DEFAULT_PORTS[target.scheme]
        self._client.auto_open = 0
        self._client.sock = self._socket

    def _connect(
        self, target: Target, tls: ssl.SSLContext, deadline: float, connect_timeout_s: float
    ) -> _DeadlineSocket | _DeadlineTlsSocket:
        family = socket.AF_INET6 if ":" in self.address else socket.AF_INET
        plain = _DeadlineSocket(family, socket.SOCK_STREAM)
        try:
            plain.settimeout(min(connect_timeout_s, remaining_s(deadline)))
            plain.connect((self.address, target.port))
            plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if target.scheme != "https":
                return plain
            # The handshake as a whole takes no longer than the time-out in force when it starts.
            plain.settimeout(remaining_s(deadline))
            wrapped = tls.wrap_socket(plain, server_hostname=target.host)
        except BaseException:
            plain.close()
            raise
        if not isinstance(wrapped, _DeadlineTlsSocket):
            raise TypeError("the TLS context must come from tls_context()")
        return wrapped

    def usable(self) -> bool:
        """Whether the peer has neither closed an idle connection nor written into it unasked."""
        poll = select.poll()
        poll.register(self._socket, select.POLLIN)
        return not poll.poll(0)

    def get(self, target: Target, deadline: float, max_bytes: int, user_agent: str) -> Answer:
        """Sends one GET and reads its answer.

        Raises:
            TimeoutError: the deadline passed.
            OSError, http.client.HTTPException: the connection or the peer's HTTP is broken.
            LimitExceeded, FetchError: the body is too large or cannot be decoded.
        """
        self._socket.deadline = deadline
        # An image is compressed already; who compresses it again all the same is understood.
        headers = {"Accept": "image/*, */*;q=0.5", "Accept-Encoding": "identity", "User-Agent": user_agent}
        self._client.request("GET", target.resource, headers=headers)
        # The response holds the socket open, and the client busy, until it is closed.
        with self._client.getresponse() as response:
            location = response.getheader("Location")
            if response.status != http.client.OK:
                return Answer(response.status, location, b"", reusable=False)
            body = _read_body(response, max_bytes)
            return Answer(response.status, None, body, reusable=not response.will_close)

    def close(self) -> None:
        """Closes the connection."""
        self._client.close()
        self._socket.close()


def _read_body(response: http.client.HTTPResponse, max_bytes: int) -> bytes:
    encoding = (response.getheader("Content-Encoding") or "identity").strip().lower()
    if encoding not in ("identity", *_ENCODINGS):
        raise FetchError("the answer has a content-encoding that was not asked for")
    if response.length is not None and response.length > max_bytes:
        raise limit_exceeded(_SIZE, response.length, max_bytes)
    decoder = _Inflate(_ENCODINGS[encoding]) if encoding in _ENCODINGS else None
    parts, received, size = [], 0, 0
    while True:
        chunk = response.read1(_CHUNK_BYTES)
        if not chunk:
            break
        received += len(chunk)
        part = decoder.feed(chunk, max_bytes + 1 - size) if decoder else chunk
        parts.append(part)
        size += len(part)
        if max(received, size) > max_bytes:
            raise limit_exceeded(_SIZE, max(received, size), max_bytes)
    if response.length:
        raise FetchError("the answer ended before its announced length")
    if decoder is not None:
        decoder.finish()
    return parts[0] if len(parts) == 1 else b"".join(parts)


class _Inflate:
    """Undoes gzip or deflate, never making more than asked for: a bomb is stopped at the limit."""

    def __init__(self, window_bits: int) -> None:
        self._inflate = zlib.decompressobj(window_bits)
        self._first = True

    def feed(self, data: bytes, max_bytes: int) -> bytes:
        try:
            out = self._inflate.decompress(data, max_bytes)
        except zlib.error:
            # Some servers send deflate without its zlib header.
            if not self._first:
                raise FetchError("the answer's content-encoding is broken") from None
            self._first = False
            self._inflate = zlib.decompressobj(-zlib.MAX_WBITS)
            return self.feed(data, max_bytes)
        self._first = False
        return out

    def finish(self) -> None:
        if not self._inflate.eof:
            raise FetchError("the answer's content-encoding ended early")


def user_agent() -> str:
    """What this package calls itself."""
    return f"sglang-mm-ray/{_core.__version__}"


__all__ = ["Answer", "Connection", "remaining_s", "tls_context", "user_agent"]
