"""A web server on loopback that does what it should not, on raw sockets so that it can do all of it."""

from __future__ import annotations

import collections
import contextlib
import gzip
import socket
import ssl
import struct
import threading
import time
import zlib
from collections.abc import Callable
from pathlib import Path

CERTIFICATE = Path(__file__).parent / "data" / "tls" / "images.test.pem"
BODY = b"body of the image " * 10
DRIP_S = 0.05


def answer(body: bytes, *headers: str, status: str = "200 OK", length: int | None = None) -> bytes:
    """One whole HTTP answer; `length` is what it claims its body has."""
    lines = [f"HTTP/1.1 {status}", f"Content-Length: {len(body) if length is None else length}", *headers]
    return "\r\n".join([*lines, "", ""]).encode() + body


def redirect_to(server: MisbehavingServer, location: str | bytes) -> str:
    """The URL on `server` that redirects to `location`."""
    octets = location if isinstance(location, bytes) else location.encode()
    return server.url("redirect-to/" + octets.hex())


def answering(server: MisbehavingServer, *pieces: bytes) -> str:
    """The URL on `server` that sends `pieces`, one by one."""
    return server.url("answer/" + "-".join(piece.hex() for piece in pieces))


def busy_at_first(server: MisbehavingServer, times: int, status: int, *headers: str) -> str:
    """The URL on `server` that answers `status` so many times, and then as it should."""
    return server.url(f"busy/{times}-{answer(b'', *headers, status=f'{status} Busy').hex()}")


class MisbehavingServer:
    """Serves on `host` until closed. The first segment of the path chooses what happens."""

    def __init__(self, host: str = "127.0.0.1", *, tls: bool = False) -> None:
        self.connections = 0
        self.requests: list[bytes] = []
        self.sent_bytes = 0
        self.open_now = 0
        self.most_open = 0
        self.door = threading.Event()
        """What `hold` waits for before it answers."""
        self._asked: collections.Counter[str] = collections.Counter()
        self._lock = threading.Lock()
        self._closed = threading.Event()
        self._tls: ssl.SSLContext | None = None
        if tls:
            self._tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            self._tls.load_cert_chain(CERTIFICATE)
        self._listener = socket.create_server((host, 0), backlog=256)
        self.host, self.port = self._listener.getsockname()[:2]
        threading.Thread(target=self._accept, daemon=True).start()

    def url(self, path: str, host: str | None = None) -> str:
        """The URL of a path, under another name if given."""
        scheme = "https" if self._tls else "http"
        return f"{scheme}://{host or self.host}:{self.port}/{path}"

    def close(self) -> None:
        self._closed.set()
        self.door.set()
        self._listener.close()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        with self._lock:
            self.connections += 1
            self.open_now += 1
            self.most_open = max(self.most_open, self.open_now)
        try:
            with contextlib.suppress(OSError), connection:
                if self._tls:
                    connection = self._tls.wrap_socket(connection, server_side=True)
                with connection:
                    self._converse(connection)
        finally:
            with self._lock:
                self.open_now -= 1

    def _converse(self, connection: socket.socket) -> None:
        pending = b""
        while not self._closed.is_set():
            while b"\r\n\r\n" not in pending:
                received = connection.recv(65536)
                if not received:
                    return
                pending += received
            request, _, pending = pending.partition(b"\r\n\r\n")
            self.requests.append(request)
            path = request.split(b" ")[1].decode()
            action, _, argument = path.lstrip("/").partition("?")[0].partition("/")
            handler: Callable[[socket.socket, str], bool] = getattr(self, "do_" + action.replace("-", "_"))
            if not handler(connection, argument):
                return

    def _send(self, connection: socket.socket, data: bytes) -> bool:
        connection.sendall(data)
        self.sent_bytes += len(data)
        return True

    def _drip(self, connection: socket.socket, data: bytes) -> bool:
        for octet in data:
            if self._closed.wait(DRIP_S):
                return False
            self._send(connection, bytes([octet]))
        return True

    def do_ok(self, connection: socket.socket, _: str) -> bool:
        return self._send(connection, answer(BODY))

    def do_slow_ok(self, connection: socket.socket, argument: str) -> bool:
        time.sleep(float(argument))
        return self._send(connection, answer(BODY))

    def do_hold(self, connection: socket.socket, _: str) -> bool:
        self.door.wait()
        return self._send(connection, answer(BODY))

    def do_answer(self, connection: socket.socket, pieces: str) -> bool:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for piece in pieces.split("-"):
            self._send(connection, bytes.fromhex(piece))
            time.sleep(0.001)
        return True

    def do_busy(self, connection: socket.socket, argument: str) -> bool:
        times, _, refusal = argument.partition("-")
        self._asked[argument] += 1
        busy = self._asked[argument] <= int(times)
        return self._send(connection, bytes.fromhex(refusal) if busy else answer(BODY))

    def do_chunked(self, connection: socket.socket, _: str) -> bool:
        parts = [BODY[:7], BODY[7:100], BODY[100:]]
        body = b"".join(b"%x\r\n%s\r\n" % (len(part), part) for part in parts) + b"0\r\n\r\n"
        return self._send(connection, b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + body)

    def do_until_close(self, connection: socket.socket, _: str) -> bool:
        self._send(connection, b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n" + BODY)
        return False

    def do_ok_then_close(self, connection: socket.socket, _: str) -> bool:
        # Without a word of it in the headers.
        self._send(connection, answer(BODY))
        return False

    def do_ok_then_junk(self, connection: socket.socket, _: str) -> bool:
        return self._send(connection, answer(BODY) + b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nEVIL")

    def do_redirect(self, connection: socket.socket, count: str) -> bool:
        left = int(count)
        location = f"/redirect/{left - 1}" if left else "/ok"
        return self._send(connection, answer(b"", f"Location: {location}", status="302 Found"))

    def do_slow_redirect(self, connection: socket.socket, count: str) -> bool:
        time.sleep(0.4)
        head = f"Location: /slow-redirect/{int(count) - 1}"
        return self._send(connection, answer(b"", head, status="302 Found"))

    def do_redirect_to(self, connection: socket.socket, location: str) -> bool:
        head = b"HTTP/1.1 307 Temporary Redirect\r\nContent-Length: 0\r\nLocation: "
        return self._send(connection, head + bytes.fromhex(location) + b"\r\n\r\n")

    def do_status(self, connection: socket.socket, status: str) -> bool:
        body = b"" if status in ("204", "304") else b"<html>"
        return self._send(connection, answer(body, status=status + " Whatever"))

    def do_hang(self, connection: socket.socket, _: str) -> bool:
        self._closed.wait(30)
        return False

    def do_drip_headers(self, connection: socket.socket, _: str) -> bool:
        return self._drip(connection, answer(BODY))

    def do_drip_body(self, connection: socket.socket, _: str) -> bool:
        head, _, body = answer(BODY * 100).partition(b"\r\n\r\n")
        self._send(connection, head + b"\r\n\r\n")
        return self._drip(connection, body)

    def do_endless(self, connection: socket.socket, _: str) -> bool:
        self._send(connection, b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
        while not self._closed.is_set():
            self._send(connection, b"10000\r\n" + bytes(0x10000) + b"\r\n")
        return False

    def do_endless_headers(self, connection: socket.socket, _: str) -> bool:
        self._send(connection, b"HTTP/1.1 200 OK\r\n")
        while not self._closed.is_set():
            self._send(connection, b"X-Header: " + b"x" * 1000 + b"\r\n")
        return False

    def do_endless_hints(self, connection: socket.socket, _: str) -> bool:
        while not self._closed.is_set():
            self._send(connection, b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n" * 100)
        return False

    def do_claims_short(self, connection: socket.socket, _: str) -> bool:
        return self._send(connection, answer(bytes(1 << 20), length=10))

    def do_claims_long(self, connection: socket.socket, _: str) -> bool:
        return self._send(connection, answer(BODY, length=1 << 30))

    def do_cut(self, connection: socket.socket, _: str) -> bool:
        self._send(connection, answer(BODY, length=len(BODY) + 10))
        return False

    def do_cut_chunked(self, connection: socket.socket, _: str) -> bool:
        self._send(connection, b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n20\r\nabc")
        return False

    def do_gzip(self, connection: socket.socket, _: str) -> bool:
        return self._send(connection, answer(gzip.compress(BODY), "Content-Encoding: gzip"))

    def do_deflate(self, connection: socket.socket, _: str) -> bool:
        return self._send(connection, answer(zlib.compress(BODY), "Content-Encoding: deflate"))

    def do_raw_deflate(self, connection: socket.socket, _: str) -> bool:
        deflate = zlib.compressobj(wbits=-15)
        body = deflate.compress(BODY) + deflate.flush()
        return self._send(connection, answer(body, "Content-Encoding: deflate"))

    def do_gzip_bomb(self, connection: socket.socket, _: str) -> bool:
        return self._send(connection, answer(gzip.compress(bytes(64 << 20)), "Content-Encoding: gzip"))

    def do_gzip_cut(self, connection: socket.socket, _: str) -> bool:
        return self._send(connection, answer(gzip.compress(BODY)[:-9], "Content-Encoding: gzip"))

    def do_gzip_junk(self, connection: socket.socket, _: str) -> bool:
        return self._send(connection, answer(BODY, "Content-Encoding: gzip"))

    def do_brotli(self, connection: socket.socket, _: str) -> bool:
        return self._send(connection, answer(BODY, "Content-Encoding: br"))

    def do_no_http(self, connection: socket.socket, _: str) -> bool:
        self._send(connection, b"220 mail.example.org ESMTP SECRET\r\n")
        return False

    def do_malformed_header(self, connection: socket.socket, _: str) -> bool:
        return self._send(connection, b"HTTP/1.1 200 OK\r\nContent-Length: 1, 2\r\n\r\nab")

    def do_drop(self, connection: socket.socket, _: str) -> bool:
        return False

    def do_reset(self, connection: socket.socket, _: str) -> bool:
        self._send(connection, answer(BODY)[:-10])
        # Closing without lingering sends a reset.
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        return False
