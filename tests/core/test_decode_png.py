"""PNG of the core against Pillow: every layout, chunk rules, and streams broken in every place."""

from __future__ import annotations

import io
import random
import struct
import zlib
from pathlib import Path

import numpy as np
import png_builder as build
import pytest
from decoding import (
    assert_as_pillow,
    difference,
    mutations,
    pillow_rgb,
    pixels,
    refused,
    truncations,
)
from images import web_samples
from PIL import Image
from png_builder import GREY, PALETTE, RGB, RGBA, chunk, png

from sglang_mm_ray import _core


def greys(*values: int) -> list[list[int]]:
    return [[value] * 3 for value in values]


def test_the_shipped_pictures(photos: list[Path]) -> None:
    files = [(path.name, path.read_bytes()) for path in photos if path.suffix == ".png"]
    assert_as_pillow(files)


def test_files_that_pillow_writes() -> None:
    files = [(sample.name, sample.data) for sample in web_samples() if sample.format == "PNG"]
    assert assert_as_pillow(files) == {"load": len(files)}


@pytest.mark.parametrize("interlace", [0, 1])
@pytest.mark.parametrize(("bits", "colour"), build.LAYOUTS)
def test_every_layout_filter_and_size(bits: int, colour: int, interlace: int) -> None:
    chance = random.Random(bits * 64 + colour * 2 + interlace)
    files = []
    for width, height in ((1, 1), (1, 9), (9, 1), (2, 2), (3, 5), (5, 3), (4, 4), (8, 8), (17, 13), (67, 21)):
        for filters in ((0,), (1,), (2,), (3,), (4,), (0, 1, 2, 3, 4)):
            rows = build.filtered_rows(chance, width, height, bits, colour, interlace > 0, filters)
            palette = chunk(b"PLTE", chance.randbytes(3 << bits)) if colour == PALETTE else b""
            data = png(width, height, bits, colour, rows, before=palette, interlace=interlace)
            files.append((f"{width}x{height} filters {filters}", data))
    assert assert_as_pillow(files) == {"load": len(files)}


def test_rows_longer_than_the_window_and_pictures_larger_than_a_band() -> None:
    chance = random.Random(1)
    files = []
    for width, height, bits, colour in ((30_000, 5, 8, RGBA), (20_011, 7, 16, RGBA), (997, 601, 8, RGB)):
        for interlace in (0, 1):
            rows = build.filtered_rows(chance, width, height, bits, colour, interlace > 0)
            data = png(width, height, bits, colour, rows, interlace=interlace)
            files.append((f"{width}x{height} {interlace}", data))
    # Long repeats at every distance, over the edges of the bands.
    scene = (np.arange(1200 * 900 * 3) % 32_749 % 251).astype(np.uint8).reshape(900, 1200, 3)
    for level in (1, 6, 9):
        buffer = io.BytesIO()
        Image.fromarray(scene).save(buffer, "PNG", compress_level=level)
        files.append((f"repeats at level {level}", buffer.getvalue()))
    assert assert_as_pillow(files) == {"load": len(files)}


def test_alpha_is_dropped_and_hidden_colour_kept() -> None:
    data = png(2, 1, 8, RGBA, bytes((0, 255, 0, 0, 0, 10, 20, 30, 128)))
    assert pixels(data) == [[255, 0, 0], [10, 20, 30]]


def test_low_and_high_depths_of_grey() -> None:
    assert pixels(png(4, 1, 2, GREY, b"\0\x1b")) == greys(0, 85, 170, 255)
    assert pixels(png(2, 1, 4, GREY, b"\0\x1e")) == greys(17, 238)
    assert pixels(png(3, 1, 1, GREY, b"\0\xa0")) == greys(255, 0, 255)
    # 16 bits are clipped in grey, and cut to their high byte in colour.
    deep = png(4, 1, 16, GREY, b"\0" + struct.pack(">4H", 5, 255, 256, 40_000))
    assert pixels(deep) == greys(5, 255, 255, 255)
    assert pixels(png(1, 1, 16, RGB, b"\0" + struct.pack(">3H", 5, 300, 65_535))) == [[0, 1, 255]]


def test_palette_transparency_and_short_palettes() -> None:
    primaries = chunk(b"PLTE", bytes((255, 0, 0, 0, 255, 0, 0, 0, 255)))
    alphas = chunk(b"tRNS", bytes((0, 128, 255)))
    rows = bytes((0, 0, 1, 2, 0, 2, 1, 0))
    expected = [[255, 0, 0], [0, 255, 0], [0, 0, 255], [0, 0, 255], [0, 255, 0], [255, 0, 0]]
    assert pixels(png(3, 2, 8, PALETTE, rows, before=primaries + alphas)) == expected
    past_the_end = png(
        3, 1, 8, PALETTE, bytes((0, 0, 1, 5)), before=chunk(b"PLTE", bytes((1, 2, 3, 4, 5, 6)))
    )
    assert pixels(past_the_end) == [[1, 2, 3], [4, 5, 6], [0, 0, 0]]
    assert pixels(png(3, 1, 8, PALETTE, bytes((0, 0, 1, 5)))) == greys(0, 0, 0)
    # Pillow looks up the one transparent index, and trips over the palette that is not there.
    assert refused(png(3, 1, 8, PALETTE, bytes((0, 0, 1, 5)), before=chunk(b"tRNS", b"\xff\0")))
    assert refused(png(1, 1, 8, PALETTE, b"\0\0", before=chunk(b"PLTE", bytes(771))))


def test_a_transparent_colour_changes_nothing() -> None:
    key = chunk(b"tRNS", struct.pack(">3H", 1, 2, 3))
    assert pixels(png(2, 1, 8, RGB, bytes((0, 1, 2, 3, 9, 9, 9)), before=key)) == [[1, 2, 3], [9, 9, 9]]
    grey_key = chunk(b"tRNS", b"\0\7")
    assert pixels(png(2, 1, 8, GREY, bytes((0, 7, 8)), before=grey_key)) == greys(7, 8)


def test_the_first_image_of_an_animation_is_the_image_data() -> None:
    def frame(number: int, colour: bytes) -> bytes:
        data = struct.pack(">I", number + 1) + zlib.compress(b"\0" + colour * 2)
        return build.frame_control(number, 2, 1) + chunk(b"fdAT", data)

    red, blue = bytes((255, 0, 0)), bytes((0, 0, 255))
    hidden = png(
        2,
        1,
        8,
        RGB,
        b"\0" + bytes((9,)) * 6,
        before=build.animation_control(2),
        after=frame(0, red) + frame(2, blue),
    )
    assert pixels(hidden) == greys(9, 9)
    control = build.animation_control(2) + build.frame_control(0, 2, 1)
    shown = png(2, 1, 8, RGB, b"\0" + red * 2, before=control, after=frame(1, blue))
    assert pixels(shown) == [[255, 0, 0]] * 2
    part = build.frame_control(0, 1, 1, left=1)
    assert pixels(png(2, 1, 8, RGB, b"\0" + red, before=part)) == [[0, 0, 0], [255, 0, 0]]
    # Interlaced parts land at the origin, as in Pillow.
    assert pixels(png(2, 1, 8, RGB, b"\0" + red, before=part, interlace=1)) == [[255, 0, 0], [0, 0, 0]]
    assert refused(png(2, 1, 8, RGB, b"\0" + red, before=build.frame_control(0, 3, 1)))
    # Frames behind the data are only checked if they are not known to be an animation.
    assert refused(
        png(2, 1, 8, RGB, b"\0" + red * 2, before=build.frame_control(0, 2, 1), after=frame(5, blue))
    )
    assert (
        pixels(png(2, 1, 8, RGB, b"\0" + red * 2, before=control, after=frame(5, blue))) == [[255, 0, 0]] * 2
    )


def solid() -> tuple[bytes, bytes]:
    """A file of 4x4 up to its image data, and the rows."""
    return build.SIGNATURE + build.header(4, 4, 8, RGB), (b"\0" + bytes(range(12))) * 4


def test_ends_that_are_missing_and_data_that_ends_early() -> None:
    start, rows = solid()
    whole = start + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND")
    assert refused(whole[:-22])
    assert len(pixels(whole[:-12])) == 16  # no IEND
    assert len(pixels(whole + b"junk behind")) == 16
    assert len(pixels(start + chunk(b"IDAT", zlib.compress(rows), damage=1) + chunk(b"IEND"))) == 16
    half = pixels(start + chunk(b"IDAT", zlib.compress(rows[:26])) + chunk(b"IEND"))
    assert half[8:] == greys(*[0] * 8) and half[:4] == half[4:8] != half[8:12]
    assert refused(start + chunk(b"IDAT", zlib.compress(rows[:20])) + chunk(b"IEND"))
    # An early end counts only if Pillow sees it together with the last row.
    stream = zlib.compress(rows[:26])
    for cut in range(1, len(stream)):
        split = chunk(b"IDAT", stream[:cut]) + chunk(b"IDAT", stream[cut:])
        assert difference(start + split + chunk(b"IEND")) is None, cut
    assert refused(start + chunk(b"IDAT", stream[:-4]) + chunk(b"IDAT", stream[-4:]) + chunk(b"IEND"))


def test_a_wrong_checksum_of_the_stream_counts_only_with_the_last_row() -> None:
    start, rows = solid()
    stream = zlib.compress(rows)
    wrong = stream[:-1] + bytes((stream[-1] ^ 1,))
    assert refused(start + chunk(b"IDAT", wrong))
    assert len(pixels(start + chunk(b"IDAT", wrong[:-1]) + chunk(b"IDAT", wrong[-1:]))) == 16
    assert len(pixels(start + chunk(b"IDAT", stream[:-4]))) == 16
    # More rows than there are: what the stream goes on with is not looked at, unless it is an error at once.
    assert len(pixels(start + chunk(b"IDAT", zlib.compress(rows + bytes(500))))) == 16


def test_profiles_and_checksums_before_the_data() -> None:
    def with_profile(content: bytes, damage: int = 0) -> bytes:
        return png(1, 1, 8, RGB, b"\0\1\2\3", before=chunk(b"iCCP", content, damage))

    assert pixels(with_profile(b"name\0\0junk")) == [[1, 2, 3]]
    assert refused(with_profile(b"name\0\0junk", damage=1))
    assert refused(with_profile(b"name\0\1junk"))
    assert pixels(png(1, 1, 8, RGB, b"\0\1\2\3", before=chunk(b"eXIf", b"junkjunk"))) == [[1, 2, 3]]
    assert refused(png(1, 1, 8, RGB, b"\0\1\2\3", before=chunk(b"teST", b"junk", damage=1)))
    assert pixels(png(1, 1, 8, RGB, b"\0\1\2\3", after=chunk(b"teST", b"junk", damage=1))) == [[1, 2, 3]]


@pytest.mark.parametrize("name", [b"zTXt", b"iCCP"])
def test_texts_and_profiles_are_bounded(name: bytes) -> None:
    def file(unpacked: int) -> bytes:
        content = b"a\0\0" + zlib.compress(bytes(unpacked))
        return png(1, 1, 8, RGB, b"\0\1\2\3", before=chunk(name, content))

    assert pixels(file(1 << 20)) == [[1, 2, 3]]
    assert refused(file((1 << 20) + 1))
    assert refused(file(2 << 20))
    assert refused(png(1, 1, 8, RGB, b"\0\1\2\3", after=file(2 << 20)[33:-12]))


def test_the_limit_holds_before_anything_is_taken() -> None:
    def start(width: int, height: int) -> bytes:
        return build.SIGNATURE + build.header(width, height, 8, RGB) + chunk(b"IDAT")

    assert _core.common.probe(start(13_377, 13_377)) == ("PNG", 13_377, 13_377)
    with pytest.raises(_core.LimitExceeded, match="178956970"):
        _core.common.image_decode_rgb(start(13_377, 13_378))
    assert refused(start(9_460, 9_460))


def test_a_bomb_is_cut_at_the_size_of_the_picture() -> None:
    bomb = zlib.compress(bytes(200 << 20))
    start, _ = solid()
    assert len(pixels(start + chunk(b"IDAT", bomb))) == 16


def test_random_data_behind_a_signature_is_refused_at_once() -> None:
    assert refused(build.SIGNATURE + random.Random(0).randbytes(6 << 20))


def test_text_that_pillow_takes_for_facts() -> None:
    chance = random.Random(5)
    rows = build.filtered_rows(chance, 9, 9, 8, RGB, interlaced=True)
    plain = png(9, 9, 8, RGB, rows, before=chunk(b"tEXt", b"interlace\0x"))
    assert pixels(plain) == pixels(png(9, 9, 8, RGB, rows, interlace=1))
    assert refused(png(1, 1, 8, GREY, b"\0\1", before=chunk(b"tEXt", b"transparency\0x")))
    assert pixels(png(1, 1, 8, RGB, b"\0\1\2\3", before=chunk(b"tEXt", b"transparency\0x"))) == [[1, 2, 3]]


@pytest.mark.parametrize(("bits", "colour", "interlace"), [(8, RGB, 0), (8, PALETTE, 1), (16, RGBA, 0)])
def test_every_length_and_every_flipped_byte(bits: int, colour: int, interlace: int) -> None:
    chance = random.Random(bits)
    rows = build.filtered_rows(chance, 6, 5, bits, colour, interlace > 0)
    palette = chunk(b"PLTE", chance.randbytes(60)) if colour == PALETTE else b""
    stream = build.deflated(chance, rows)
    data = build.SIGNATURE + build.header(6, 5, bits, colour, interlace) + palette
    data += chunk(b"IDAT", stream[:30]) + chunk(b"IDAT", stream[30:]) + chunk(b"IEND")
    assert assert_as_pillow(truncations("file", data))["refused"] > 50
    flips = (
        (f"byte {at} ^ {mask}", data[:at] + bytes((data[at] ^ mask,)) + data[at + 1 :])
        for at in range(8, len(data))
        for mask in (1, 0x10, 0xFF)
    )
    assert assert_as_pillow(flips)["refused"] > 50
    assert_as_pillow(mutations("file", data, 300, seed=bits + colour))


@pytest.mark.parametrize("seed", range(4))
def test_files_of_any_kind(seed: int) -> None:
    chance = random.Random(seed)
    verdicts = assert_as_pillow((f"seed {seed} file {index}", build.any_png(chance)) for index in range(700))
    assert verdicts["load"] > 150 and verdicts["refused"] > 150


def test_every_cut_of_a_stream_into_chunks() -> None:
    # Where the pieces end decides what Pillow's inflate sees at once, and so what of a damage it notices.
    chance = random.Random(9)
    verdicts = {"load": 0, "refused": 0}
    for damage in range(6):
        rows = build.filtered_rows(chance, 5, 4, 8, RGB)
        if damage == 1:
            rows = rows[:32]
        elif damage == 2:
            rows += bytes(40)
        stream = zlib.compress(rows, 6 if damage != 3 else 0)
        if damage >= 4:
            at = len(stream) - chance.randrange(1, 12)
            stream = stream[:at] + bytes((stream[at] ^ 1 << chance.randrange(8),)) + stream[at + 1 :]
        start = build.SIGNATURE + build.header(5, 4, 8, RGB)
        for cut in range(len(stream) + 1):
            data = start + chunk(b"IDAT", stream[:cut]) + chunk(b"IDAT", stream[cut:]) + chunk(b"IEND")
            assert difference(data) is None, (damage, cut)
            verdicts["refused" if pillow_rgb(data) is None else "load"] += 1
    assert min(verdicts.values()) > 10
