"""Llama 4 and Llama 3.2 Vision (mllama): Hugging Face's classes."""

from __future__ import annotations

from typing import Any

from . import huggingface, inputs
from .inputs import Input
from .variant import HALF, Config, Variant

SOME = (Input("RGB", 400, 90), Input("RGB", 83, 391), Input("noise", 160, 120))
SIZES = (
    Input("RGB", 200, 200),
    Input("RGB", 60, 31),
    Input("RGB", 31, 64),
    Input("RGB", 128, 64),
    Input("RGB", 300, 120),
    Input("RGB", 700, 600),
    Input("RGB", 64, 640),
)


def llama4() -> list[Variant]:
    config: Config = {
        "do_convert_rgb": True,
        "do_normalize": True,
        "do_rescale": True,
        "do_resize": True,
        **HALF,
        "image_processor_type": "Llama4ImageProcessorFast",
        "max_patches": 16,
        "resample": 2,
        "rescale_factor": 0.00392156862745098,
        "resize_to_max_canvas": False,
        "size": {"height": 336, "width": 336},
    }
    small = config | {"size": {"height": 64, "width": 64}}
    configs = {
        "checkpoint": config,
        "small_tiles": small,
        "max_canvas": small | {"resize_to_max_canvas": True},
        "five_tiles": small | {"max_patches": 5},
    }
    images = {
        "checkpoint": (*inputs.usual((672, 336)), Input("RGB", 1, 1)),
        "small_tiles": (*SOME, *SIZES),
        "max_canvas": (*SOME, *SIZES),
        "five_tiles": (*SOME, *SIZES),
    }
    return huggingface.variants(
        "Llama4ImageProcessor", configs, llama4_tokens, images, backends=("torchvision",)
    )


def llama4_tokens(out: dict[str, Any]) -> int:
    """A token for four patches of 14 pixels, over all tiles."""
    tiles, _, height, width = out["pixel_values"].shape
    return int(tiles * ((height // 14) * (width // 14) // 4))


def mllama() -> list[Variant]:
    config: Config = {
        "do_convert_rgb": True,
        "do_normalize": True,
        "do_pad": True,
        "do_rescale": True,
        "do_resize": True,
        "image_mean": [0.48145466, 0.4578275, 0.40821073],
        "image_processor_type": "MllamaImageProcessor",
        "image_std": [0.26862954, 0.26130258, 0.27577711],
        "max_image_tiles": 4,
        "resample": 2,
        "rescale_factor": 0.00392156862745098,
        "size": {"height": 560, "width": 560},
    }
    small = config | {"size": {"height": 64, "width": 64}}
    configs = {"checkpoint": config, "small_tiles": small, "six_tiles": small | {"max_image_tiles": 6}}
    images = {
        "checkpoint": (*inputs.usual((1120, 560)), Input("RGB", 1, 1)),
        "small_tiles": (*SOME, *SIZES),
        "six_tiles": (*SOME, *SIZES),
    }
    return huggingface.variants("MllamaImageProcessor", configs, huggingface.constant(1), images)


FAMILIES = {"llama4": llama4, "mllama": mllama}
