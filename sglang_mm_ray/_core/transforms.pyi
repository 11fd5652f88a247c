"""Building blocks of model families, as numpy functions. Arrays are HWC, of any strides."""

from collections.abc import Sequence
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

__all__ = [
    "extract_patches_hwc",
    "normalize_rgb_f32",
    "pad_to_grid",
    "patch_grid",
]

_Value = TypeVar("_Value", np.uint8, np.float32)

def normalize_rgb_f32(
    arr: NDArray[np.uint8], mean: Sequence[float], std: Sequence[float]
) -> NDArray[np.float32]:
    """`(pixel * (1 / 255) - mean) / std` of an `[h, w, 3]` array, in float32, same shape; `mean` and `std`
    have three values each."""

def pad_to_grid(arr: NDArray[_Value], patch_size: int, fill: float = 0.0) -> NDArray[_Value]:
    """Pads with `fill` at the bottom and on the right to whole patches of `patch_size` pixels."""

def extract_patches_hwc(arr: NDArray[_Value], patch_size: int) -> NDArray[_Value]:
    """Cuts an image of whole patches into `[patches, patch_size, patch_size, channels]`, row by row. Raises
    `InvalidArgument` if a side is not a multiple of `patch_size` pixels."""

def patch_grid(height: int, width: int, patch_size: int) -> tuple[int, int]:
    """`(rows, columns)` of the grid of patches that covers `height` by `width` pixels."""
