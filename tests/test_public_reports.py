"""Faults that users reported in public about image input, each held to what is right here.

Every input goes the way of a caller's: classified, resolved under a policy, decoded.
"""

from __future__ import annotations

import base64
import binascii
import io
import logging
import os
import struct
import time
import traceback
import zlib
from pathlib import Path

import numpy as np
import pytest
from images import encode, picture, scene
from numpy.typing import NDArray
from PIL import Image, features

from sglang_mm_ray import _core
from sglang_mm_ray.config import PoolConfig
from sglang_mm_ray.errors import (
    DecodeError,
    InputError,
    InvalidArgument,
    LimitExceeded,
    PreprocessError,
    UnsupportedFormat,
    describe,
)
from sglang_mm_ray.messages import BatchRequest, Failure
from sglang_mm_ray.sources.decode_fallback import decode_rgb
from sglang_mm_ray.sources.policy import SourcePolicy
from sglang_mm_ray.sources.source import classify, resolve
from sglang_mm_ray.worker.engine import Engine

POLICY = SourcePolicy()


def pixels_of(source: object, policy: SourcePolicy = POLICY) -> NDArray[np.uint8]:
    resolved = resolve(classify(source), policy)
    if resolved.pixels is not None:
        return resolved.pixels
    return decode_rgb(resolved.data, policy)[0]


def by_pillow(data: bytes) -> NDArray[np.uint8]:
    return np.asarray(Image.open(io.BytesIO(data)).convert("RGB"))


def chunk(kind: bytes, payload: bytes) -> bytes:
    checksum = binascii.crc32(kind + payload)
    return struct.pack(">I", len(payload)) + kind + payload + struct.pack(">I", checksum)


def png_with(extra: bytes, width_px: int = 1, height_px: int = 1) -> bytes:
    rows = b"".join(b"\0" + bytes([10, 20, 30] * width_px) for _ in range(height_px))
    header = struct.pack(">IIBBBBB", width_px, height_px, 8, 2, 0, 0, 0)
    parts = [chunk(b"IHDR", header), extra, chunk(b"IDAT", zlib.compress(rows)), chunk(b"IEND", b"")]
    return b"\x89PNG\r\n\x1a\n" + b"".join(parts)


JPEG = encode(picture("RGB", 8, 8), "JPEG")
JPEG_TEXT = base64.b64encode(JPEG).decode()


def test_corrupt_exif_fails_no_request() -> None:
    # vllm#56527
    app1 = b"\xff\xe1" + struct.pack(">H", 2 + 6 + 12) + b"Exif\0\0" + b"junk" + b"junkjunk"
    for data in (JPEG[:2] + app1 + JPEG[2:], png_with(chunk(b"eXIf", b"junkjunk"))):
        assert np.array_equal(pixels_of(data), by_pillow(data))
        assert np.array_equal(pixels_of(Image.open(io.BytesIO(data)).copy()), by_pillow(data))


@pytest.mark.parametrize(
    "header",
    [
        "data:image/jpeg;charset=utf-8;base64",
        "data:image/jpeg;BASE64",
        "DATA:image/jpeg;base64",
        "data:image/jpeg",
    ],
)
def test_data_urls_with_parameters(header: str) -> None:
    # vllm#48973, Qwen3-VL#202
    assert np.array_equal(pixels_of(f"{header},{JPEG_TEXT}"), by_pillow(JPEG))


def test_data_urls_without_a_comma_or_a_payload() -> None:
    with pytest.raises(InvalidArgument, match="comma"):
        pixels_of("data:image/jpeg;base64" + JPEG_TEXT)
    with pytest.raises(DecodeError):
        pixels_of("data:image/jpeg;base64,")


@pytest.mark.parametrize("form", ["/    wAB", "_---+wAB", "%2F++++wAB"])
def test_damaged_base64_never_yields_other_bytes(form: str) -> None:
    # worker-comfyui#126, openedai-vision#4
    with pytest.raises(InputError):
        resolve(classify(form), POLICY)
    with pytest.raises(InvalidArgument):
        resolve(classify("data:image/png;base64," + form.replace("%2F", "%252F")), POLICY)


def test_line_folds_and_missing_padding_are_the_same_file() -> None:
    folded = "\r\n".join(JPEG_TEXT[at : at + 76] for at in range(0, len(JPEG_TEXT), 76)) + "\n"
    percent = JPEG_TEXT.replace("+", "%2B").replace("/", "%2F").replace("=", "%3D")
    forms = [JPEG_TEXT, folded, JPEG_TEXT.rstrip("="), "data:;base64," + percent]
    assert {resolve(classify(form), POLICY).digest for form in forms} == {classify(JPEG).key}


def test_the_claimed_type_is_ignored(tmp_path: Path) -> None:
    # langgraph-agentic-scaffold#16
    png = encode(picture("RGB", 8, 8), "PNG")
    (tmp_path / "really_a_png.jpg").write_bytes(png)
    policy = SourcePolicy(allowed_roots=(str(tmp_path),))
    assert np.array_equal(pixels_of("data:image/png;base64," + JPEG_TEXT), by_pillow(JPEG))
    assert np.array_equal(pixels_of(tmp_path / "really_a_png.jpg", policy), by_pillow(png))
    for text in (b"<!DOCTYPE html><html></html>", b'<svg xmlns="http://www.w3.org/2000/svg"/>'):
        with pytest.raises(DecodeError, match="not a supported image"):
            pixels_of("data:image/png;base64," + base64.b64encode(text).decode())


@pytest.mark.parametrize("data", [b"", b"\xff", b"\x89PNG\r\n\x1a\n", b"<html>"])
def test_what_is_no_image_is_the_callers_error(data: bytes) -> None:
    # vllm#47163, vllm#21254
    with pytest.raises(DecodeError):
        pixels_of(data)


@pytest.mark.parametrize("size", [(1, 1), (1, 200), (1, 201), (3, 1), (1, 3), (3, 3)])
def test_axes_are_never_guessed_from_the_shape(size: tuple[int, int]) -> None:
    # transformers#31950
    width, height = size
    data = png_with(b"", width, height)
    assert pixels_of(data).shape == pixels_of(by_pillow(data)).shape == (height, width, 3)
    (result,) = _core.processor("inkling").preprocess_batch([data])
    assert result.grid == (1, -(-result.height // 40), result.width // 40 + 1)


@pytest.mark.parametrize("signature", [b"\x89PNG\r\n\x1a\n", b"\xff\xd8", b"\xff\xd8\xff\xe0", b"II*\0"])
def test_megabytes_of_noise_are_refused_in_linear_time(signature: bytes) -> None:
    # sglang#24152: such a payload never came to an end.
    noise = np.random.default_rng(0).integers(0, 256, 8_000_000, np.uint8).tobytes()

    def cpu_s(size_bytes: int) -> float:
        text = base64.b64encode(signature + noise[:size_bytes]).decode()
        start_s = time.process_time()
        with pytest.raises(InputError):
            pixels_of(text)
        return time.process_time() - start_s

    # Of eight times as much; were each byte looked at again for each, it would be sixty-four.
    small_s, large_s = (min(cpu_s(size_bytes) for _ in range(3)) for size_bytes in (1_000_000, 8_000_000))
    assert large_s < 24 * small_s
    assert np.array_equal(pixels_of(JPEG), by_pillow(JPEG))


@pytest.mark.parametrize("name", ["AVIF", "JPEG2000"])
def test_newer_formats_are_read_or_refused_by_name(name: str) -> None:
    # open-webui#9600, llama.cpp#24103
    if not features.check("avif" if name == "AVIF" else "jpg_2000"):
        pytest.skip(f"this Pillow is built without {name}")
    data = encode(Image.new("RGB", (4, 4), (10, 20, 30)), name)
    assert np.array_equal(pixels_of(data), by_pillow(data))
    with pytest.raises(UnsupportedFormat, match=name):
        pixels_of(data, SourcePolicy(pillow_formats=()))
    with pytest.raises(UnsupportedFormat, match="HEIC"):
        pixels_of(b"\0\0\0\x18ftypheic\0\0\0\0heicmif1")


def test_many_small_images_pass_in_order_and_the_cap_is_stated() -> None:
    # sglang#6622
    contents = [encode(Image.new("RGB", (8, 8), (index, 0, 0)), "PNG") for index in range(64)]
    decoded = [int(pixels_of(base64.b64encode(data).decode())[0, 0, 0]) for data in contents]
    assert decoded == list(range(64))
    largest = max(map(len, contents))
    policy = SourcePolicy(max_input_bytes=largest)
    assert pixels_of(contents[0] + bytes(largest - len(contents[0])), policy).shape == (8, 8, 3)
    with pytest.raises(LimitExceeded, match=f"{largest + 1}, over the limit of {largest}"):
        pixels_of(bytes(largest + 1), policy)


def test_identity_comes_from_the_content_alone() -> None:
    # vllm#55439, vllm#22825: an id in the metadata was taken for the content's.
    exif = Image.Exif()
    exif[0xA420] = "2f1f4a9e-0000-4000-8000-000000000001"
    pair = [encode(picture("RGB", 8, 8, seed), "JPEG", exif=exif) for seed in (1, 2)]
    assert len({resolve(classify(data), POLICY).digest for data in pair}) == 2
    first, second = _core.processor("inkling").preprocess_batch(pair)
    assert first.digest != second.digest and first.content_hash != second.content_hash


def test_a_long_text_is_never_looked_up_on_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    # sglang-omni#99
    for name in ("stat", "open", "lstat"):
        monkeypatch.setattr(os, name, None)
    text = "data:image/png;base64," + "A" * 200_000
    assert classify(text).kind == "data_url" and classify("A" * 200_000).kind == "base64"
    _core.common.data_hash(text.encode())


def test_one_file_through_any_entry_is_one_picture(tmp_path: Path) -> None:
    # vllm#47566
    exif = Image.Exif()
    exif[0x0112] = 6
    policy = SourcePolicy(allowed_roots=(str(tmp_path),))
    for data in (encode(picture("RGB", 64, 48), "JPEG", exif=exif), encode(picture("RGBA", 64, 48), "PNG")):
        (tmp_path / "file").write_bytes(data)
        text = base64.b64encode(data).decode()
        for entry in (data, text, "data:;base64," + text, tmp_path / "file", (tmp_path / "file").as_uri()):
            assert np.array_equal(pixels_of(entry, policy), by_pillow(data))
        assert np.array_equal(pixels_of(Image.open(io.BytesIO(data))), by_pillow(data))


def test_raw_pixels_of_other_shapes_are_other_contents() -> None:
    # dynamo#8340, FastDeploy#7196
    octets = scene(150, 30).tobytes()
    keys = {
        resolve(classify(np.frombuffer(octets, np.uint8).reshape(shape)), POLICY).digest
        for shape in ((30, 150, 3), (150, 30, 3))
    }
    assert len(keys) == 2


@pytest.mark.parametrize("mode", ["1", "L", "LA", "P", "RGB", "RGBA", "CMYK", "I", "I;16", "F"])
def test_every_mode_of_tiff_is_three_channels_as_pillow_has_them(mode: str) -> None:
    # sglang#26751
    data = encode(picture(mode, 8, 8), "TIFF")
    assert pixels_of(data).shape == (8, 8, 3)
    assert np.array_equal(pixels_of(data), by_pillow(data))


def test_inks_are_inverted_in_jpeg_only() -> None:
    # vision#3012: both were saved from the same inks.
    inks = Image.new("CMYK", (16, 16), (10, 200, 30, 40))
    for data in (encode(inks, "TIFF"), encode(inks, "JPEG", quality=100)):
        assert np.unique(pixels_of(data).reshape(-1, 3), axis=0).tolist() == [[207, 46, 190]]


@pytest.mark.parametrize(("format_name", "turned"), [("TIFF", True), ("JPEG2000", False)])
def test_an_orientation_turns_what_pillow_turns(format_name: str, turned: bool) -> None:
    # sglang#33464: of all formats Pillow heeds the tag in TIFF alone.
    if format_name == "JPEG2000" and not features.check("jpg_2000"):
        pytest.skip("this Pillow is built without JPEG2000")
    exif = Image.Exif()
    exif[0x0112] = 6
    data = encode(picture("RGB", 64, 48), format_name, exif=exif)
    assert pixels_of(data).shape == ((64, 48, 3) if turned else (48, 64, 3))
    assert np.array_equal(pixels_of(data), by_pillow(data))


def test_no_log_and_no_traceback_shows_what_was_sent(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    # sglang#28587: a payload of a megabyte stood in the log.
    caplog.set_level(logging.DEBUG)
    policy = SourcePolicy(allowed_roots=(str(tmp_path),))
    secret = "SECRETpayload"
    sources = [
        secret * 80_000 + "!",
        "data:image/png;base64," + secret * 80_000 + "!",
        f"data:image/{secret};base64,AAAA{secret}",
        f"data:image/png,%00{secret}",
        (secret * 1000).encode(),
        f"P6 {secret} 10 255\n{secret * 100}".encode(),
        f"II*\0{secret * 100}".encode(),
        f"http://user:{secret}@10.0.0.1/a.png?sig={secret}#{secret}",
        f"http://10.0.0.1/a.png?sig={secret}",
        str(tmp_path / f"{secret * 400}"),
        str(tmp_path / secret),
    ]
    engine = Engine(PoolConfig(policy=policy), 1)
    for index, source in enumerate(sources):
        with pytest.raises(PreprocessError) as caught:
            pixels_of(source, policy)
        reply, _ = engine.run(BatchRequest(str(index), (classify(source),), 0, 0.0))
        (failure,) = reply.outcomes
        assert isinstance(failure, Failure)
        for error in (caught.value, failure.error):
            shown = "".join(traceback.format_exception(error)) + f"{error!r} {describe(error)} {vars(error)}"
            assert secret not in shown and len(str(error)) < 300, index
    engine.close()
    assert secret not in caplog.text
