"""DeepSeek-V4.1's vision, DeepSeek-OCR and OCR-2, Unlimited-OCR, DeepSeek-VL2: SGLang's own Pillow code."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np

from . import inputs
from .inputs import Input
from .variant import HALF, Config, Result, Variant, tensors

SOME = (Input("RGB", 400, 90), Input("RGB", 83, 391), Input("noise", 160, 120))
TILED = (
    *SOME,
    Input("RGB", 1500, 1130),
    Input("RGB", 700, 700),
    Input("RGB", 900, 420),
    Input("RGB", 420, 1300),
)


def deepseek_v41() -> list[Variant]:
    vision: Config = {
        "vision_patch_size": 14,
        "vision_downsample_ratio": 3,
        "vision_max_n_token": 1024,
        "vision_min_pixels": 295936,
        "vision_max_wh_ratio": None,
    }

    def runner(fields: Config) -> Callable[[bytes], Result]:
        def run(data: bytes) -> Result:
            from sglang.srt.multimodal.deepseek_v41_image_processing import num_image_tokens, patchify_image

            args = SimpleNamespace(**fields)
            patches, rows, columns, llm_rows, llm_columns = patchify_image(inputs.rgb(data), args)
            grid = np.array([[1, rows, columns]], np.int64)
            found = tensors(pixel_values=patches, image_grid_thw=grid)
            return Result(found, num_image_tokens(llm_rows, llm_columns))

        return run

    wide = vision | {"vision_max_wh_ratio": 3}
    few = vision | {"vision_max_n_token": 40, "vision_min_pixels": 10000}
    odd = (Input("RGB", 333, 71), Input("RGB", 71, 333), Input("RGB", 101, 99), Input("RGB", 640, 480))
    thin = (Input("RGB", 1, 1), Input("RGB", 900, 4), Input("RGB", 4, 900))
    table: list[tuple[str, Config, tuple[Input, ...]]] = [
        ("sglang", vision, (*inputs.usual((588, 588), (2500, 1900)), *odd, *thin)),
        ("wide", wide, (*SOME, *odd, *thin, Input("RGB", 300, 100), Input("RGB", 301, 100))),
        ("few_tokens", few, (*SOME, *odd, *thin)),
    ]
    return [
        Variant(name, fields | {"backend": "pil"}, runner(fields), images) for name, fields, images in table
    ]


def owner_of(transform: Any, **fields: Any) -> Any:
    """What `tokenize_with_images` asks of its processor, with a tokenizer of no text."""
    ids = {
        "bos_id": 0,
        "eos_id": 1,
        "pad_id": 2,
        "image_token_id": 3,
        "ignore_id": -100,
        "image_token": "<image>",
    }
    return SimpleNamespace(
        **ids,
        **fields,
        encode=lambda text, bos=False, eos=False: [],
        image_transform=transform,
        patch_size=16,
    )


def deepseek_vl2() -> list[Variant]:
    candidates = [
        [384, 384], [384, 768], [768, 384], [384, 1152], [1152, 384], [384, 1536], [1536, 384],
        [768, 768], [384, 1920], [1920, 384], [384, 2304], [2304, 384], [768, 1152], [1152, 768],
        [384, 2688], [2688, 384], [384, 3072], [3072, 384], [768, 1536], [1536, 768], [384, 3456],
        [3456, 384], [1152, 1152],
    ]  # fmt: skip
    config: Config = {
        "candidate_resolutions": candidates,
        "downsample_ratio": 2,
        **HALF,
        "patch_size": 14,
        "normalize": True,
        "processor_class": "DeepseekVLV2Processor",
    }

    def runner(cropping: bool) -> Callable[[bytes], Result]:
        def run(data: bytes) -> Result:
            import torch
            from sglang.srt.configs.deepseekvl2 import DeepseekVLV2Processor, ImageTransform

            owner = owner_of(
                ImageTransform(), image_size=384, candidate_resolutions=candidates, downsample_ratio=2
            )
            owner.patch_size = 14
            ids, views, _, crops = DeepseekVLV2Processor.tokenize_with_images(
                owner, "<image>", [inputs.rgb(data)], cropping=cropping
            )
            found = tensors(
                pixel_values=torch.stack(views), images_spatial_crop=np.array(crops, dtype=np.int64)
            )
            return Result(found, list(ids).count(3))

        return run

    three = {"num_images": 3}
    return [
        Variant("sglang", config | {"backend": "pil"}, runner(True), (*inputs.usual((768, 384)), *TILED[4:])),
        Variant("third_image", config | {"backend": "pil"}, runner(False), SOME, three),
    ]


def ocr_result(tokenize: Callable[..., Any], owner: Any, data: bytes, crop_px: int, **more: Any) -> Result:
    """Views by name; no crops are no rows, where SGLang fills in one of zeros for the whole request."""
    ids, whole, crops, _, spatial, *_ = tokenize(owner, "<image>", [inputs.rgb(data)], **more)
    tiles = int(spatial[0].prod())
    cut = crops.reshape(-1, 3, crop_px, crop_px)[: tiles if tiles > 1 else 0]
    found = tensors(pixel_values=whole, images_crop=cut, images_spatial_crop=spatial)
    return Result(found, int((ids == 3).sum()))


def deepseek_ocr() -> list[Variant]:
    config: Config = {
        "candidate_resolutions": [[1024, 1024]],
        "downsample_ratio": 4,
        **HALF,
        "normalize": True,
        "patch_size": 16,
        "processor_class": "DeepseekVLV2Processor",
        "backend": "pil",
    }

    def runner(crop_px: int, second: bool, cropping: bool) -> Callable[[bytes], Result]:
        def run(data: bytes) -> Result:
            from sglang.srt.configs.deepseek_ocr import DeepseekOCRProcessor, ImageTransform

            owner = owner_of(
                ImageTransform(), image_size=crop_px, base_size=1024, downsample_ratio=4, ocr2_mode=second
            )
            return ocr_result(
                DeepseekOCRProcessor.tokenize_with_images, owner, data, crop_px, cropping=cropping
            )

        return run

    ocr2 = config | {"ocr2_mode": True}
    every = (*inputs.usual((1024, 1024)), *TILED[4:], Input("RGB", 640, 640), Input("RGB", 641, 300))
    return [
        Variant("ocr", config, runner(640, False, True), every),
        Variant("ocr_third_image", config, runner(640, False, False), TILED[:4], {"num_images": 3}),
        Variant("ocr2", ocr2, runner(768, True, True), (*TILED, Input("RGB", 768, 700))),
        Variant("ocr2_third_image", ocr2, runner(768, True, False), TILED[2:4], {"num_images": 3}),
    ]


def unlimited_ocr() -> list[Variant]:
    config: Config = {
        "candidate_resolutions": [[1024, 1024]],
        "downsample_ratio": 4,
        **HALF,
        "normalize": True,
        "patch_size": 16,
        "processor_class": "UnlimitedOCRHFProcessor",
        "backend": "pil",
    }

    def runner(base_px: int, crop_px: int, cropping: bool) -> Callable[[bytes], Result]:
        def run(data: bytes) -> Result:
            from sglang.srt.configs.deepseek_ocr import ImageTransform
            from sglang.srt.configs.unlimited_ocr import UnlimitedOCRHFProcessor

            owner = owner_of(ImageTransform(), image_size=crop_px, base_size=base_px, downsample_ratio=4)
            more = {"cropping": cropping, "base_size": base_px, "image_size": crop_px}
            return ocr_result(UnlimitedOCRHFProcessor.tokenize_with_images, owner, data, crop_px, **more)

        return run

    gundam = (*inputs.usual((1024, 1024)), *TILED[4:], Input("RGB", 4000, 300))
    modes = {"tiny": 512, "small": 640, "base": 1024, "large": 1280}
    found = [Variant("gundam", config, runner(1024, 640, True), gundam)]
    return found + [
        Variant(mode, config, runner(side, side, False), SOME[:2], {"image_mode": mode})
        for mode, side in modes.items()
    ]


FAMILIES = {
    "deepseek_ocr": deepseek_ocr,
    "deepseek_v41": deepseek_v41,
    "deepseek_vl2": deepseek_vl2,
    "unlimited_ocr": unlimited_ocr,
}
