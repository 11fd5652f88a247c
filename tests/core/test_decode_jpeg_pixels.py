"""The core's own transform, upsampling and colours of JPEGs against Pillow, by every instruction set."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest
from decoding import AS_PILLOWS_SIMD, assert_as_pillow, assert_bands_as_pillow, encoded
from images import scene
from jpegs import Factors, Made
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
