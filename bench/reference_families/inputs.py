"""The encoded images that references and core are fed with: made from formulas, and checked by digests.

An input says all about itself, so a stored case can be made anew: `Input("RGBA", 131, 97)`.
"""

from __future__ import annotations

import functools
import hashlib
import io
import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from PIL import Image

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tests"))
from images import encode, picture, scene

ORIENTATION = 0x0112


@dataclass(frozen=True)
class Input:
    """An image: how it is stored, and its size in pixels as stored (before any EXIF rotation)."""

    kind: str
    width: int
    height: int

    def __str__(self) -> str:
        return f"{self.kind} {self.width}x{self.height}"


def parse(name: str) -> Input:
    """The input that `str` named."""
    kind, size = name.rsplit(" ", 1)
    width, height = size.split("x")
    return Input(kind, int(width), int(height))


@functools.lru_cache(maxsize=192)
def encoded(item: Input) -> bytes:
    """The file. Kinds: `RGB` (gradients, edges, fine noise), `noise` (every byte at random), `L`, `LA`, `P`,
    `1` and `RGBA` as PNG, `P-transparent` (a palette with opacities), `RGB-key` (one colour is transparent),
    `exif-N` (JPEG whose EXIF says orientation N) and `png-exif-N`."""
    kind, width, height = item.kind, item.width, item.height
    seed = (width * 31 + height) % 97
    if kind == "noise":
        drawn = np.random.Generator(np.random.PCG64(seed)).integers(0, 256, (height, width, 3), np.uint8)
        return encode(Image.fromarray(drawn), "PNG", compress_level=1)
    if "exif-" in kind:
        exif = Image.Exif()
        exif[ORIENTATION] = int(kind.rsplit("-", 1)[1])
        image = Image.fromarray(scene(width, height, seed))
        if kind.startswith("png"):
            return encode(image, "PNG", exif=exif)
        return encode(image, "JPEG", quality=95, subsampling="4:4:4", exif=exif)
    if kind == "P-transparent":
        opacities = bytes(index * 25 % 256 for index in range(41))
        return encode(picture("P", width, height, seed), "PNG", transparency=opacities)
    if kind == "RGB-key":
        # A flat corner has the transparent colour.
        array = scene(width, height, seed)
        array[: height // 2, : width // 3] = (10, 200, 30)
        return encode(Image.fromarray(array), "PNG", transparency=(10, 200, 30))
    return encode(picture(kind, width, height, seed), "PNG", compress_level=1)


@functools.cache
def pixels_digest(item: Input) -> str:
    """SHA-256 of what Pillow decodes, as RGBA, so that another Pillow or another formula is seen."""
    with Image.open(io.BytesIO(encoded(item))) as image:
        rgba = np.asarray(image.convert("RGBA"))
    return hashlib.sha256(np.ascontiguousarray(rgba).tobytes()).hexdigest()[:32]


def opened(data: bytes) -> Image.Image:
    """The image as Pillow opens it, pixels loaded."""
    image = Image.open(io.BytesIO(data))
    image.load()
    return image


def rgb(data: bytes) -> Image.Image:
    """As SGLang loads images for most families: alpha is dropped, EXIF ignored."""
    image = opened(data)
    return image if image.mode == "RGB" else image.convert("RGB")


def usual(
    equal: tuple[int, int], large: tuple[int, int] = (1500, 1130), extra: tuple[Input, ...] = ()
) -> tuple[Input, ...]:
    """Tiny, thin, wide, tall, exactly the grid, large, noise, grey, palette, alpha, rotated by EXIF."""
    return (
        Input("RGB", 5, 3),
        Input("RGB", 9, 260),
        Input("RGB", 400, 90),
        Input("RGB", 83, 391),
        Input("RGB", *equal),
        Input("RGB", *large),
        Input("noise", 160, 120),
        Input("L", 131, 97),
        Input("P", 120, 77),
        Input("RGBA", 131, 97),
        Input("exif-6", 100, 64),
        *extra,
    )


ALPHA = (
    Input("RGBA", 131, 97),
    Input("LA", 77, 120),
    Input("P-transparent", 120, 77),
    Input("RGB-key", 90, 61),
)
