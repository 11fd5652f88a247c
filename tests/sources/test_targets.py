"""Which URLs, addresses and redirects are followed, and that a connection goes where was checked."""

from __future__ import annotations

import asyncio
import ipaddress
from typing import Any

import pytest
from misbehaving_server import BODY, MisbehavingServer, redirect_to

from sglang_mm_ray.errors import (
    FetchError,
    InvalidArgument,
    SourceRefused,
)
from sglang_mm_ray.sources.fetch import Fetcher
from sglang_mm_ray.sources.policy import SourcePolicy


@pytest.fixture
def reached(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Where connections were about to go; none is made."""
    to: list[Any] = []

    async def connect(_loop: Any, _socket: Any, address: Any) -> None:
        to.append(address)
        raise ConnectionRefusedError

    monkeypatch.setattr(asyncio.selector_events.BaseSelectorEventLoop, "sock_connect", connect)
    return to


class TestAddresses:
    ADDRESSES = (
        "127.0.0.1",
        "[::1]",
        "[::]",
        "0.0.0.0",
        "169.254.169.254",
        "10.0.0.1",
        "172.31.255.255",
        "192.168.1.1",
        "100.64.0.1",
        "224.0.0.1",
        "255.255.255.255",
        "240.0.0.1",
        "198.18.0.1",
        "[fe80::1]",
        "[fd00::1]",
        "[ff02::1]",
        "[2001:db8::1]",
        "[64:ff9b::127.0.0.1]",
        # Other spellings.
        "2130706433",
        "0x7f.1",
        "0177.0.0.1",
        "127.1",
        "[::ffff:127.0.0.1]",
        "[::ffff:7f00:1]",
        "[::127.0.0.1]",
        "[2002:7f00:1::]",
        "[2001:0:7f00:1::]",
        "127.0.0.1.",
        "localhost",
        "localhost.",
    )

    @pytest.mark.parametrize("host", ADDRESSES)
    def test_no_address_that_is_not_public_is_contacted(self, host: str, reached: list[Any]) -> None:
        fetcher = Fetcher(SourcePolicy())
        with pytest.raises(SourceRefused, match="not public"):
            fetcher.fetch(f"http://{host}/latest/meta-data")
        fetcher.close()
        assert reached == []

    @pytest.mark.parametrize("bad", ["10.0.0.1", "::1", "fe80::1%eth0", "::ffff:10.0.0.1"])
    def test_one_bad_address_among_several_refuses(self, bad: str, reached: list[Any]) -> None:
        for answers in (["93.184.216.34", bad], [bad, "93.184.216.34"]):
            fetcher = Fetcher(SourcePolicy(), resolver=lambda *_, answers=answers: answers)
            with pytest.raises(SourceRefused, match="not public") as caught:
                fetcher.fetch("http://images.test/")
            assert bad not in str(caught.value)
            fetcher.close()
        assert reached == []

    @pytest.mark.parametrize("address", ["93.184.216.34", "2606:2800:220:1::1", "64:ff9b::93.184.216.34"])
    @pytest.mark.parametrize("scheme", ["http", "https"])
    def test_public_addresses_are_contacted(self, address: str, scheme: str, reached: list[Any]) -> None:
        fetcher = Fetcher(SourcePolicy(), resolver=lambda *_: [address])
        with pytest.raises(FetchError):
            fetcher.fetch(f"{scheme}://images.test/")
        fetcher.close()
        ((host, port, *_),) = reached
        assert ipaddress.ip_address(host) == ipaddress.ip_address(address)
        assert port == {"http": 80, "https": 443}[scheme]

    def test_the_connection_goes_to_the_checked_address(self, server: MisbehavingServer, make: Any) -> None:
        answers = [["127.0.0.1"], ["10.9.9.9"]]
        fetcher = make(resolver=lambda *_: answers.pop(0))
        assert fetcher.fetch(server.url("ok", "images.test")) == BODY
        assert len(answers) == 1
        assert f"Host: images.test:{server.port}".encode() in server.requests[0]
        # A second look-up is checked anew.
        answers.insert(0, ["10.9.9.9"])
        server.close()
        with pytest.raises(SourceRefused):
            make(resolver=lambda *_: answers.pop(0)).fetch(server.url("ok", "images.test"))

    def test_the_next_address_is_tried_when_one_is_dead(self, server: MisbehavingServer, make: Any) -> None:
        fetcher = make(resolver=lambda *_: ["127.0.0.9", "127.0.0.1"])
        assert fetcher.fetch(server.url("ok", "images.test")) == BODY

    def test_what_a_name_resolved_to_is_known_for_a_while_and_checked_first(
        self, server: MisbehavingServer, make: Any
    ) -> None:
        asked = []
        fetcher = make(resolver=lambda host, _: asked.append(host) or ["127.0.0.1"])
        for _ in range(5):
            assert fetcher.fetch(server.url("until-close", "images.test")) == BODY
        assert asked == ["images.test"]
        refused = []
        fetcher = make(resolver=lambda host, _: refused.append(host) or ["10.0.0.1"])
        for _ in range(2):
            with pytest.raises(SourceRefused, match="not public"):
                fetcher.fetch(server.url("ok", "images.test"))
        assert len(refused) == 2


class TestUrls:
    @pytest.mark.parametrize(
        "url",
        [
            "http://user:pass@example.org/",
            "http://user@example.org/",
            "http://@example.org/",
            "ftp://example.org/",
            "file:///etc/passwd",
            "http://example.org:22/",
            "http://example.org:0/",
            "http://example.org:8080/",
        ],
    )
    def test_refused_by_the_policy(self, url: str) -> None:
        with pytest.raises(SourceRefused):
            Fetcher(SourcePolicy()).fetch(url)

    @pytest.mark.parametrize(
        "url",
        [
            "http://example.org\\@127.0.0.1/",
            "http://exa mple.org/",
            "http://example.org/a\r\nHost: x",
            "http://example.org/\t",
            "http://",
            "http:///path",
            "http:example.org",
            "http://[::1/",
            "http://example.org:port/",
            "http://example.org:99999/",
            "http://" + "\u00e9" * 70 + "/",
            "http://" + "a" * 64 + ".test/",
            "http://ex%61mple.org/",
            "http://a..test/",
            "http://1.2.3.4.5/",
            "http://256.1.1.1/",
            "http://[fe80::1%25eth0/",
            "http://ex!mple.org/",
        ],
    )
    def test_not_a_url(self, url: str) -> None:
        with pytest.raises(InvalidArgument):
            Fetcher(SourcePolicy()).fetch(url)

    def test_allowed_hosts(self) -> None:
        policy = SourcePolicy(allowed_hosts=("example.org", "*.images.test"))
        fetcher = Fetcher(policy, resolver=lambda *_: ["10.0.0.1"])
        for url in ("http://example.org/", "http://EXAMPLE.org./", "http://a.b.images.test/"):
            with pytest.raises(SourceRefused, match="not public"):
                fetcher.fetch(url)
        for url in ("http://example.org.evil.test/", "http://images.test/", "http://xexample.org/"):
            with pytest.raises(SourceRefused, match="allowed_hosts"):
                fetcher.fetch(url)

    def test_a_name_that_does_not_resolve(self) -> None:
        fetcher = Fetcher(SourcePolicy())
        with pytest.raises(FetchError, match="resolve") as caught:
            fetcher.fetch("http://no-such-name.invalid/")
        assert caught.value.status is None
        fetcher.close()


class TestRedirects:
    def test_they_are_counted(self, server: MisbehavingServer, make: Any) -> None:
        assert make(max_redirects=3).fetch(server.url("redirect/2")) == BODY
        with pytest.raises(SourceRefused, match="max_redirects"):
            make(max_redirects=3).fetch(server.url("redirect/3"))
        with pytest.raises(SourceRefused, match="max_redirects"):
            make(max_redirects=0).fetch(server.url("redirect/0"))

    @pytest.mark.parametrize(
        "location",
        [
            "http://10.0.0.1:{port}/",
            "http://[::1]:{port}/",
            "http://127.0.0.1:22/",
            "file:///etc/passwd",
            "gopher://127.0.0.1:{port}/",
            "//169.254.169.254:{port}/",
            "http://user:pass@127.0.0.1:{port}/ok",
        ],
    )
    def test_every_hop_is_checked(self, server: MisbehavingServer, make: Any, location: str) -> None:
        with pytest.raises(SourceRefused):
            make().fetch(redirect_to(server, location.format(port=server.port)))
        assert len(server.requests) == 1

    def test_a_name_is_resolved_and_checked_at_every_hop(self, server: MisbehavingServer, make: Any) -> None:
        answers = {"images.test": ["127.0.0.1"], "inner.test": ["10.0.0.1"]}
        fetcher = make(resolver=lambda host, _: answers[host])
        url = redirect_to(server, f"http://inner.test:{server.port}/ok").replace("127.0.0.1", "images.test")
        with pytest.raises(SourceRefused, match="not public"):
            fetcher.fetch(url)

    @pytest.mark.parametrize(
        ("location", "resource"),
        [
            # As requests, aiohttp and curl ask for them.
            ("/ok/caf\u00e9?q=\u00e9".encode(), "/ok/caf%C3%A9?q=%C3%A9"),
            ("/ok/\U0001f600".encode(), "/ok/%F0%9F%98%80"),
            (b"/ok/caf%C3%A9%20x?q=%E9", "/ok/caf%C3%A9%20x?q=%E9"),
            # As curl does; requests raises UnicodeDecodeError, and aiohttp drops the octets.
            (b"/ok/caf\xe9?q=\xe9", "/ok/caf%E9?q=%E9"),
            # As requests does; the others write the second one as a plus.
            (b"/ok/a b?c d", "/ok/a%20b?c%20d"),
            # As aiohttp and curl do, for blanks around a value are not of it (RFC 9110, 5.5).
            (b"  /ok/a \t ", "/ok/a"),
            (b"../ok/a b  ", "/ok/a%20b"),
            # As requests and aiohttp do, and browsers (WHATWG URL, 4.4).
            (b"/ok/a\tb", "/ok/ab"),
            (b'/ok/a"b<c>|^`{}', "/ok/a%22b%3Cc%3E%7C%5E%60%7B%7D"),
            (b"/ok/a#fragment", "/ok/a"),
            (b"../ok/./b/../c", "/ok/c"),
            (b"/ok?x", "/ok?x"),
        ],
    )
    def test_what_servers_write_instead_of_a_url(
        self, server: MisbehavingServer, make: Any, location: bytes, resource: str
    ) -> None:
        url = redirect_to(server, location)
        assert make().fetch(url) == BODY
        assert server.requests[-1].startswith(f"GET {resource} HTTP/1.1\r\n".encode())

    @pytest.mark.parametrize(
        "location",
        [
            b"/a\\b",
            b"http://exa mple.test/",
            b"https://",
            b"http://[::1/",
            b"http://127.0.0.1:port/",
            b"http://127.0.0.1:99999/",
            b"http://caf\xe9.test/",
            b"http://ex%61mple.test/",
            "http://\u2603.test/".encode(),
            b"/\x7f",
        ],
    )
    def test_a_malformed_one_is_the_servers_fault(
        self, server: MisbehavingServer, make: Any, location: bytes
    ) -> None:
        with pytest.raises(FetchError, match="malformed"):
            make().fetch(redirect_to(server, location))
        assert len(server.requests) == 1

    def test_relative_ones_and_ones_without_a_location(self, server: MisbehavingServer, make: Any) -> None:
        assert make().fetch(redirect_to(server, "../ok")) == BODY
        with pytest.raises(FetchError) as caught:
            make().fetch(server.url("status/302"))
        assert caught.value.status == 302
