"""Every instruction set of this CPU gives Inkling's reference bit for bit."""

from __future__ import annotations

import json

import numpy as np
import pytest
import reference
from hypothesis import given, settings
from hypothesis import strategies as st
from images import scene

from sglang_mm_ray import _core

RESCALES = st.sampled_from([(None, None), (2.0, 2048), (2.0, 90), (0.5, None), (0.31, None), (1.7, None)])


def check(pixels: np.ndarray, patch_size: int, frac: float | None, cap: int | None) -> None:
    parameters = {"patch_size": patch_size, "rescale_frac": frac, "rescale_cap": cap}
    processor = _core.processor("inkling", json.dumps(parameters))
    h, w = pixels.shape[:2]
    size = reference.scaled_dims(w, h, frac, cap)
    resized = pixels if size == (w, h) else reference.pil_resize(pixels, *size)
    patches = reference.inkling_patches_f32(resized, patch_size)
    bits = processor.preprocess_rgb(pixels, "bf16").tensors["patches"]
    np.testing.assert_array_equal(bits, reference.bf16_bits(patches))
    floats = processor.preprocess_rgb(pixels, "float32").tensors["patches"]
    np.testing.assert_array_equal(floats.view(np.uint32), patches.view(np.uint32))
    late = processor.preprocess_rgb(pixels, "uint8").tensors["pixels"]
    np.testing.assert_array_equal(late, resized)


# Fixtures and hypothesis: the level is set once for all examples of a test, which is what is wanted.
@given(
    width_px=st.integers(1, 150),
    height_px=st.integers(1, 150),
    patch_size=st.integers(1, 70),
    rescale=RESCALES,
    seed=st.integers(0, 1000),
)
@settings(deadline=None, max_examples=60)
def _any_image(
    width_px: int, height_px: int, patch_size: int, rescale: tuple[float | None, int | None], seed: int
) -> None:
    check(scene(width_px, height_px, seed), patch_size, *rescale)


def test_random_images_equal_the_reference(level: str) -> None:
    _any_image()


@pytest.mark.parametrize(
    "width_px, height_px, patch_size", [(2048, 1152, 40), (1023, 1025, 16), (2000, 40, 40), (39, 3000, 14)]
)
def test_large_images_equal_the_reference(level: str, width_px: int, height_px: int, patch_size: int) -> None:
    check(scene(width_px, height_px), patch_size, None, None)


def test_constants_that_need_the_division_equal_the_reference(level: str) -> None:
    """A mean that is a byte's own value becomes exactly 0 in the reference."""
    mean = [float(np.float32(byte) * np.float32(1 / 255)) for byte in (101, 57, 203)]
    processor = _core.processor(
        "inkling",
        json.dumps({"mean": mean, "std": [0.3, 0.3, 0.3], "rescale_frac": None, "rescale_cap": None}),
    )
    pixels = np.arange(256 * 40 * 3, dtype=np.uint32).reshape(40, 256, 3) // 3 % 256
    patches = reference.inkling_patches_f32(
        pixels.astype(np.uint8), 40, np.float32(mean), np.float32([0.3, 0.3, 0.3])
    )
    got = processor.preprocess_rgb(pixels.astype(np.uint8)).tensors["patches"]
    np.testing.assert_array_equal(got, reference.bf16_bits(patches))


def test_an_unknown_or_foreign_level_is_refused_and_changes_nothing() -> None:
    before = _core.build_info()["simd"]
    levels = _core.build_info()["simd_available"]
    foreign = "neon" if "avx2" in levels or "neon" not in levels else "avx2"
    for name in ("fastest", foreign):
        with pytest.raises(_core.InvalidArgument):
            _core.set_simd_level(name)
    assert _core.build_info()["simd"] == before
