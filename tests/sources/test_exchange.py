"""Size, time, connections and errors of a fetch, against a server that misbehaves in each way."""

from __future__ import annotations

import concurrent.futures
import time
from collections.abc import Iterator
from typing import Any

import pytest
from misbehaving_server import BODY, CERTIFICATE, MisbehavingServer, redirect_to

from sglang_mm_ray.errors import (
    FetchError,
    LimitExceeded,
    PreprocessError,
    SourceRefused,
    describe,
)
from sglang_mm_ray.sources import http_exchange
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
        time.sleep(0.1)
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
        assert fetcher.fetch(server.url("claims-short")) == bytes(10)
        time.sleep(0.1)
        assert fetcher.fetch(server.url("ok")) == BODY
        assert server.connections == 2


class TestTime:
    @pytest.mark.parametrize("path", ["hang", "drip-headers", "drip-body"])
    def test_one_deadline_for_all(self, server: MisbehavingServer, make: Any, path: str) -> None:
        start = time.monotonic()
        with pytest.raises(FetchError) as caught:
            make(fetch_timeout_s=0.5).fetch(server.url(path))
        assert caught.value.retriable
        assert 0.4 < time.monotonic() - start < 2.0
        # Not only did we stop waiting: the connection is gone.
        for _ in range(40):
            if server.open_now == 0 or path == "hang":
                break
            time.sleep(0.05)
        assert server.open_now == 0 or path == "hang"

    def test_a_slow_name_server_counts(self, server: MisbehavingServer, make: Any) -> None:
        start = time.monotonic()
        fetcher = make(resolver=lambda *_: time.sleep(1) or [], fetch_timeout_s=0.3)
        with pytest.raises(FetchError) as caught:
            fetcher.fetch(server.url("ok", "images.test"))
        assert caught.value.retriable and time.monotonic() - start < 0.9

    def test_slow_redirects_share_the_deadline(self, server: MisbehavingServer, make: Any) -> None:
        fetcher = make(fetch_timeout_s=0.5)
        start = time.monotonic()
        with pytest.raises(FetchError) as caught:
            fetcher.fetch(redirect_to(server, "/slow-ok/0.4"), timeout_s=0.3)
        assert caught.value.retriable and time.monotonic() - start < 1.5

    def test_a_slow_tls_handshake_counts(self, server: MisbehavingServer, make: Any) -> None:
        # A server that speaks no TLS waits for a request that never ends.
        with pytest.raises(FetchError):
            make(fetch_timeout_s=0.5).fetch(server.url("ok").replace("http:", "https:"))

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
        start = time.monotonic()
        assert fetcher.fetch(other.url("ok", "good.test")) == BODY
        assert time.monotonic() - start < 1.0
        for future in futures:
            future.cancel()
        assert server.most_open <= 8
        other.close()

    def test_cancelling_frees_the_queue(self, server: MisbehavingServer, make: Any) -> None:
        fetcher = make(max_connections_per_host=1)
        blocker = fetcher.submit(server.url("slow-ok/0.3"))
        waiting = [fetcher.submit(server.url("hang")) for _ in range(20)]
        for future in waiting:
            future.cancel()
        assert fetcher.fetch(server.url("ok")) == BODY
        assert blocker.result() == BODY and len(server.requests) == 2


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
            time.sleep(0.05)
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
        assert server.most_open <= 4
        assert not fetcher._slots._taken and not fetcher._slots._waiting


class TestTls:
    @pytest.fixture
    def secure(self) -> Iterator[MisbehavingServer]:
        server = MisbehavingServer(tls=True)
        yield server
        server.close()

    def test_names_are_verified_at_the_pinned_address(self, secure: MisbehavingServer, make: Any) -> None:
        context = http_exchange.tls_context()
        context.load_verify_locations(CERTIFICATE)
        fetcher = make(resolver=lambda *_: ["127.0.0.1"], tls=context, allowed_ports=(secure.port,))
        assert fetcher.fetch(secure.url("ok", "images.test")) == BODY
        assert fetcher.fetch(secure.url("chunked", "images.test")) == BODY
        assert secure.connections == 1
        with pytest.raises(FetchError, match="certificate"):
            fetcher.fetch(secure.url("ok", "other.test"))

    def test_unknown_authorities_are_refused(self, secure: MisbehavingServer, make: Any) -> None:
        fetcher = make(resolver=lambda *_: ["127.0.0.1"], allowed_ports=(secure.port,))
        with pytest.raises(FetchError, match="certificate"):
            fetcher.fetch(secure.url("ok", "images.test"))

    def test_drips_are_cut_inside_tls_too(self, secure: MisbehavingServer, make: Any) -> None:
        context = http_exchange.tls_context()
        context.load_verify_locations(CERTIFICATE)
        fetcher = make(
            resolver=lambda *_: ["127.0.0.1"], tls=context, allowed_ports=(secure.port,), fetch_timeout_s=0.7
        )
        with pytest.raises(FetchError) as caught:
            fetcher.fetch(secure.url("drip-headers", "images.test"))
        assert caught.value.retriable


@pytest.mark.parametrize(
    "path",
    [
        "status/403",
        "status/404",
        "status/500",
        "status/204",
        "cut",
        "cut-chunked",
        "gzip-cut",
        "gzip-junk",
        "brotli",
        "no-http",
        "drop",
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
