"""The Inkling family as SGLang publishes it.

`bits` are flat uint16 arrays of bfloat16 bits, `rows * columns * patch_size**2 * 3` of them, and `height` and
`width` are pixels after rescaling. Bad images and arguments raise `ValueError` (`InputError` and below).
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from . import _Data

__all__ = [
    "decode_patchify",
    "decode_patchify_batch",
    "patchify_rgb",
    "preprocess_images",
    "rescale_patchify_hash",
]

def preprocess_images(
    datas: Sequence[_Data], patch_size: int, rescale_frac: float | None = None, rescale_cap: int | None = None
) -> list[tuple[int, int, NDArray[np.uint16], int]]:
    """`(height, width, bits, hash)` of each encoded image, in order; the first bad image raises. `hash` is
    `common.data_hash` of the image."""

def decode_patchify(
    data: _Data, patch_size: int, rescale_frac: float | None = None, rescale_cap: int | None = None
) -> tuple[int, int, NDArray[np.uint16]]:
    """`(height, width, bits)` of one encoded image."""

def decode_patchify_batch(
    datas: Sequence[_Data], patch_size: int, rescale_frac: float | None = None, rescale_cap: int | None = None
) -> list[tuple[int, int, NDArray[np.uint16]]]:
    """`(height, width, bits)` of each encoded image, in order; the first bad image raises."""

def patchify_rgb(arr: NDArray[np.uint8], patch_size: int) -> NDArray[np.uint16]:
    """`bits` of an `[h, w, 3]` array as it is."""

def rescale_patchify_hash(
    arr: NDArray[np.uint8],
    raw_bytes: _Data,
    patch_size: int,
    rescale_frac: float | None = None,
    rescale_cap: int | None = None,
) -> tuple[int, int, NDArray[np.uint16], int]:
    """`(height, width, bits, hash)` of an `[h, w, 3]` array; `hash` is `common.data_hash` of `raw_bytes`."""
