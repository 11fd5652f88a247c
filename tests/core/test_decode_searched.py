"""PNG, GIF and BMP against Pillow on files that hypothesis damages; it shrinks them to what matters."""

from __future__ import annotations

import zlib
from collections.abc import Callable

import pytest
from decoding import difference, without_large
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from images import encode, picture
from png_builder import SIGNATURE, chunk

# Value, whether it replaces or is inserted, and where, as a share of the file.
EDITS = st.lists(
    st.tuples(st.floats(0, 1, exclude_max=True), st.booleans(), st.binary(min_size=0, max_size=4)),
    min_size=1,
    max_size=4,
)
SEARCH = settings(
    max_examples=250, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.filter_too_much]
)


def seeds(format_name: str, modes: tuple[str, ...], **options: object) -> list[bytes]:
    return [encode(picture(mode, 9, 7), format_name, **options) for mode in modes]


SEEDS = {
    "PNG": seeds("PNG", ("1", "L", "LA", "P", "RGB", "RGBA", "I;16")),
    "GIF": seeds("GIF", ("L", "P", "1"), interlace=0) + seeds("GIF", ("P",), interlace=1, transparency=3),
    "BMP": seeds("BMP", ("1", "L", "P", "RGB", "RGBA")) + seeds("DIB", ("L", "P", "RGB")),
}


def edited(data: bytes, edits: list[tuple[float, bool, bytes]], first: int) -> bytes:
    """The file with pieces replaced or inserted behind its first bytes."""
    for share, replaces, piece in edits:
        at = first + int(share * (len(data) - first))
        data = data[:at] + piece + data[at + (len(piece) if replaces else 0) :]
    return data


def resealed(data: bytes) -> bytes:
    """A PNG with its chunks' checksums made right again, as far as the chunks can be followed."""
    at, sealed = 8, SIGNATURE
    while at + 12 <= len(data):
        length = int.from_bytes(data[at : at + 4], "big")
        if at + 12 + length > len(data):
            break
        sealed += chunk(data[at + 4 : at + 8], data[at + 8 : at + 8 + length])
        at += 12 + length
    return sealed + data[at:]


@pytest.mark.parametrize("format_name", SEEDS)
def test_damaged_files(format_name: str) -> None:
    first = {"PNG": 8, "GIF": 6, "BMP": 2}[format_name]

    @SEARCH
    @given(st.sampled_from(SEEDS[format_name]), EDITS, st.booleans(), st.integers(0, 40))
    def search(data: bytes, edits: list[tuple[float, bool, bytes]], seal: bool, cut: int) -> None:
        data = edited(data, edits, first)
        if seal and format_name == "PNG":
            data = resealed(data)
        elif cut > 30:
            data = data[: -(cut - 30)]
        for _, small in without_large([("", data)]):
            assert difference(small) is None

    run: Callable[[], None] = search
    run()


@SEARCH
@given(st.binary(max_size=60), st.integers(0, 60), st.booleans())
def test_streams_of_any_bytes(packed: bytes, cut: int, has_header: bool) -> None:
    # The inflater alone: any bytes as the image data of a 3x2 picture, in two chunks.
    stream = (b"\x78\x9c" if has_header else b"") + packed
    start = encode(picture("RGB", 3, 2), "PNG")[:33]
    data = start + chunk(b"IDAT", stream[:cut]) + chunk(b"IDAT", stream[cut:]) + chunk(b"IEND")
    assert difference(data) is None


@SEARCH
@given(st.lists(st.integers(0, 255), min_size=20, max_size=60), EDITS, st.integers(1, 9))
def test_edited_streams(values: list[int], edits: list[tuple[float, bool, bytes]], level: int) -> None:
    stream = edited(zlib.compress(bytes((0, *values[:9], 1, *values[9:18])), level), edits, 2)
    start = encode(picture("RGB", 3, 2), "PNG")[:33]
    assert difference(start + chunk(b"IDAT", stream) + chunk(b"IEND")) is None
