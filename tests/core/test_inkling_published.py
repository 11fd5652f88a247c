"""`_core.inkling`: the functions that SGLang 0.5.23 publishes, with its arguments, results and errors."""

from __future__ import annotations

import inspect
import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import reference
from images import encode, scene
from PIL import Image

from sglang_mm_ray import _core
from sglang_mm_ray._core import common, inkling

# As `inspect` reports them for SGLang 0.5.23's compiled module.
PUBLISHED = {
    "preprocess_images": "(datas, patch_size, rescale_frac=None, rescale_cap=None)",
    "decode_patchify": "(data, patch_size, rescale_frac=None, rescale_cap=None)",
    "decode_patchify_batch": "(datas, patch_size, rescale_frac=None, rescale_cap=None)",
    "patchify_rgb": "(arr, patch_size)",
    "rescale_patchify_hash": "(arr, raw_bytes, patch_size, rescale_frac=None, rescale_cap=None)",
}
PUBLISHED_COMMON = {
    "base64_decode": "(encoded)",
    "content_hash": "(data)",
    "data_hash": "(data)",
    "fetch_bytes": "(source)",
    "image_decode_rgb": "(data)",
    "resize_rgb": "(arr, out_w, out_h, resample='pil_lanczos')",
    "scaled_dims": "(w, h, rescale_frac=None, rescale_cap=None)",
}
RESCALES = [
    (None, None),
    (2.0, 2048),
    (2.0, 130),
    (0.5, None),
    (1.0, None),
    (0.37, None),
    (3, 200),
]


def jpeg(width_px: int = 90, height_px: int = 50, seed: int = 0) -> bytes:
    return encode(Image.fromarray(scene(width_px, height_px, seed)), "JPEG", quality=90)


@pytest.mark.parametrize("module, published", [(inkling, PUBLISHED), (common, PUBLISHED_COMMON)])
def test_signatures_are_the_published_ones(module: Any, published: dict[str, str]) -> None:
    for name, signature in published.items():
        assert str(inspect.signature(getattr(module, name))) == signature, name


def test_preprocess_images_equals_the_reference_on_every_photo(photos: list[Path]) -> None:
    datas = [photo.read_bytes() for photo in photos]
    for (h, w, bits, content_hash), data in zip(
        inkling.preprocess_images(datas, 40, 2.0, 2048), datas, strict=True
    ):
        want_h, want_w, want_bits, want_hash = reference.inkling(data)
        assert (h, w, content_hash) == (want_h, want_w, want_hash)
        np.testing.assert_array_equal(bits, want_bits.reshape(-1))


@pytest.mark.parametrize("frac, cap", RESCALES)
@pytest.mark.parametrize("patch_size", [1, 7, 14, 40, 64, 200])
def test_all_functions_agree_with_the_reference(patch_size: int, frac: float | None, cap: int | None) -> None:
    data = jpeg()
    h, w, bits, content_hash = reference.inkling(data, patch_size, frac, cap)
    flat = bits.reshape(-1)
    [image] = inkling.preprocess_images([data], patch_size, frac, cap)
    single = inkling.decode_patchify(data, patch_size, frac, cap)
    [batched] = inkling.decode_patchify_batch([data], patch_size, frac, cap)
    pixels = reference.decode_rgb(data)
    late = inkling.rescale_patchify_hash(pixels, data, patch_size, frac, cap)
    for result in (image, single, batched, late):
        assert result[:2] == (h, w)
        np.testing.assert_array_equal(result[2], flat)
    assert image[3] == late[3] == content_hash
    resized = reference.inkling_pixels(data, frac, cap)
    np.testing.assert_array_equal(inkling.patchify_rgb(resized, patch_size), flat)


def test_results_have_the_published_types() -> None:
    data = jpeg()
    results = inkling.preprocess_images([data, data], 40, 2.0, 2048)
    assert type(results) is list and inkling.preprocess_images([], 40) == []
    for result in results:
        assert type(result) is tuple and [type(part) for part in result] == [int, int, np.ndarray, int]
        bits = result[2]
        assert bits.dtype == np.uint16 and bits.ndim == 1 and bits.flags.writeable and bits.flags.c_contiguous
    assert type(inkling.decode_patchify(data, 40)) is tuple
    assert [len(result) for result in inkling.decode_patchify_batch([data], 40)] == [3]
    assert len(inkling.rescale_patchify_hash(scene(4, 4), data, 40)) == 4


def test_keywords_and_missing_rescale_are_accepted() -> None:
    data, pixels = jpeg(), scene(90, 50)
    for result in [
        inkling.preprocess_images(datas=[data], patch_size=40, rescale_frac=None, rescale_cap=None)[0],
        inkling.decode_patchify(data=data, patch_size=40),
        inkling.decode_patchify_batch(datas=(data,), patch_size=40)[0],
        inkling.rescale_patchify_hash(arr=pixels, raw_bytes=data, patch_size=40),
    ]:
        assert result[:2] == (50, 90)
    assert inkling.patchify_rgb(arr=pixels, patch_size=40).shape == (2 * 3 * 40 * 40 * 3,)


@pytest.mark.parametrize(
    "wrap",
    [
        bytes,
        bytearray,
        memoryview,
        lambda data: memoryview(bytearray(data)),
        lambda data: np.frombuffer(data, np.uint8),
        lambda data: np.frombuffer(data, np.int8),
        lambda data: memoryview(b"\0" + data + b"\0")[1:-1],
        lambda data: memoryview(data[::-1])[::-1],
        lambda data: np.repeat(np.frombuffer(data, np.uint8), 3)[::3],
        lambda data: np.array(list(data)),
        lambda data: np.array(list(data), object),
        list,
        tuple,
    ],
    ids=[
        "bytes",
        "bytearray",
        "memoryview",
        "writable-view",
        "numpy",
        "numpy-int8",
        "slice",
        "reversed",
        "numpy-strided",
        "numpy-int64",
        "numpy-object",
        "list",
        "tuple",
    ],
)
def test_encoded_data_comes_in_any_form_that_the_published_functions_take(wrap: Any) -> None:
    data = jpeg()
    want = inkling.decode_patchify(data, 40)[2]
    pixels = reference.decode_rgb(data)
    for bits in (
        inkling.decode_patchify(wrap(data), 40)[2],
        inkling.preprocess_images([wrap(data)], 40)[0][2],
        inkling.decode_patchify_batch((wrap(data),), 40)[0][2],
        inkling.rescale_patchify_hash(pixels, wrap(data), 40)[2],
    ):
        np.testing.assert_array_equal(bits, want)
    assert common.data_hash(wrap(data)) == reference.data_hash(data)
    assert common.image_decode_rgb(wrap(data))[:2] == (50, 90)


def strided_forms(pixels: np.ndarray) -> dict[str, np.ndarray]:
    """Arrays of other layouts in memory whose values are `pixels`."""
    wide = np.repeat(np.repeat(pixels, 3, 0), 2, 1)
    read_only = pixels.copy()
    read_only.flags.writeable = False
    return {
        "fortran": np.asfortranarray(pixels),
        "every-other": wide[::3, ::2],
        "reversed": pixels[::-1, ::-1, ::-1].copy()[::-1, ::-1, ::-1],
        "planar": pixels.transpose(2, 0, 1).copy().transpose(1, 2, 0),
        "rgba-view": np.dstack([pixels, pixels[..., :1]])[..., :3],
        "read-only": read_only,
    }


def test_pixels_come_in_any_strides() -> None:
    pixels = scene(61, 43)
    want = reference.bf16_bits(reference.inkling_patches_f32(pixels, 14)).reshape(-1)
    for name, form in strided_forms(pixels).items():
        np.testing.assert_array_equal(inkling.patchify_rgb(form, 14), want, err_msg=name)
        np.testing.assert_array_equal(inkling.rescale_patchify_hash(form, b"", 14)[2], want, err_msg=name)
        resized = common.resize_rgb(form, 50, 40)
        np.testing.assert_array_equal(resized, reference.pil_resize(pixels, 50, 40).reshape(-1), err_msg=name)
    grey = np.broadcast_to(pixels[:, :, :1], pixels.shape)
    np.testing.assert_array_equal(
        inkling.patchify_rgb(grey, 14), inkling.patchify_rgb(np.ascontiguousarray(grey), 14)
    )


def test_empty_arrays_are_all_padding_or_nothing() -> None:
    assert inkling.patchify_rgb(np.zeros((0, 4, 3), np.uint8), 40).shape == (0,)
    empty = np.zeros((4, 0, 3), np.uint8)
    want = reference.bf16_bits(reference.inkling_patches_f32(empty, 40)).reshape(-1)
    np.testing.assert_array_equal(inkling.patchify_rgb(empty, 40), want)


@pytest.mark.parametrize(
    "frac, cap",
    [(0.0, None), (-1.0, None), (float("nan"), None), (2.0, 0), (2.0, -5), (1.0, 100), (None, 100)],
)
def test_rescales_without_sense_give_what_is_published(frac: float | None, cap: int | None) -> None:
    """The published functions take any pair: a factor that is not positive shrinks to one pixel."""
    h, w, bits = inkling.decode_patchify(jpeg(), 40, frac, cap)
    unchanged = frac is None or frac >= 1.0
    assert (h, w) == ((50, 90) if unchanged else (1, 1)) and bits.size == (72 if unchanged else 12) * 400


@pytest.mark.parametrize(
    "call, error",
    [
        (lambda data: inkling.preprocess_images(iter([data]), 40), TypeError),
        (lambda data: inkling.preprocess_images([data, "text"], 40), TypeError),
        (lambda data: inkling.preprocess_images(data, 40), TypeError),
        (lambda data: inkling.decode_patchify("text", 40), TypeError),
        (lambda data: inkling.decode_patchify(data, 40.0), TypeError),
        (lambda data: inkling.decode_patchify(data, 40, 2.0, 2048.0), TypeError),
        (lambda data: inkling.decode_patchify(data, -1), OverflowError),
        (lambda data: inkling.decode_patchify(data, 40, 2.0, 1 << 70), OverflowError),
        (lambda data: inkling.decode_patchify(data, 0), _core.InvalidArgument),
        (lambda data: inkling.decode_patchify(data, 1 << 40), _core.InvalidArgument),
        (lambda data: inkling.decode_patchify(data, 40, float("inf")), _core.LimitExceeded),
        (lambda data: inkling.decode_patchify(data, 40, 1e6), _core.LimitExceeded),
        (lambda data: inkling.preprocess_images([data, b"no image"], 40), _core.DecodeError),
        (lambda data: inkling.decode_patchify_batch([b"", data], 40), _core.DecodeError),
        (lambda data: inkling.decode_patchify(data[: len(data) // 2], 40), _core.DecodeError),
        (lambda data: inkling.patchify_rgb(np.zeros((4, 4), np.uint8), 40), TypeError),
        (lambda data: inkling.patchify_rgb(np.zeros((4, 4, 3), np.float32), 40), TypeError),
        (lambda data: inkling.patchify_rgb([[[1, 2, 3]]], 40), TypeError),
        (lambda data: inkling.patchify_rgb(np.zeros((4, 4, 4), np.uint8), 40), _core.InvalidArgument),
        (lambda data: inkling.patchify_rgb(np.zeros((4, 4, 3), np.uint8), 0), _core.InvalidArgument),
        (lambda data: inkling.patchify_rgb(np.zeros((1, 900_000, 3), np.uint8), 4096), _core.LimitExceeded),
        (lambda data: inkling.rescale_patchify_hash(np.zeros((0, 4, 3), np.uint8), b"", 40), ValueError),
        (lambda data: inkling.decode_patchify(memoryview(data)[::2], 40), _core.DecodeError),
        (lambda data: inkling.decode_patchify([256], 40), OverflowError),
        (lambda data: inkling.decode_patchify([b"x"], 40), TypeError),
        (lambda data: inkling.decode_patchify(np.array(data, object), 40), TypeError),
        (lambda data: inkling.decode_patchify(np.frombuffer(bytes(8)), 40), TypeError),
        (lambda data: inkling.decode_patchify_batch(np.array([1, 2]), 40), TypeError),
        (lambda data: common.data_hash(np.uint8(1)), TypeError),
    ],
)
def test_bad_calls_raise(call: Any, error: type[Exception]) -> None:
    with pytest.raises(error) as raised:
        call(jpeg())
    if issubclass(error, _core.InputError):
        assert isinstance(raised.value, ValueError), "callers of the published API catch ValueError"


@pytest.mark.parametrize("frac", [1e19, 1e300, float("inf")])
def test_sizes_without_end_stop_where_the_published_ones_do(frac: float) -> None:
    most = 2**63 - 1
    assert common.scaled_dims(30, 30, frac) == (most, most)
    assert common.scaled_dims(30, 30, frac, most) == (most, most)
    assert common.scaled_dims(30, 20, frac, 100) == (100, 67)


def test_an_array_whose_copy_no_memory_could_hold_is_refused() -> None:
    endless = np.broadcast_to(np.zeros((1, 1, 3), np.uint8), (1 << 23, 1 << 23, 3))
    for call in (
        lambda: inkling.patchify_rgb(endless, 40),
        lambda: common.resize_rgb(endless, 2, 2),
        lambda: _core.transforms.pad_to_grid(endless, 40),
        lambda: _core.processor("inkling").preprocess_rgb(endless),
    ):
        with pytest.raises(_core.InvalidArgument, match="memory"):
            call()


def test_a_wrong_array_is_named_in_the_error() -> None:
    with pytest.raises(TypeError, match=r"dtype uint8, not a float32 array of 2 dimensions"):
        inkling.patchify_rgb(np.zeros((4, 4), np.float32), 40)


def test_a_grey_and_a_transparent_image_become_rgb() -> None:
    grey = io.BytesIO()
    Image.fromarray(scene(30, 20)).convert("L").save(grey, "JPEG")
    want = reference.inkling(grey.getvalue(), 14, None, None)
    got = inkling.preprocess_images([grey.getvalue()], 14)[0]
    assert got[:2] == want[:2] and got[3] == want[3]
    np.testing.assert_array_equal(got[2], want[2].reshape(-1))


def test_content_hash_is_blake3_and_data_hash_is_sha256() -> None:
    # First 8 bytes of the published test vectors of BLAKE3 (empty input) and SHA-256 ("abc").
    assert common.content_hash(b"") == 0xAF1349B9F5F9A1A6
    assert common.content_hash(b"abc") == 0x6437B3AC38465133
    assert common.data_hash(b"abc") == 0xBA7816BF8F01CFEA
    assert common.content_digest(b"abc").hex().startswith("ba7816bf8f01cfea")


def test_fetch_bytes_reads_inline_data_and_refuses_all_else(tmp_path: Path) -> None:
    assert common.fetch_bytes("data:image/png;base64,aGVsbG8=") == b"hello"
    assert common.fetch_bytes("aGVsbG8=") == b"hello"
    secret = tmp_path / "secret"
    secret.write_bytes(b"secret")
    for source in (str(secret), secret.as_uri(), "http://127.0.0.1/x", "https://host/x", "data:,x"):
        with pytest.raises(_core.InvalidArgument) as raised:
            common.fetch_bytes(source)
        assert "secret" not in str(raised.value) and "host" not in str(raised.value)
