"""The core's own transform, upsampling and colours of JPEGs against Pillow, by every instruction set."""

from __future__ import annotations

import random
import struct
from typing import Any

import numpy as np
import pytest
from decoding import AS_PILLOWS_SIMD, assert_as_pillow, assert_bands_as_pillow, encoded
from images import scene
from jpegs import Factors, Made, coded, segment
from PIL import Image

KINDS: dict[str, tuple[str, dict[str, Any]]] = {
    "4:4:4": ("RGB", {"subsampling": "4:4:4"}),
    "4:2:2": ("RGB", {"subsampling": "4:2:2"}),
    "4:2:0": ("RGB", {"subsampling": "4:2:0"}),
    "grey": ("L", {}),
}
# The same ones as other encoders write them, those that only look alike, and those with nothing in common.
SAMPLINGS: list[tuple[Factors, ...]] = [
    ((1, 1),),
    ((2, 2),),
    ((1, 1),) * 3,
    ((2, 1),) * 3,
    ((1, 3),) * 3,
    ((2, 1), (1, 1), (1, 1)),
    ((2, 2), (1, 2), (1, 2)),
    ((4, 1), (2, 1), (2, 1)),
    ((2, 2), (1, 1), (1, 1)),
    ((1, 2), (1, 1), (1, 1)),
    ((2, 2), (2, 1), (2, 1)),
    ((2, 2), (1, 1), (2, 2)),
    ((1, 1), (2, 2), (1, 1)),
]


def jpeg(kind: str, width_px: int, height_px: int, chance: random.Random) -> bytes:
    """From smooth to nothing but noise in full colours, of any quality."""
    mode, options = KINDS[kind]
    noise = np.random.default_rng(chance.randrange(1 << 30)).normal(0, 1, (height_px, width_px, 3))
    pixels = scene(width_px, height_px, chance.randrange(1000)) + noise * chance.choice((0, 4, 40, 400))
    image = Image.fromarray(np.clip(pixels, 0, 255).astype(np.uint8)).convert(mode)
    return encoded(image, "JPEG", quality=chance.choice((1, 10, 50, 75, 90, 95, 100)), **options)


@pytest.mark.parametrize("kind", KINDS)
def test_every_width_and_height(level: str, kind: str) -> None:
    chance = random.Random(f"{kind} {level}")
    sizes = [(width_px, chance.randrange(1, 60)) for width_px in range(1, 140)]
    sizes += [(chance.randrange(1, 60), height_px) for height_px in range(1, 70)]
    # About the lengths that the kernels cut rows into.
    sizes += [(width_px + by, 19) for width_px in (1024, 2048) for by in (-2, -1, 0, 1, 2, 33)]
    files = [(f"{kind} {size}", jpeg(kind, *size, chance)) for size in sizes]
    assert assert_as_pillow(files) == {"load": len(files)}
    assert_bands_as_pillow(files[::5])


@AS_PILLOWS_SIMD
@pytest.mark.parametrize("factors", SAMPLINGS, ids=str)
def test_samplings(level: str, factors: tuple[Factors, ...]) -> None:
    chance = random.Random(f"{factors} {level}")
    files = []
    for number in range(40):
        picture = Made(
            width_px=chance.randrange(1, 90),
            height_px=chance.randrange(1, 90),
            factors=factors,
            is_gentle=number % 4 > 0,
            restart_interval=chance.choice((0, 0, 5)),
        )
        files.append((f"{number}: {picture}", picture.file(chance)))
    assert assert_as_pillow(files) == {"load": 40}
    assert_bands_as_pillow(files[::4])


@AS_PILLOWS_SIMD
@pytest.mark.parametrize("factors", [((1, 1),), ((2, 1), (1, 1), (1, 1)), ((2, 2), (1, 1), (1, 1))], ids=str)
def test_tables_of_each_component(level: str, factors: tuple[Factors, ...]) -> None:
    chance = random.Random(f"{factors} {level}")
    files = []
    for number in range(40):
        picture = Made(
            width_px=chance.randrange(5, 60),
            height_px=chance.randrange(1, 60),
            factors=factors,
            is_gentle=True,
            has_own_tables=True,
        )
        files.append((f"{number}: {picture}", picture.file(chance)))
    assert assert_as_pillow(files) == {"load": 40}


@pytest.mark.parametrize("kind", KINDS)
def test_pictures_that_no_cache_holds(level: str, kind: str) -> None:
    chance = random.Random(f"{kind} {level}")
    # Rows that start with a cache line each, with half a one, and anywhere.
    whole = [jpeg(kind, width_px, 640, chance) for width_px in (640, 672, 613)]
    files = [(f"{kind} {number}", data) for number, data in enumerate(whole)]
    assert assert_as_pillow(files) == {"load": 3}
    # Begun twice, since units are missing at the end.
    broken = [(f"{kind} {at}", data[:-at] + b"\xff\xd9") for at in (20, 2000) for data in whole[:1]]
    assert assert_as_pillow(broken)["load"] > 0


def coefficient(value: int) -> str:
    """The next one in order, in a code that has five bits for each length of a value."""
    value_bits = abs(value).bit_length()
    digits = value if value >= 0 else value + (1 << value_bits) - 1
    return f"{value_bits:05b}" + (f"{digits:0{value_bits}b}" if value_bits else "")


def strip_of(blocks: list[list[int]]) -> bytes:
    """Grey blocks side by side, of their coefficients in the order of the file; only a first one may be 0."""
    code = bytes((*(16 if bits == 5 else 0 for bits in range(1, 17)), *range(16)))
    bits, before = "", 0
    for mean, *others in blocks:
        bits += coefficient(mean - before) + "".join(map(coefficient, others))
        bits += coefficient(0) if len(others) < 63 else ""
        before = mean
    return b"".join(
        (
            b"\xff\xd8",
            segment(0xDB, b"\0" + bytes((1,)) * 64),
            segment(0xC0, struct.pack(">BHHB", 8, 8, 8 * len(blocks), 1) + b"\1\x11\0"),
            *(segment(0xC4, bytes((kind,)) + code) for kind in (0x00, 0x10)),
            segment(0xDA, b"\1\1\0\0\x3f\0"),
            coded(bits, "1"),
            b"\xff\xd9",
        )
    )


@AS_PILLOWS_SIMD
@pytest.mark.parametrize("edge", [0, 8192, 16_384, 32_767])
def test_coefficients_about_what_wraps(level: str, edge: int) -> None:
    values = [sign * (edge + by) for sign in (-1, 1) for by in range(-3, 4) if edge + by <= 32_767]
    files = []
    for value in values:
        for below in (0, 1, -1):
            under = [below] if below else []
            for name, block in (("first", [value, 1, *under]), ("second", [5, value or 1, *under])):
                # In each place of a group.
                for place in range(4):
                    blocks = [[0, 1, 1]] * 4
                    blocks[place] = block
                    files.append((f"{name} {value} over {below} in {place}", strip_of(blocks)))
    assert assert_as_pillow(files) == {"load": len(files)}


@AS_PILLOWS_SIMD
def test_coefficients_that_no_encoder_makes(level: str) -> None:
    chance = random.Random(level)
    first_row = (0, 1, 5, 6, 14, 15, 27, 28)
    files = []
    for most in (300, 3000, 12_000, 32_767):
        for number in range(30):
            # A first row as large as the kernels take it, and below it what wraps and saturates.
            blocks = [
                [
                    chance.choice((-1, 1)) * chance.randint(1, 8191 if at in first_row else most)
                    for at in range(64)
                ]
                for _ in range(5)
            ]
            files.append((f"{number} up to {most}", strip_of(blocks)))
    assert assert_as_pillow(files) == {"load": len(files)}


def with_colours(data: bytes, transform: int | None, names: bytes) -> bytes:
    """The file with other names of its components, and an Adobe marker or none."""
    frame, scan = data.index(b"\xff\xc0"), data.index(b"\xff\xda")
    changed = bytearray(data)
    for number, name in enumerate(names):
        changed[frame + 10 + 3 * number] = changed[scan + 5 + 2 * number] = name
    start = data.index(b"\xff\xdb")
    adobe = b"" if transform is None else b"\xff\xee\0\x0eAdobe\0\x64\0\0\0\0" + bytes((transform,))
    return data[:2] + adobe + bytes(changed[start:])


def test_colours_that_are_something_else(level: str) -> None:
    chance = random.Random(9)
    files = [
        (f"{kind} {transform} {names!r}", with_colours(jpeg(kind, 70, 50, chance), transform, names))
        for kind in ("4:4:4", "4:2:2", "4:2:0")
        for transform in (None, 0, 1, 2)
        for names in (b"\1\2\3", b"RGB", b"\1\x22\3", b"\0\1\2")
    ]
    assert assert_as_pillow(files) == {"load": len(files)}
    assert_bands_as_pillow(files)
