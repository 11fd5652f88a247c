"""Base64 and `data:` URLs: strict about foreign characters, lenient about folds, padding and parameters."""

from __future__ import annotations

import base64

import pytest

from sglang_mm_ray.errors import InvalidArgument, LimitExceeded
from sglang_mm_ray.sources.data_url import decode_base64, decode_data_url

BYTES = bytes.fromhex("ffefbefb0001")
PLAIN = "/+++" + "+wAB"


@pytest.mark.parametrize(
    "form", [PLAIN, PLAIN[:4] + "\n" + PLAIN[4:], PLAIN + "\n", " " + PLAIN, PLAIN + "\r\n"]
)
def test_folds_and_white_space_at_the_ends_are_dropped(form: str) -> None:
    assert decode_base64(form, 100) == BYTES
    assert decode_data_url("data:image/png;base64," + form, 100) == BYTES


def test_padding_may_be_missing() -> None:
    for length in range(1, 7):
        text = base64.b64encode(BYTES[:length]).decode()
        assert decode_base64(text.rstrip("="), 100) == BYTES[:length]


@pytest.mark.parametrize(
    "form", ["/    wAB", "_---+wAB", "%2F++++wAB", "/+++*wAB", "/+++\u00e9wAB", "/+ ++wAB"]
)
def test_any_other_foreign_character_is_refused_and_not_quoted(form: str) -> None:
    with pytest.raises(InvalidArgument) as caught:
        decode_base64(form, 100)
    assert form not in str(caught.value)


@pytest.mark.parametrize(
    "header",
    [
        "data:image/jpeg;base64",
        "data:image/jpeg;charset=utf-8;base64",
        "data:image/jpeg;BASE64",
        "DATA:image/png;base64",
        "data:;base64",
        "data:image/jpeg",
        "data:",
    ],
)
def test_headers(header: str) -> None:
    assert decode_data_url(f"{header},{PLAIN}", 100) == BYTES


def test_percent_encoding_is_undone_once_in_data_urls_only() -> None:
    escaped = PLAIN.replace("/", "%2F").replace("+", "%2b")
    assert decode_data_url("data:image/png;base64," + escaped, 100) == BYTES
    with pytest.raises(InvalidArgument):
        decode_data_url("data:image/png;base64," + escaped.replace("%", "%25"), 100)


def test_without_a_marker_what_is_no_base64_is_octets() -> None:
    assert decode_data_url("data:image/gif,GIF89a%00%ff", 100) == b"GIF89a\x00\xff"


def test_a_marker_that_is_not_last_or_not_a_parameter_is_none() -> None:
    assert decode_data_url("data:image/x;base64;q=1,%00", 100) == b"\x00"
    assert decode_data_url("data:base64,%00", 100) == b"\x00"


@pytest.mark.parametrize("url", ["data:image/png;base64", "data:", "data:image/png;base64;" + PLAIN])
def test_no_comma_is_refused_in_clear_words(url: str) -> None:
    with pytest.raises(InvalidArgument, match="comma"):
        decode_data_url(url, 100)


def test_payload_passes_untouched() -> None:
    # Endings in // and inner /../ are what URL normalisers damage.
    for payload in (b"\xff" * 3, base64.b64decode("AAA/../A".replace(".", "B")), bytes(range(256))):
        text = base64.b64encode(payload).decode()
        assert decode_data_url("data:image/png;base64," + text, 1000) == payload
    assert decode_data_url("data:image/png;base64,AB//", 100) == base64.b64decode("AB//")
    with pytest.raises(InvalidArgument):
        decode_data_url("data:image/png;base64,AAA/../A", 100)


def test_an_empty_payload_is_no_bytes() -> None:
    assert decode_data_url("data:image/png;base64,", 100) == b""


@pytest.mark.parametrize("size", range(40))
def test_the_limit_is_exact(size: int) -> None:
    data = bytes(size)
    text = base64.b64encode(data).decode()
    folded = "\n".join(text[i : i + 4] for i in range(0, len(text), 4))
    for form in (text, text.rstrip("="), folded):
        assert decode_base64(form, max(1, size)) == data
        if size > 1:
            with pytest.raises(LimitExceeded) as caught:
                decode_base64(form, size - 1)
            assert caught.value.limit == size - 1


def test_a_text_far_over_the_limit_is_refused_before_it_is_decoded() -> None:
    # Not base64 at all: that it is refused for its size shows that nobody looked inside.
    with pytest.raises(LimitExceeded):
        decode_base64("*" * 1000, 100)
