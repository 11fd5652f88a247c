"""Muse Glimmer and Muse Spark: SGLang's own code."""

from __future__ import annotations

from collections.abc import Callable

from . import huggingface, inputs
from .inputs import Input
from .variant import HALF, OPENAI_CLIP, Config, Result, Variant, tensors

SOME = (Input("RGB", 400, 90), Input("RGB", 83, 391), Input("noise", 160, 120))
THIN = (Input("RGB", 1, 1), Input("RGB", 900, 4))


def muse_glimmer() -> list[Variant]:
    config: Config = {
        "patch_size": 14,
        "temporal_patch_size": 2,
        "merge_size": 2,
        "max_image_tokens": 4096,
        **HALF,
        "resample": 1,
        "image_processor_type": "MuseGlimmerImageProcessor",
        "backend": "torchvision",
    }

    def runner(fields: Config) -> Callable[[bytes], Result]:
        def run(data: bytes) -> Result:
            from sglang.srt.configs.muse_glimmer_processing import MuseGlimmerImageProcessor

            dropped = ("backend", "image_processor_type")
            made = MuseGlimmerImageProcessor(**{k: v for k, v in fields.items() if k not in dropped})
            return huggingface.processed(made, inputs.rgb(data), huggingface.patches_over(2))

        return run

    small = config | {"max_image_tokens": 12}
    squares = tuple(Input("RGB", side, side) for side in (40, 70, 100, 126, 180, 300))
    return [
        Variant("sglang", config, runner(config), (*inputs.usual((280, 168)), *squares, *THIN)),
        Variant("few_tokens", small, runner(small), (*SOME, *squares)),
    ]


def muse_spark() -> list[Variant]:
    def runner(fields: Config) -> Callable[[bytes], Result]:
        def run(data: bytes) -> Result:
            from sglang.srt.multimodal.processors import muse_spark_omni as spark

            image = inputs.rgb(data)
            height, width, tokens = spark.find_resize_target(
                image.height, image.width, 28, fields["min_image_tokens"], fields["max_image_tokens"]
            )
            mean, std = tuple(fields["image_mean"]), tuple(fields["image_std"])
            values = spark._resize_and_normalize(image, height, width, mean, std, use_rust_resize=False)
            return Result(tensors(pixel_values=values), tokens)

        return run

    config: Config = {
        "patch_size": 14,
        "downsample_factor": 2,
        "min_image_tokens": 1,
        "max_image_tokens": 4096,
        **HALF,
        "backend": "pil",
    }
    few = config | {"max_image_tokens": 12, "min_image_tokens": 10, **OPENAI_CLIP}
    squares = tuple(Input("RGB", side, side) for side in (40, 70, 100, 126, 180, 300))
    return [
        Variant("sglang", config, runner(config), (*inputs.usual((280, 168)), *squares, *THIN)),
        Variant("few_tokens", few, runner(few), (*SOME, *squares, Input("RGB", 900, 4))),
    ]


FAMILIES = {"muse_glimmer": muse_glimmer, "muse_spark": muse_spark}
