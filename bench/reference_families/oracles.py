"""What is written anew here, held to code of others that does a part of the same."""

from __future__ import annotations

import random

import numpy as np
from PIL import Image

from . import glm, inputs, kimi
from .inputs import Input

SIZES = 3000


def navit_sizes() -> list[str]:
    """Kimi's size rule against SGLang's and Hugging Face's."""
    from sglang.srt.multimodal.processors.kimi_k25 import navit_resize_config
    from transformers.models.kimi_k25.image_processing_kimi_k25 import navit_resize

    draw, found = random.Random(1), []
    for _ in range(SIZES):
        width, height = (round(9000 ** draw.random()) for _ in range(2))
        limit, side = draw.choice([(16384, 512), (65536, 512), (256, 20), (64, 512)])
        media = kimi.MEDIA | {"in_patch_limit": limit, "patch_limit_on_one_side": side}
        new_width, new_height, canvas_width, canvas_height = kimi.navit_size(width, height, media)
        theirs = navit_resize_config(width, height, 14, 2, limit, side)
        padded = (theirs["new_width"] + theirs["pad_width"], theirs["new_height"] + theirs["pad_height"])
        same = (theirs["new_width"], theirs["new_height"]) == (new_width, new_height)
        published = navit_resize(height, width, 14, 2, limit, side)
        if (
            not same
            or padded != (canvas_width, canvas_height)
            or published
            != (
                (new_height, new_width),
                (canvas_height, canvas_width),
            )
        ):
            found.append(f"navit {width}x{height}, {limit} patches")
    return found


def backgrounds() -> list[str]:
    """Kimi's backgrounds and what is laid on them, every opacity over every level, against SGLang's."""
    import torch
    from sglang.srt.multimodal.kimi_k3_image_processing import fill_transparent_bg

    levels, opacities = np.meshgrid(np.arange(256), np.arange(256))
    rgba = np.stack([levels, levels[::-1], 255 - levels, opacities], axis=-1).astype(np.uint8)
    found = []
    for config in (kimi.CHECKERBOARD, {"pattern": "gray"}, {"pattern": "white"}, {"pattern": "black"}):
        ours = np.asarray(kimi.without_alpha(Image.fromarray(rgba), config))
        planes = torch.from_numpy(rgba.transpose(2, 0, 1).astype(np.float32))[None]
        theirs = fill_transparent_bg(planes, config)[0].numpy().transpose(1, 2, 0)
        if not np.array_equal(ours, theirs.astype(np.uint8)):
            found.append(f"background {config['pattern']}")
    return found


def kimi_steps() -> list[str]:
    """Kimi's normalising against numpy's own in-place steps, every byte."""
    bytes_ = np.arange(256, dtype=np.uint8).repeat(3).reshape(16, 16, 3)
    found = []
    for media in (kimi.MEDIA, kimi.MEDIA | kimi.OPENAI_CLIP):
        values = (bytes_ / 255.0).astype(np.float32)
        values -= np.array(media["image_mean"])
        values *= 1.0 / np.array(media["image_std"])
        if not np.array_equal(values, kimi.normalised(bytes_, media)):
            found.append(f"Kimi's steps with mean {media['image_mean']}")
    return found


def smart_colours() -> list[str]:
    """GLM's loading against SGLang's."""
    from sglang.srt.utils.common import smart_to_rgb

    found = []
    for item in (*glm.TRANSPARENT, Input("RGBA", 300, 200), Input("LA", 19, 40), Input("P", 120, 77)):
        data = inputs.encoded(item)
        theirs = smart_to_rgb(inputs.opened(data))
        if not np.array_equal(np.asarray(glm.smart_rgb(data)), np.asarray(theirs)):
            found.append(f"smart_rgb of {item}")
    return found


def faults() -> list[str]:
    """Everything that differs. Needs sglang, torch and transformers."""
    return navit_sizes() + backgrounds() + kimi_steps() + smart_colours()
