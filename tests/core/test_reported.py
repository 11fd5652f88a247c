"""Faults that users of image preprocessing reported in public, each with the smallest input that shows it.

Values are Pillow's, numpy's, or written down from their run. The faults that one module's tests show anyway
are there; here are those that run through several.
"""

from __future__ import annotations

import io
import json
import struct
import subprocess
import sys
import warnings
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import png_builder as build
import pytest
import reference
import reference_qwen as qwen
from decoding import difference, encoded, pillow_rgb
from images import picture, scene
from peak_memory import NEEDS_PEAK
from PIL import Image, ImageCms, features

from sglang_mm_ray import _core
from sglang_mm_ray._core import common

Pixels = np.ndarray
CLIP_MEAN, CLIP_STD = (0.48145466, 0.4578275, 0.40821073), (0.26862954, 0.26130258, 0.27577711)


def decoded(data: bytes) -> Pixels:
    """`[h, w, 3]` of the core, which agrees with Pillow."""
    assert difference(data) is None
    height, width, flat = common.image_decode_rgb(data)
    return flat.reshape(height, width, 3)


def uniform(mode: str, size_px: int, *colour: int) -> bytes:
    return encoded(Image.new(mode, (size_px, size_px), colour if len(colour) > 1 else colour[0]), "PNG")


# Input


@pytest.mark.parametrize(
    ("format_name", "options"),
    [("JPEG", {"quality": 90}), ("PNG", {}), ("WEBP", {"lossless": True}), ("WEBP", {"quality": 90})],
)
@pytest.mark.parametrize("orientation", range(1, 10))
def test_an_orientation_in_the_metadata_rotates_nothing(
    format_name: str, options: dict[str, Any], orientation: int
) -> None:
    # sglang#33464
    exif = Image.Exif()
    exif[0x0112] = orientation
    plain, tagged = (
        encoded(picture("RGB", 64, 48), format_name, **options, **more) for more in ({}, {"exif": exif})
    )
    assert len(tagged) > len(plain) and tagged != plain
    assert decoded(tagged).shape == (48, 64, 3)
    np.testing.assert_array_equal(decoded(tagged), decoded(plain))


@pytest.mark.parametrize("family", ["inkling", "torchvision", "pil"])
def test_every_mode_in_one_request_is_three_channels(family: str) -> None:
    # sglang#26751, sglang#35101: a grey or transparent image took its neighbours with it.
    two = Image.new("LA", (2, 1))
    two.putpixel((0, 0), (200, 0))
    two.putpixel((1, 0), (50, 255))
    assert decoded(encoded(two, "PNG")).tolist() == [[[200] * 3, [50] * 3]]
    assert decoded(uniform("L", 8, 77)).reshape(-1, 3).tolist() == [[77] * 3] * 64
    modes = ["L", "LA", "1", "RGBA", "RGB", "P", "I;16"]
    files = [encoded(picture(mode, 8, 8), "PNG") for mode in modes]
    files += [encoded(picture(mode, 8, 8), "JPEG") for mode in ("L", "RGB", "CMYK")]
    files += [encoded(picture(mode, 8, 8), "WEBP") for mode in ("L", "RGBA")]
    files += [encoded(picture(mode, 8, 8), "GIF") for mode in ("1", "L", "P")]
    files.insert(3, b"no image")
    if family == "inkling":
        processor = _core.processor("inkling")
    else:
        processor = _core.processor("qwen_vl", json.dumps(qwen.QWEN2_5_VL | {"backend": family}))
    results = processor.preprocess_batch(files, "uint8")
    assert isinstance(results.pop(3), _core.DecodeError)
    del files[3]
    shapes = set()
    for data, result in zip(files, results, strict=True):
        assert isinstance(result, _core.Processed), result
        pixels = result.tensors["pixels"]
        shapes.add(pixels.shape)
        alone = processor.preprocess_rgb(reference.decode_rgb(data), "uint8").tensors["pixels"]
        np.testing.assert_array_equal(pixels, alone)
        if family != "torchvision":
            filter_name = "pil_lanczos" if family == "inkling" else "pil_bicubic"
            side = 16 if family == "inkling" else 56
            want = reference.pil_resize(reference.decode_rgb(data), side, side, filter_name)
            np.testing.assert_array_equal(pixels, want)
    assert len(shapes) == 1 and shapes.pop()[2] == 3


def test_tracking_pixels_are_images() -> None:
    # vllm#8954, transformers#21638
    dot = uniform("RGB", 1, 9, 8, 7)
    files = [dot, dot, encoded(picture("RGB", 64, 64), "PNG")]
    for data, result in zip(files, _core.processor("inkling").preprocess_batch(files), strict=True):
        assert isinstance(result, _core.Processed), result
        height, width, bits, _ = reference.inkling(data)
        assert (result.height, result.width) == (height, width)
        np.testing.assert_array_equal(result.tensors["patches"], bits)


@pytest.mark.skipif(not features.check("littlecms2"), reason="this Pillow makes no colour profiles")
@pytest.mark.parametrize("space", ["LAB", "XYZ", "sRGB"])
def test_a_colour_profile_changes_no_pixel(space: str) -> None:
    # Pillow#5672
    profile = ImageCms.ImageCmsProfile(ImageCms.createProfile(space)).tobytes()
    for format_name, options in (("JPEG", {}), ("PNG", {}), ("WEBP", {"lossless": True})):
        plain = encoded(picture("RGB", 64, 48), format_name, **options)
        tagged = encoded(picture("RGB", 64, 48), format_name, icc_profile=profile, **options)
        assert profile in tagged or format_name == "PNG"
        np.testing.assert_array_equal(decoded(tagged), decoded(plain))


# Parity


def test_lossy_webp_upsamples_as_libwebp_does_by_default() -> None:
    # image-webp#142
    pixels = np.zeros((16, 16, 3), np.uint8)
    pixels[:, :5, 0] = pixels[:, 5:, 2] = 255
    row = decoded(encoded(Image.fromarray(pixels), "WEBP", quality=90))[0].tolist()
    edge = [[227, 9, 34], [165, 23, 103], [70, 0, 133], [26, 0, 215], [4, 0, 255], [2, 0, 255]]
    assert row == [[255, 1, 0]] * 3 + edge + [[0, 0, 255]] * 7
    for size in ((1, 1), (3, 5)):
        decoded(encoded(picture("RGB", *size), "WEBP", quality=90))


def test_three_components_without_a_transform_are_rgb() -> None:
    # zune-image#426
    column = np.arange(64)
    gradient = np.broadcast_to(np.stack([3 * column, 6 * column, 255 - 3 * column], 1), (48, 64, 3))
    image = Image.fromarray(np.ascontiguousarray(gradient % 256).astype(np.uint8))
    data = encoded(image, "JPEG", quality=95, keep_rgb=True, subsampling=0)
    assert data[data.index(b"Adobe") + 11] == 0
    assert decoded(data)[0, :3].tolist() == [[0, 0, 255], [3, 6, 252], [6, 12, 249]]


@pytest.mark.parametrize("progressive", [False, True])
def test_blocks_of_one_colour_are_rounded_as_libjpeg_does(progressive: bool) -> None:
    # image#2411: a shortcut for such blocks shifted dark colours towards green.
    chance = np.random.default_rng(2411)
    colours = np.concatenate(
        [[[21, 24, 17]], chance.integers(0, 40, (127, 3)), chance.integers(0, 256, (128, 3))]
    )
    for colour in colours.tolist():
        image = Image.new("RGB", (16, 16), tuple(colour))
        for sampling in (0, 2):
            pixels = decoded(encoded(image, "JPEG", subsampling=sampling, progressive=progressive))
            assert len(np.unique(pixels.reshape(-1, 3), axis=0)) == 1


def test_images_become_rgb_before_they_are_resized() -> None:
    # sglang#34188
    see_through = Image.new("RGBA", (4, 1))
    for at, colour in enumerate([(0, 255, 0, 255)] * 2 + [(255, 0, 0, 0)] * 2):
        see_through.putpixel((at, 0), colour)
    rgb = decoded(encoded(see_through, "PNG"))
    found = common.resize(rgb, 2, 1, "pil_bicubic").reshape(2, 3).tolist()
    assert found == [[21, 234, 0], [234, 21, 0]]
    # What resizing with the alpha would have given.
    assert (
        np.asarray(see_through.resize((2, 1), Image.Resampling.BICUBIC))[0, :, :3].tolist()
        == [[0, 255, 0]] * 2
    )

    board = (np.indices((4, 4)).sum(0) % 2 * 255).astype(np.uint8)
    indexed = Image.fromarray(board)
    palette = Image.frombytes("P", (4, 4), board.tobytes())
    palette.putpalette([value for grey in range(256) for value in (grey,) * 3])
    want = np.asarray(indexed.convert("RGB").resize((2, 2), Image.Resampling.BICUBIC))
    data = encoded(palette, "PNG")
    assert data[25] == build.PALETTE
    found = common.resize(decoded(data), 2, 2, "pil_bicubic").reshape(2, 2, 3)
    np.testing.assert_array_equal(found, want)

    for image in (see_through, palette):
        data = encoded(image, "PNG")
        parameters = {"rescale_frac": 0.5, "rescale_cap": None}
        [result] = _core.processor("inkling", json.dumps(parameters)).preprocess_batch([data], "uint8")
        assert isinstance(result, _core.Processed), result
        np.testing.assert_array_equal(result.tensors["pixels"], reference.inkling_pixels(data, 0.5, None))


def test_the_backends_of_transformers_differ_a_little_and_are_told_apart() -> None:
    # transformers#37112, transformers#39591
    noise = np.random.default_rng(37112).integers(0, 256, (47, 33, 3), np.uint8)
    budget = {"shortest_edge": 28 * 28 * 9, "longest_edge": 28 * 28 * 16}
    made = {
        name: _core.processor("qwen_vl", json.dumps(qwen.QWEN2_5_VL | {"size": budget, "backend": name}))
        for name in qwen.BACKENDS
    }
    assert len({processor.parameters_json for processor in made.values()}) == 2
    torchvision, pil = (made[name].preprocess_rgb(noise, "uint8").tensors["pixels"] for name in qwen.BACKENDS)
    apart = np.abs(torchvision.astype(int) - pil.astype(int))
    # Both resize in 8 bits with filters of their own precision: never the same, never far apart.
    assert 0 < apart.max() <= 2 and apart.mean() < 0.5


def test_bfloat16_is_rounded_and_not_cut() -> None:
    # mistral-common#316
    greys = np.repeat(np.arange(256, dtype=np.uint8), 3).reshape(16, 16, 3)
    parameters = {"patch_size": 16, "mean": CLIP_MEAN, "std": CLIP_STD}
    parameters |= {"rescale_frac": None, "rescale_cap": None}
    processor = _core.processor("inkling", json.dumps(parameters))
    found = processor.preprocess_rgb(greys, "bf16").tensors["patches"][0]
    scaled = greys.astype(np.float32) * np.float32(1 / 255)
    values = (scaled - np.float32(CLIP_MEAN)) / np.float32(CLIP_STD)
    np.testing.assert_array_equal(found, reference.bf16_bits(values))
    # Cutting the lower half off would get half of them wrong.
    assert (found != values.view(np.uint32) >> 16).sum() > 350
    half = json.dumps(qwen.QWEN3_VL | {"do_resize": False})
    grey = np.full((32, 32, 3), 127, np.uint8)
    bits = _core.processor("qwen_vl", half).preprocess_rgb(grey, "bf16").tensors["pixel_values"]
    assert set(bits.reshape(-1).tolist()) == {0xBB81}


# Security


def test_the_limit_of_pixels_is_pillows_and_the_callers_fault() -> None:
    # vllm#47010, sglang#28587: Pillow's error is no ValueError, so servers took it for a fault of their own.
    def header(width: int, height: int) -> bytes:
        return build.SIGNATURE + build.header(width, height, 8, build.RGB) + build.chunk(b"IDAT")

    for side in (9459, 9460, 13_377):
        assert common.probe(header(side, side)) == ("PNG", side, side)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            assert Image.open(io.BytesIO(header(side, side))).size == (side, side)
    with pytest.raises(Image.DecompressionBombError):
        Image.open(io.BytesIO(header(13_377, 13_378)))
    [refused] = _core.processor("inkling").preprocess_batch([header(13_377, 13_378)])
    assert isinstance(refused, _core.LimitExceeded) and isinstance(refused, ValueError)
    assert (refused.value, refused.limit) == (13_377 * 13_378, 178_956_970)


BOMBS = """
import sys
from pathlib import Path
from sglang_mm_ray import _core

def memory_bytes(field):
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(field):
            return int(line.split()[1]) * 1024

data = Path(sys.argv[1]).read_bytes()
processor = _core.processor("inkling", '{"rescale_frac": 0.04, "rescale_cap": null}')
Path("/proc/self/clear_refs").write_text("5")
before = memory_bytes("VmRSS")
results = processor.preprocess_batch([data] * 16)
assert all(isinstance(result, _core.Processed) for result in results), results
print(memory_bytes("VmHWM") - before)
"""


@NEEDS_PEAK
def test_many_small_files_of_many_pixels_are_in_memory_one_for_each_thread(tmp_path: Path) -> None:
    # sglang#28587
    side = 2500
    row = b"\0" + bytes(-(-side // 8))
    data = build.SIGNATURE + build.header(side, side, 1, build.GREY)
    data += build.chunk(b"IDAT", zlib.compress(row * side, 9)) + build.chunk(b"IEND")
    assert len(data) < 2500
    file = tmp_path / "bomb.png"
    file.write_bytes(data)
    done = subprocess.run(
        [sys.executable, "-c", BOMBS, str(file)],
        env={"SGL_MM_RS_THREADS": "2", "PYTHONPATH": str(Path(_core.__file__).parents[1])},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    pixels_bytes = side * side * 3
    assert pixels_bytes < int(done.stdout) < 3 * pixels_bytes, "all sixteen would be 300 MB"


def test_text_behind_the_image_data_is_bounded_before_it_is_unpacked() -> None:
    # Pillow#8363
    bomb = b"a\0\0" + zlib.compress(bytes(2 << 20))
    data = build.png(1, 1, 8, build.RGB, b"\0\1\2\3", before=build.chunk(b"zTXt", bomb))
    with pytest.raises(ValueError, match=r"\S"):
        Image.open(io.BytesIO(data))
    with pytest.raises(_core.DecodeError) as caught:
        common.image_decode_rgb(data)
    assert isinstance(caught.value, ValueError) and pillow_rgb(data) is None


def test_a_frame_larger_than_its_screen_counts() -> None:
    # Pillow#6402
    data = b"GIF89a" + struct.pack("<HHBBB", 1, 1, 0, 0, 0)
    data += b"," + struct.pack("<HHHHB", 0, 0, 65_535, 65_535, 0) + b"\2\2\x44\1\0;"
    assert common.probe(data) == ("GIF", 65_535, 65_535)
    with pytest.raises(_core.LimitExceeded, match="4294836225"):
        common.image_decode_rgb(data)


# Hash


def test_pixels_and_key_of_one_picture_stored_twice() -> None:
    # vllm#29621: what is hashed is the file, so that a repeat needs no decoding.
    pixels = scene(3, 2)
    first, second = (encoded(Image.fromarray(pixels), "PNG", compress_level=level) for level in (0, 9))
    np.testing.assert_array_equal(decoded(first), decoded(second))
    one, other = _core.processor("inkling").preprocess_batch([first, second])
    assert isinstance(one, _core.Processed) and isinstance(other, _core.Processed)
    assert one.digest != other.digest and one.content_hash != other.content_hash
    np.testing.assert_array_equal(one.tensors["patches"], other.tensors["patches"])
