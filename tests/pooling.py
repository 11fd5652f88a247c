"""For the tests of the pool: images as callers hand them in, and what the reference makes of them."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
from images import scene
from numpy.typing import NDArray
from PIL import Image
from reference import INKLING_DEFAULTS, inkling

FRAC, CAP, PATCH = (INKLING_DEFAULTS[name] for name in ("rescale_frac", "rescale_cap", "patch_size"))


def photo(seed: int, width_px: int = 160, height_px: int = 120) -> NDArray[np.uint8]:
    """Pixels [height, width, 3], different for each seed."""
    return scene(width_px, height_px, seed)


def png(pixels: NDArray[np.uint8], **options: Any) -> bytes:
    """The pixels as a PNG file, without loss."""
    target = io.BytesIO()
    Image.fromarray(pixels).save(target, "PNG", **options)
    return target.getvalue()


def patches(data: bytes) -> NDArray[np.uint16]:
    """What Pillow and numpy make of a file with Inkling's defaults: bfloat16 bits [n, 40, 40, 3]."""
    _, _, bits = inkling(data, PATCH, FRAC, CAP)[:3]
    return bits.reshape(-1, PATCH, PATCH, 3)
