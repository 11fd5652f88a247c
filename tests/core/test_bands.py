"""Images decoded, resized and patchified by bands: Pillow's pixels, and Pillow's verdicts."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import reference
from decoding import encoded, mutations, pillow_rgb, truncations
from images import scene
from PIL import Image

from sglang_mm_ray import _core

# Width and height: one row, one column, whole bands of 40 rows, one row more and less, several bands.
SIZES = [(1, 1), (97, 1), (1, 97), (40, 40), (83, 41), (120, 39), (64, 200), (333, 251)]
KINDS: dict[str, tuple[str, dict[str, Any]]] = {
    "4:2:0": ("RGB", {"quality": 90}),
    "4:4:4": ("RGB", {"quality": 95, "subsampling": 0}),
    "progressive": ("RGB", {"progressive": True}),
    "grey": ("L", {}),
    "CMYK": ("CMYK", {}),
    "restarts": ("RGB", {"restart_marker_blocks": 3}),
}


def jpeg(width_px: int, height_px: int, kind: str) -> bytes:
    mode, options = KINDS[kind]
    return encoded(Image.fromarray(scene(width_px, height_px)).convert(mode), "JPEG", **options)


def as_it_is(family: str, **parameters: Any) -> Any:
    return _core.processor(family, json.dumps(parameters))


INKLING = as_it_is("inkling", rescale_frac=None, rescale_cap=None)


@pytest.fixture(params=_core.build_info()["simd_available"])
def level(request: pytest.FixtureRequest) -> Iterator[str]:
    _core.set_simd_level(request.param)
    yield request.param
    _core.set_simd_level(None)


def check_against_pillow() -> None:
    datas = [jpeg(*size, kind) for size in SIZES for kind in KINDS]
    for images in (INKLING.preprocess_batch(datas), [INKLING.preprocess_batch([data])[0] for data in datas]):
        for data, image in zip(datas, images, strict=True):
            pixels = reference.decode_rgb(data)
            assert (image.height, image.width, image.decoder) == (*pixels.shape[:2], "jpeg")
            bits = reference.bf16_bits(reference.inkling_patches_f32(pixels, 40))
            np.testing.assert_array_equal(image.tensors["patches"], bits)
            assert image.times["decode_s"] > 0.0 < image.times["patchify_s"]
            assert image.times["resize_s"] == 0.0


def test_pictures_that_keep_their_size_equal_pillow(level: str) -> None:
    check_against_pillow()


@pytest.mark.parametrize("threads", [1, 5])
def test_any_number_of_threads_gives_the_same(threads: int) -> None:
    code = "import sys; sys.path[:0] = sys.argv[1:]; import test_bands; test_bands.check_against_pillow()"
    subprocess.run(
        [sys.executable, "-c", code, str(Path(__file__).parent), *sys.path],
        env={**os.environ, "SGL_MM_RS_THREADS": str(threads)},
        check=True,
        timeout=120,
    )


def test_qwen_by_bands_equals_qwen_of_the_pixels() -> None:
    kept = as_it_is("qwen_vl", do_resize=False, patch_size=14, merge_size=2)
    for size in ((28, 28), (84, 112), (280, 28)):
        data = jpeg(*size, "4:2:0")
        [image] = kept.preprocess_batch([data])
        # Pixels that are handed over are finished as a whole.
        whole = kept.preprocess_rgb(reference.decode_rgb(data))
        np.testing.assert_array_equal(image.tensors["pixel_values"], whole.tensors["pixel_values"])


def test_damaged_files_have_pillows_verdict() -> None:
    verdicts = set()
    for kind in KINDS:
        data = jpeg(90, 130, kind)
        for name, damaged in [*truncations(kind, data, 97), *mutations(kind, data, 60, seed=5)]:
            pixels = pillow_rgb(damaged)
            [image] = INKLING.preprocess_batch([damaged])
            verdicts.add(pixels is None)
            if pixels is None:
                assert isinstance(image, Exception), name
                continue
            assert not isinstance(image, Exception), (name, image)
            bits = reference.bf16_bits(reference.inkling_patches_f32(pixels, 40))
            np.testing.assert_array_equal(image.tensors["patches"], bits, err_msg=name)
    assert verdicts == {False, True}


def test_limits_hold_before_memory_is_taken() -> None:
    data = bytearray(jpeg(64, 64, "4:4:4"))
    frame = data.index(b"\xff\xc0")
    data[frame + 5 : frame + 9] = b"\xff\xdc\xff\xdc"
    [image] = INKLING.preprocess_batch([bytes(data)])
    assert isinstance(image, _core.LimitExceeded)
    [image] = INKLING.preprocess_batch([jpeg(64, 64, "4:4:4")], limits=_core.Limits(max_patches=3))
    assert isinstance(image, _core.LimitExceeded)
