"""Whatever a text holds, what reads it answers with a result or a typed error, and quotes nothing of it."""

from __future__ import annotations

import base64

from hypothesis import example, given
from hypothesis import strategies as st

from sglang_mm_ray.errors import InputError, PreprocessError
from sglang_mm_ray.sources import files
from sglang_mm_ray.sources.data_url import decode_base64, decode_data_url
from sglang_mm_ray.sources.policy import SourcePolicy
from sglang_mm_ray.sources.source import classify, resolve
from sglang_mm_ray.sources.url_target import parse_target, url_label

# Lone surrogates too: Python texts may hold them, and most encoders stumble over them.
ANY_TEXT = st.text(st.characters(exclude_categories=()), max_size=60)
POLICY = SourcePolicy(allowed_schemes=())


@given(st.sampled_from(["", "data:", "data:;base64,", "file:", "file://", "/", "./", "x:"]), ANY_TEXT)
@example("", "\ud800.png")
@example("file:///", "\udcff%00")
def test_resolving_a_text_never_fails_otherwise(prefix: str, text: str) -> None:
    try:
        resolve(classify(prefix + text), POLICY)
    except PreprocessError as error:
        assert isinstance(error, InputError)


@given(ANY_TEXT)
@example("\ud800")
def test_urls_never_fail_otherwise(text: str) -> None:
    policy = SourcePolicy(allowed_ports=tuple(range(1, 100)))
    for url in (text, "http://" + text, "https://example.org/" + text, "http://example.org/?" + text):
        assert url_label(url).isascii()
        try:
            target = parse_target(url, policy)
        except InputError:
            continue
        assert (
            target.resource.isascii()
            and target.host.isascii()
            and not set(target.resource) & set(" \r\n\t\\")
        )


@given(ANY_TEXT)
def test_file_urls_never_fail_otherwise(text: str) -> None:
    try:
        source = classify("file:" + text)
    except InputError:
        return
    assert "\0" not in source.payload
    assert files.path_of_file_url("file:" + text.strip(" \t\r\n")) == source.payload


@given(st.binary(max_size=100), st.integers(1, 9), st.sampled_from(["\n", "\r\n", "\n  "]))
def test_every_accepted_form_is_the_same_bytes(data: bytes, width: int, fold: str) -> None:
    text = base64.b64encode(data).decode()
    folded = fold.join(text[at : at + width] for at in range(0, len(text), width))
    percent = "".join(f"%{ord(character):02x}" for character in text)
    for form in (text, folded, text.rstrip("="), f" {text}\n"):
        assert decode_base64(form, 1000) == data
        assert decode_data_url("data:image/png;base64," + form, 1000) == data
    assert decode_data_url("data:image/png;base64," + percent, 1000) == data
