"""Which URLs, addresses and redirects are followed, and that a connection goes where was checked."""

from __future__ import annotations

from typing import Any

import pytest
from misbehaving_server import BODY, MisbehavingServer, redirect_to

from sglang_mm_ray.errors import (
    FetchError,
    InvalidArgument,
    PreprocessError,
    SourceRefused,
)
from sglang_mm_ray.sources import fetch
from sglang_mm_ray.sources.fetch import Fetcher
from sglang_mm_ray.sources.policy import SourcePolicy


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
    def test_no_address_that_is_not_public_is_contacted(
        self, host: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(fetch, "Connection", None)
        fetcher = Fetcher(SourcePolicy())
        with pytest.raises(SourceRefused, match="not public"):
            fetcher.fetch(f"http://{host}/latest/meta-data")
        fetcher.close()

    @pytest.mark.parametrize("bad", ["10.0.0.1", "::1", "fe80::1%eth0", "::ffff:10.0.0.1"])
    def test_one_bad_address_among_several_refuses(self, bad: str, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(fetch, "Connection", None)
        for answers in (["93.184.216.34", bad], [bad, "93.184.216.34"]):
            fetcher = Fetcher(SourcePolicy(), resolver=lambda *_, answers=answers: answers)
            with pytest.raises(SourceRefused, match="not public") as caught:
                fetcher.fetch("http://images.test/")
            assert bad not in str(caught.value)
            fetcher.close()

    @pytest.mark.parametrize("address", ["93.184.216.34", "2606:2800:220:1::1", "64:ff9b::93.184.216.34"])
    def test_public_addresses_are_contacted(self, address: str, monkeypatch: pytest.MonkeyPatch) -> None:
        class Reached(Exception):
            pass

        def reach(target: Any, to: str, *_: Any) -> None:
            assert to == address
            raise Reached

        monkeypatch.setattr(fetch, "Connection", reach)
        fetcher = Fetcher(SourcePolicy(), resolver=lambda *_: [address])
        with pytest.raises(PreprocessError, match="Reached"):
            fetcher.fetch("http://images.test/")
        fetcher.close()

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
        with pytest.raises(FetchError, match="resolve"):
            Fetcher(SourcePolicy()).fetch("http://" + "a" * 64 + ".test/")


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

    def test_relative_ones_and_ones_without_a_location(self, server: MisbehavingServer, make: Any) -> None:
        assert make().fetch(redirect_to(server, "../ok")) == BODY
        with pytest.raises(FetchError) as caught:
            make().fetch(server.url("status/302"))
        assert caught.value.status == 302
