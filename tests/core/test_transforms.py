"""`_core.transforms`: the building blocks of model families, against numpy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from images import scene

from sglang_mm_ray import _core
from sglang_mm_ray._core import transforms

SIDES_PX = st.integers(1, 70)
PATCHES_PX = st.integers(1, 33)


def patches_by_numpy(image: np.ndarray, patch_px: int) -> np.ndarray:
    h, w, channels = image.shape
    grid = image.reshape(h // patch_px, patch_px, w // patch_px, patch_px, channels)
    return grid.swapaxes(1, 2).reshape(-1, patch_px, patch_px, channels)


@given(SIDES_PX, SIDES_PX, PATCHES_PX)
def test_patch_grid_covers_the_image(h: int, w: int, patch_px: int) -> None:
    assert transforms.patch_grid(h, w, patch_px) == (-(-h // patch_px), -(-w // patch_px))


@given(SIDES_PX, SIDES_PX, st.lists(st.floats(-2, 2, width=32), min_size=3, max_size=3))
@settings(deadline=None)
def test_normalize_is_float32_arithmetic_in_the_order_of_the_reference(
    h: int, w: int, mean: list[float]
) -> None:
    pixels = scene(w, h)
    std = [0.26862954, 0.26130258, 1.0 / 3.0]
    want = (pixels.astype(np.float32) * np.float32(1 / 255) - np.float32(mean)) / np.float32(std)
    got = transforms.normalize_rgb_f32(pixels, tuple(mean), tuple(std))
    assert got.dtype == np.float32 and got.shape == pixels.shape
    np.testing.assert_array_equal(got.view(np.uint32), want.view(np.uint32))


def test_normalize_covers_every_byte_of_every_channel() -> None:
    pixels = np.repeat(np.arange(256, dtype=np.uint8), 3).reshape(16, 16, 3)
    mean, std = (0.48145466, 0.4578275, 0.40821073), (0.26862954, 0.26130258, 0.27577711)
    want = (pixels.astype(np.float32) * np.float32(1 / 255) - np.float32(mean)) / np.float32(std)
    np.testing.assert_array_equal(transforms.normalize_rgb_f32(pixels, mean, std), want)


@pytest.mark.parametrize("dtype, fill", [(np.uint8, 7), (np.float32, -1 / 255)])
@given(h=SIDES_PX, w=SIDES_PX, patch_px=PATCHES_PX, channels=st.integers(1, 4))
@settings(deadline=None)
def test_pad_and_extract_equal_numpy(
    dtype: type, fill: float, h: int, w: int, patch_px: int, channels: int
) -> None:
    image = np.dstack([scene(w, h), scene(w, h, 1)])[..., :channels].astype(dtype)
    rows, columns = transforms.patch_grid(h, w, patch_px)
    edge = ((0, rows * patch_px - h), (0, columns * patch_px - w), (0, 0))
    want = np.pad(image, edge, constant_values=dtype(fill))
    padded = transforms.pad_to_grid(image, patch_px, fill)
    assert padded.dtype == dtype
    np.testing.assert_array_equal(padded, want)
    patches = transforms.extract_patches_hwc(padded, patch_px)
    assert patches.dtype == dtype
    np.testing.assert_array_equal(patches, patches_by_numpy(want, patch_px))


def test_any_strides_are_read_in_their_order() -> None:
    wide = np.repeat(scene(32, 24), 2, 1)
    planar = scene(32, 24).transpose(2, 0, 1).copy().transpose(1, 2, 0)
    for form in (wide[:, ::2], np.asfortranarray(wide[:, ::2]), planar):
        np.testing.assert_array_equal(
            transforms.extract_patches_hwc(form, 8), patches_by_numpy(scene(32, 24), 8)
        )


@pytest.mark.parametrize(
    "call, error",
    [
        (lambda: transforms.patch_grid(4, 4, 0), _core.InvalidArgument),
        (lambda: transforms.pad_to_grid(scene(4, 4), 0), _core.InvalidArgument),
        (lambda: transforms.pad_to_grid(scene(4, 4), 3, 256), _core.InvalidArgument),
        (lambda: transforms.pad_to_grid(scene(4, 4), 3, 0.5), _core.InvalidArgument),
        (lambda: transforms.pad_to_grid(scene(4, 4), 1 << 40), _core.InvalidArgument),
        (lambda: transforms.pad_to_grid(scene(4, 4), (1 << 64) - 1), _core.InvalidArgument),
        (lambda: transforms.extract_patches_hwc(scene(5, 4), 4), _core.InvalidArgument),
        (
            lambda: transforms.normalize_rgb_f32(np.zeros((2, 2, 4), np.uint8), (0, 0, 0), (1, 1, 1)),
            ValueError,
        ),
        (lambda: transforms.normalize_rgb_f32(scene(2, 2), (0, 0), (1, 1, 1)), ValueError),
        (lambda: transforms.pad_to_grid(np.zeros((2, 2, 3), np.int32), 2), TypeError),
    ],
)
def test_bad_calls_raise(call: Any, error: type[Exception]) -> None:
    with pytest.raises(error):
        call()


def unaligned(values: np.ndarray) -> np.ndarray:
    """The same values, each one byte beyond where its type wants to be."""
    memory = np.zeros(values.nbytes + 1, np.uint8)
    memory[1:] = values.reshape(-1).view(np.uint8)
    return memory[1:].view(values.dtype).reshape(values.shape)


def within_records(values: np.ndarray) -> np.ndarray:
    """The same values, as a field of records of 5 bytes."""
    records = np.zeros(values.shape, [("a", "u1"), ("value", values.dtype)])
    records["value"] = values
    return records["value"]


@pytest.mark.parametrize("laid_out", [unaligned, within_records, np.asfortranarray])
def test_floats_are_read_right_however_they_lie(laid_out: Any) -> None:
    values = np.arange(12, dtype=np.float32).reshape(2, 2, 3)
    odd = laid_out(values)
    np.testing.assert_array_equal(odd, values)
    np.testing.assert_array_equal(transforms.pad_to_grid(odd, 2, 0.0), values)
    np.testing.assert_array_equal(transforms.extract_patches_hwc(odd, 2), values[None])
