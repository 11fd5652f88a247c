"""GIF of the core against Pillow: the first frame on its screen, palettes, extensions, and broken LZW."""

from __future__ import annotations

import random
import struct

import pytest
from decoding import (
    assert_as_pillow,
    difference,
    mutations,
    pixels,
    refused,
    truncations,
    without_large,
)
from images import picture, web_samples
from PIL import Image

from sglang_mm_ray import _core

TRANSPARENT_3 = b"!\xf9\4\1\0\0\3\0"
LOOP = b"!\xff\x0bNETSCAPE2.0\3\1\0\0\0"


def lzw(values: list[int], code_bits: int, *, end: bool = True, clear_when_full: bool = True) -> bytes:
    """Values as LZW codes."""
    clear = 1 << code_bits
    size, following, table = code_bits + 1, clear + 2, dict[tuple[int, ...], int]()
    codes = [(clear, size)]
    run: tuple[int, ...] = ()
    for value in values:
        if not run or (*run, value) in table:
            run = (*run, value)
            continue
        codes.append((table[run] if len(run) > 1 else run[0], size))
        if following < 4096:
            table[(*run, value)] = following
            size += following == 1 << size and size < 12
            following += 1
        elif clear_when_full:
            codes.append((clear, size))
            size, following = code_bits + 1, clear + 2
            table.clear()
        run = (value,)
    if run:
        codes.append((table[run] if len(run) > 1 else run[0], size))
    if end:
        codes.append((clear + 1, size))
    return packed(codes)


def packed(codes: list[tuple[int, int]]) -> bytes:
    """`(code, bits)` pairs, lowest bit first."""
    data, hold, count = bytearray(), 0, 0
    for code, size in codes:
        hold |= (code & ((1 << size) - 1)) << count
        count += size
        while count >= 8:
            data.append(hold & 255)
            hold >>= 8
            count -= 8
    if count:
        data.append(hold)
    return bytes(data)


def blocks(data: bytes, length: int = 255) -> bytes:
    cut = (data[at : at + length] for at in range(0, len(data), length))
    return b"".join(bytes((len(piece),)) + piece for piece in cut)


def ramp(size_bits: int) -> bytes:
    """The grey palette that Pillow drops."""
    return b"".join(bytes((index,)) * 3 for index in range(2 << size_bits))


def gif(
    screen: tuple[int, int],
    frame: tuple[int, int, int, int],
    compressed: bytes,
    *,
    code_bits: int = 8,
    global_palette: bytes = b"",
    local_palette: bytes = b"",
    before: bytes = b"",
    interlace: bool = False,
    background: int = 0,
    after: bytes = b"\0;",
) -> bytes:
    """A file of one frame (left, top, width, height)."""

    def flags(palette: bytes) -> int:
        return 0x80 | (len(palette) // 3).bit_length() - 2 if palette else 0

    data = b"GIF89a" + struct.pack("<HHBBB", *screen, flags(global_palette), background, 0)
    data += global_palette + before
    data += b"," + struct.pack("<HHHHB", *frame, flags(local_palette) | (0x40 if interlace else 0))
    return data + local_palette + bytes((code_bits,)) + blocks(compressed) + after


COLOURS = bytes(range(100, 124))
C = [list(COLOURS[at : at + 3]) for at in range(0, 24, 3)]
BLACK = [0, 0, 0]


def test_files_that_pillow_writes() -> None:
    files = [(sample.name, sample.data) for sample in web_samples() if sample.format == "GIF"]
    assert assert_as_pillow(files) == {"load": len(files)}


def test_a_large_picture_fills_the_table_many_times() -> None:
    chance = random.Random(0)
    noise = [chance.randrange(256) for _ in range(301 * 203)]
    for clear in (True, False):
        data = gif((301, 203), (0, 0, 301, 203), lzw(noise, 8, clear_when_full=clear), global_palette=ramp(7))
        assert pixels(data) == [[value] * 3 for value in noise]
    for interlace in (0, 1):
        data = web_like(picture("P", 333, 257), interlace)
        assert difference(data) is None


def web_like(image: Image.Image, interlace: int) -> bytes:
    import io

    buffer = io.BytesIO()
    image.save(buffer, "GIF", interlace=interlace)
    return buffer.getvalue()


@pytest.mark.parametrize("height", range(1, 20))
def test_interlaced_rows(height: int) -> None:
    values = [row * 3 + column for row in range(height) for column in range(3)]
    data = gif((3, height), (0, 0, 3, height), lzw(values, 8), interlace=True)
    order = [row for first, step in ((0, 8), (4, 8), (2, 4), (1, 2)) for row in range(first, height, step)]
    stored = [values[order.index(row) * 3 :][:3] for row in range(height)]
    assert pixels(data) == [[value] * 3 for row in stored for value in row]


def test_a_frame_inside_its_screen_lies_on_index_0_or_on_the_transparent_index() -> None:
    compressed = lzw([1, 2], 3)
    plain = gif((3, 2), (1, 1, 2, 1), compressed, code_bits=3, global_palette=COLOURS, background=5)
    assert pixels(plain) == [C[0], C[0], C[0], C[0], C[1], C[2]]
    keyed = gif((3, 2), (1, 1, 2, 1), compressed, code_bits=3, global_palette=COLOURS, before=TRANSPARENT_3)
    assert pixels(keyed) == [C[3], C[3], C[3], C[3], C[1], C[2]]


def test_a_frame_outside_its_screen_enlarges_the_picture() -> None:
    data = gif((1, 1), (1, 2, 2, 1), lzw([1, 2], 3), code_bits=3, global_palette=COLOURS)
    assert _core.common.probe(data) == ("GIF", 3, 3)
    assert pixels(data)[7:] == [C[1], C[2]]
    assert pixels(gif((0, 0), (0, 0, 1, 1), lzw([1], 3), code_bits=3, global_palette=COLOURS)) == [C[1]]
    assert refused(gif((4, 4), (0, 0, 0, 4), lzw([1], 3), code_bits=3))
    assert refused(gif((0, 0), (0, 0, 0, 0), lzw([1], 3), code_bits=3))


def test_a_huge_frame_on_a_small_screen_is_found_by_its_size() -> None:
    with pytest.raises(_core.LimitExceeded, match="4294836225"):
        _core.common.image_decode_rgb(gif((1, 1), (0, 0, 65_535, 65_535), lzw([1], 3), code_bits=3))


def test_palettes() -> None:
    def one(value: int, **options: bytes) -> list[int]:
        return pixels(gif((1, 1), (0, 0, 1, 1), lzw([value], 8), **options))[0]

    assert one(77) == [77] * 3
    assert one(2, global_palette=COLOURS) == C[2]
    assert one(77, global_palette=COLOURS) == BLACK
    assert one(1, global_palette=COLOURS, local_palette=bytes(range(6))) == [3, 4, 5]
    # A palette that is the grey ramp is no palette: greys go on past its end.
    assert one(77, global_palette=ramp(2)) == [77] * 3
    assert one(77, local_palette=ramp(2)) == [77] * 3
    # But a local ramp does not hide the global palette: Pillow hangs that on the grey image.
    assert one(2, global_palette=COLOURS, local_palette=ramp(2)) == C[2]
    assert one(77, global_palette=COLOURS, local_palette=ramp(7)) == BLACK


@pytest.mark.parametrize(
    ("before", "transparent"),
    [
        (b"", None),
        (TRANSPARENT_3, 3),
        (b"!\xf9\4\0\0\0\3\0", None),
        (TRANSPARENT_3 + b"!\xf9\4\0\0\0\5\0", 3),
        (TRANSPARENT_3 + b"!\xf9\4\1\0\0\5\0", 5),
        (LOOP + TRANSPARENT_3, 3),
        (b"!\xfe\3abc\2de\0" + TRANSPARENT_3, 3),
        (b"!\xfe\0" + TRANSPARENT_3, 3),
        (b"\0\0xyz" + TRANSPARENT_3, 3),
        (b"!\1\2ab\0" + TRANSPARENT_3, 3),
        (b"!\xf9\3\0\0\0\0", None),
        (b"!\xf9\5\1\0\0\2\7\0", 2),
    ],
)
def test_extensions(before: bytes, transparent: int | None) -> None:
    data = gif((2, 1), (0, 0, 1, 1), lzw([1], 3), code_bits=3, global_palette=COLOURS, before=before)
    assert pixels(data) == [C[1], C[transparent or 0]]


@pytest.mark.parametrize(
    "before",
    [
        b"!\xf9\3\1\0\0\0",
        b"!\xf9\2\0\0\0",
        b";",
        # An empty extension swallows what follows as its blocks.
        b"!\xf9\0",
        b"!\xff\x0bNETSCAPE2.0\0",
    ],
)
def test_extensions_that_spoil_the_file(before: bytes) -> None:
    assert refused(gif((1, 1), (0, 0, 1, 1), lzw([1], 3), code_bits=3, before=before))


def test_data_that_ends_early_or_goes_on() -> None:
    def file(compressed: bytes, after: bytes = b"\0;", code_bits: int = 3) -> bytes:
        return gif((4, 1), (0, 0, 4, 1), compressed, code_bits=code_bits, global_palette=COLOURS, after=after)

    whole = [C[1], C[2], C[3], C[4]]
    assert pixels(file(lzw([1, 2, 3, 4], 3))) == whole
    assert pixels(file(lzw([1, 2, 3, 4], 3, end=False), after=b"")) == whole
    assert pixels(file(lzw([1, 2, 3, 4, 5, 6, 7], 3))) == whole
    assert refused(file(lzw([1, 2, 3], 3)))
    # The end code ends nothing if the file goes on past what Pillow reads at once.
    tail = lzw([1, 2, 3], 3) + packed([(1, 4)] * 2000)
    assert refused(file(tail[:200]))
    assert difference(file(tail + bytes(70_000))) is None
    assert pixels(file(b"", after=b"\0\0" + blocks(lzw([1, 2, 3, 4], 3)))) == whole
    # Code sizes.
    assert refused(file(lzw([1, 2, 3, 4], 3), code_bits=13))
    for code_bits in range(2, 13):
        values = [1, 2, (1 << code_bits) - 1, 0]
        assert difference(file(lzw(values, code_bits), code_bits=code_bits)) is None


@pytest.mark.parametrize(
    "codes",
    [
        [(8, 4), (1, 4), (10, 4), (2, 4)],  # the code that is being defined
        [(8, 4), (1, 4), (11, 4), (2, 4)],  # one further
        [(8, 4), (10, 4), (1, 4), (2, 4)],  # not known after a clear
        [(1, 4), (2, 4), (3, 4), (4, 4)],  # no clear at the start
        [(8, 4), (8, 4), (1, 4), (8, 4), (2, 4), (3, 4), (4, 4)],
        [(8, 4), (1, 4), (9, 4), (2, 4), (3, 4), (4, 4)],
    ],
)
def test_codes(codes: list[tuple[int, int]]) -> None:
    data = gif((4, 1), (0, 0, 4, 1), packed(codes), code_bits=3, global_palette=COLOURS)
    assert difference(data) is None


def test_every_length_every_flipped_byte_and_mutations() -> None:
    values = [row * column % 7 for row in range(6) for column in range(7)]
    data = gif(
        (8, 7),
        (1, 1, 7, 6),
        lzw(values, 3),
        code_bits=3,
        global_palette=COLOURS,
        local_palette=COLOURS[::-1],
        before=LOOP + TRANSPARENT_3,
        interlace=True,
    )
    assert assert_as_pillow(truncations("file", data))["refused"] > 50
    flips = (
        (f"byte {at} ^ {mask}", data[:at] + bytes((data[at] ^ mask,)) + data[at + 1 :])
        for at in range(6, len(data))
        for mask in (1, 8, 0x80, 0xFF)
    )
    verdicts = assert_as_pillow(without_large(flips))
    assert verdicts["refused"] > 50 and verdicts["load"] > 50
    assert_as_pillow(without_large(mutations("file", data, 1500, seed=2)))


@pytest.mark.parametrize("seed", range(3))
def test_files_of_any_kind(seed: int) -> None:
    chance = random.Random(seed)
    verdicts = assert_as_pillow((f"seed {seed} file {index}", any_gif(chance)) for index in range(500))
    assert verdicts["load"] > 100 and verdicts["refused"] > 100


def any_gif(chance: random.Random) -> bytes:
    """A file of any kind, about half of them damaged."""

    def palette() -> bytes:
        bits = chance.randrange(8)
        return chance.choice((b"", ramp(bits), chance.randbytes(6 << bits)))

    screen = (chance.randrange(16), chance.randrange(16))
    inside = chance.random() < 0.6
    left, top = (0, 0) if inside else (chance.randrange(8), chance.randrange(8))
    width, height = screen if inside else (chance.randrange(16), chance.randrange(16))
    code_bits = chance.choice((1, 2, 3, 4, 8, 8, 8, chance.randrange(14)))
    count = max(0, width * height + chance.choice((0, 0, 0, 0, 1, -1, 7)))
    values = [chance.randrange(1 << min(code_bits, chance.choice((1, 8, 13)))) for _ in range(count)]
    compressed = lzw(values, code_bits) if chance.random() < 0.85 else chance.randbytes(chance.randrange(300))
    return gif(
        screen,
        (left, top, width, height),
        compressed,
        code_bits=code_bits,
        global_palette=palette(),
        local_palette=palette(),
        before=b"".join(chance.choices((b"", TRANSPARENT_3, LOOP, b"!\xfe\3abc\0", b"x"), k=2)),
        interlace=chance.random() < 0.4,
        after=chance.choice((b"\0;", b"", b"\0" + chance.randbytes(60))),
    )
