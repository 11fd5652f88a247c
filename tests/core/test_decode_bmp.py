"""BMP and DIB of the core against Pillow: headers, depths, masks, palettes that Pillow drops, and runs."""

from __future__ import annotations

import random
import struct

import pytest
from decoding import assert_as_pillow, difference, mutations, refused, truncations, without_large
from decoding import pixels as rgb
from images import encode, picture, web_samples

from sglang_mm_ray import _core

RAW, RLE8, RLE4, MASKS = range(4)
HEADER_SIZES = (40, 52, 56, 64, 108, 124)
MASK_LAYOUTS = {
    32: (
        (0xFF0000, 0xFF00, 0xFF, 0),
        (0xFF000000, 0xFF0000, 0xFF00, 0),
        (0xFF000000, 0xFF00, 0xFF, 0),
        (0xFF000000, 0xFF0000, 0xFF00, 0xFF),
        (0xFF, 0xFF00, 0xFF0000, 0xFF000000),
        (0xFF0000, 0xFF00, 0xFF, 0xFF000000),
        (0xFF000000, 0xFF00, 0xFF, 0xFF0000),
        (0, 0, 0, 0),
    ),
    24: ((0xFF0000, 0xFF00, 0xFF, 0),),
    16: ((0xF800, 0x7E0, 0x1F, 0), (0x7C00, 0x3E0, 0x1F, 0)),
}


def greys(count: int, factor: int = 1, entry_bytes: int = 4) -> bytes:
    """A palette of `count` greys."""
    return b"".join(bytes(((i * factor) & 255,)) * 3 + bytes(entry_bytes - 3) for i in range(count))


def dib(
    width: int,
    height: int,
    bits: int,
    pixels: bytes,
    *,
    palette: bytes = b"",
    colours: int = 0,
    compression: int = RAW,
    masks: tuple[int, int, int, int] = (0, 0, 0, 0),
    header_bytes: int = 40,
) -> bytes:
    """A bitmap without its file header. A negative height means top-down."""
    if header_bytes == 12:
        return struct.pack("<IHHHH", 12, width, height, 1, bits) + palette + pixels
    header = struct.pack(
        "<IiiHHIIIIII", header_bytes, width, height, 1, bits, compression, 0, 0, 0, colours, 0
    )
    header += (struct.pack("<4I", *masks) + bytes(80))[: header_bytes - 40]
    if compression == MASKS and header_bytes == 40:
        header += struct.pack("<3I", *masks[:3])
    return header + palette + pixels


def bmp(body: bytes, pixels_at: int | None = None) -> bytes:
    """A bitmap with its file header; by default the pixels follow the headers and the palette."""
    return b"BM" + struct.pack("<III", len(body) + 14, 0, 0 if pixels_at is None else pixels_at) + body


def rows(chance: random.Random, width: int, height: int, bits: int) -> bytes:
    return chance.randbytes(((width * bits + 31) // 32 * 4) * abs(height))


def test_files_that_pillow_writes() -> None:
    files = [(sample.name, sample.data) for sample in web_samples() if sample.format == "BMP"]
    for mode in ("1", "L", "P", "RGB", "RGBA"):
        for size in ((1, 1), (2, 3), (9, 5), (33, 7)):
            files.append((f"DIB {mode} {size}", encode(picture(mode, *size), "DIB")))
            files.append((f"BMP {mode} {size}", encode(picture(mode, *size), "BMP")))
    assert assert_as_pillow(files) == {"load": len(files)}


@pytest.mark.parametrize("bits", [1, 4, 8, 16, 24, 32])
def test_every_depth_header_direction_and_size(bits: int) -> None:
    chance = random.Random(bits)
    files = []
    for header_bytes in (12, *HEADER_SIZES):
        for width, height in ((1, 1), (2, 2), (3, 5), (9, 4), (17, 3), (65, 2)):
            for sign in (1, -1) if header_bytes > 12 else (1,):
                palette = chance.randbytes((3 if header_bytes == 12 else 4) << bits) if bits <= 8 else b""
                body = dib(
                    width,
                    sign * height,
                    bits,
                    rows(chance, width, height, bits),
                    palette=palette,
                    header_bytes=header_bytes,
                )
                name = f"{header_bytes} {width}x{sign * height}"
                files += [(f"DIB {name}", body), (f"BMP {name}", bmp(body))]
                files.append((f"BMP {name} with offset", bmp(body, 14 + header_bytes + len(palette))))
                files.append((f"BMP {name} without room for the palette", bmp(body, 14 + header_bytes)))
    assert assert_as_pillow(files) == {"load": len(files)}


@pytest.mark.parametrize("bits", [16, 24, 32])
def test_masks(bits: int) -> None:
    chance = random.Random(bits)
    files = []
    for masks in MASK_LAYOUTS[bits]:
        for header_bytes in HEADER_SIZES:
            pixels = rows(chance, 7, 3, bits)
            body = dib(7, 3, bits, pixels, compression=MASKS, masks=masks, header_bytes=header_bytes)
            files += [(f"{masks} {header_bytes}", bmp(body)), (f"DIB {masks} {header_bytes}", body)]
    verdicts = assert_as_pillow(files)
    assert verdicts["load"] > len(files) // 2
    for header_bytes in HEADER_SIZES:
        body = dib(7, 3, bits, bytes(84), compression=MASKS, masks=(1, 2, 4, 0), header_bytes=header_bytes)
        assert refused(bmp(body))


def test_grey_palettes_as_pillow_drops_them() -> None:
    # 4 bits with the palette 0 to 15: bytes are read as greys.
    assert rgb(bmp(dib(2, 1, 4, b"\x1e\0\0\0", palette=greys(16)))) == [[30] * 3, [0] * 3]
    # 8 bits with black and white only: bits are read.
    two = bytes((0, 0, 0, 0, 255, 255, 255, 0))
    assert rgb(bmp(dib(2, 1, 8, b"\0\1\0\0", palette=two, colours=2))) == [[0] * 3, [0] * 3]
    assert rgb(bmp(dib(2, 1, 8, b"\x40\1\0\0", palette=two, colours=2))) == [[0] * 3, [255] * 3]
    # The spread palette is no such case.
    assert rgb(bmp(dib(2, 1, 4, b"\x1e\0\0\0", palette=greys(16, 17)))) == [[17] * 3, [238] * 3]
    # Bytes that a row of 4 bits does not have.
    assert refused(bmp(dib(9, 1, 4, bytes(8), palette=greys(16))))
    assert len(rgb(bmp(dib(4, 1, 4, bytes(4), palette=greys(16))))) == 4
    assert rgb(bmp(dib(2, 1, 8, b"\x80\0\0\0", palette=greys(1), colours=1))) == [[255] * 3, [0] * 3]


def test_palettes_of_any_length() -> None:
    chance = random.Random(3)
    files = [
        (
            f"{bits} bits {colours} colours, {kind}",
            bmp(dib(5, 2, bits, pixels, palette=palette, colours=colours)),
        )
        for bits in (1, 4, 8)
        for colours in (1, 2, 3, 15, 16, 17, 255, 256, 257, 300, 65_536, 65_537)
        for pixels in (rows(chance, 5, 2, bits),)
        for kind, palette in (
            ("grey", greys(colours)),
            ("colour", chance.randbytes(colours * 4)),
            ("black and white", bytes(4) + b"\xff" * 3 + bytes(colours * 4)),
            ("short", chance.randbytes(11)),
        )
    ]
    verdicts = assert_as_pillow(files)
    assert verdicts["load"] > 30 and verdicts["refused"] > 30


def test_sizes_that_are_none_or_too_many() -> None:
    assert refused(bmp(dib(0, 1, 24, bytes(64))))
    assert refused(bmp(dib(1, 0, 24, bytes(64))))
    for width, height in ((-1, 1), (20_000, 20_000), (1, -(1 << 25))):
        body = bmp(dib(width, height, 24, bytes(64)))
        assert difference(body) is None
        with pytest.raises(_core.InputError):
            _core.common.image_decode_rgb(body)
    assert refused(bmp(dib(2, 2, 24, bytes(13))))
    assert len(rgb(bmp(dib(2, 2, 24, bytes(14))))) == 4  # the last row needs no padding
    for bits in (0, 2, 15, 33):
        assert refused(bmp(dib(1, 1, bits, bytes(64))))
    for compression in (4, 5, 9):
        assert refused(bmp(dib(1, 1, 24, bytes(64), compression=compression)))


@pytest.mark.parametrize(
    ("compression", "runs"),
    [
        (RLE8, b"\3\1\0\0\1\2\2\3\0\1"),
        (RLE8, b"\x06\1"),  # longer than the row
        (RLE8, b"\3\1\3\2\3\4"),  # a full row takes nothing more
        (RLE8, b"\1\1\0\2\1\1\1\2\0\0\0\1"),  # a step
        (RLE8, b"\0\3\1\2\3\0\0\0\0\3\4\5\6\0"),
        (RLE8, b"\0\6\1\2\3\4\5\6"),
        (RLE8, b"\0\6\1\2\3\4\5"),
        (RLE8, b"\0\0\0\0\0\0\0\0"),
        (RLE8, b"\0\2\3\2"),
        (RLE8, b"\0\2\3"),
        (RLE8, b"\3\1\0"),
        (RLE4, b"\3\x12\0\0\3\x34"),
        (RLE4, b"\0\3\x12\x30\0\0\0\3\x45\x60"),
        (RLE4, b"\0\5\x12\x34\x56\0\1\x70"),
        (RLE4, b"\0\6\x12\x34\x56"),
    ],
)
@pytest.mark.parametrize("odd", [0, 1])
def test_runs(compression: int, runs: bytes, odd: int) -> None:
    bits = 8 if compression == RLE8 else 4
    chance = random.Random(len(runs))
    for height in (2, -2):
        for palette in (greys(1 << bits), chance.randbytes(4 << bits)):
            body = dib(3, height, bits, bytes(odd) + runs, palette=palette, compression=compression)
            assert difference(bmp(body, 14 + 40 + len(palette) + odd)) is None
            assert difference(body) is None
    two = bytes((0, 0, 0, 0, 255, 255, 255, 0))
    assert difference(bmp(dib(3, 2, bits, runs, palette=two, colours=2, compression=compression))) is None
    assert refused(bmp(dib(3, 2, 24, runs, compression=compression)))


def test_every_length_every_flipped_byte_and_mutations() -> None:
    chance = random.Random(7)
    sixteen = chance.randbytes(64)
    runs = b"\5\1\0\0\0\3\1\2\3\0\2\7\0\0\5\5\0\1"
    bodies = [
        dib(5, 3, 4, rows(chance, 5, 3, 4), palette=sixteen),
        dib(5, 3, 8, runs, palette=sixteen, colours=16, compression=RLE8),
        dib(3, -3, 16, rows(chance, 3, 3, 16), compression=MASKS, masks=MASK_LAYOUTS[16][0]),
        dib(3, 3, 32, rows(chance, 3, 3, 32), header_bytes=56, compression=MASKS, masks=MASK_LAYOUTS[32][4]),
    ]
    for index, body in enumerate(bodies):
        for data in (body, bmp(body)):
            assert assert_as_pillow(truncations(f"{index}", data))["refused"] > 10
            flips = (
                (f"{index} byte {at} ^ {mask}", data[:at] + bytes((data[at] ^ mask,)) + data[at + 1 :])
                for at in range(2, len(data))
                for mask in (1, 4, 0x80, 0xFF)
            )
            assert assert_as_pillow(without_large(flips))["load"] > 50
            assert_as_pillow(without_large(mutations(f"{index}", data, 300, seed=index)))


@pytest.mark.parametrize("seed", range(3))
def test_files_of_any_kind(seed: int) -> None:
    chance = random.Random(seed)
    verdicts = assert_as_pillow(without_large((f"{seed} {index}", any_bmp(chance)) for index in range(1000)))
    assert verdicts["load"] > 200 and verdicts["refused"] > 200


def any_runs(chance: random.Random) -> bytes:
    runs = bytearray()
    for _ in range(chance.randrange(3, 60)):
        match chance.randrange(6):
            case 0:
                runs += b"\0\0"
            case 1:
                runs += bytes((0, 2, chance.randrange(5), chance.randrange(3)))
            case 2:
                runs += bytes((0, chance.randrange(1, 12))) + chance.randbytes(chance.randrange(1, 7) * 2)
            case _:
                runs += bytes((chance.randrange(1, chance.choice((6, 256))), chance.randrange(256)))
    return bytes(runs)


def any_bmp(chance: random.Random) -> bytes:
    """A bitmap of any header, depth and compression, about half of them impossible or damaged."""
    bits = chance.choice((1, 4, 8, 8, 16, 24, 32))
    width, height = chance.randrange(1, 20), chance.randrange(1, 12)
    if bits > 8:
        compression = chance.choice((RAW, MASKS, MASKS, RLE8))
    else:
        compression = chance.choice((RAW, RAW, RLE8, RLE4, MASKS))
    colours = chance.choice((0, 0, 0, 1, 2, 16, 256, 300, chance.randrange(400))) if bits <= 8 else 0
    header_bytes = chance.choice((12, *HEADER_SIZES))
    count = colours or (1 << bits) if bits <= 8 else 0
    palette = chance.choice((greys(count), greys(count, 17), chance.randbytes(count * 4)))
    if chance.random() < 0.1:
        palette = palette[: chance.randrange(len(palette) + 1)]
    pixels = any_runs(chance) if compression in (RLE8, RLE4) else rows(chance, width, height, bits)
    if chance.random() < 0.3:
        pixels = pixels[: len(pixels) - chance.randrange(6)]
    body = dib(
        width,
        chance.choice((height, height, -height)) if header_bytes > 12 else height,
        bits,
        pixels,
        palette=palette,
        colours=colours,
        compression=compression,
        masks=chance.choice(MASK_LAYOUTS.get(bits, ((0, 0, 0, 0),))),
        header_bytes=header_bytes,
    )
    if chance.random() < 0.4:
        return body
    offsets = (None, 14 + header_bytes + len(palette), 14 + header_bytes, chance.randrange(len(body)))
    return bmp(body, chance.choice(offsets))
