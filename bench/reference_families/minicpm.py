"""MiniCPM-V and MiniCPM-o: 2.6 to 4.5 (the checkpoints' Pillow and numpy code), 4.6 (Hugging Face's class).

The checkpoints' code is no part of any package; what it does is written anew here.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from PIL import Image

from . import huggingface, inputs
from .inputs import Input
from .variant import HALF, OPENAI_CLIP, Config, Result, Variant, tensors

SOME = (Input("RGB", 400, 90), Input("RGB", 83, 391), Input("noise", 160, 120))
BICUBIC = Image.Resampling.BICUBIC


def minicpm_sizes() -> tuple[Input, ...]:
    """Sizes about the limits between one, two and nine slices of 448 pixels."""
    return (
        Input("RGB", 448, 448),
        Input("RGB", 449, 448),
        Input("RGB", 700, 600),
        Input("RGB", 900, 450),
        Input("RGB", 451, 1353),
        Input("RGB", 1000, 1000),
        Input("RGB", 60, 31),
    )


def strips(slices: list[np.ndarray[Any, Any]], patch: int) -> np.ndarray[Any, Any]:
    """`[1, 3, patch, n * patch]` of `[h, w, 3]` slices: all patches of all slices, side by side."""
    cut = []
    for values in slices:
        rows, columns = values.shape[0] // patch, values.shape[1] // patch
        parts = values.reshape(rows, patch, columns, patch, 3).transpose(4, 1, 0, 2, 3)
        cut.append(parts.reshape(3, patch, -1))
    return np.concatenate(cut, axis=-1)[None]


def whole_patches(length: float, patch: int) -> int:
    return max(round(length / patch) * patch, patch)


def best_size(width: float, height: float, scale: int, patch: int, grow: bool) -> tuple[int, int]:
    """Width and height in whole patches, of about `scale` squared pixels; less stays less unless `grow`."""
    if width * height > scale * scale or grow:
        ratio = width / height
        height = int(scale / math.sqrt(ratio))
        width = int(height * ratio)
    return whole_patches(width, patch), whole_patches(height, patch)


def grid_of(width: int, height: int, scale: int, most: int) -> tuple[int, int] | None:
    """Columns and rows nearest to the aspect ratio in logarithms, for about as many slices as the area."""
    multiple = min(math.ceil(width * height / (scale * scale)), most)
    if multiple <= 1:
        return None
    best, least = (1, 1), math.inf
    for count in (multiple - 1, multiple, multiple + 1):
        if count == 1 or count > most:
            continue
        for columns in range(1, count + 1):
            if count % columns:
                continue
            grid = (columns, count // columns)
            error = abs(math.log(width / height) - math.log(grid[0] / grid[1]))
            if error < least:
                best, least = grid, error
    return best


def slices_of(image: Image.Image, config: Config) -> list[Image.Image]:
    """The whole image, then its slices row by row."""
    scale, patch = config["scale_resolution"], config["patch_size"]
    width, height = image.size
    grid = grid_of(width, height, scale, config["max_slice_nums"]) if config.get("slice_mode", True) else None
    whole = image.resize(best_size(width, height, scale, patch, grid is None), BICUBIC)
    if grid is None:
        return [whole]
    columns, rows = grid
    cell = (whole_patches(width, columns) / columns, whole_patches(height, rows) / rows)
    cell_width, cell_height = best_size(*cell, scale, patch, True)
    large = image.resize((cell_width * columns, cell_height * rows), BICUBIC)
    corners = [(column * cell_width, row * cell_height) for row in range(rows) for column in range(columns)]
    return [whole, *(large.crop((x, y, x + cell_width, y + cell_height)) for x, y in corners)]


def checkpoint(config: Config) -> Callable[[bytes], Result]:
    def run(data: bytes) -> Result:
        patch = config["patch_size"]
        mean, std = (np.array(config[name], np.float32) for name in ("norm_mean", "norm_std"))
        found = []
        for part in slices_of(inputs.rgb(data), config):
            values = np.asarray(part).astype(np.float32) / np.float32(255)
            found.append((values - mean) / std)
        sizes = np.array([[one.shape[0] // patch, one.shape[1] // patch] for one in found], np.int64)
        tokens = config["image_feature_size"] * len(found)
        return Result(tensors(pixel_values=strips(found, patch), tgt_sizes=sizes), tokens)

    return run


def minicpmv() -> list[Variant]:
    config: Config = {
        "image_processor_type": "MiniCPMVImageProcessor",
        "max_slice_nums": 9,
        "scale_resolution": 448,
        "patch_size": 14,
        "use_image_id": True,
        "image_feature_size": 64,
        "slice_mode": True,
        "norm_mean": [0.5, 0.5, 0.5],
        "norm_std": [0.5, 0.5, 0.5],
        "version": 2.6,
        "backend": "pil",
    }
    # The checkpoints take an image of height 1 or 3 for one whose channels come first, and fail.
    every = tuple(item for item in inputs.usual((448, 448), (1700, 1300)) if item.height > 3)
    small = config | {"scale_resolution": 56, "max_slice_nums": 6}
    clip = config | {"norm_mean": OPENAI_CLIP["image_mean"], "norm_std": OPENAI_CLIP["image_std"]}
    whole = config | {"max_slice_nums": 1}
    sizes = (*SOME, *minicpm_sizes())
    table = [
        ("checkpoint", config, (*every, *minicpm_sizes()[1:])),
        ("small_slices", small, sizes),
        ("clip", clip, SOME),
        ("whole", whole, SOME),
    ]
    return [Variant(name, fields, checkpoint(fields), images) for name, fields, images in table]


def v46_tokens(out: dict[str, Any]) -> int:
    return int((out["target_sizes"].prod(-1) // 16).sum())


def v46_kept(out: dict[str, Any]) -> dict[str, Any]:
    """`grids` as one row an image; the count of slices is `target_sizes`' length."""
    return {
        "pixel_values": out["pixel_values"],
        "target_sizes": out["target_sizes"],
        "grids": np.array(out["grids"], np.int64),
    }


def minicpmv4_6() -> list[Variant]:
    config: Config = {
        "image_processor_type": "MiniCPMV4_6ImageProcessor",
        "max_slice_nums": 9,
        "scale_resolution": 448,
        "patch_size": 14,
        "slice_mode": True,
        "downsample_mode": "16x",
        **HALF,
        "resample": 3,
        "rescale_factor": 0.00392156862745098,
    }
    configs = {"checkpoint": config, "small_slices": config | {"scale_resolution": 112, "max_slice_nums": 6}}
    images = {
        "checkpoint": (*inputs.usual((448, 448), (1700, 1300)), *minicpm_sizes()[1:]),
        "small_slices": (*SOME, *minicpm_sizes()),
    }
    return huggingface.variants("MiniCPMV4_6ImageProcessor", configs, v46_tokens, images, keep=v46_kept)


FAMILIES = {"minicpmv": minicpmv, "minicpmv4_6": minicpmv4_6}
