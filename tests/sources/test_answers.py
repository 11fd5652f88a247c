"""Which answers hold an image, what of it arrives, and which errors pass by themselves.

Reference: `requests`, run beside; where it gives no answer (1xx, broken gzip), what curl 7.88 and aiohttp
3.14 do, or the RFC that a test names.
"""

from __future__ import annotations

import datetime
import email.utils
import gzip
import io
import itertools
import socket
import struct
import threading
import time
import zlib
from collections.abc import Iterable
from typing import Any

import pytest
import requests
from misbehaving_server import BODY, MisbehavingServer, answer, answering, busy_at_first, redirect_to
from PIL import Image

from sglang_mm_ray.errors import FetchError, LimitExceeded
from sglang_mm_ray.sources import fetch_errors

HEAD = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nContent-Encoding: %s\r\n\r\n"


def chunked(coding: str, segments: Iterable[bytes]) -> list[bytes]:
    """An answer whose body comes in just these segments."""
    chunks = [b"%x\r\n%s\r\n" % (len(segment), segment) for segment in segments if segment]
    return [HEAD % coding.encode(), *chunks, b"0\r\n\r\n"]


def cut(data: bytes, *ends: int) -> list[bytes]:
    bounds = [0, *ends, len(data)]
    return [data[start:end] for start, end in itertools.pairwise(bounds)]


def raw_deflate(data: bytes, level: int = 6) -> bytes:
    deflate = zlib.compressobj(level, wbits=-15)
    return deflate.compress(data) + deflate.flush()


class TestGzip:
    MEMBERS = (
        gzip.compress(BODY[:50]) + gzip.compress(BODY[50:51]) + gzip.compress(b"") + gzip.compress(BODY[51:])
    )

    def test_an_image_of_several_members_is_whole(self, server: MisbehavingServer, make: Any) -> None:
        frames = [Image.new("RGB", (9, 7), color) for color in ("red", "green", "blue")]
        made = io.BytesIO()
        frames[0].save(made, "GIF", save_all=True, append_images=frames[1:])
        data = made.getvalue()
        members = b"".join(gzip.compress(part) for part in cut(data, 30, 31, 80))
        url = answering(server, answer(members, "Content-Encoding: gzip"))
        assert make().fetch(url) == data == requests.get(url, timeout=60).content

    @pytest.mark.parametrize("coding", ["gzip", "x-gzip", "GZIP"])
    def test_wherever_they_are_cut(self, server: MisbehavingServer, make: Any, coding: str) -> None:
        fetcher = make()
        for end in range(1, len(self.MEMBERS)):
            url = answering(server, *chunked(coding, cut(self.MEMBERS, end)))
            assert fetcher.fetch(url) == BODY, end
        assert fetcher.fetch(answering(server, *chunked(coding, cut(self.MEMBERS, *range(1, 120))))) == BODY

    @pytest.mark.parametrize("behind", [b"\n", b"junk", bytes(1), bytes(512), b"\x1f", b"\x1f\x00\x8b"])
    def test_what_is_no_member_is_ignored(self, server: MisbehavingServer, make: Any, behind: bytes) -> None:
        fetcher = make()
        for segments in ([gzip.compress(BODY) + behind], [gzip.compress(BODY), *cut(behind, 1)]):
            url = answering(server, *chunked("gzip", segments))
            assert fetcher.fetch(url) == BODY == requests.get(url, timeout=60).content

    @pytest.mark.parametrize(
        "broken", [MEMBERS[:-1], MEMBERS[:-9], gzip.compress(BODY) + b"\x1f\x8bjunk", BODY]
    )
    def test_half_of_an_image_is_none(self, server: MisbehavingServer, make: Any, broken: bytes) -> None:
        # curl --compressed: error 23 or 61.
        with pytest.raises(FetchError, match="content-encoding"):
            make().fetch(answering(server, answer(broken, "Content-Encoding: gzip")))

    def test_every_member_counts_for_the_limit(self, server: MisbehavingServer, make: Any) -> None:
        url = answering(server, answer(self.MEMBERS, "Content-Encoding: gzip"))
        assert make(max_input_bytes=len(BODY)).fetch(url) == BODY
        with pytest.raises(LimitExceeded):
            make(max_input_bytes=len(BODY) - 1).fetch(url)

    @pytest.mark.parametrize("size", [(1 << 20) - 1, 1 << 20, (1 << 20) + 1, (1 << 21) + 300])
    def test_the_last_bytes_of_a_full_step_arrive(
        self, server: MisbehavingServer, make: Any, size: int
    ) -> None:
        fetcher = make(max_input_bytes=1 << 22)
        for data, coding in ((gzip.compress(bytes(size)), "gzip"), (raw_deflate(bytes(size)), "deflate")):
            for segments in ([data], cut(data, len(data) - 9), cut(data, len(data) - 1)):
                assert fetcher.fetch(answering(server, *chunked(coding, segments))) == bytes(size)


class TestDeflate:
    @pytest.mark.parametrize("level", [0, 1, 6, 9])
    @pytest.mark.parametrize("data", [BODY, b"", b"\x00", bytes(range(256)) * 9])
    def test_with_and_without_its_header_wherever_it_is_cut(
        self, server: MisbehavingServer, make: Any, level: int, data: bytes
    ) -> None:
        fetcher = make()
        for packed in (zlib.compress(data, level), raw_deflate(data, level)):
            for segments in (
                [packed],
                cut(packed, 1),
                cut(packed, 1, 2),
                cut(packed, 2),
                cut(packed, 1, 2, 3),
            ):
                url = answering(server, *chunked("deflate", segments))
                assert fetcher.fetch(url) == data == requests.get(url, timeout=60).content


class TestCodings:
    @pytest.mark.parametrize(
        "coding",
        ["UTF-8", "utf8", "none", "binary", "aws-chunked", "identity", "", "8bit", "image/png", "x,y"],
    )
    def test_what_is_no_coding_changes_nothing(
        self, server: MisbehavingServer, make: Any, coding: str
    ) -> None:
        url = answering(server, answer(BODY, f"Content-Encoding: {coding}"))
        assert make().fetch(url) == BODY == requests.get(url, timeout=60).content

    @pytest.mark.parametrize(
        ("coding", "body"),
        [
            ("gzip, gzip", gzip.compress(gzip.compress(BODY))),
            ("deflate, gzip", gzip.compress(zlib.compress(BODY))),
            ("gzip, deflate", zlib.compress(gzip.compress(BODY))),
            # As in RFC 9110, 8.4; curl reads them so, requests refuses them.
            ("identity, gzip", gzip.compress(BODY)),
            ("aws-chunked, gzip", gzip.compress(BODY)),
            ("aws-chunked,", BODY),
        ],
    )
    def test_several_are_undone_from_the_last(
        self, server: MisbehavingServer, make: Any, coding: str, body: bytes
    ) -> None:
        fetcher = make()
        assert fetcher.fetch(answering(server, answer(body, f"Content-Encoding: {coding}"))) == BODY
        if "," in coding:
            headers = [f"Content-Encoding: {name.strip()}" for name in coding.split(",")]
            assert fetcher.fetch(answering(server, answer(body, *headers))) == BODY

    @pytest.mark.parametrize(
        "coding", ["br", "zstd", "compress", "x-compress", "gzip, br", "ZSTD, gzip", "dcb"]
    )
    def test_one_that_is_not_undone_is_named(self, server: MisbehavingServer, make: Any, coding: str) -> None:
        with pytest.raises(
            FetchError, match=r"content-encoding (br|zstd|x-compress|compress|dcb)\b"
        ) as caught:
            make().fetch(answering(server, answer(BODY, f"Content-Encoding: {coding}")))
        assert not caught.value.retriable

    def test_bombs_in_bombs_are_stopped(self, server: MisbehavingServer, make: Any) -> None:
        body = bytes(64 << 20)
        for names in ("gzip", "gzip, gzip", "gzip, gzip, gzip", "gzip, gzip, gzip, gzip"):
            body = gzip.compress(body, 1)
            with pytest.raises(LimitExceeded):
                make().fetch(answering(server, answer(body, f"Content-Encoding: {names}")))
        with pytest.raises(FetchError, match="more than 4"):
            make().fetch(answering(server, answer(body, f"Content-Encoding: {names}, gzip")))


class TestStatus:
    @pytest.mark.parametrize(
        "before",
        [
            ["103 Early Hints\r\nLink: </a>; rel=preload"],
            ["102 Processing"],
            ["100 Continue", "103 Early Hints\r\nLink: </a>", "103 Early Hints"],
            ["199 Unheard of"],
        ],
    )
    def test_informational_answers_are_not_the_answer(
        self, server: MisbehavingServer, make: Any, before: list[str]
    ) -> None:
        # RFC 9110, 15.2; curl and aiohttp: the body that follows.
        pieces = [f"HTTP/1.1 {head}\r\n\r\n".encode() for head in before]
        fetcher = make()
        assert fetcher.fetch(answering(server, *pieces, answer(BODY))) == BODY
        assert fetcher.fetch(answering(server, b"".join(pieces) + answer(BODY))) == BODY
        with pytest.raises(FetchError) as caught:
            fetcher.fetch(answering(server, *pieces, answer(b"", status="404 Not Found")))
        assert caught.value.status == 404

    def test_endless_ones_end_with_the_time(self, server: MisbehavingServer, make: Any) -> None:
        with pytest.raises(FetchError) as caught:
            make(fetch_timeout_s=0.5).fetch(server.url("endless-hints"))
        assert caught.value.retriable

    def test_changed_by_a_proxy_on_the_way(self, server: MisbehavingServer, make: Any) -> None:
        # RFC 9110, 15.3.4.
        url = answering(server, answer(BODY, status="203 Non-Authoritative Information"))
        assert make().fetch(url) == BODY == requests.get(url, timeout=60).content

    @pytest.mark.parametrize("status", [101, 201, 204, 206, 300, 304, 400, 401, 403, 404, 410, 413, 451, 600])
    def test_others_are_taken_at_their_word(self, server: MisbehavingServer, make: Any, status: int) -> None:
        with pytest.raises(FetchError) as caught:
            make().fetch(server.url(f"status/{status}"))
        assert caught.value.status == status and not caught.value.retriable

    @pytest.mark.parametrize("status", [408, 425, 429, 500, 502, 503, 504, 507, 522, 524, 599])
    def test_what_passes_is_retriable(self, server: MisbehavingServer, make: Any, status: int) -> None:
        with pytest.raises(FetchError) as caught:
            make().fetch(server.url(f"status/{status}"))
        assert caught.value.status == status and caught.value.retriable
        assert len(server.requests) == 1


class TestHeaders:
    def test_long_ones_are_read(self, server: MisbehavingServer, make: Any) -> None:
        # As requests and curl read them.
        fetcher = make()
        for headers in (["X-Policy: " + "a" * 60_000], [f"X-{number}: 1" for number in range(90)]):
            url = answering(server, answer(BODY, *headers))
            assert fetcher.fetch(url) == BODY == requests.get(url, timeout=60).content
        assert fetcher.fetch(redirect_to(server, "/ok?signature=" + "a" * 20_000)) == BODY

    @pytest.mark.parametrize(
        "headers", [["X-A: " + "a" * 70_000], [f"X-{number}: 1" for number in range(2000)], ["X\0: 1"]]
    )
    def test_what_is_no_http_is_said_so(
        self, server: MisbehavingServer, make: Any, headers: list[str]
    ) -> None:
        with pytest.raises(FetchError, match="no valid HTTP") as caught:
            make().fetch(answering(server, answer(BODY, *headers)))
        assert not caught.value.retriable


@pytest.fixture
def short_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetch_errors, "_LEAST_PAUSE_S", 0.01)


class TestRetryAfter:
    def date(self, seconds: float) -> str:
        at = datetime.datetime.now(datetime.timezone.utc) + datetime.timedelta(seconds=seconds)
        return email.utils.format_datetime(at, usegmt=True)

    @pytest.mark.parametrize("status", [429, 503])
    @pytest.mark.parametrize("times", [1, 3])
    def test_a_short_pause_is_kept_and_the_same_request_sent(
        self, server: MisbehavingServer, make: Any, short_pause: None, status: int, times: int
    ) -> None:
        url = busy_at_first(server, times, status, "Retry-After: 0")
        assert make(fetch_timeout_s=60).fetch(url) == BODY
        assert len(server.requests) == times + 1 and len(set(server.requests)) == 1

    def test_it_is_as_long_as_asked_for(self, server: MisbehavingServer, make: Any) -> None:
        for value in ("1", self.date(2.2)):
            start = time.monotonic()
            assert (
                make(fetch_timeout_s=60).fetch(busy_at_first(server, 1, 503, f"Retry-After: {value}")) == BODY
            )
            assert time.monotonic() - start >= 1.0

    def test_a_zero_is_no_leave_to_hammer(
        self, server: MisbehavingServer, make: Any, short_pause: None
    ) -> None:
        with pytest.raises(FetchError) as caught:
            make(fetch_timeout_s=60).fetch(busy_at_first(server, 99, 503, "Retry-After: 0"))
        assert caught.value.retriable and len(server.requests) == 4

    def test_one_past_the_deadline_is_told_at_once(self, server: MisbehavingServer, make: Any) -> None:
        for value in ("3600", self.date(3600)):
            with pytest.raises(FetchError, match=r"503 and asks for a pause of (3600|3599) s") as caught:
                make(fetch_timeout_s=600).fetch(busy_at_first(server, 1, 503, f"Retry-After: {value}"))
            assert caught.value.retriable
        assert len(server.requests) == 2

    @pytest.mark.parametrize(
        "value", ["", "soon", "-1", "1e3", "nan", "9" * 400, "Fri, 99 Foo 2026", "\u0663"]
    )
    def test_one_that_says_nothing_asks_for_nothing(
        self, server: MisbehavingServer, make: Any, value: str
    ) -> None:
        with pytest.raises(FetchError, match=r"answered 503$"):
            make(fetch_timeout_s=60).fetch(busy_at_first(server, 1, 503, f"Retry-After: {value}"))

    def test_it_means_a_pause_with_these_statuses_alone(self, server: MisbehavingServer, make: Any) -> None:
        for status in (404, 500, 504):
            with pytest.raises(FetchError):
                make(fetch_timeout_s=60).fetch(busy_at_first(server, 1, status, "Retry-After: 1"))
        assert len(server.requests) == 3

    def test_a_pause_holds_no_slot(self, server: MisbehavingServer, make: Any) -> None:
        fetcher = make(max_connections_per_host=1, max_connections=1, fetch_timeout_s=60)
        paused = fetcher.submit(busy_at_first(server, 1, 503, "Retry-After: 30"))
        assert fetcher.fetch(server.url("ok")) == BODY
        assert paused.cancel()


class TestConnectionLost:
    @pytest.mark.parametrize("path", ["drop", "reset", "cut", "cut-chunked"])
    def test_in_the_middle(self, server: MisbehavingServer, make: Any, path: str) -> None:
        with pytest.raises(FetchError) as caught:
            make().fetch(server.url(path))
        assert caught.value.retriable and caught.value.status is None

    @pytest.mark.parametrize("scheme", ["http", "https"])
    @pytest.mark.parametrize("reads", [True, False])
    @pytest.mark.parametrize("resets", [True, False])
    def test_before_anything_came(self, make: Any, scheme: str, reads: bool, resets: bool) -> None:
        listener = socket.create_server(("127.0.0.1", 0))

        def serve() -> None:
            for _ in range(2):
                connection, _ = listener.accept()
                if reads:
                    connection.recv(65536)
                if resets:
                    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                connection.close()

        threading.Thread(target=serve, daemon=True).start()
        port = listener.getsockname()[1]
        with pytest.raises(FetchError, match="the connection failed") as caught:
            make(allowed_ports=(port,), max_redirects=0).fetch(f"{scheme}://127.0.0.1:{port}/")
        assert caught.value.retriable
        listener.close()

    def test_no_connection_in_time(self, server: MisbehavingServer, make: Any) -> None:
        # A listener whose queue is full answers to no SYN.
        full = socket.create_server(("127.0.0.3", 0), backlog=0)
        port = full.getsockname()[1]
        fillers = [socket.socket() for _ in range(4)]
        for filler in fillers:
            filler.setblocking(False)
            filler.connect_ex(full.getsockname())
        fetcher = make(allowed_ports=(port,), connect_timeout_s=0.3, fetch_timeout_s=60)
        with pytest.raises(FetchError, match=r"no connection within 0\.3 s") as caught:
            fetcher.fetch(f"http://127.0.0.3:{port}/")
        assert caught.value.retriable
        for opened in (full, *fillers):
            opened.close()

    @pytest.mark.parametrize(
        ("code", "retriable"),
        [
            (socket.EAI_AGAIN, True),
            (socket.EAI_NONAME, False),
            (socket.EAI_FAIL, False),
            (socket.EAI_NODATA, False),
        ],
    )
    def test_a_name_server_that_cannot_tell(
        self, server: MisbehavingServer, make: Any, code: int, retriable: bool
    ) -> None:
        def resolver(*_: object) -> list[str]:
            raise socket.gaierror(code, "SECRET")

        with pytest.raises(FetchError, match="does not resolve") as caught:
            make(resolver=resolver).fetch(server.url("ok", "images.test"))
        assert caught.value.retriable == retriable and "SECRET" not in str(caught.value)
