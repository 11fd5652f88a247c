"""Tiles of one size: InternVL (the checkpoints' Pillow code; Hugging Face's class), Nemotron Nano, Cohere2.

The checkpoints' code of InternVL is in SGLang, which runs it for Nemotron only.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from . import huggingface, inputs
from .inputs import Input
from .variant import HALF, IMAGENET, OPENAI_CLIP, Config, Result, Variant, tensors

SOME = (Input("RGB", 400, 90), Input("RGB", 83, 391), Input("noise", 160, 120))
# Squares, and sizes whose grids tie: half and twice the area of what they fill.
SIZES = (
    Input("RGB", 60, 60),
    Input("RGB", 130, 130),
    Input("RGB", 500, 500),
    Input("RGB", 128, 64),
    Input("RGB", 300, 120),
    Input("RGB", 120, 300),
    Input("RGB", 210, 140),
)


def tiled(fields: Config, tile_px: int, tokens: int) -> Callable[[bytes], Result]:
    """Tiles row by row, and the whole image last if there are several."""

    def run(data: bytes) -> Result:
        from sglang.srt.multimodal.internvl_utils import image_to_pixel_values

        values = image_to_pixel_values(
            inputs.rgb(data),
            input_size=tile_px,
            min_num_tiles=fields["min_dynamic_patch"],
            max_num_tiles=fields["max_dynamic_patch"],
            use_thumbnail=fields["use_thumbnail"],
            mean=fields["image_mean"],
            std=fields["image_std"],
        )
        return Result(tensors(pixel_values=values), tokens * len(values))

    return run


def internvl() -> list[Variant]:
    config: Config = {
        "crop_size": 448,
        "do_center_crop": True,
        "do_normalize": True,
        "do_resize": True,
        "feature_extractor_type": "CLIPFeatureExtractor",
        **IMAGENET,
        "resample": 3,
        "size": 448,
        "min_dynamic_patch": 1,
        "max_dynamic_patch": 12,
        "use_thumbnail": True,
        "downsample_ratio": 0.5,
        "patch_size": 14,
        "backend": "pil",
    }
    small = config | {"size": 56, "crop_size": 56}
    no_thumbnail = small | {"use_thumbnail": False, "max_dynamic_patch": 6, "min_dynamic_patch": 2}
    hf: Config = {
        "crop_size": None,
        "crop_to_patches": True,
        "do_center_crop": None,
        "do_convert_rgb": True,
        "do_normalize": True,
        "do_rescale": True,
        "do_resize": True,
        **IMAGENET,
        "image_processor_type": "GotOcr2ImageProcessorFast",
        "max_patches": 12,
        "min_patches": 1,
        "resample": 3,
        "rescale_factor": 0.00392156862745098,
        "size": {"height": 448, "width": 448},
    }
    every = (*inputs.usual((896, 448)), Input("RGB", 1, 1))
    found = [
        Variant("checkpoint", config, tiled(config, 448, 256), every),
        Variant("small_tiles", small, tiled(small, 56, 4), (*SOME, *SIZES)),
        Variant("no_thumbnail", no_thumbnail, tiled(no_thumbnail, 56, 4), (*SOME, *SIZES)),
    ]
    configs = {
        "hf": hf,
        "hf_small_tiles": hf | {"size": {"height": 56, "width": 56}},
        "hf_whole": hf | {"crop_to_patches": False},
    }
    images = {"hf": (*SOME, Input("RGB", 1500, 1130)), "hf_small_tiles": (*SOME, *SIZES), "hf_whole": SOME}
    return found + huggingface.variants("GotOcr2ImageProcessor", configs, internvl_tokens, images)


def internvl_tokens(out: dict[str, Any]) -> int:
    """A token for four patches of 14 pixels."""
    tiles, _, height, width = out["pixel_values"].shape
    return int(tiles * ((height // 14) * (width // 14) // 4))


def nemotron_nano_vl() -> list[Variant]:
    config: Config = {
        "image_size": 512,
        "min_dynamic_patch": 1,
        "max_dynamic_patch": 12,
        "use_thumbnail": True,
        **OPENAI_CLIP,
        "patch_size": 16,
        "downsample_ratio": 0.5,
        "backend": "pil",
    }
    dynamic = config | {"dynamic_resolution": True, "min_num_patches": 256, "max_num_patches": 3328}
    few = dynamic | {"min_num_patches": 16, "max_num_patches": 64}
    small = config | {"image_size": 64, "use_thumbnail": False}

    def alone(fields: Config, budget: int) -> Callable[[bytes], Result]:
        def run(data: bytes) -> Result:
            from sglang.srt.multimodal import internvl_utils as utils

            image = inputs.rgb(data)
            limits = (fields["patch_size"], fields["downsample_ratio"])
            [(width, height, tokens)] = utils.compute_budgeted_image_sizes(
                [image.size], budget, *limits, fields["min_num_patches"], fields["max_num_patches"]
            )
            values = utils.resize_image_to_pixels(
                image, width, height, mean=fields["image_mean"], std=fields["image_std"]
            )
            return Result(tensors(pixel_values=values), tokens)

        return run

    every = (*inputs.usual((1024, 512)), Input("RGB", 1, 1))
    return [
        Variant("tiles", config, tiled(config, 512, 256), every),
        Variant("small_tiles", small, tiled(small, 64, 4), (*SOME, *SIZES)),
        Variant("dynamic", dynamic, alone(dynamic, 8000), (*inputs.usual((512, 256)), Input("RGB", 900, 4))),
        Variant("dynamic_few", few, alone(few, 8000), (*SOME, *SIZES)),
        Variant("dynamic_budget", dynamic, alone(dynamic, 100), SOME + SIZES[2:3], {"token_budget": 100}),
    ]


def cohere2_vision() -> list[Variant]:
    config: Config = {
        "crop_to_patches": True,
        "do_convert_rgb": True,
        "do_normalize": True,
        "do_rescale": True,
        "do_resize": True,
        "downsample_factor": 2,
        **HALF,
        "image_processor_type": "Cohere2VisionImageProcessorFast",
        "img_size": 512,
        "max_patches": 12,
        "min_patches": 1,
        "patch_size": 16,
        "resample": 3,
        "rescale_factor": 0.00392156862745098,
        "size": {"height": 512, "width": 512},
    }
    small = config | {"size": {"height": 64, "width": 64}}
    configs = {"checkpoint": config, "small_tiles": small, "whole": small | {"crop_to_patches": False}}
    images = {
        "checkpoint": (*inputs.usual((1024, 512)), Input("RGB", 1, 1)),
        "small_tiles": (*SOME, *SIZES),
        "whole": SOME,
    }
    return huggingface.variants(
        "Cohere2VisionImageProcessor",
        configs,
        lambda out: 16 * 16 * len(out["pixel_values"]),
        images,
        backends=("torchvision",),
    )


FAMILIES = {"cohere2_vision": cohere2_vision, "internvl": internvl, "nemotron_nano_vl": nemotron_nano_vl}
