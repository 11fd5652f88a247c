"""Gemma 3, 3n, 4 and 4 unified: Hugging Face's classes.

DiffusionGemma has Gemma 4's processor; EmbeddingGemma 2 runs its PIL backend.
"""

from __future__ import annotations

from . import huggingface, inputs
from .inputs import Input
from .variant import HALF, Config, Variant

SOME = (Input("RGB", 400, 90), Input("RGB", 83, 391), Input("noise", 160, 120))
GEMMA3: Config = {
    "do_convert_rgb": None,
    "do_normalize": True,
    "do_pan_and_scan": None,
    "do_rescale": True,
    "do_resize": True,
    **HALF,
    "image_processor_type": "Gemma3ImageProcessor",
    "image_seq_length": 256,
    "pan_and_scan_max_num_crops": None,
    "pan_and_scan_min_crop_size": None,
    "pan_and_scan_min_ratio_to_activate": None,
    "processor_class": "Gemma3Processor",
    "resample": 2,
    "rescale_factor": 0.00392156862745098,
    "size": {"height": 896, "width": 896},
}
PAN_AND_SCAN: Config = {
    "do_pan_and_scan": True,
    "pan_and_scan_max_num_crops": 4,
    "pan_and_scan_min_crop_size": 64,
    "pan_and_scan_min_ratio_to_activate": 1.2,
    "size": {"height": 224, "width": 224},
}


def gemma3() -> list[Variant]:
    small = GEMMA3 | {"size": {"height": 112, "width": 56}}
    images = {
        "checkpoint": (*inputs.usual((896, 896)), Input("RGB", 1, 1)),
        "small": (*SOME, Input("RGB", 56, 112), Input("RGB", 112, 56)),
    }
    return huggingface.variants(
        "Gemma3ImageProcessor", {"checkpoint": GEMMA3, "small": small}, huggingface.constant(256), images
    )


def gemma3_pan_and_scan() -> list[Variant]:
    """Crops follow the whole image; each view is 256 tokens."""
    images = {"crops": (*SOME, Input("RGB", 1500, 1130), Input("RGB", 120, 300), Input("RGB", 333, 70))}
    return huggingface.variants(
        "Gemma3ImageProcessor",
        {"crops": GEMMA3 | PAN_AND_SCAN},
        lambda out: 256 * len(out["pixel_values"]),
        images,
    )


def gemma3n() -> list[Variant]:
    """Gemma 3n's checkpoints name SigLIP's class: squashed to 768, and left within 0 to 1."""
    config: Config = {
        "do_normalize": False,
        "do_rescale": True,
        "do_resize": True,
        **HALF,
        "image_processor_type": "SiglipImageProcessorFast",
        "image_seq_length": 256,
        "resample": 2,
        "rescale_factor": 0.00392156862745098,
        "size": {"height": 768, "width": 768},
    }
    return huggingface.variants(
        "SiglipImageProcessor",
        {"checkpoint": config},
        huggingface.constant(256),
        {"checkpoint": inputs.usual((768, 768))},
    )


def gemma4_configs() -> tuple[dict[str, Config], dict[str, tuple[Input, ...]]]:
    config: Config = {
        "do_convert_rgb": True,
        "do_normalize": False,
        "do_rescale": True,
        "do_resize": True,
        "image_mean": [0.0, 0.0, 0.0],
        "image_processor_type": "Gemma4ImageProcessor",
        "image_seq_length": 280,
        "image_std": [1.0, 1.0, 1.0],
        "max_soft_tokens": 280,
        "patch_size": 16,
        "pooling_kernel_size": 3,
        "resample": 3,
        "rescale_factor": 0.00392156862745098,
    }
    every = (
        *inputs.usual((960, 672)),
        Input("RGB", 1, 1),
        # One side would round to none; both round to none; more than the budget of one side.
        Input("RGB", 700, 2),
        Input("RGB", 3, 900),
        Input("RGB", 2000, 1),
    )
    configs = {
        "checkpoint": config,
        "tokens_70": config | {"max_soft_tokens": 70},
        "tokens_1120": config | {"max_soft_tokens": 1120},
        "normalised": config | {"max_soft_tokens": 70, "do_normalize": True, **HALF},
    }
    return configs, {"checkpoint": every, "tokens_70": SOME, "tokens_1120": SOME[:1], "normalised": SOME}


def gemma4() -> list[Variant]:
    configs, images = gemma4_configs()
    return huggingface.variants(
        "Gemma4ImageProcessor", configs, lambda out: int(out["num_soft_tokens_per_image"].sum()), images
    )


def gemma4_unified() -> list[Variant]:
    configs, images = gemma4_configs()
    named = {
        name: config | {"image_processor_type": "Gemma4UnifiedImageProcessor"}
        for name, config in configs.items()
    }
    return huggingface.variants(
        "Gemma4UnifiedImageProcessor",
        named,
        lambda out: int(out["num_soft_tokens_per_image"].sum()),
        images,
        backends=("torchvision",),
    )


FAMILIES = {
    "gemma3": gemma3,
    "gemma3_pan_and_scan": gemma3_pan_and_scan,
    "gemma3n": gemma3n,
    "gemma4": gemma4,
    "gemma4_unified": gemma4_unified,
}
