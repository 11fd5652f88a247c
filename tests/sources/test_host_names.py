"""Names of hosts: which one a Unicode name means, and what `allowed_hosts` matches.

Reference: UTS 46 non-transitional (what browsers do) and IDNA 2008, by the examples of UTS 46; `requests`,
run beside, looks up the same names where it maps nothing.
"""

from __future__ import annotations

import pytest
import requests

from sglang_mm_ray.errors import InvalidArgument, SourceRefused
from sglang_mm_ray.sources.policy import SourcePolicy
from sglang_mm_ray.sources.url_target import parse_target

# UTS 46, table 1 ("Examples of deviations"): IDNA 2003 gives fass.de, xn--nxasmq6b, ... instead.
DEVIATIONS = [
    ("fa\u00df.de", "xn--fa-hia.de"),
    ("FA\u00df.de", "xn--fa-hia.de"),
    ("\u03b2\u03cc\u03bb\u03bf\u03c2.com", "xn--nxasmm1c.com"),
    ("\u0dc1\u0dca\u200d\u0dbb\u0dd3.com", "xn--10cl1a0b660p.com"),
    ("\u0646\u0627\u0645\u0647\u200c\u0627\u06cc.com", "xn--mgba3gch31f060k.com"),
]
ALIKE = [
    ("B\u00fccher.example", "xn--bcher-kva.example"),
    ("b\u00fccher.example.", "xn--bcher-kva.example"),
    ("\u4f8b\u3048\u3002jp", "xn--r8jz45g.jp"),
    ("\uff45\uff58\uff41\uff4d\uff50\uff4c\uff45.org", "example.org"),
    ("ex\u00adample.org", "example.org"),
    ("EXAMPLE.org.", "example.org"),
    ("xn--fa-hia.de", "xn--fa-hia.de"),
    ("a_b.example.org", "a_b.example.org"),
    # Addresses, in the spellings of inet_aton (WHATWG URL, 3.5).
    ("2130706433", "127.0.0.1"),
    ("0x7f.1", "127.0.0.1"),
    ("0177.0.0.1", "127.0.0.1"),
    ("127.0.0.1.", "127.0.0.1"),
    ("\uff11\uff12\uff17.0.0.1", "127.0.0.1"),
    ("[0:0:0:0:0:0:0:1]", "::1"),
    ("[2001:DB8::0:1]", "2001:db8::1"),
]
NOT_VALID = [
    "\u2603.net",
    "-\u00e9-.net",
    "a\u200db.net",
    "\u0301a.net",
    "\u00e9..net",
    "\u00e9_.net",
    "a.\u30fbb",
    "\u05d0a\u05d1.net",
    "\u00e9" * 64 + ".net",
    ("\u00e9." * 200) + "net",
]


@pytest.mark.parametrize(("name", "ascii_name"), DEVIATIONS + ALIKE)
def test_a_name_means_one_host(name: str, ascii_name: str) -> None:
    target = parse_target(f"http://{name}/", SourcePolicy())
    assert target.host == ascii_name


@pytest.mark.parametrize(("name", "ascii_name"), [*DEVIATIONS, *ALIKE[:2]])
def test_it_is_the_host_that_requests_asks(name: str, ascii_name: str) -> None:
    url = requests.Request("GET", f"http://{name}/").prepare().url
    assert url == f"http://{ascii_name}{'.' if name.endswith('.') else ''}/"


@pytest.mark.parametrize("name", NOT_VALID)
def test_a_name_that_means_none_is_refused(name: str) -> None:
    with pytest.raises(InvalidArgument, match="host name"):
        parse_target(f"http://{name}/", SourcePolicy())


@pytest.mark.parametrize(("name", "ascii_name"), DEVIATIONS + ALIKE)
def test_allowed_hosts_name_the_same_host(name: str, ascii_name: str) -> None:
    policy = SourcePolicy(allowed_hosts=(name,))
    assert SourcePolicy.from_json(policy.to_json()) == policy
    assert policy.allowed_hosts == (ascii_name,)
    written = f"[{ascii_name}]" if ":" in ascii_name else ascii_name
    for host in (name, written, written.upper()):
        assert parse_target(f"http://{host}/", policy).host == ascii_name
    for host in (
        "fass.de",
        "xn--nxasmq6b.com",
        "elsewhere.test",
        f"x{name.strip('[]')}" if "." in name else "x",
    ):
        with pytest.raises((SourceRefused, InvalidArgument)):
            parse_target(f"http://{host}/", policy)


@pytest.mark.parametrize(
    "pattern", ["*.b\u00fccher.example", "*.XN--BCHER-KVA.example", "*.b\u00fccher.example."]
)
def test_what_lies_below_a_name(pattern: str) -> None:
    policy = SourcePolicy(allowed_hosts=(pattern,))
    for host in ("a.b\u00fccher.example", "a.b.xn--bcher-kva.EXAMPLE."):
        assert parse_target(f"http://{host}/", policy).host.endswith(".xn--bcher-kva.example")
    for host in ("b\u00fccher.example", "xb\u00fccher.example", "example"):
        with pytest.raises(SourceRefused, match="allowed_hosts"):
            parse_target(f"http://{host}/", policy)


@pytest.mark.parametrize(
    "pattern",
    [
        "",
        "*",
        "*.",
        ".",
        "..",
        "*.*",
        "*.*.example.org",
        "a.*.org",
        "*example.org",
        ".example.org",
        "example..org",
        "https://example.org",
        "https://example.org/",
        "//example.org",
        "example.org/",
        "example.org/images",
        "example.org:443",
        "user@example.org",
        " example.org",
        "example.org ",
        "exam ple.org",
        "1.2.3 4.5",
        "example.org,example.com",
        "10.0.0.0/8",
        "*.127.0.0.1",
        "*.[::1]",
        "256.1.1.1",
        "1.2.3.4.5",
        "[::1",
        "::1::2",
        "[127.0.0.1]",
        "a" * 64 + ".org",
        ".".join(["a" * 60] * 5),
        "\u2603.net",
        "\ud800.net",
        "ex%61mple.org",
        "example.org\n",
        "example.org\0",
    ],
)
def test_a_pattern_that_matches_nothing_is_refused(pattern: str) -> None:
    with pytest.raises(InvalidArgument, match="allowed_hosts"):
        SourcePolicy(allowed_hosts=("example.org", pattern))
