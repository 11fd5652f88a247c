"""Pixtral, Mistral 3 and LightOnOCR: Hugging Face's Pixtral class."""

from __future__ import annotations

from . import huggingface, inputs
from .inputs import Input
from .variant import OPENAI_CLIP, Config, Result, Variant

SOME = (Input("RGB", 400, 90), Input("RGB", 83, 391), Input("noise", 160, 120))
PIXTRAL: Config = {
    "do_convert_rgb": True,
    "do_normalize": True,
    "do_rescale": True,
    "do_resize": True,
    **OPENAI_CLIP,
    "image_processor_type": "PixtralImageProcessor",
    "patch_size": {"height": 16, "width": 16},
    "resample": 3,
    "rescale_factor": 0.00392156862745098,
    "size": {"longest_edge": 1024},
}


def pixtral() -> list[Variant]:
    """`spatial_merge_size` is the processor's: it hands the class a patch that many times as large."""
    mistral3 = PIXTRAL | {"patch_size": {"height": 14, "width": 14}, "size": {"longest_edge": 1540}}
    table: list[tuple[str, Config, int, tuple[Input, ...]]] = [
        ("pixtral", PIXTRAL, 1, (*inputs.usual((320, 160)), Input("RGB", 1, 1), Input("RGB", 3000, 4))),
        ("mistral3", mistral3, 2, (*SOME, Input("RGB", 1700, 1130), Input("RGB", 280, 168))),
        ("small", PIXTRAL | {"size": {"longest_edge": 100}}, 1, SOME),
        ("height_and_width", PIXTRAL | {"size": {"height": 64, "width": 200}}, 1, SOME),
    ]

    def variant(name: str, config: Config, merge: int, images: tuple[Input, ...], backend: str) -> Variant:
        side = config["patch_size"]["height"] * merge
        whole = config | {"patch_size": {"height": side, "width": side}}

        def run(data: bytes) -> Result:
            made = huggingface.image_processor("PixtralImageProcessor", backend, whole)
            return huggingface.processed(
                made, inputs.rgb(data), lambda out: int((out["image_sizes"] // side).prod())
            )

        fields = config | ({"spatial_merge_size": merge} if merge > 1 else {})
        return Variant(f"{name}.{backend}", fields | {"backend": backend}, run, images)

    return [variant(*row, backend) for row in table for backend in huggingface.BACKENDS]


FAMILIES = {"pixtral": pixtral}
