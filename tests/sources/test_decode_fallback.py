"""The formats that Pillow decodes for us: its pixels, its verdicts, our limits and our errors."""

from __future__ import annotations

import io
import struct
import subprocess
import threading
import warnings
import zlib

import numpy as np
import pytest
from images import encode, every_sample, picture, scene
from PIL import Image

from sglang_mm_ray.errors import DecodeError, LimitExceeded, UnsupportedFormat
from sglang_mm_ray.sources import decode_fallback
from sglang_mm_ray.sources.decode_fallback import NATIVE_FORMATS, decode_rgb, decode_with_pillow
from sglang_mm_ray.sources.icons import largest_png_px
from sglang_mm_ray.sources.policy import PILLOW_FORMATS, SourcePolicy
from sglang_mm_ray.sources.tiff_tiles import tile_sides

POLICY = SourcePolicy()
LISTED = [sample for sample in every_sample() if sample.format in PILLOW_FORMATS]


def reference(data: bytes) -> tuple[np.ndarray, str | None]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        image = Image.open(io.BytesIO(data))
        return np.array(image.convert("RGB")), image.format


def refusal(data: bytes, policy: SourcePolicy = POLICY) -> Exception:
    with pytest.raises((DecodeError, LimitExceeded)) as caught:
        decode_rgb(data, policy)
    return caught.value


@pytest.mark.parametrize("sample", LISTED, ids=str)
def test_pixels_are_pillows_and_the_decoder_is_named(sample) -> None:  # type: ignore[no-untyped-def]
    pixels, decoder = decode_rgb(sample.data, POLICY)
    expected, format_name = reference(sample.data)
    assert pixels.dtype == np.uint8 and pixels.shape == expected.shape
    assert np.array_equal(pixels, expected)
    assert decoder == f"pillow:{format_name}"


def test_the_samples_cover_the_common_formats() -> None:
    assert {"TIFF", "JPEG2000", "ICO", "PPM", "TGA", "PCX", "SGI", "DDS"} <= {item.format for item in LISTED}


def test_a_format_that_the_policy_does_not_list_is_refused_by_name() -> None:
    data = encode(picture("RGB"), "TIFF")
    error = refusal(data, SourcePolicy(pillow_formats=("PPM",)))
    assert isinstance(error, UnsupportedFormat) and error.format == "TIFF"
    assert isinstance(refusal(data, SourcePolicy(pillow_formats=())), UnsupportedFormat)


def test_no_native_format_ever_reaches_pillow() -> None:
    for name in NATIVE_FORMATS:
        error = UnsupportedFormat("no native decoder")
        error.format = name
        with pytest.raises(UnsupportedFormat):
            decode_with_pillow(encode(picture("L"), "PNG"), SourcePolicy(pillow_formats=(name,)), error)
    unknown = UnsupportedFormat("no native decoder")
    unknown.format = "unknown"
    with pytest.raises(DecodeError):
        decode_with_pillow(encode(picture("L"), "PNG"), SourcePolicy(pillow_formats=("PNG",)), unknown)


def test_no_listed_format_starts_a_program(monkeypatch: pytest.MonkeyPatch) -> None:
    def started(*args: object, **kwargs: object) -> None:
        raise AssertionError("a program was started")

    monkeypatch.setattr(subprocess, "Popen", started)
    postscript = encode(picture("RGB"), "EPS")
    error = refusal(postscript)
    assert isinstance(error, UnsupportedFormat) and error.format == "EPS"
    # Inside a listed container too.
    assert isinstance(refusal(b"\x1c\x01\x5a\x00\x01\x00" + postscript), DecodeError)


@pytest.mark.parametrize(
    "data", [b"", b"\xff", b"\x89PNG\r\n\x1a\n", b"<!DOCTYPE html><html>", b"<svg xmlns=''/>"]
)
def test_what_is_no_image_is_a_decode_error(data: bytes) -> None:
    assert isinstance(refusal(data), DecodeError)


def test_heic_is_refused_by_name() -> None:
    error = refusal(b"\0\0\0\x18ftypheic\0\0\0\0heicmif1" + bytes(100))
    assert isinstance(error, UnsupportedFormat) and error.format == "HEIC"


def test_a_cut_file_is_a_decode_error_of_its_format() -> None:
    for name in ("TIFF", "JPEG2000", "PPM", "TGA", "PCX", "SGI", "DDS"):
        data = encode(picture("RGB"), name)
        cut = data[: len(data) // 2]
        with pytest.raises(Exception):  # noqa: B017 - whatever Pillow raises
            reference(cut)
        error = refusal(cut)
        assert type(error) is DecodeError
        assert error.format in (name, "unknown")


def test_pixel_limit_holds_on_the_header(monkeypatch: pytest.MonkeyPatch) -> None:
    data = encode(picture("RGB", 20, 10), "TIFF")
    assert decode_rgb(data, SourcePolicy(max_pixels=200))[0].shape == (10, 20, 3)
    monkeypatch.setattr(Image.Image, "convert", None)
    error = refusal(data, SourcePolicy(max_pixels=199))
    assert isinstance(error, LimitExceeded) and (error.value, error.limit) == (200, 199)


def tiff(entries: list[tuple[int, int, int]], *, order: str = "<", big: bool = False) -> bytes:
    """A deflated TIFF of 10x10 pixels with more `(tag, type, value)` entries, all in their given order."""
    word, at = ("Q", 1000) if big else ("I", 1000)
    rows = zlib.compress(bytes(16 * 16))
    known = [(256, 4, 10), (257, 4, 10), (258, 3, 8), (259, 3, 8), (262, 3, 1), (277, 3, 1)]
    listed = [*known, *entries, (324, 4, at), (325, 4, len(rows))]
    start = struct.pack(order + ("HHHQ" if big else "HI"), *((43, 8, 0, 16) if big else (42, 8)))
    directory = struct.pack(order + ("Q" if big else "H"), len(listed))
    for tag, kind, value in listed:
        width = {1: "B", 3: "H", 4: "I", 16: "Q"}[kind]
        field = struct.pack(order + width, value).ljust(struct.calcsize(order + word), b"\0")
        directory += struct.pack(order + "HH" + word, tag, kind, 1) + field
    data = (b"II" if order == "<" else b"MM") + start + directory + bytes(8)
    return data.ljust(at, b"\0") + rows


# Pillow does not open a BigTIFF of the other byte order.
@pytest.mark.parametrize(("order", "big"), [("<", False), (">", False), ("<", True)])
@pytest.mark.parametrize("repeated", [False, True])
def test_a_tile_larger_than_its_picture_counts(order: str, big: bool, repeated: bool) -> None:
    # Of 1 kB libtiff takes a gigabyte for it; of repeated entries it believes the first, Pillow the last.
    usual = [(322, 3, 16), (323, 3, 16)]
    data = tiff(usual, order=order, big=big)
    assert np.array_equal(decode_rgb(data, SourcePolicy(max_pixels=100))[0], reference(data)[0])
    huge = [(322, 4, 40_000), (323, 4, 30_000)]
    error = refusal(tiff(huge + usual * repeated, order=order, big=big))
    assert isinstance(error, LimitExceeded) and (error.value, error.limit) == (1_200_000_000, 178_956_970)
    error = refusal(tiff(huge + usual * repeated, order=order, big=big), SourcePolicy(max_pixels=100))
    assert isinstance(error, LimitExceeded) and (error.what, error.limit) == ("tile size in pixels", 1 << 20)


def test_a_directory_that_is_cut_has_the_tiles_that_are_there() -> None:
    data = tiff([(322, 3, 16), (323, 3, 16)])
    assert tile_sides(data) == (16, 16)
    for length in range(8, 200):
        width, height = tile_sides(data[:length])
        assert {width, height} <= {0, 16}


def test_a_picture_larger_than_its_icon_counts_before_it_is_decoded(monkeypatch: pytest.MonkeyPatch) -> None:
    inner = encode(picture("RGB", 32, 32), "PNG")
    ico = struct.pack("<HHHBBBBHHII", 0, 1, 1, 16, 16, 0, 0, 1, 32, len(inner), 22) + inner
    icns = b"icns" + struct.pack(">I", 16 + len(inner)) + b"icp5" + struct.pack(">I", 8 + len(inner)) + inner
    for data in (ico, icns):
        assert largest_png_px(data) == 1024
        assert np.array_equal(decode_rgb(data, SourcePolicy(max_pixels=1024))[0], reference(data)[0])
        for length in range(len(data)):
            assert largest_png_px(data[:length]) in (0, 1024)
    monkeypatch.setattr(Image.Image, "load", None)
    error = refusal(ico, SourcePolicy(max_pixels=1023))
    assert isinstance(error, LimitExceeded) and (error.value, error.limit) == (1024, 1023)
    large = ico.replace(struct.pack(">II", 32, 32), struct.pack(">II", 13_377, 13_378))
    assert isinstance(refusal(large), LimitExceeded)


def test_a_bomb_is_a_limit_with_its_size() -> None:
    data = b"P6 20000 10000 255\n" + bytes(100)
    error = refusal(data)
    assert isinstance(error, LimitExceeded)
    assert (error.value, error.limit) == (200_000_000, 2 * Image.MAX_IMAGE_PIXELS)
    header = bytearray(encode(picture("RGB"), "TGA", compression=None))
    header[12:16] = struct.pack("<HH", 65535, 65535)
    assert isinstance(refusal(bytes(header)), LimitExceeded)


def test_frame_limit() -> None:
    frames = [picture("RGB", 8, 8, seed) for seed in range(4)]
    data = encode(frames[0], "TIFF", save_all=True, append_images=frames[1:])
    pixels, _ = decode_rgb(data, SourcePolicy(max_frames=4))
    assert np.array_equal(pixels, scene(8, 8, 0))
    error = refusal(data, SourcePolicy(max_frames=3))
    assert isinstance(error, LimitExceeded) and error.limit == 3 and "frames" in error.what


def test_warnings_do_not_leak_nor_do_filters_stay_changed() -> None:
    # Twice this many pixels would be refused; so many only make Pillow warn.
    data = b"P1 90000000 1\n" + b"0" * 10
    filters = list(warnings.filters)
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        refusal(data)
    assert seen == []
    assert warnings.filters == filters


def test_overlapping_threads_restore_the_filters() -> None:
    filters = list(warnings.filters)
    data = encode(picture("RGB"), "TIFF")
    inside = threading.Barrier(4)

    def work() -> None:
        inside.wait(10)
        for _ in range(20):
            decode_rgb(data, POLICY)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert warnings.filters == filters
    assert decode_fallback._QUIET._depth == 0


def test_messages_do_not_quote_the_file() -> None:
    data = b"P6 SECRET 10 255\n" + b"SECRET" * 100
    assert "SECRET" not in str(refusal(data))
    assert "SECRET" not in str(refusal(b"SECRET" * 100))
