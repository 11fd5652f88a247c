"""Images of GLM's models: turned by EXIF, transparency on a grey that contrasts. Values are Pillow's."""

from __future__ import annotations

import io

import numpy as np
import pytest
from PIL import Image
from reference_families import inputs
from reference_families.glm import smart_rgb

from sglang_mm_ray import _core
from sglang_mm_ray.config import PoolConfig
from sglang_mm_ray.errors import DecodeError, LimitExceeded
from sglang_mm_ray.messages import ImageFacts
from sglang_mm_ray.sources.policy import SourcePolicy
from sglang_mm_ray.sources.source import Resolved
from sglang_mm_ray.sources.upright import upright_rgb
from sglang_mm_ray.worker.process import Processor

TURNED = [f"exif-{orientation} 40x28" for orientation in range(2, 9)]
TRANSPARENT = [str(item) for item in inputs.ALPHA]
PIXELS = np.arange(3 * 50 * 40, dtype=np.uint8).reshape(50, 40, 3)


def saved(image: Image.Image, format_name: str, **options: object) -> bytes:
    buffer = io.BytesIO()
    image.save(buffer, format=format_name, **options)
    return buffer.getvalue()


def exif(orientation: int) -> Image.Exif:
    tags = Image.Exif()
    tags[0x0112] = orientation
    return tags


@pytest.mark.parametrize("name", [*TURNED, *TRANSPARENT])
def test_equals_the_loader_of_sglang(name: str) -> None:
    data = inputs.encoded(inputs.parse(name))
    found = upright_rgb(data, SourcePolicy())
    expected = np.asarray(smart_rgb(data))
    if found is None:
        assert np.array_equal(expected, np.asarray(Image.open(io.BytesIO(data)).convert("RGB")))
    else:
        assert np.array_equal(found[0], expected)


@pytest.mark.parametrize("format_name", ["JPEG", "PNG", "WEBP", "GIF", "BMP"])
def test_what_is_upright_and_opaque_is_left_to_the_core(format_name: str) -> None:
    assert upright_rgb(saved(Image.fromarray(PIXELS), format_name), SourcePolicy()) is None


@pytest.mark.parametrize("format_name", ["JPEG", "PNG", "WEBP"])
def test_every_format_says_how_it_is_turned(format_name: str) -> None:
    data = saved(Image.fromarray(PIXELS), format_name, exif=exif(6))
    found = upright_rgb(data, SourcePolicy())
    assert found is not None and found[1] == f"pillow:{format_name}"
    assert np.array_equal(found[0], np.asarray(smart_rgb(data)))
    assert found[0].shape == (40, 50, 3)


def test_a_file_that_pillow_does_not_open_is_the_cores_to_refuse() -> None:
    assert upright_rgb(b"no image", SourcePolicy()) is None


def test_limits_hold_before_memory_is_taken() -> None:
    data = saved(Image.fromarray(PIXELS), "JPEG", exif=exif(3))
    with pytest.raises(LimitExceeded, match="2000"):
        upright_rgb(data, SourcePolicy(max_pixels=1999))


def test_a_broken_file_is_a_decode_error() -> None:
    data = saved(Image.new("RGBA", (300, 300), (1, 2, 3, 4)), "PNG")
    with pytest.raises(DecodeError):
        upright_rgb(data[: len(data) // 2], SourcePolicy())


@pytest.mark.parametrize(("model", "is_upright"), [("glm4v", True), ("qwen_vl", False)])
def test_workers_load_as_the_family_asks(model: str, is_upright: bool) -> None:
    data = saved(Image.fromarray(PIXELS), "JPEG", exif=exif(6))
    outcome = Processor(PoolConfig(model=model)).process(Resolved(data, None, bytes(32)))
    assert isinstance(outcome.result, ImageFacts)
    decoded = np.asarray(smart_rgb(data) if is_upright else Image.open(io.BytesIO(data)).convert("RGB"))
    expected = _core.processor(model).preprocess_rgb(decoded)
    assert outcome.result.source_size == expected.source_size
    assert np.array_equal(outcome.value, expected.tensors["pixel_values"])
