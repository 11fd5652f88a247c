"""LLaVA: SGLang's way (1.5, NeXT and OneVision checkpoints of the original code), Hugging Face's classes of
LLaVA, LLaVA-NeXT and LLaVA-OneVision; Janus: SGLang's code."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from . import huggingface, inputs
from .inputs import Input
from .variant import HALF, OPENAI_CLIP, Config, Result, Tensor, Variant, tensor

SOME = (Input("RGB", 400, 90), Input("RGB", 83, 391), Input("noise", 160, 120))
MODES = (*inputs.ALPHA, Input("P", 120, 77), Input("L", 131, 97), Input("1", 130, 99))
# Of a palette's picture the original code would paste indices beside another palette.
PADDED = (Input("RGBA", 131, 97), Input("LA", 77, 120), Input("RGB-key", 90, 61), Input("L", 131, 97))
CLIP: Config = {
    "crop_size": {"height": 336, "width": 336},
    "do_center_crop": True,
    "do_convert_rgb": True,
    "do_normalize": True,
    "do_rescale": True,
    "do_resize": True,
    **OPENAI_CLIP,
    "image_processor_type": "CLIPImageProcessor",
    "resample": 3,
    "rescale_factor": 0.00392156862745098,
    "size": {"shortest_edge": 336},
}
SIGLIP: Config = {
    "do_normalize": True,
    "do_rescale": True,
    "do_resize": True,
    **HALF,
    "image_processor_type": "SiglipImageProcessor",
    "resample": 3,
    "rescale_factor": 0.00392156862745098,
    "size": {"height": 384, "width": 384},
}
PINPOINTS = [[336, 672], [672, 336], [672, 672], [1008, 336], [336, 1008]]


def original(config: Config, aspect: str | None, pinpoints: Any, backend: str) -> Callable[[bytes], Result]:
    """SGLang's `_preprocess_image_task`; images stay in their own mode up to the last step."""

    def run(data: bytes) -> Result:
        from types import SimpleNamespace

        from sglang.srt.multimodal.processors.llava import LlavaImageProcessor

        class_name = config["image_processor_type"]
        owner = SimpleNamespace(image_processor=huggingface.image_processor(class_name, backend, config))
        try:
            values, _, size = LlavaImageProcessor._preprocess_image_task(data, None, aspect, pinpoints, owner)
        except TypeError as mode:
            raise ValueError("no colour of this mode is three numbers") from mode
        values = values if values.ndim == 4 else values[None]
        found = {"pixel_values": Tensor("float16", np.ascontiguousarray(values))}
        return Result(found | {"image_sizes": tensor(np.array([size], np.int64))}, len(values))

    return run


def llava() -> list[Variant]:
    """The tokens depend on the model, which drops what was padded; a view counts as one here."""
    small = SIGLIP | {"size": {"height": 224, "width": 224}}
    table: list[tuple[str, Config, str | None, Any, tuple[Input, ...]]] = [
        ("pad", CLIP, "pad", None, (*SOME, *PADDED, Input("RGB", 336, 336))),
        ("plain", CLIP, None, None, SOME),
        ("anyres", CLIP, "anyres", PINPOINTS, tuple(dict.fromkeys((*inputs.usual((672, 336)), *MODES)))),
        (
            "anyres_max",
            small,
            "anyres_max_9",
            [[h * 224, w * 224] for h in (1, 2, 3) for w in (1, 2, 3)],
            SOME,
        ),
    ]
    return [
        Variant(
            f"{name}.{backend}",
            config | {"backend": backend, "image_aspect_ratio": aspect, "image_grid_pinpoints": pinpoints},
            original(config, aspect, pinpoints, backend),
            images,
        )
        for name, config, aspect, pinpoints, images in table
        for backend in huggingface.BACKENDS
    ]


def llava_hf() -> list[Variant]:
    config = CLIP | {"image_processor_type": "LlavaImageProcessor", "do_pad": False}
    configs = {"checkpoint": config, "padded": config | {"do_pad": True}}
    images = {"checkpoint": inputs.usual((336, 336)), "padded": (*SOME, Input("RGB", 336, 336))}
    return huggingface.variants("LlavaImageProcessor", configs, huggingface.constant(576), images)


def views(out: dict[str, Any]) -> int:
    return int(out["pixel_values"].shape[1])


def llava_next() -> list[Variant]:
    config = CLIP | {"image_processor_type": "LlavaNextImageProcessor", "image_grid_pinpoints": PINPOINTS}
    images = {"checkpoint": (*inputs.usual((672, 336)), Input("RGB", 700, 700))}
    return huggingface.variants(
        "LlavaNextImageProcessor", {"checkpoint": config | {"do_pad": True}}, views, images
    )


def llava_onevision() -> list[Variant]:
    pinpoints = [[384 * rows, 384 * columns] for rows in (1, 2, 3) for columns in (1, 2, 3)]
    config = SIGLIP | {
        "do_pad": True,
        "image_grid_pinpoints": pinpoints,
        "image_processor_type": "LlavaOnevisionImageProcessor",
    }
    images = {"checkpoint": (*inputs.usual((768, 384)), Input("RGB", 700, 700))}
    return huggingface.variants(
        "LlavaOnevisionImageProcessor",
        {"checkpoint": config},
        views,
        images,
        keep=lambda out: {name: value for name, value in out.items() if name != "batch_num_images"},
    )


def janus() -> list[Variant]:
    config: Config = {
        "background_color": [127, 127, 127],
        "do_normalize": True,
        **HALF,
        "image_processor_type": "VLMImageProcessor",
        "image_size": 384,
        "min_size": 14,
        "rescale_factor": 0.00392156862745098,
        "backend": "pil",
    }
    clip = config | OPENAI_CLIP | {"image_size": 100}

    def runner(fields: Config) -> Callable[[bytes], Result]:
        def run(data: bytes) -> Result:
            from sglang.srt.configs.janus_pro import VLMImageProcessor

            names = ("image_size", "min_size", "image_mean", "image_std", "rescale_factor", "do_normalize")
            made = VLMImageProcessor(**{name: fields[name] for name in names})
            return huggingface.processed(made, inputs.rgb(data), huggingface.constant(576))

        return run

    table = [
        ("sglang", config, (*inputs.usual((384, 384)), Input("RGB", 1, 1), Input("RGB", 900, 4))),
        ("small_clip", clip, (*SOME, Input("RGB", 101, 100))),
    ]
    return [Variant(name, fields, runner(fields), images) for name, fields, images in table]


FAMILIES = {
    "janus": janus,
    "llava": llava,
    "llava_hf": llava_hf,
    "llava_next": llava_next,
    "llava_onevision": llava_onevision,
}
