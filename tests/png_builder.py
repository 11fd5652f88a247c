"""PNG files built by hand: any depth, any chunk order, any damage."""

from __future__ import annotations

import itertools
import random
import struct
import zlib
from collections.abc import Iterable, Sequence

SIGNATURE = b"\x89PNG\r\n\x1a\n"
GREY, RGB, PALETTE, GREY_ALPHA, RGBA = 0, 2, 3, 4, 6
CHANNELS = {GREY: 1, RGB: 3, PALETTE: 1, GREY_ALPHA: 2, RGBA: 4}
LAYOUTS = (
    *((bits, GREY) for bits in (1, 2, 4, 8, 16)),
    *((bits, PALETTE) for bits in (1, 2, 4, 8)),
    *((bits, colour) for bits in (8, 16) for colour in (RGB, GREY_ALPHA, RGBA)),
)
# First row, row step, first column, column step.
ADAM7 = ((0, 8, 0, 8), (0, 8, 4, 8), (4, 8, 0, 4), (0, 4, 2, 4), (2, 4, 0, 2), (0, 2, 1, 2), (1, 2, 0, 1))


def chunk(name: bytes, content: bytes = b"", damage: int = 0) -> bytes:
    """A chunk; `damage` is XORed into its checksum."""
    checksum = zlib.crc32(name + content) ^ damage
    return struct.pack(">I", len(content)) + name + content + struct.pack(">I", checksum)


def header(
    width: int, height: int, bits: int, colour: int, interlace: int = 0, method: int = 0, filters: int = 0
) -> bytes:
    return chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, bits, colour, method, filters, interlace))


def png(
    width: int,
    height: int,
    bits: int,
    colour: int,
    rows: bytes,
    *,
    before: bytes = b"",
    after: bytes = b"",
    interlace: int = 0,
    end: bool = True,
) -> bytes:
    """A sound file of filtered rows."""
    return (
        SIGNATURE
        + header(width, height, bits, colour, interlace)
        + before
        + chunk(b"IDAT", zlib.compress(rows))
        + after
        + (chunk(b"IEND") if end else b"")
    )


def row_lengths(width: int, height: int, bits: int, colour: int, interlaced: bool) -> Iterable[int]:
    """Bytes of each stored row, without its filter byte."""
    pixel_bits = bits * CHANNELS[colour]
    for first_row, row_step, first_column, column_step in ADAM7 if interlaced else ((0, 1, 0, 1),):
        columns = (width - first_column + column_step - 1) // column_step
        if columns > 0:
            for _ in range(first_row, height, row_step):
                yield (columns * pixel_bits + 7) // 8


def filtered_rows(
    chance: random.Random,
    width: int,
    height: int,
    bits: int,
    colour: int,
    interlaced: bool = False,
    filters: Sequence[int] = (0, 1, 2, 3, 4),
) -> bytes:
    """Rows of random filters and values: all values, few values, or one value a row."""
    style = chance.randrange(3)
    rows = bytearray()
    for length in row_lengths(width, height, bits, colour, interlaced):
        rows.append(chance.choice(filters))
        if style == 0:
            rows += chance.randbytes(length)
        elif style == 1:
            rows += bytes(chance.choices((0, 0, 0, 1, 255), k=length))
        else:
            rows += bytes((chance.randrange(256),)) * length
    return bytes(rows)


def deflated(chance: random.Random, rows: bytes) -> bytes:
    """A zlib stream with blocks of every kind."""
    packer = zlib.compressobj(
        chance.choice((0, 1, 6, 9)), zlib.DEFLATED, chance.choice((9, 12, 15)), 8, chance.randrange(5)
    )
    stream = bytearray()
    at = 0
    while at < len(rows):
        length = chance.randrange(1, 400)
        stream += packer.compress(rows[at : at + length])
        at += length
        if chance.random() < 0.3:
            stream += packer.flush(chance.choice((zlib.Z_SYNC_FLUSH, zlib.Z_FULL_FLUSH)))
    return bytes(stream + packer.flush())


def pieces(chance: random.Random, stream: bytes) -> bytes:
    """The stream in IDAT chunks, cut at random or near its end, some of them empty or of wrong checksum."""
    cuts = sorted(chance.randrange(len(stream) + 1) for _ in range(chance.choice((0, 0, 1, 3, 30))))
    if chance.random() < 0.3:
        cuts = [max(0, len(stream) - chance.randrange(12))]
    bounds = [0, *cuts, len(stream)]
    return b"".join(
        chunk(b"IDAT", stream[start:end], damage=int(chance.random() < 0.1))
        for start, end in itertools.pairwise(bounds)
    )


ODD_CHUNKS = tuple(
    chunk(content[:4], content[4:])
    for content in (
        b"tEXtabc\0def",
        b"tEXtinterlace\0x",
        b"tEXtinterlace\0",
        b"tEXttransparency\0x",
        b"tEXtbbox\0q",
        b"tEXtdefault_image\0q",
        b"zTXtinterlace\0\0" + zlib.compress(b"hello"),
        b"zTXta\0\1x",
        b"zTXta",
        b"zTXta\0",
        b"iTXtinterlace\0\0\0en\0k\0value",
        b"iTXttransparency\0\1\0en\0k\0" + zlib.compress(b"value"),
        b"iTXta\0\1\0en\0k\0" + zlib.compress(b"\xff\xff"),
        b"iTXta\0\1\0en\0k\0junk",
        b"iTXta\0",
        b"iCCPname\0\0" + zlib.compress(b"junk"),
        b"iCCPname\0\0junk",
        b"iCCPname\0\1junk",
        b"iCCPname",
        b"iCCP\0",
        b"eXIfjunk",
        b"gAMA\0\0\1\0",
        b"gAMA\0\0",
        b"pHYs123456781",
        b"pHYs1",
        b"cHRM" + bytes(32),
        b"cHRM" + bytes(31),
        b"sRGB\0",
        b"sRGB",
        b"acTL\0\0\0\2\0\0\0\0",
        b"acTL\0\0\0\0\0\0\0\0",
        b"acTL\0",
        b"tRNS\xff\0",
        b"tRNS\xff\xff\0\xff\n",
        b"tRNS\1\2\1\2\3\4",
        b"tRNS\0\1",
        b"abCdxyz",
        b"a_1dxyz",
        b"IEND",
        b"PLTE" + bytes(range(250)) * 3,
        b"PLTE" + bytes(770),
        b"PLTE" + bytes(771),
        b"PLTE",
        b"DDATxx",
        b"IDAT",
        b"fdAT\0\0\0\1abc",
        b"fdAT\0",
        b"IHDR" + struct.pack(">IIBBBBB", 2, 2, 8, PALETTE, 0, 0, 0),
        b"IHDR" + struct.pack(">IIBBBBB", 2, 2, 8, GREY, 0, 0, 0),
        b"IHDR" + struct.pack(">IIBBBBB", 2, 2, 8, GREY_ALPHA, 0, 0, 0),
    )
)


def frame_control(
    sequence: int, width: int, height: int, left: int = 0, top: int = 0, dispose: int = 0, blend: int = 0
) -> bytes:
    content = struct.pack(">IIIIIHHBB", sequence, width, height, left, top, 1, 10, dispose, blend)
    return chunk(b"fcTL", content)


def animation_control(frames: int) -> bytes:
    return chunk(b"acTL", struct.pack(">II", frames, 0))


def odd_chunks(chance: random.Random) -> bytes:
    return b"".join(chance.choices(ODD_CHUNKS, k=chance.choice((0, 0, 0, 1, 2))))


def any_png(chance: random.Random) -> bytes:
    """A file of any layout, about half of them damaged: in the stream, the chunks or around them."""
    width, height = chance.randrange(1, 20), chance.randrange(1, 12)
    if chance.random() < 0.04:
        width, height = chance.randrange(1, 700), chance.randrange(1, 120)
    bits, colour = chance.choice(LAYOUTS)
    interlace = chance.choice((0, 0, 1, 7))
    filters = (0, 1, 2, 3, 4) if chance.random() < 0.97 else (0, 1, 2, 3, 4, 5, 255)
    rows = filtered_rows(chance, width, height, bits, colour, interlace > 0, filters)
    match chance.randrange(10):
        case 0:
            rows = rows[: chance.randrange(len(rows) + 1)]
        case 1:
            rows += chance.randbytes(chance.randrange(1, 400))
        case 2:
            rows = rows[: (len(rows) // height) * chance.randrange(height + 1)]
    stream = deflated(chance, rows) if chance.random() < 0.5 else zlib.compress(rows)
    match chance.randrange(12):
        case 0:
            at = chance.randrange(len(stream))
            stream = stream[:at] + bytes((stream[at] ^ 1 << chance.randrange(8),)) + stream[at + 1 :]
        case 1:
            stream = stream[: chance.randrange(len(stream) + 1)]
        case 2:
            stream = stream[: -chance.randrange(1, 8)]
        case 3:
            stream = stream[:-1] + bytes((stream[-1] ^ 1,))
        case 4:
            stream += chance.randbytes(chance.randrange(1, 10))
    data = SIGNATURE + header(width, height, bits, colour, interlace, chance.choice((0, 0, 0, 3)))
    data += odd_chunks(chance)
    if colour == PALETTE and chance.random() < 0.95:
        data += chunk(b"PLTE", chance.randbytes(3 * chance.randrange(1, 257)))
    if chance.random() < 0.15:
        left, top = (0, 0) if chance.random() < 0.5 else (chance.randrange(width), chance.randrange(height))
        data += animation_control(chance.randrange(4)) if chance.random() < 0.8 else b""
        data += frame_control(chance.choice((0, 0, 0, 1)), width - left, height - top, left, top)
    data += odd_chunks(chance) + pieces(chance, stream) + odd_chunks(chance)
    if chance.random() < 0.9:
        data += chunk(b"IEND")
    return data + (chance.randbytes(chance.randrange(20)) if chance.random() < 0.1 else b"")
