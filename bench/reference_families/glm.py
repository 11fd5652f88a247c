"""GLM-4.1V, 4.5V, 4.6V and GLM-OCR, GLM-5.3-Flash, GLM-Image: Hugging Face's classes.

SGLang turns images of GLM-V by EXIF, and lays transparent ones on a background that their edges choose.
"""

from __future__ import annotations

from PIL import Image, ImageOps

from . import huggingface, inputs
from .inputs import Input
from .variant import OPENAI_CLIP, Config, Variant

GLM4V: Config = {
    "size": {"shortest_edge": 12544, "longest_edge": 9633792},
    "do_rescale": True,
    "patch_size": 14,
    "temporal_patch_size": 2,
    "merge_size": 2,
    **OPENAI_CLIP,
    "image_processor_type": "Glm4vImageProcessor",
    "processor_class": "Glm4vProcessor",
}
GLM5: Config = {
    "patch_size": 14,
    "temporal_patch_size": 2,
    "merge_size": 2,
    "patch_expand_factor": 1,
    "min_image_tokens": 16,
    "max_image_tokens": 8000,
    **OPENAI_CLIP,
    "image_processor_type": "Glm5NextImageProcessor",
}
TRANSPARENT = (
    *inputs.ALPHA,
    Input("RGBA", 41, 83),
    Input("RGBA", 3, 2),
    *(Input(f"exif-{orientation}", 100, 64) for orientation in range(1, 9)),
    Input("png-exif-6", 90, 64),
)
SOME = (Input("RGB", 400, 90), Input("RGB", 83, 391), Input("noise", 160, 120), Input("RGB", 1500, 1130))


def edge_background(image: Image.Image) -> tuple[int, int, int]:
    """Dark behind bright edges, bright behind dark ones, white where all edges are transparent. Some twenty
    pixels a side are asked, those of more than half opacity count."""
    width, height = image.size
    points = [(x, y) for x in range(0, width, max(1, width // 20)) for y in (0, height - 1)]
    points += [(x, y) for y in range(0, height, max(1, height // 20)) for x in (0, width - 1)]
    seen = [image.getpixel(point) for point in points]
    opaque = [pixel[:3] for pixel in seen if isinstance(pixel, tuple) and pixel[3] > 128]
    if not opaque:
        return (255, 255, 255)
    bright = sum(sum(pixel) for pixel in opaque) / (len(opaque) * 3) > 128
    return (32, 32, 32) if bright else (240, 240, 240)


def smart_rgb(data: bytes) -> Image.Image:
    """As SGLang loads images of GLM-V (`smart_to_rgb`)."""
    image = ImageOps.exif_transpose(inputs.opened(data))
    if image.mode not in ("RGBA", "LA") and "transparency" not in image.info:
        return image.convert("RGB")
    image = image.convert("RGBA")
    canvas = Image.new("RGB", image.size, edge_background(image))
    canvas.paste(image, mask=image.getchannel("A"))
    return canvas


def glm4v_variants(class_name: str) -> list[Variant]:
    every = (*inputs.usual((280, 168), (2600, 2000)), *TRANSPARENT, Input("RGB", 1, 1), Input("RGB", 900, 4))
    small = GLM4V | {"size": {"shortest_edge": 40000, "longest_edge": 200000}}
    configs = {"checkpoint": GLM4V, "small": small}
    named = {name: config | {"image_processor_type": class_name} for name, config in configs.items()}
    return huggingface.variants(
        class_name,
        named,
        huggingface.patches_over(2),
        {"checkpoint": tuple(dict.fromkeys(every)), "small": SOME},
        load=smart_rgb,
    )


def glm4v() -> list[Variant]:
    return glm4v_variants("Glm4vImageProcessor")


def glm46v() -> list[Variant]:
    return glm4v_variants("Glm46VImageProcessor")


def glm5_next() -> list[Variant]:
    every = (
        *inputs.usual((280, 168), (2900, 2300)),
        *inputs.ALPHA[1:],
        Input("exif-3", 100, 64),
        Input("RGB", 1, 1),
    )
    configs = {
        "checkpoint": GLM5,
        "few_tokens": GLM5 | {"max_image_tokens": 40},
        "expanded": GLM5 | {"patch_expand_factor": 2, "min_image_tokens": 100},
    }
    return huggingface.variants(
        "Glm5NextImageProcessor",
        configs,
        huggingface.patches_over(2),
        {"checkpoint": every, "few_tokens": SOME, "expanded": SOME},
        load=smart_rgb,
    )


def glm_image() -> list[Variant]:
    config: Config = {
        "size": {"shortest_edge": 262144, "longest_edge": 4194304},
        "patch_size": 16,
        "temporal_patch_size": 1,
        "merge_size": 1,
        **OPENAI_CLIP,
        "image_processor_type": "GlmImageImageProcessor",
    }
    images = (
        *inputs.usual((544, 1024)),
        Input("RGB", 391, 100),
        Input("RGB", 100, 391),
        Input("RGB", 3000, 900),
    )
    return huggingface.variants(
        "GlmImageImageProcessor", {"checkpoint": config}, huggingface.patches_over(1), {"checkpoint": images}
    )


FAMILIES = {"glm4v": glm4v, "glm46v": glm46v, "glm5_next": glm5_next, "glm_image": glm_image}
