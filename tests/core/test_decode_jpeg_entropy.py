"""The core's own Huffman decoding of JPEGs against Pillow: sound scans, and scans damaged anywhere."""

from __future__ import annotations

import base64
import random
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from decoding import (
    AS_PILLOWS_SIMD,
    assert_as_pillow,
    assert_bands_as_pillow,
    encoded,
    pillow_rgb,
    truncations,
)
from images import scene
from jpegs import segment
from PIL import Image

# Subsamplings that Pillow does not write: 35x37 pixels at 4:4:0 and 4:1:1, made with libjpeg-turbo.
# The tables of the codes are left out; decoders take these where there are none.
TALL_CHROMA = base64.b64decode(
    "/9j/4AAQSkZJRgABAQAAAQABAAD/2wBDADUlKC8oITUvKy88OTU/UIVXUElJUKN1e2GFwarLyL6qurfV8P//1eL/5re6////////"
    "////zv//////////////2wBDATk8PFBGUJ1XV53/3Lrc////////////////////////////////////////////////////////"
    "////////////wAARCAAlACMDARIAAhEBAxEB/9oADAMBAAIRAxEAPwCptJ+9TwvHXNat9/8AP8jNMAOw6U8Ln29qm+n9fluapiKM"
    "dKkAz/s0r9vw0/M0TGqMfWpAO2Pxqb6/1+exomQSK288H8qdLxIRkVpFu3X70c9Rx5nf9RQAT8vBqQDjniovb+rHMmNAGfepVGB6"
    "ipv/AF/wTRMaBjrUirx8vNK9/wCrmiYgXj2qQL6dam/9f8A0TK0ipvOWx7VJLkSH5M1cdv8AgHPUkuZ7fiAGB60UVFyq6OeI4Dj2"
    "9KKSV4cz3NESAZ6cY9KKin7+5oh4HOBx70VCbcuXoaIgkyJCM/pRXVGnGxzVZPnZ/9k="
)
WIDE_CHROMA = base64.b64decode(
    "/9j/4AAQSkZJRgABAQAAAQABAAD/2wBDADUlKC8oITUvKy88OTU/UIVXUElJUKN1e2GFwarLyL6qurfV8P//1eL/5re6////////"
    "////zv//////////////2wBDATk8PFBGUJ1XV53/3Lrc////////////////////////////////////////////////////////"
    "////////////wAARCAAlACMDAUEAAhEBAxEB/9oADAMBAAIRAxEAPwCptJ+9TwOw6U5RjpTlGPrWkn/X9eZpSYyRW3ng/lRRRVc1"
    "TsiHTV+v3f8ABEC8dc08Ln29qeBn/ZpwHbH41m/6/r8fkOkyKXiQjIoooquX++ZOSv8AD+f+YoAJ+Xg04AZ96eBjrTwvHtWbf9f1"
    "5FUmRSKm85bHtRRRS5odv6+8hxjf4vwFA454p6jA9RTlXj5eaeF9OtKT/r+vMdJkUuRIfkzRRRV3qGLlG+y/EAMD1pwHHt6VIBnp"
    "xj0p4HOBx71lIumQSZEhGf0ooorT2Uv5v6+8yc3fp9yP/9k="
)

KINDS: dict[str, tuple[str, dict[str, Any]]] = {
    "4:4:4": ("RGB", {"subsampling": "4:4:4"}),
    "4:2:2": ("RGB", {"subsampling": "4:2:2"}),
    "4:2:0": ("RGB", {"subsampling": "4:2:0"}),
    "own codes": ("RGB", {"optimize": True}),
    "restarts": ("RGB", {"restart_marker_blocks": 3}),
    "restarts by rows": ("RGB", {"restart_marker_rows": 1, "subsampling": "4:4:4"}),
    "grey": ("L", {"optimize": True}),
    "grey restarts": ("L", {"restart_marker_blocks": 1}),
    "CMYK": ("CMYK", {}),
    "progressive 4:4:4": ("RGB", {"progressive": True, "subsampling": "4:4:4"}),
    "progressive 4:2:2": ("RGB", {"progressive": True, "subsampling": "4:2:2"}),
    "progressive 4:2:0": ("RGB", {"progressive": True, "subsampling": "4:2:0"}),
    "progressive restarts": ("RGB", {"progressive": True, "restart_marker_blocks": 3}),
    "progressive grey": ("L", {"progressive": True}),
    "progressive CMYK": ("CMYK", {"progressive": True}),
}


def noisy(width_px: int, height_px: int, deviation: float, seed: int = 0) -> Image.Image:
    """The scene with noise, which needs the long codes and the large values."""
    noise = np.random.default_rng(seed).normal(0, deviation, (height_px, width_px, 3))
    return Image.fromarray(np.clip(scene(width_px, height_px) + noise, 0, 255).astype(np.uint8))


def jpeg(kind: str, width_px: int, height_px: int, quality: int = 90, deviation: float = 5) -> bytes:
    mode, options = KINDS[kind]
    image = noisy(width_px, height_px, deviation).convert(mode)
    return encoded(image, "JPEG", quality=quality, **options)


def scan_at(data: bytes) -> int:
    """Where the coded bytes begin."""
    at = data.index(b"\xff\xda") + 2
    return at + int.from_bytes(data[at : at + 2], "big")


def damaged(kind: str, data: bytes, count: int, seed: int) -> Iterator[tuple[str, bytes]]:
    """Copies with bits flipped, bytes taken out or markers put in, in the scan or right behind it."""
    chance = random.Random(seed)
    start = scan_at(data)
    for number in range(count):
        broken = bytearray(data)
        for _ in range(chance.choice((1, 1, 1, 3))):
            at = chance.choice((chance.randrange(start, len(broken)), len(broken) - chance.randrange(2, 9)))
            match chance.randrange(6):
                case 0 | 1:
                    broken[at] ^= 1 << chance.randrange(8)
                case 2:
                    broken[at] = chance.choice((0, 0xFF))
                case 3:
                    del broken[at : at + chance.randrange(1, 4)]
                case 4:
                    broken[at:at] = bytes(
                        (0xFF, chance.choice((0, 0xD0, 0xD1, 0xD4, 0xD9, 0xDA, 0xE0, 0xFF)))
                    )
                case _:
                    broken[at:at] = bytes(chance.randrange(256) for _ in range(chance.randrange(1, 24)))
        yield f"{kind} {number} of seed {seed}", bytes(broken)


@pytest.mark.parametrize("kind", KINDS)
def test_every_quality(kind: str) -> None:
    files = [
        (f"{kind} q{quality} {deviation}", jpeg(kind, 75, 58, quality, deviation))
        for quality in (1, 2, 5, 10, 25, 40, 50, 60, 70, 75, 80, 85, 90, 93, 95, 97, 98, 99, 100)
        for deviation in (0, 40)
    ]
    assert assert_as_pillow(files) == {"load": len(files)}
    assert_bands_as_pillow(files)


@pytest.mark.parametrize("kind", KINDS)
def test_sizes_of_a_block_to_many_buffers(kind: str) -> None:
    sizes = ((1, 1), (8, 8), (9, 16), (16, 17), (33, 1), (1, 47), (63, 64), (129, 65), (400, 311))
    files = [
        (f"{kind} {size} q{quality}", jpeg(kind, *size, quality)) for size in sizes for quality in (75, 96)
    ]
    assert max(len(data) for _, data in files) > 60_000
    assert assert_as_pillow(files) == {"load": len(files)}
    assert_bands_as_pillow(files)


@AS_PILLOWS_SIMD
@pytest.mark.parametrize("kind", KINDS)
def test_scans_cut_anywhere(kind: str) -> None:
    small, large = jpeg(kind, 40, 24), jpeg(kind, 210, 160, 95)
    files = [*truncations(kind, small), *truncations(f"large {kind}", large, len(large) // 40)]
    assert assert_as_pillow(files)["refused"] > len(small) / 2
    # What an end marker makes whole again: libjpeg fills in what is missing.
    ended = [(f"{name}, ended", data + b"\xff\xd9") for name, data in files if len(data) > scan_at(small)][
        ::5
    ]
    assert assert_as_pillow(ended)["load"] > len(ended) / 2
    assert_bands_as_pillow(files[::9] + ended[::3])


@AS_PILLOWS_SIMD
@pytest.mark.parametrize("kind", KINDS)
def test_scans_damaged_anywhere(kind: str) -> None:
    files = list(damaged(kind, jpeg(kind, 90, 70), 150, seed=1))
    files += damaged(f"large {kind}", jpeg(kind, 260, 190, 95), 25, seed=2)
    assert assert_as_pillow(files)["load"] > 50
    assert_bands_as_pillow(files[::4])


@AS_PILLOWS_SIMD
@pytest.mark.parametrize("data", [TALL_CHROMA, WIDE_CHROMA], ids=["4:4:0", "4:1:1"])
def test_other_subsamplings(data: bytes) -> None:
    files = [("whole", data), *truncations("cut", data, 7), *damaged("damaged", data, 100, seed=4)]
    assert assert_as_pillow(files)["load"] > 40
    assert_bands_as_pillow(files[::5])


def test_one_block_of_random_bits_in_codes_for_every_symbol() -> None:
    # No encoder writes the values of 15 bits and the zeros past the last coefficient that this comes to.
    base = encoded(Image.new("L", (8, 8)), "JPEG", quality=100)
    head, frame_to_scan = base[: base.index(b"\xff\xc4")], base[base.index(b"\xff\xda") : scan_at(base)]
    chance = random.Random(3)
    files = []
    for number in range(400):
        means = bytes((0, *(0,) * 4, 16, *(0,) * 11, *chance.sample(range(16), 16)))
        counts = (0, 0, 1, 3, 8, 10, 12, 20, 22, 30, 30, 30, 30, 30, 20, 10)
        others = bytes((0x10, *counts, *chance.sample(range(256), 256)))
        tables = segment(0xC4, means) + segment(0xC4, others)
        bits = bytes(chance.randrange(256) for _ in range(260)).replace(b"\xff", b"\xff\0")
        files.append((f"{number}", head + tables + frame_to_scan + bits + b"\xff\xd9"))
    assert assert_as_pillow(files) == {"load": 400}
    pictures = {pixels.tobytes() for _, data in files if (pixels := pillow_rgb(data)) is not None}
    assert len(pictures) > 300


def test_without_an_end_marker_pillows_blocks_decide() -> None:
    # How far libjpeg reads ahead depends on where the blocks end that Pillow shows it.
    files = []
    for seed in range(50, 130):
        image = noisy(344, 299, 8.6, seed).convert("L")
        padding = 65_537 + seed - len(encoded(image, "JPEG", quality=95))
        data = encoded(image, "JPEG", quality=95, comment=b"x" * padding)
        files.append((f"seed {seed}", data[:-2]))
    assert assert_as_pillow(files)["load"] > 0
    assert_bands_as_pillow(files[::4])
