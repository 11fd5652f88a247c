"""Size, time, connections and errors of a fetch, against a server that misbehaves in each way."""

from __future__ import annotations

import concurrent.futures
import contextlib
import ssl
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest
from misbehaving_server import BODY, CERTIFICATE, MisbehavingServer
from waiting import until

from sglang_mm_ray.errors import (
    FetchError,
    LimitExceeded,
    PreprocessError,
    SourceRefused,
    describe,
)
from sglang_mm_ray.sources.fetch import shared_fetcher
from sglang_mm_ray.sources.policy import SourcePolicy
from sglang_mm_ray.sources.source import classify, resolve

LOOPBACK = ("127.0.0.0/8",)


@pytest.mark.parametrize(
    "path", ["ok", "chunked", "until-close", "gzip", "deflate", "raw-deflate", "redirect/2", "ok?x=a b&y=%20"]
)
def test_bodies_arrive_whole(server: MisbehavingServer, make: Any, path: str) -> None:
    assert make().fetch(server.url(path.replace(" ", "+"))) == BODY


def test_resolve_fetches_under_the_policy(server: MisbehavingServer) -> None:
    policy = SourcePolicy(allowed_ports=(server.port,), allowed_private_networks=LOOPBACK)
    assert resolve(classify(server.url("ok")), policy).data == BODY
    with pytest.raises(SourceRefused):
        resolve(classify(server.url("ok")), SourcePolicy(allowed_ports=(server.port,)))
    with pytest.raises(SourceRefused, match="allowed_schemes"):
        resolve(classify(server.url("ok")), SourcePolicy(allowed_schemes=()))


def test_the_request_tells_little(server: MisbehavingServer, make: Any) -> None:
    make().fetch(server.url("ok/caf\u00e9?q=1#fragment"))
    lines = server.requests[0].decode().split("\r\n")
    assert lines[0] == "GET /ok/caf%C3%A9?q=1 HTTP/1.1"
    names = {line.partition(":")[0] for line in lines[1:]}
    assert names == {"Host", "Accept", "Accept-Encoding", "User-Agent"}
    assert f"Host: 127.0.0.1:{server.port}" in lines


class TestSizes:
    @pytest.mark.parametrize("path", ["endless", "claims-long", "gzip-bomb"])
    def test_too_large_is_cut_at_the_limit(self, server: MisbehavingServer, make: Any, path: str) -> None:
        with pytest.raises(LimitExceeded) as caught:
            make().fetch(server.url(path))
        assert caught.value.limit == 1 << 20 and caught.value.value > 1 << 20
        until(lambda: server.open_now == 0)
        # What the sockets of both sides buffer may be on top.
        assert server.sent_bytes < 32 << 20

    def test_the_limit_is_exact(self, server: MisbehavingServer, make: Any) -> None:
        for path in ("ok", "chunked", "until-close", "gzip"):
            assert make(max_input_bytes=len(BODY)).fetch(server.url(path)) == BODY
            with pytest.raises(LimitExceeded):
                make(max_input_bytes=len(BODY) - 1).fetch(server.url(path))

    def test_endless_headers_are_cut(self, server: MisbehavingServer, make: Any) -> None:
        with pytest.raises(FetchError):
            make().fetch(server.url("endless-headers"))

    def test_a_claim_that_is_too_short_ends_the_body_and_the_connection_is_not_reused(
        self, server: MisbehavingServer, make: Any
    ) -> None:
        fetcher = make()
        # Whether the excess came in time to be seen is chance; it is never taken for an answer.
        with contextlib.suppress(FetchError):
            assert fetcher.fetch(server.url("claims-short")) == bytes(10)
        until(lambda: server.open_now == 0)
        assert fetcher.fetch(server.url("ok")) == BODY
        assert server.connections == 2


class TestTime:
    @pytest.mark.parametrize("path", ["hang", "drip-headers", "drip-body"])
    def test_one_deadline_for_all(self, server: MisbehavingServer, make: Any, path: str) -> None:
        start = time.monotonic()
        with pytest.raises(FetchError, match=r"0\.5 s") as caught:
            make(fetch_timeout_s=0.5).fetch(server.url(path))
        assert caught.value.retriable
        assert time.monotonic() - start >= 0.5
        # Not only did we stop waiting: the connection is gone. One that hangs does not see it.
        until(lambda: server.open_now == 0 or path == "hang")

    def test_a_slow_name_server_counts(self, server: MisbehavingServer, make: Any) -> None:
        answered = threading.Event()
        fetcher = make(resolver=lambda *_: answered.wait() and [], fetch_timeout_s=0.3)
        with pytest.raises(FetchError) as caught:
            fetcher.fetch(server.url("ok", "images.test"))
        assert caught.value.retriable
        answered.set()

    def test_slow_redirects_share_the_deadline(self, server: MisbehavingServer, make: Any) -> None:
        # Each hop alone would be in time.
        fetcher = make(fetch_timeout_s=1.5, max_redirects=9)
        with pytest.raises(FetchError) as caught:
            fetcher.fetch(server.url("slow-redirect/8"))
        assert caught.value.retriable and len(server.requests) < 8

    def test_a_slow_tls_handshake_counts(self, server: MisbehavingServer, make: Any) -> None:
        # A server that speaks no TLS waits for a request that never ends.
        with pytest.raises(FetchError):
            make(fetch_timeout_s=0.5).fetch(server.url("ok").replace("http:", "https:"))

    def test_a_deadline_comes_first_whatever_the_others_wait_for(
        self, server: MisbehavingServer, make: Any
    ) -> None:
        fetcher, soon = make(fetch_timeout_s=60), make(fetch_timeout_s=0.2)
        waiting = [fetcher.submit(server.url("hang")) for _ in range(20)]
        with pytest.raises(FetchError):
            soon.fetch(server.url("hang"))
        assert not any(future.done() for future in waiting)

    @pytest.mark.parametrize("names", ["one name", "many names"])
    def test_slow_servers_do_not_hold_up_others(
        self, server: MisbehavingServer, make: Any, names: str
    ) -> None:
        other = MisbehavingServer("127.0.0.2")
        fetcher = make(
            resolver=lambda host, _: ["127.0.0.2" if host == "good.test" else "127.0.0.1"],
            allowed_ports=(server.port, other.port),
            max_connections=16,
            fetch_timeout_s=4.0,
        )
        slow = [f"slow{index if names == 'many names' else 0}.test" for index in range(64)]
        futures = [fetcher.submit(server.url("drip-body", host)) for host in slow]
        assert fetcher.fetch(other.url("ok", "good.test")) == BODY
        assert not any(future.done() for future in futures)
        # Before the next ones take the places of those that are given up.
        assert server.most_open <= 8
        for future in futures:
            future.cancel()
        other.close()

    def test_slow_servers_hold_no_threads(self, server: MisbehavingServer, make: Any) -> None:
        fetcher = make(max_connections=500, max_connections_per_host=500, fetch_timeout_s=120)
        assert fetcher.fetch(server.url("ok")) == BODY
        before = {thread.name for thread in threading.enumerate() if "sglang-mm-ray" in thread.name}
        futures = [fetcher.submit(server.url("hold")) for _ in range(200)]
        until(lambda: len(server.requests) == 201)
        after = {thread.name for thread in threading.enumerate() if "sglang-mm-ray" in thread.name}
        assert len(after - before) < 20
        server.door.set()
        assert [future.result() for future in futures] == [BODY] * 200

    def test_cancelling_frees_the_queue(self, server: MisbehavingServer, make: Any) -> None:
        fetcher = make(max_connections_per_host=1)
        blocker = fetcher.submit(server.url("hold"))
        until(lambda: len(server.requests) == 1)
        waiting = [fetcher.submit(server.url("hang")) for _ in range(20)]
        assert all(future.cancel() for future in waiting)
        following = fetcher.submit(server.url("ok"))
        server.door.set()
        assert following.result() == BODY
        assert blocker.result() == BODY and len(server.requests) == 2

    @pytest.mark.parametrize("path", ["drip-body", "drip-headers", "endless", "endless-hints"])
    def test_cancelling_stops_what_is_under_way(
        self, server: MisbehavingServer, make: Any, path: str
    ) -> None:
        fetcher = make(fetch_timeout_s=600, max_connections_per_host=1, max_input_bytes=1 << 40)
        future = fetcher.submit(server.url(path))
        until(lambda: server.sent_bytes > 0)
        assert future.cancel()
        until(lambda: server.open_now == 0)
        assert fetcher.fetch(server.url("ok")) == BODY

    def test_closing_ends_what_is_under_way(self, server: MisbehavingServer, make: Any) -> None:
        fetcher = make(fetch_timeout_s=600, max_connections_per_host=1)
        futures = [fetcher.submit(server.url("hold")) for _ in range(3)]
        until(lambda: len(server.requests) == 1)
        fetcher.close()
        for future in (*futures, fetcher.submit(server.url("ok"))):
            with pytest.raises(FetchError, match="closed"):
                future.result()
        fetcher.close()


class TestConnections:
    def test_one_connection_for_many_images(self, server: MisbehavingServer, make: Any) -> None:
        fetcher = make()
        for path in ("ok", "chunked", "gzip", "ok"):
            assert fetcher.fetch(server.url(path)) == BODY
        assert server.connections == 1

    @pytest.mark.parametrize("path", ["ok-then-close", "until-close"])
    def test_a_connection_that_went_bad_is_not_reused(
        self, server: MisbehavingServer, make: Any, path: str
    ) -> None:
        fetcher = make()
        for _ in range(3):
            assert fetcher.fetch(server.url(path)) == BODY
            until(lambda: server.open_now == 0)
        assert server.connections == 3

    def test_what_a_server_sends_unasked_is_never_an_answer(
        self, server: MisbehavingServer, make: Any
    ) -> None:
        fetcher = make()
        for _ in range(5):
            assert fetcher.fetch(server.url("ok-then-junk")) == BODY

    def test_other_ports_and_names_do_not_share(self, server: MisbehavingServer, make: Any) -> None:
        fetcher = make(resolver=lambda *_: ["127.0.0.1"])
        for host in ("a.test", "b.test"):
            fetcher.fetch(server.url("ok", host))
        assert server.connections == 2

    def test_many_threads(self, server: MisbehavingServer, make: Any) -> None:
        fetcher = make(max_connections_per_host=4)
        with concurrent.futures.ThreadPoolExecutor(16) as threads:
            bodies = list(threads.map(lambda _: fetcher.fetch(server.url("ok")), range(100)))
        assert bodies == [BODY] * 100
        assert server.connections <= 4


def trusting() -> ssl.SSLContext:
    return ssl.create_default_context(cafile=str(CERTIFICATE))


class TestTls:
    @pytest.fixture
    def secure(self) -> Iterator[MisbehavingServer]:
        server = MisbehavingServer(tls=True)
        yield server
        server.close()

    def test_names_are_verified_at_the_pinned_address(self, secure: MisbehavingServer, make: Any) -> None:
        fetcher = make(resolver=lambda *_: ["127.0.0.1"], tls=trusting(), allowed_ports=(secure.port,))
        assert fetcher.fetch(secure.url("ok", "images.test")) == BODY
        assert fetcher.fetch(secure.url("chunked", "images.test")) == BODY
        assert secure.connections == 1
        with pytest.raises(FetchError, match="certificate"):
            fetcher.fetch(secure.url("ok", "other.test"))

    def test_unknown_authorities_are_refused(self, secure: MisbehavingServer, make: Any) -> None:
        fetcher = make(resolver=lambda *_: ["127.0.0.1"], allowed_ports=(secure.port,))
        with pytest.raises(FetchError, match="certificate"):
            fetcher.fetch(secure.url("ok", "images.test"))

    @pytest.mark.parametrize("path", ["drip-headers", "drip-body"])
    def test_drips_are_cut_inside_tls_too(self, secure: MisbehavingServer, make: Any, path: str) -> None:
        fetcher = make(
            resolver=lambda *_: ["127.0.0.1"],
            tls=trusting(),
            allowed_ports=(secure.port,),
            fetch_timeout_s=0.7,
        )
        with pytest.raises(FetchError) as caught:
            fetcher.fetch(secure.url(path, "images.test"))
        assert caught.value.retriable
        until(lambda: secure.open_now == 0)


@pytest.mark.parametrize(
    "path",
    [
        "status/403",
        "status/404",
        "status/204",
        "gzip-cut",
        "gzip-junk",
        "brotli",
        "no-http",
        "malformed-header",
    ],
)
def test_bad_answers_are_fetch_errors_that_are_not_retried(
    server: MisbehavingServer, make: Any, path: str
) -> None:
    with pytest.raises(FetchError) as caught:
        make().fetch(server.url(path))
    assert not caught.value.retriable
    assert caught.value.status == (int(path[7:]) if path.startswith("status") else None)


@pytest.mark.parametrize("path", ["status/403", "hang", "drop", "no-http", "redirect/9", "claims-long"])
def test_errors_never_carry_query_or_credentials(server: MisbehavingServer, path: str) -> None:
    policy = SourcePolicy(
        allowed_ports=(server.port,),
        allowed_private_networks=LOOPBACK,
        fetch_timeout_s=0.5,
        max_input_bytes=99,
    )
    with pytest.raises(PreprocessError) as caught:
        resolve(classify(server.url(path) + "?sig=SECRET"), policy)
    shown = f"{describe(caught.value)} {caught.value!r} {vars(caught.value)}"
    assert "SECRET" not in shown and f"http://127.0.0.1:{server.port}/{path}" in shown
    with pytest.raises(SourceRefused) as refused:
        resolve(classify(f"http://user:SECRET@127.0.0.1:{server.port}/ok?sig=SECRET"), policy)
    assert "SECRET" not in f"{describe(refused.value)} {refused.value!r}"


def test_no_server_is_a_fetch_error(server: MisbehavingServer, make: Any) -> None:
    server.close()
    with pytest.raises(FetchError) as caught:
        make().fetch(server.url("ok"))
    assert not caught.value.retriable


def test_a_process_has_one_fetcher_for_a_policy() -> None:
    policy = SourcePolicy(fetch_timeout_s=7.0)
    assert shared_fetcher(policy) is shared_fetcher(SourcePolicy(fetch_timeout_s=7.0))
    assert shared_fetcher(policy) is not shared_fetcher(SourcePolicy(fetch_timeout_s=8.0))
