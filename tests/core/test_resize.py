"""The resize against Pillow, value by value: every filter, SIMD level, channel count and pass order."""

from __future__ import annotations

import random
from collections.abc import Iterator

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image

from sglang_mm_ray import _core, pillow_order
from sglang_mm_ray._core import common
from sglang_mm_ray.errors import InvalidArgument, LimitExceeded

Pixels = NDArray[np.uint8]

FILTERS = {
    "pil_lanczos": Image.Resampling.LANCZOS,
    "pil_bicubic": Image.Resampling.BICUBIC,
    "pil_bilinear": Image.Resampling.BILINEAR,
    "pil_box": Image.Resampling.BOX,
    "pil_hamming": Image.Resampling.HAMMING,
}
# CMYK: four channels that Pillow resizes as they are. (RGBA it multiplies by alpha first.)
MODES = {1: "L", 3: "RGB", 4: "CMYK"}


@pytest.fixture
def horizontal_first() -> Iterator[None]:
    common.set_vertical_first_when_tall(False)
    yield
    assert pillow_order.adopt() is not None


def image_of(pixels: Pixels) -> Image.Image:
    channels = pixels.shape[2]
    if channels == 1:
        return Image.fromarray(pixels[:, :, 0])
    return Image.frombytes(MODES[channels], (pixels.shape[1], pixels.shape[0]), pixels.tobytes())


def pillow(pixels: Pixels, width: int, height: int, resample: str) -> Pixels:
    return np.asarray(image_of(pixels).resize((width, height), FILTERS[resample])).reshape(height, width, -1)


def pillow_horizontal_first(pixels: Pixels, width: int, height: int, resample: str) -> Pixels:
    """Pillow's passes one at a time, so that its version's own order does not matter."""
    return pillow(pillow(pixels, width, pixels.shape[0], resample), width, height, resample)


def ours(pixels: Pixels, width: int, height: int, resample: str) -> Pixels:
    return common.resize(pixels, width, height, resample).reshape(height, width, -1)


def some_pixels(rng: random.Random, height: int, width: int, channels: int) -> Pixels:
    """Noise, or black and white noise, which overshoots and clips the most, or a few flat colours."""
    numbers = np.random.default_rng(rng.getrandbits(32))
    pixels = numbers.integers(0, 256, (height, width, channels), dtype=np.uint8)
    kind = rng.random()
    if kind < 0.3:
        return (pixels // 128 * 255).astype(np.uint8)
    return np.sort(pixels, axis=1) if kind < 0.4 else pixels


def some_size(rng: random.Random) -> tuple[int, int, int, int]:
    """Small sizes, in which each row and column is an edge; large ones; extreme ratios."""
    kind = rng.random()
    if kind < 0.45:
        most = rng.choice([4, 12, 40])
        return rng.randint(1, most), rng.randint(1, most), rng.randint(1, most), rng.randint(1, most)
    if kind < 0.7:
        return rng.randint(1, 300), rng.randint(1, 60), rng.randint(1, 300), rng.randint(1, 60)
    if kind < 0.85:
        width, height = rng.randint(20, 200), rng.randint(20, 200)
        scale = rng.uniform(0.1, 3.0)
        return width, height, max(1, round(width * scale)), max(1, round(height * scale))
    long, short = rng.randint(300, 3000), rng.randint(1, 4)
    sizes = [(long, short, rng.randint(1, 9), short), (rng.randint(1, 3), short, long, short)]
    width, height, out_width, out_height = rng.choice(sizes)
    flip = rng.random() < 0.5
    return (height, width, out_height, out_width) if flip else (width, height, out_width, out_height)


@pytest.mark.parametrize("resample", FILTERS)
@pytest.mark.parametrize("channels", MODES)
def test_equals_pillow_on_random_sizes(level: str, channels: int, resample: str) -> None:
    rng = random.Random(f"{channels} {resample}")
    for _ in range(200):
        in_width, in_height, width, height = some_size(rng)
        pixels = some_pixels(rng, in_height, in_width, channels)
        expected = pillow(pixels, width, height, resample)
        assert np.array_equal(ours(pixels, width, height, resample), expected), (pixels.shape, width, height)


@pytest.mark.parametrize("channels", MODES)
def test_equals_pillow_12_which_is_horizontal_first(
    level: str, channels: int, horizontal_first: None
) -> None:
    rng = random.Random(channels)
    differ = 0
    for _ in range(150):
        # Tall pictures that shrink: those that Pillow 13 treats apart.
        in_width, in_height = rng.randint(2, 40), rng.randint(80, 200)
        width, height = rng.randint(2, 40), rng.randint(2, 60)
        resample = rng.choice(list(FILTERS))
        pixels = some_pixels(rng, in_height, in_width, channels)
        expected = pillow_horizontal_first(pixels, width, height, resample)
        assert np.array_equal(ours(pixels, width, height, resample), expected), (pixels.shape, width, height)
        differ += not np.array_equal(expected, pillow(pixels, width, height, resample))
    assert differ > 50 or _core.build_info()["resize_vertical_first_when_tall"] is False


@pytest.mark.parametrize(
    ("in_size", "size", "resample"),
    [
        ((1920, 1080), (2048, 1152), "pil_lanczos"),
        ((512, 512), (1024, 1024), "pil_lanczos"),
        ((1920, 1080), (960, 540), "pil_lanczos"),
        ((3840, 2160), (1288, 728), "pil_bicubic"),
        ((1001, 4001), (333, 777), "pil_lanczos"),
        ((5000, 400), (401, 399), "pil_bilinear"),
        ((64, 9000), (64, 64), "pil_lanczos"),
    ],
)
def test_equals_pillow_on_large_images_split_over_threads(
    level: str, in_size: tuple[int, int], size: tuple[int, int], resample: str
) -> None:
    pixels = some_pixels(random.Random(0), in_size[1], in_size[0], 3)
    assert np.array_equal(ours(pixels, *size, resample), pillow(pixels, *size, resample))


def test_bytes_are_clipped_between_the_passes(level: str) -> None:
    """B09: a float resize that clips once gives 254 and 232 where Pillow's bytes give 222 and 216."""
    rows, columns = np.indices((4, 4))
    board = np.repeat((((rows + columns) % 2) * 255).astype(np.uint8)[:, :, None], 3, axis=2)
    lanczos, bicubic = ours(board, 8, 8, "pil_lanczos"), ours(board, 8, 8, "pil_bicubic")
    assert lanczos[0, :, 0].tolist() == [0, 43, 254, 250, 5, 1, 212, 255]
    assert (lanczos[2, 0, 0], bicubic[2, 0, 0]) == (222, 216)
    corner = np.zeros((4, 4, 3), dtype=np.uint8)
    corner[:2, :2] = corner[2:, 2:] = 255
    assert np.array_equal(ours(corner, 8, 8, "pil_lanczos"), pillow(corner, 8, 8, "pil_lanczos"))
    assert ours(corner, 8, 8, "pil_lanczos")[0, :, 0].tolist() == [236, 245, 245, 195, 60, 10, 10, 19]


@pytest.mark.parametrize("resample", FILTERS)
def test_the_filter_widens_when_an_image_shrinks(level: str, resample: str) -> None:
    """B10: without that, a checkerboard aliases and a step edge lands on the wrong pixel."""
    rows, columns = np.indices((64, 64))
    board = np.repeat((((rows + columns) % 2) * 255).astype(np.uint8)[:, :, None], 3, axis=2)
    small = ours(board, 7, 7, resample)
    assert np.array_equal(small, pillow(board, 7, 7, resample))
    assert np.abs(small.astype(int) - 127.5).max() < 16
    edge = np.zeros((1, 100, 3), dtype=np.uint8)
    edge[:, 50:] = 255
    assert np.array_equal(ours(edge, 9, 1, resample), pillow(edge, 9, 1, resample))


def test_levels_agree_on_every_width_around_a_vector() -> None:
    """B18: a vector's tail is where levels part. Rows of 1 to 70 pixels, to 1 to 70, in all levels."""
    rng = random.Random(18)
    pixels = some_pixels(rng, 7, 70, 3)
    for in_width in range(1, 71):
        width = rng.randint(1, 70)
        source = np.ascontiguousarray(pixels[:, :in_width])
        expected = pillow(source, width, 5, "pil_lanczos")
        for name in _core.build_info()["simd_available"]:
            _core.set_simd_level(name)
            assert np.array_equal(ours(source, width, 5, "pil_lanczos"), expected), (name, in_width, width)
    _core.set_simd_level(None)


def test_strides_of_the_input_do_not_matter(level: str) -> None:
    pixels = some_pixels(random.Random(1), 60, 90, 4)
    for view in (pixels[::2, ::-1, :3], pixels[5:, 7:, 1:], pixels.transpose(1, 0, 2)[:, :, :3]):
        expected = pillow(np.ascontiguousarray(view), 41, 23, "pil_bicubic")
        assert np.array_equal(ours(view, 41, 23, "pil_bicubic"), expected)


def test_the_same_size_is_a_copy(level: str) -> None:
    pixels = some_pixels(random.Random(2), 33, 65, 3)
    assert np.array_equal(ours(pixels, 65, 33, "pil_lanczos"), pixels)


def test_bad_arguments_name_themselves() -> None:
    pixels = np.zeros((4, 4, 3), dtype=np.uint8)
    with pytest.raises(InvalidArgument, match=r"pil_sinc.*pil_lanczos"):
        common.resize_rgb(pixels, 4, 4, "pil_sinc")
    with pytest.raises(InvalidArgument, match="empty"):
        common.resize_rgb(pixels, 0, 4)
    with pytest.raises(InvalidArgument, match="2 channels"):
        common.resize(pixels[:, :, :2], 4, 4)
    with pytest.raises(InvalidArgument, match="3 channels"):
        common.resize_rgb(pixels[:, :, :1], 4, 4)
    with pytest.raises(LimitExceeded):
        common.resize_rgb(pixels, 1 << 20, 1 << 20)


@pytest.mark.parametrize("width_px, height_px", [(178_956_970, 1), (1, 178_956_970), (20_000_000, 2)])
@pytest.mark.parametrize("resample", ["pil_lanczos", "aten_u8"])
def test_a_side_whose_weights_would_fill_the_memory_is_refused(
    width_px: int, height_px: int, resample: str
) -> None:
    """Few rows of many pixels keep the limit of pixels; their weights would take some 25 gigabytes."""
    with pytest.raises(LimitExceeded, match="weights") as caught:
        common.resize_rgb(np.zeros((20, 30, 3), np.uint8), width_px, height_px, resample)
    assert caught.value.value > caught.value.limit == 1 << 26
