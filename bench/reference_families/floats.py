"""Families whose reference resizes floats: Step3 and MiMo-V2 (SGLang's code), Phi-4 multimodal (Hugging
Face's class); InternVL and MiniCPM-V 4.6 as SGLang computes them, beside their own references.

Floats are what torch's CPU kernels give, which may depend on the instruction set.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from . import huggingface, inputs
from .inputs import Input
from .variant import HALF, OPENAI_CLIP, Config, Result, Variant, tensors

SOME = (Input("RGB", 400, 90), Input("RGB", 83, 391), Input("noise", 160, 120))


def step3() -> list[Variant]:
    config: Config = {"image_size": 728, "patch_size": 504, **OPENAI_CLIP, "backend": "sglang"}

    def run(data: bytes) -> Result:
        import torch
        from sglang.srt.multimodal.processors import step3_vl

        whole, crops, newlines = step3_vl.ImagePatcher()(inputs.rgb(data))
        made = step3_vl.Step3VisionProcessor(728, "bilinear", 504)
        found = {"pixel_values": made(whole)["pixel_values"], "num_patches": np.array([len(crops)], np.int64)}
        if crops:
            found["patch_pixel_values"] = torch.cat(
                [made(crop, is_patch=True)["pixel_values"] for crop in crops]
            )
        if newlines:
            found["patch_newline_mask"] = np.array(newlines, bool)
        return Result(tensors(**found), 169 + 81 * len(crops))

    images = (
        *inputs.usual((728, 728)),
        Input("RGB", 200, 20),
        Input("RGB", 504, 504),
        Input("RGB", 1100, 600),
    )
    return [Variant("sglang", config, run, images)]


def step3p7() -> list[Variant]:
    config: Config = {
        "size": {"height": 728, "width": 728},
        "patch_size": 504,
        **OPENAI_CLIP,
        "image_processor_type": "Step3p7ImageProcessor",
    }
    images = (
        *inputs.usual((728, 728)),
        Input("RGB", 200, 20),
        Input("RGB", 504, 504),
        Input("RGB", 1100, 600),
    )
    return huggingface.variants(
        "Step3p7ImageProcessor",
        {"hf": config},
        lambda out: 169 + 81 * int(out["num_local_patches"].sum()),
        {"hf": images},
        backends=("torchvision",),
    )


def mimo_v2() -> list[Variant]:
    config: Config = {
        "patch_size": 16,
        "merge_size": 2,
        "temporal_patch_size": 2,
        "min_pixels": 3136,
        "max_pixels": 1003520,
        "backend": "sglang",
    }

    def run(data: bytes) -> Result:
        from types import SimpleNamespace

        from sglang.srt.multimodal.processors import mimo_v2 as own

        holder = next(
            kind
            for kind in vars(own).values()
            if isinstance(kind, type) and hasattr(kind, "get_visual_transform")
        )
        values, _, _ = holder.get_visual_transform(inputs.rgb(data), 32, 3136, 1003520)
        owner: Any = SimpleNamespace(
            patch_size=16, merge_size=2, temporal_patch_size=2, temporal_compression_ratio=1
        )
        patches, grid = holder._flatten_visual_inputs(owner, values, "image")
        return Result(tensors(pixel_values=patches, image_grid_thw=grid[None]), int(grid.prod()) // 4)

    return [Variant("sglang", config, run, inputs.usual((320, 224)))]


def phi4_multimodal() -> list[Variant]:
    config: Config = {
        "dynamic_hd": 36,
        **HALF,
        "image_processor_type": "Phi4MultimodalImageProcessorFast",
        "patch_size": 14,
        "size": {"height": 448, "width": 448},
    }
    images = (*inputs.usual((896, 448)), Input("RGB", 1, 1))
    return huggingface.variants(
        "Phi4MultimodalImageProcessor",
        {"hf": config},
        lambda out: int(out["num_img_tokens"].sum()),
        {"hf": images},
        backends=("torchvision",),
    )


def internvl_sglang() -> list[Variant]:
    config: Config = {"size": 448, "max_dynamic_patch": 12, "use_thumbnail": True, "backend": "sglang"}

    def run(data: bytes) -> Result:
        import torch
        from sglang.srt.multimodal.processors.internvl import InternVLProcessor

        whole = torch.from_numpy(np.array(inputs.rgb(data))).permute(2, 0, 1).float() / 255.0
        mean, std = InternVLProcessor._get_normalize_tensors(device="cpu")
        values = InternVLProcessor.dynamic_preprocess((whole - mean) / std, use_thumbnail=True)
        return Result(tensors(pixel_values=values), 256 * len(values))

    return [Variant("sglang", config, run, inputs.usual((896, 448)))]


def minicpmv4_6_sglang() -> list[Variant]:
    config: Config = {"scale_resolution": 448, "max_slice_nums": 9, "patch_size": 14, "backend": "sglang"}

    def runner(fields: Config) -> Callable[[bytes], Result]:
        def run(data: bytes) -> Result:
            import torch
            from sglang.srt.multimodal.processors.minicpmv4_6 import MiniCPMV4_6ImageProcessor

            out = MiniCPMV4_6ImageProcessor(
                max_slice_nums=fields["max_slice_nums"], scale_resolution=fields["scale_resolution"]
            ).preprocess([inputs.rgb(data)])
            sizes = np.array(out["tgt_sizes"][0], np.int64)
            values = torch.cat(out["pixel_values"][0], dim=-1)[None]
            found = tensors(pixel_values=values, tgt_sizes=sizes, grids=np.array(out["grids"], np.int64))
            return Result(found, int((sizes.prod(-1) // 16).sum()))

        return run

    return [Variant("sglang", config, runner(config), (*inputs.usual((448, 448)), Input("RGB", 1000, 500)))]


FAMILIES = {
    "internvl_sglang": internvl_sglang,
    "mimo_v2": mimo_v2,
    "minicpmv4_6_sglang": minicpmv4_6_sglang,
    "phi4_multimodal": phi4_multimodal,
    "step3": step3,
    "step3p7": step3p7,
}
