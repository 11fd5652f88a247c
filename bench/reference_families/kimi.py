"""Kimi: K2.5 to K2.7 and K3 (the checkpoints' Pillow and numpy code, and Hugging Face's class), Kimi-VL.

The checkpoints' code is no part of any package. What it does is written anew here: sizes in Python floats,
Pillow's bicubic filter on bytes, normalising in steps whose precision differs from one to the next.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from . import huggingface, inputs
from .inputs import Input
from .variant import HALF, OPENAI_CLIP, Config, Result, Variant, tensors

MEDIA: Config = {
    "in_patch_limit": 16384,
    "patch_size": 14,
    "merge_kernel_size": 2,
    "fixed_output_tokens": None,
    "patch_limit_on_one_side": 512,
    **HALF,
}
CHECKERBOARD: Config = {
    "pattern": "chessboard",
    "chessboard_square_size": 8,
    "chessboard_square_on_top_left": True,
    "chessboard_white_value": 255,
    "chessboard_gray_value": 180,
}
K3_MEDIA: Config = MEDIA | {
    "in_patch_limit": 65536,
    "transparent_bg_config": CHECKERBOARD,
    "transparent_bg_fill_stage": "after_resize",
}
BICUBIC = Image.Resampling.BICUBIC


def navit_size(width: int, height: int, media: Config) -> tuple[int, int, int, int]:
    """Width and height of the content, and of the canvas that it lies on at the top left."""
    patch, side = media["patch_size"], media["patch_limit_on_one_side"] * media["patch_size"]
    whole = max(1.0, width // patch) * max(1.0, height // patch)
    scale = min(1.0, math.sqrt(media["in_patch_limit"] / whole), side / width, side / height)
    factor = media["merge_kernel_size"] * patch
    new_width, new_height = (min(max(1, int(edge * scale)), side) for edge in (width, height))
    return new_width, new_height, -(-new_width // factor) * factor, -(-new_height // factor) * factor


def background(config: Config, width: int, height: int) -> NDArray[np.uint8]:
    """`[h, w, 3]`: one grey, or squares of two."""
    levels = {"white": 255, "black": 0, "gray": 128}
    if config["pattern"] in levels:
        return np.full((height, width, 3), levels[config["pattern"]], np.uint8)
    square = config["chessboard_square_size"]
    parity = (np.arange(height)[:, None] // square + np.arange(width)[None] // square) % 2
    grey_at = 1 if config["chessboard_square_on_top_left"] else 0
    plane = np.where(parity == grey_at, config["chessboard_gray_value"], config["chessboard_white_value"])
    return np.repeat(plane[..., None].astype(np.uint8), 3, axis=2)


def without_alpha(image: Image.Image, config: Config | None) -> Image.Image:
    """On the configured background, in float32, cut to bytes; without a background alpha is dropped."""
    alpha = "A" in image.getbands() or "transparency" in image.info
    if config is None or image.mode == "RGB" or not alpha:
        return image.convert("RGB")
    rgba = np.asarray(image.convert("RGBA"))
    weight = (rgba[..., 3:].astype(np.float32) / np.float32(255)).repeat(3, axis=2)
    behind = background(config, image.width, image.height).astype(np.float32)
    mixed = weight * rgba[..., :3].astype(np.float32) + (np.float32(1) - weight) * behind
    return Image.fromarray(mixed.astype(np.uint8))


def normalised(canvas: NDArray[np.uint8], media: Config) -> NDArray[np.float32]:
    """Each step is taken in float64 and rounded to float32."""
    values = (canvas / 255.0).astype(np.float32)
    mean, inverse = np.array(media["image_mean"]), 1.0 / np.array(media["image_std"])
    values = (values.astype(np.float64) - mean).astype(np.float32)
    return (values.astype(np.float64) * inverse).astype(np.float32)


def patches(values: NDArray[Any], patch: int) -> NDArray[Any]:
    """`[h, w, 3]` to `[n, 3, patch, patch]`, patches row by row."""
    rows, columns = values.shape[0] // patch, values.shape[1] // patch
    cut = values.reshape(rows, patch, columns, patch, 3).transpose(0, 2, 4, 1, 3)
    return cut.reshape(-1, 3, patch, patch)


def checkpoint(media: Config, keep_alpha: bool) -> Callable[[bytes], Result]:
    """K2.5's reference (`keep_alpha` False: SGLang's loader has dropped it) or K3's."""

    def run(data: bytes) -> Result:
        image = inputs.opened(data) if keep_alpha else inputs.rgb(data)
        config = media.get("transparent_bg_config")
        before = media.get("transparent_bg_fill_stage", "before_resize") == "before_resize"
        if before:
            image = without_alpha(image, config)
        width, height, canvas_width, canvas_height = navit_size(*image.size, media)
        image = image.resize((width, height), resample=BICUBIC)
        if not before:
            image = without_alpha(image, config)
        canvas = np.zeros((canvas_height, canvas_width, 3), np.uint8)
        canvas[:height, :width] = np.asarray(image)
        patch = media["patch_size"]
        grid = np.array([[1, canvas_height // patch, canvas_width // patch]], np.int64)
        tokens = media.get("fixed_output_tokens")
        if tokens is None:
            tokens = int(grid.prod()) // media["merge_kernel_size"] ** 2
        values = patches(normalised(canvas, media), patch)
        return Result(tensors(pixel_values=values, grid_thws=grid), tokens)

    return run


def k25() -> list[Variant]:
    small = MEDIA | {"in_patch_limit": 256, "patch_limit_on_one_side": 20}
    clip = MEDIA | OPENAI_CLIP
    every = (*inputs.usual((280, 168), (2500, 1900)), Input("RGB", 1, 1), Input("RGB", 8000, 3))
    some = (Input("RGB", 400, 90), Input("RGB", 83, 391), Input("RGB", 1500, 1130), Input("noise", 160, 120))
    found = [
        Variant(name, {"media_proc_cfg": media, "backend": "pil"}, checkpoint(media, False), images)
        for name, media, images in (
            ("checkpoint", MEDIA, every),
            ("checkpoint_small", small, some),
            ("checkpoint_clip", clip, some[-1:]),
        )
    ]
    hf: dict[str, Config] = {
        "hf": {
            "size": {"max_height": 512, "max_width": 512},
            "max_patches": 16384,
            "patch_size": 14,
            "merge_size": 2,
            **HALF,
            "image_processor_type": "Kimi_K25ImageProcessor",
        },
        "hf_small": {"size": {"max_height": 20, "max_width": 20}, "max_patches": 256},
    }
    return found + huggingface.variants(
        "Kimi_K25ImageProcessor",
        hf,
        huggingface.patches_over(2),
        {"hf": every, "hf_small": some},
        backends=("torchvision",),
    )


def k3() -> list[Variant]:
    small = K3_MEDIA | {"in_patch_limit": 64}
    before = K3_MEDIA | {"transparent_bg_fill_stage": "before_resize"}
    grey = K3_MEDIA | {"transparent_bg_config": {"pattern": "gray"}}
    other = CHECKERBOARD | {"chessboard_square_size": 5, "chessboard_square_on_top_left": False}
    dropped = {name: value for name, value in K3_MEDIA.items() if name != "transparent_bg_config"}
    kinds = (
        *inputs.ALPHA,
        Input("P", 120, 77),
        Input("L", 131, 97),
        Input("1", 130, 99),
        Input("RGB", 400, 90),
    )
    large = tuple(Input(item.kind, item.width * 3, item.height * 3) for item in kinds)
    every = (*inputs.usual((280, 168), (2500, 1900)), *kinds[1:], Input("RGBA", 1, 1), Input("1", 130, 99))
    table: list[tuple[str, Config, tuple[Input, ...]]] = [
        ("checkpoint", K3_MEDIA, tuple(dict.fromkeys(every))),
        ("small", small, large),
        ("before_resize", before | {"in_patch_limit": 64}, large),
        ("gray", grey, kinds[:2]),
        ("other_squares", K3_MEDIA | {"transparent_bg_config": other}, kinds[:3]),
        ("alpha_dropped", dropped | {"in_patch_limit": 64}, large[:4]),
    ]
    return [
        Variant(name, {"media_proc_cfg": media, "backend": "pil"}, checkpoint(media, True), images)
        for name, media, images in table
    ]


def vl_image(image: Image.Image, config: Config) -> Image.Image:
    """Shrunk to the token limit, then padded to whole merged patches. (Published checkpoints pad.)"""
    patch, limit = config["patch_size"], config["in_token_limit"]
    width, height = image.size
    whole = (width // patch) * (height // patch)
    if whole > limit:
        scale = math.sqrt(limit / whole)
        image = image.resize((int(width * scale), int(height * scale)), BICUBIC)
    width, height = image.size
    factor_height, factor_width = (merge * patch for merge in config["merge_kernel_size"])
    canvas_size = (-(-width // factor_width) * factor_width, -(-height // factor_height) * factor_height)
    canvas = Image.new("RGB", canvas_size)
    canvas.paste(image, (0, 0))
    return canvas


def vl_run(config: Config) -> Callable[[bytes], Result]:
    def run(data: bytes) -> Result:
        from torchvision.transforms import functional

        patch = config["patch_size"]
        image = vl_image(inputs.rgb(data), config)
        if min(image.size) == 0 or max(image.size) // patch >= 512:
            raise ValueError("no patch, or more than 511 in a row")
        values = functional.normalize(functional.to_tensor(image), config["image_mean"], config["image_std"])
        grid = np.array([[image.height // patch, image.width // patch]], np.int64)
        cut = patches(values.numpy().transpose(1, 2, 0), patch)
        merge_height, merge_width = config["merge_kernel_size"]
        return Result(
            tensors(pixel_values=cut, image_grid_hws=grid), int(grid.prod()) // (merge_height * merge_width)
        )

    return run


def vl() -> list[Variant]:
    padded: Config = {
        "patch_size": 14,
        "pad_input": True,
        "in_token_limit": 4096,
        "merge_kernel_size": [2, 2],
        **HALF,
    }
    table = [
        ("padded", padded, (*inputs.usual((280, 168)), Input("RGB", 1, 1))),
        ("padded_small", padded | {"in_token_limit": 100}, (Input("RGB", 400, 90), Input("RGB", 83, 391))),
        ("padded_clip", padded | OPENAI_CLIP | {"in_token_limit": 100}, (Input("noise", 160, 120),)),
    ]
    return [
        Variant(name, config | {"backend": "pil"}, vl_run(config), images) for name, config, images in table
    ]


FAMILIES = {"kimi_k25": k25, "kimi_k3": k3, "kimi_vl": vl}
