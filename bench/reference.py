"""The reference: Pillow for pixels, numpy for the rest. Knows nothing of the native core.

Two implementations of the resize are here on purpose: Pillow's own (`pil_resize`) and the formula written out
in numpy (`formula_resize`), which also gives the result of the pass order that the installed Pillow does not
use.
"""

from __future__ import annotations

import hashlib
import io
import math
import warnings
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray
from PIL import Image

U8 = NDArray[np.uint8]

INKLING_MEAN = np.array([0.48145466, 0.4578275, 0.40821073], np.float32)
INKLING_STD = np.array([0.26862954, 0.2613026, 0.2757771], np.float32)
INKLING_DEFAULTS = {"patch_size": 40, "rescale_frac": 2.0, "rescale_cap": 2048}
PADDING = np.float32(-1.0 / 255.0)

# Name in the core's API -> Pillow's filter.
FILTERS = {
    "pil_lanczos": Image.Resampling.LANCZOS,
    "pil_bicubic": Image.Resampling.BICUBIC,
    "pil_bilinear": Image.Resampling.BILINEAR,
    "pil_box": Image.Resampling.BOX,
    "pil_hamming": Image.Resampling.HAMMING,
}


def decode_rgb(data: bytes) -> U8:
    """`[h, w, 3]` uint8 pixels of an encoded image: alpha dropped, EXIF orientation left alone."""
    with warnings.catch_warnings():
        # Pillow advises RGBA for palettes with transparency; the models want RGB all the same.
        warnings.simplefilter("ignore", UserWarning)
        with Image.open(io.BytesIO(data)) as image:
            return np.asarray(image.convert("RGB"))


def data_hash(data: bytes) -> int:
    """First 8 bytes of SHA-256, big-endian."""
    return int.from_bytes(hashlib.sha256(data).digest()[:8], "big")


def scaled_dims(w: int, h: int, frac: float | None, cap: int | None) -> tuple[int, int]:
    """Size `(w, h)` in pixels after Inkling's rescale; the cap limits growth only."""
    long_edge = max(w, h)
    if frac is None or long_edge == 0:
        return w, h
    target = long_edge * frac
    if cap is not None:
        target = min(target, float(max(cap, long_edge)))
    ratio = target / long_edge
    if ratio == 1.0:
        return w, h
    return max(1, math.floor(w * ratio + 0.5)), max(1, math.floor(h * ratio + 0.5))


def pil_resize(rgb: U8, out_w: int, out_h: int, resample: str = "pil_lanczos") -> U8:
    """`[out_h, out_w, 3]`: what the installed Pillow makes of `[h, w, 3]` uint8."""
    return np.asarray(Image.fromarray(rgb).resize((out_w, out_h), FILTERS[resample]))


def _sinc(x: float) -> float:
    return 1.0 if x == 0.0 else math.sin(x * math.pi) / (x * math.pi)


def _lanczos(x: float) -> float:
    return _sinc(x) * _sinc(x / 3) if -3.0 <= x < 3.0 else 0.0


def _bicubic(x: float) -> float:
    a, x = -0.5, abs(x)
    if x < 1.0:
        return ((a + 2.0) * x - (a + 3.0)) * x * x + 1.0
    return (((x - 5.0) * x + 8.0) * x - 4.0) * a if x < 2.0 else 0.0


def _bilinear(x: float) -> float:
    return max(0.0, 1.0 - abs(x))


def _box(x: float) -> float:
    return 1.0 if -0.5 < x <= 0.5 else 0.0


def _hamming(x: float) -> float:
    x = abs(x)
    if x == 0.0:
        return 1.0
    return math.sin(x * math.pi) / (x * math.pi) * (0.54 + 0.46 * math.cos(x * math.pi)) if x < 1.0 else 0.0


KERNELS: dict[str, tuple[Callable[[float], float], float]] = {
    "pil_lanczos": (_lanczos, 3.0),
    "pil_bicubic": (_bicubic, 2.0),
    "pil_bilinear": (_bilinear, 1.0),
    "pil_box": (_box, 0.5),
    "pil_hamming": (_hamming, 1.0),
}
FRACTION_BITS = 22


def _resample_rows(source: U8, out_len: int, resample: str) -> U8:
    """Resamples axis 0 of `[n, ...]` uint8 to `out_len`, in Pillow's fixed point."""
    in_len = source.shape[0]
    if in_len == out_len:
        return source
    kernel, support_taps = KERNELS[resample]
    scale = in_len / out_len
    filter_scale = max(scale, 1.0)
    support = support_taps * filter_scale
    out = np.empty((out_len, *source.shape[1:]), np.uint8)
    for index in range(out_len):
        center = (index + 0.5) * scale
        first = max(0, int(center - support + 0.5))
        last = min(in_len, int(center + support + 0.5))
        weights = [kernel((tap + first - center + 0.5) * (1.0 / filter_scale)) for tap in range(last - first)]
        total = 0.0
        for weight in weights:
            total += weight
        accumulated = np.full(source.shape[1:], 1 << (FRACTION_BITS - 1), np.int64)
        for tap, weight in enumerate(weights):
            # Pillow multiplies by the reciprocal of the sum, which rounds otherwise than a division would.
            share = weight * (1.0 / total) if total != 0.0 else weight
            fixed = int((-0.5 if share < 0.0 else 0.5) + share * (1 << FRACTION_BITS))
            accumulated += source[first + tap].astype(np.int64) * fixed
        out[index] = np.clip(accumulated >> FRACTION_BITS, 0, 255)
    return out


def formula_resize(rgb: U8, out_w: int, out_h: int, resample: str, *, vertical_first_when_tall: bool) -> U8:
    """`[out_h, out_w, 3]` by the written-out formula, in either of Pillow's pass orders."""
    in_h, in_w = rgb.shape[:2]
    both = in_h != out_h and in_w != out_w
    tall = both and in_h > out_h and in_h - out_h > 2 * (in_w - out_w)
    if vertical_first_when_tall and tall:
        rgb = _resample_rows(rgb, out_h, resample)
    columns = np.ascontiguousarray(_resample_rows(rgb.swapaxes(0, 1), out_w, resample).swapaxes(0, 1))
    return _resample_rows(columns, out_h, resample)


def pillow_is_vertical_first() -> bool:
    """Whether the installed Pillow runs the vertical pass of tall shrinking pictures first."""
    noise = (np.arange(97 * 13 * 3, dtype=np.uint32) * 2654435761 >> 13).astype(np.uint8).reshape(97, 13, 3)
    found = pil_resize(noise, 11, 23)
    for answer in (True, False):
        if np.array_equal(
            found, formula_resize(noise, 11, 23, "pil_lanczos", vertical_first_when_tall=answer)
        ):
            return answer
    raise AssertionError("the installed Pillow resizes in neither of the two known pass orders")


def bf16_bits(values: NDArray[np.float32]) -> NDArray[np.uint16]:
    """bfloat16 bits of finite float32 values, rounded to nearest, ties to even."""
    bits = values.view(np.uint32)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16)


def inkling_patches_f32(
    rgb: U8, patch_size: int, mean: NDArray[np.float32] = INKLING_MEAN, std: NDArray[np.float32] = INKLING_STD
) -> NDArray[np.float32]:
    """`[rows * columns, ps, ps, 3]` float32 patches of resized `[h, w, 3]` pixels, one extra column."""
    h, w = rgb.shape[:2]
    rows, columns = -(-h // patch_size), w // patch_size + 1
    scaled = np.full((rows * patch_size, columns * patch_size, 3), PADDING, np.float32)
    scaled[:h, :w] = rgb.astype(np.float32) * np.float32(1.0 / 255.0)
    normalised = (scaled - mean) / std
    patches = normalised.reshape(rows, patch_size, columns, patch_size, 3).swapaxes(1, 2)
    return np.ascontiguousarray(patches.reshape(-1, patch_size, patch_size, 3))


def inkling_pixels(data: bytes, frac: float | None, cap: int | None) -> U8:
    """`[h, w, 3]` resized pixels of an encoded image, by the installed Pillow."""
    rgb = decode_rgb(data)
    h, w = rgb.shape[:2]
    out_w, out_h = scaled_dims(w, h, frac, cap)
    return rgb if (out_w, out_h) == (w, h) else pil_resize(rgb, out_w, out_h)


def inkling(
    data: bytes, patch_size: int = 40, rescale_frac: float | None = 2.0, rescale_cap: int | None = 2048
) -> tuple[int, int, NDArray[np.uint16], int]:
    """`(h, w, bits, hash)` of an encoded image: bits is `[n, ps, ps, 3]` bfloat16 patches."""
    pixels = inkling_pixels(data, rescale_frac, rescale_cap)
    bits = bf16_bits(inkling_patches_f32(pixels, patch_size))
    return pixels.shape[0], pixels.shape[1], bits, data_hash(data)
