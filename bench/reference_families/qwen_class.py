"""Families of one aligned resize and patches: PaddleOCR-VL, MiniMax-M3 and M3.1, Ernie 4.5-VL, Cosmos3-Edge,
Dots3, LFM2-VL, and checkpoints that name Qwen-VL's own class (dots.ocr, InternS1-Pro).

SGLang's own steps before or instead of Hugging Face's class are run from SGLang itself.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

from . import huggingface, inputs
from .inputs import Input
from .variant import HALF, OPENAI_CLIP, Config, Result, Variant, tensors

SOME = (Input("RGB", 400, 90), Input("RGB", 83, 391), Input("noise", 160, 120))
THIN = (Input("RGB", 1, 1), Input("RGB", 900, 4))
TV = ("torchvision",)


def paddleocr_vl() -> list[Variant]:
    config: Config = {
        "do_convert_rgb": True,
        "do_normalize": True,
        "do_rescale": True,
        "do_resize": True,
        **HALF,
        "image_processor_type": "PaddleOCRVLImageProcessor",
        "max_pixels": 1003520,
        "merge_size": 2,
        "min_pixels": 112896,
        "patch_size": 14,
        "resample": 3,
        "rescale_factor": 0.00392156862745098,
        "temporal_patch_size": 1,
    }
    configs = {
        "checkpoint": config,
        "class": {"image_processor_type": "PaddleOCRVLImageProcessor"},
        "small": {"size": {"shortest_edge": 3136, "longest_edge": 20000}, "temporal_patch_size": 2},
    }
    images = {"checkpoint": (*inputs.usual((560, 392)), *THIN), "class": SOME, "small": SOME}
    return huggingface.variants("PaddleOCRVLImageProcessor", configs, huggingface.patches_over(2), images)


def qwen_vl() -> list[Variant]:
    """Checkpoints of others that name Qwen-VL's class."""
    dots: Config = {
        "min_pixels": 3136,
        "max_pixels": 11289600,
        "patch_size": 14,
        "temporal_patch_size": 1,
        "merge_size": 2,
        **OPENAI_CLIP,
        "image_processor_type": "Qwen2VLImageProcessor",
    }
    interns1_pro: Config = {
        "size": {"shortest_edge": 65536, "longest_edge": 16777216},
        "patch_size": 16,
        "temporal_patch_size": 2,
        "merge_size": 2,
        **HALF,
        "image_processor_type": "Qwen2VLImageProcessorFast",
    }
    configs = {"dots_ocr": dots, "interns1_pro": interns1_pro}
    images = {"dots_ocr": inputs.usual((280, 168)), "interns1_pro": SOME}
    return huggingface.variants("Qwen2VLImageProcessor", configs, huggingface.patches_over(2), images)


def minimax_m3() -> list[Variant]:
    """SGLang resizes with Pillow; the class then runs without resizing. M3.1 has a size rule of its own."""
    config: Config = {
        "size": [672, 672],
        "patch_size": 14,
        "temporal_patch_size": 2,
        "merge_size": 2,
        **OPENAI_CLIP,
        "image_processor_type": "MiniMaxM3VLImageProcessor",
        "backend": "torchvision",
    }

    def runner(request: Config, max_pixels: int | None) -> Callable[[bytes], Result]:
        def run(data: bytes) -> Result:
            from sglang.srt.multimodal.processors.minimax_m3_vl import resize_images_for_request

            fields = {name: value for name, value in config.items() if name not in ("size", "backend")}
            whole = huggingface.image_processor("MiniMaxM3VLImageProcessor", "torchvision", fields)
            [image] = resize_images_for_request(
                [inputs.rgb(data)], [request], image_processor=whole, max_pixels=max_pixels
            )
            bare = huggingface.image_processor(
                "MiniMaxM3VLImageProcessor", "torchvision", fields | {"do_resize": False}
            )
            return huggingface.processed(bare, image, huggingface.patches_over(2))

        return run

    every = (*inputs.usual((280, 168), (2500, 1900)), *THIN, Input("RGB", 2600, 20))
    table: list[tuple[str, Config, Config, int | None, tuple[Input, ...]]] = [
        ("sglang", {}, {}, None, every),
        ("long_side", {}, {"max_long_side_pixel": 224}, None, SOME),
        ("max_pixels", {"max_pixels": 20000}, {}, 20000, SOME),
    ]
    return [
        Variant(name, config | more, runner(request, most), images, request)
        for name, more, request, most, images in table
    ]


def minimax_m31() -> list[Variant]:
    config: Config = {
        "max_size": [224, 336],
        "patch_size": 14,
        "temporal_patch_size": 2,
        "merge_size": 2,
        **OPENAI_CLIP,
        "image_processor_type": "MiniMaxM31ImageProcessor",
        "backend": "torchvision",
    }

    def run(data: bytes) -> Result:
        from sglang.srt.multimodal.processors.minimax_m31_media import MiniMaxM31ImageProcessor

        dropped = ("backend", "image_processor_type")
        fields = {name: value for name, value in config.items() if name not in dropped}
        return huggingface.processed(
            MiniMaxM31ImageProcessor(**fields), inputs.rgb(data), huggingface.patches_over(2)
        )

    return [Variant("sglang", config, run, (*inputs.usual((280, 168)), *THIN))]


def ernie4_5_vl() -> list[Variant]:
    """Hugging Face's class, and SGLang's way: Pillow first, patches of bytes, then its own normalising."""
    config: Config = {
        "patch_size": 14,
        "merge_size": 2,
        **OPENAI_CLIP,
        "rescale_factor": 0.00392156862745098,
        "image_processor_type": "Ernie4_5_VLMoeImageProcessor",
    }

    def run(data: bytes) -> Result:
        import torch
        from sglang.srt.multimodal.processors.ernie45_vl import Ernie4_5_VLImageProcessor, resize_image

        bare = {
            "do_resize": False,
            "do_rescale": False,
            "do_normalize": False,
            "patch_size": 14,
            "merge_size": 2,
        }
        whole = huggingface.image_processor("Ernie4_5_VLMoeImageProcessor", "torchvision", bare)
        out = whole([resize_image(inputs.rgb(data))], return_tensors="pt")
        owner = SimpleNamespace(
            hf_config=SimpleNamespace(vision_config=SimpleNamespace(patch_size=14), dtype=torch.float32),
            image_processor=SimpleNamespace(**config),
        )
        values = Ernie4_5_VLImageProcessor._pixel_values_norm(owner, out["pixel_values"], {})
        grid = out["image_grid_thw"]
        return Result(tensors(pixel_values=values, image_grid_thw=grid), int(grid.prod()) // 4)

    every = (*inputs.usual((280, 168), (2500, 1900)), *THIN)
    found = [Variant("sglang", config | {"backend": "sglang"}, run, every)]
    return found + huggingface.variants(
        "Ernie4_5_VLMoeImageProcessor",
        {"hf": config},
        huggingface.patches_over(2),
        {"hf": (*SOME, Input("RGB", 280, 168), Input("RGB", 9, 260))},
    )


def cosmos3_edge() -> list[Variant]:
    config: Config = {"patch_size": 16, "spatial_merge_size": 2, "backend": "pil"}

    def runner(most: int, fewest: int) -> Callable[[bytes], Result]:
        def run(data: bytes) -> Result:
            from sglang.srt.multimodal.processors.cosmos3_edge import Cosmos3EdgeProcessor

            owner: Any = SimpleNamespace(patch_size=16, spatial_merge_size=2)
            values, (rows, columns) = Cosmos3EdgeProcessor._preprocess_pil_image(
                owner, inputs.rgb(data), min_pixels=fewest, max_pixels=most
            )
            return Result(
                tensors(
                    pixel_values=values,
                    spatial_shapes=np.array([[rows, columns]], np.int64),
                    image_grid_thw=np.array([[1, rows, columns]], np.int64),
                ),
                rows * columns // 4,
            )

        return run

    small = {"min_pixels": 4096, "max_pixels": 20000}
    return [
        Variant("sglang", config, runner(4096 * 4096, 256 * 256), (*inputs.usual((320, 224)), *THIN)),
        Variant("small", config | small, runner(20000, 4096), SOME),
    ]


def dots3() -> list[Variant]:
    vision: Config = {
        "min_pixels": 3136,
        "max_pixels": 11289600,
        "patch_size": 14,
        "temporal_patch_size": 1,
        "merge_size": 2,
        **OPENAI_CLIP,
    }
    details = {
        "low": {"min_pixels": 3136, "max_pixels": 20000},
        "set": {"target_height": 100, "target_width": 70},
    }

    def runner(fields: Config, detail: str) -> Callable[[bytes], Result]:
        def run(data: bytes) -> Result:
            from sglang.srt.models.dots3_common.dots_omni_towers import DotsNoteOmniImagePreprocessor

            with tempfile.TemporaryDirectory() as folder:
                Path(folder, "preprocessor_config.json").write_text(json.dumps({"vision_config": fields}))
                Path(folder, "image_detail.json").write_text(json.dumps({"image_details": details}))
                made = DotsNoteOmniImagePreprocessor(folder)
            out = made._process_image(inputs.rgb(data), detail)
            return Result(tensors(**out), int(out["image_grid_thw"].prod()) // 4)

        return run

    grown = vision | {"min_pixels": 100000, "max_pixels": 105000}
    rows = vision | {"pre_pixel_shuffle": False, "temporal_patch_size": 2}
    table: list[tuple[str, Config, str, tuple[Input, ...]]] = [
        ("checkpoint", vision, "auto", (*inputs.usual((280, 168)), *THIN)),
        ("grown_past_the_most", grown, "auto", SOME),
        ("rows_of_patches", rows, "auto", SOME),
        ("detail_low", vision, "low", SOME),
        ("detail_set", vision, "set", SOME[:1]),
    ]
    return [
        Variant(
            name,
            {"vision_config": fields, "image_details": details, "backend": "pil"},
            runner(fields, detail),
            images,
            {"detail": detail} if detail != "auto" else {},
        )
        for name, fields, detail, images in table
    ]


def lfm2_tokens(out: dict[str, Any]) -> int:
    return sum(-(-rows // 2) * -(-columns // 2) for rows, columns in out["spatial_shapes"].tolist())


def lfm2_vl() -> list[Variant]:
    config: Config = {
        "do_image_splitting": True,
        "downsample_factor": 2,
        "encoder_patch_size": 16,
        "tile_size": 512,
        "min_tiles": 2,
        "max_tiles": 10,
        "min_image_tokens": 64,
        "max_image_tokens": 256,
        "max_pixels_tolerance": 2.0,
        "use_thumbnail": True,
        **HALF,
        "resample": 2,
        "rescale_factor": 0.00392156862745098,
        "image_processor_type": "Lfm2VlImageProcessorFast",
    }
    small = config | {"tile_size": 64, "max_image_tokens": 16, "min_image_tokens": 4}
    configs = {
        "checkpoint": config,
        "small_tiles": small,
        "no_thumbnail": small | {"use_thumbnail": False},
        "no_tiles": config | {"do_image_splitting": False},
    }
    tiled = (*SOME, Input("RGB", 200, 200), Input("RGB", 131, 260), Input("RGB", 300, 200))
    images = {
        "checkpoint": (*inputs.usual((512, 512)), Input("RGB", 2000, 300), Input("RGB", 1, 1)),
        "small_tiles": tiled,
        "no_thumbnail": tiled,
        "no_tiles": (*SOME, Input("RGB", 1500, 1130)),
    }
    return huggingface.variants("Lfm2VlImageProcessor", configs, lfm2_tokens, images, backends=TV)


FAMILIES = {
    "cosmos3_edge": cosmos3_edge,
    "dots3": dots3,
    "ernie4_5_vl": ernie4_5_vl,
    "lfm2_vl": lfm2_vl,
    "minimax_m3": minimax_m3,
    "minimax_m31": minimax_m31,
    "paddleocr_vl": paddleocr_vl,
    "qwen_vl": qwen_vl,
}
