"""Vision encoders by themselves: SigLIP, SigLIP 2 and CLIP, Hugging Face's classes."""

from __future__ import annotations

from typing import Any

from . import huggingface, inputs
from .inputs import Input
from .variant import HALF, OPENAI_CLIP, Config, Variant

SOME = (Input("RGB", 400, 90), Input("RGB", 83, 391), Input("noise", 160, 120))


def siglip2() -> list[Variant]:
    config: Config = {
        "do_resize": True,
        "resample": 2,
        "do_rescale": True,
        "rescale_factor": 0.00392156862745098,
        "do_normalize": True,
        **HALF,
        "patch_size": 16,
        "max_num_patches": 256,
        "image_processor_type": "Siglip2ImageProcessorFast",
    }
    images = {
        "checkpoint": (*inputs.usual((256, 256)), Input("RGB", 1, 1), Input("RGB", 900, 4)),
        "many": (*SOME, Input("RGB", 1500, 1130)),
    }
    configs = {"checkpoint": config, "many": config | {"max_num_patches": 1024, "patch_size": 14}}
    return huggingface.variants(
        "Siglip2ImageProcessor", configs, lambda out: int(out["spatial_shapes"].prod()), images
    )


def siglip() -> list[Variant]:
    config: Config = {
        "do_normalize": True,
        "do_rescale": True,
        "do_resize": True,
        **HALF,
        "image_processor_type": "SiglipImageProcessor",
        "resample": 3,
        "rescale_factor": 0.00392156862745098,
        "size": {"height": 384, "width": 384},
        "patch_size": 14,
    }
    return huggingface.variants(
        "SiglipImageProcessor",
        {"checkpoint": config},
        huggingface.constant(27 * 27),
        {"checkpoint": inputs.usual((384, 384))},
    )


def clip() -> list[Variant]:
    config: Config = {
        "crop_size": {"height": 224, "width": 224},
        "do_center_crop": True,
        "do_convert_rgb": True,
        "do_normalize": True,
        "do_rescale": True,
        "do_resize": True,
        **OPENAI_CLIP,
        "image_processor_type": "CLIPImageProcessor",
        "resample": 3,
        "rescale_factor": 0.00392156862745098,
        "size": {"shortest_edge": 224},
        "patch_size": 14,
    }
    old = config | {"size": 336, "crop_size": 336}
    wide = config | {"size": {"shortest_edge": 100}, "crop_size": {"height": 120, "width": 90}}
    images = {
        "checkpoint": (*inputs.usual((224, 224)), Input("RGB", 1, 1), Input("RGB", 225, 224)),
        "old_names": SOME,
        "crop_larger": SOME,
    }
    configs = {"checkpoint": config, "old_names": old, "crop_larger": wide}
    return huggingface.variants("CLIPImageProcessor", configs, clip_tokens, images)


def clip_tokens(out: dict[str, Any]) -> int:
    """Patches of 14 pixels; the class token is the model's."""
    return (out["pixel_values"].shape[-2] // 14) * (out["pixel_values"].shape[-1] // 14)


FAMILIES = {"clip": clip, "siglip": siglip, "siglip2": siglip2}
