"""The Qwen-VL family as SGLang publishes it, and what its prompts need.

`spec_json` is a JSON object with the fields of a checkpoint's `preprocessor_config.json`; SGLang's own names
(`resample` as `"aten_u8"` or `"pil"`, `min_pixels`, `max_pixels`, `image_token_id`) are among them. Bad
images and arguments raise `ValueError` (`InputError` and below).
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from . import _Data

__all__ = ["expand_placeholders", "mrope_image_only_py", "preprocess", "process_mm", "smart_resize_py"]

def preprocess(data: _Data, spec_json: str) -> tuple[NDArray[np.float32], tuple[int, int, int]]:
    """`(values, (t, rows, columns))` of an encoded image. `values` is flat, `t * rows * columns` patches of
    `3 * temporal_patch_size * patch_size**2`, with all temporal copies: transformers' `pixel_values`."""

def process_mm(
    input_ids: Sequence[int], images: Sequence[_Data | str], spec_json: str
) -> tuple[
    list[int],
    NDArray[np.float32],
    list[tuple[int, int, int]],
    list[int],
    list[tuple[int, int]],
    NDArray[np.int64],
    int,
]:
    """`(ids, values, grids, hashes, offsets, positions, delta)` of a prompt that has one `image_token_id` for
    each image, which are encoded bytes, `data:` URLs or base64. `values` holds all images in turn as
    `preprocess` gives them, `hashes` are `common.content_hash`, `offsets` the first and last token of each
    image, and `positions` and `delta` as of `mrope_image_only_py`."""

def smart_resize_py(
    height: int, width: int, factor: int, min_pixels: int, max_pixels: int
) -> tuple[int, int]:
    """`(height, width)` in pixels after resizing, multiples of `factor`: transformers' `smart_resize`. Sides
    of more than 200 to 1 raise."""

def mrope_image_only_py(
    input_len: int, items: Sequence[tuple[int, int, int, int, int]], merge_size: int
) -> tuple[NDArray[np.int64], int]:
    """`(positions, delta)` of a prompt of `input_len` tokens, with images at `items`: `(first token, last
    token, t, rows, columns)`, the grid in patches. `positions` is flat, `[3, input_len]`: temporal, vertical,
    horizontal; transformers' `get_rope_index`."""

def expand_placeholders(
    input_ids: Sequence[int], image_token_id: int, num_tokens: Sequence[int]
) -> tuple[list[int], list[tuple[int, int]]]:
    """`(ids, offsets)`: each `image_token_id`, one for each image, becomes as many as that image has tokens;
    `offsets` are its first and last."""
