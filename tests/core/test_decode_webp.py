"""WebP of the core against Pillow, which reads every file as an animation and shows its first frame."""

from __future__ import annotations

import io
import struct
from pathlib import Path

import numpy as np
import pytest
from decoding import assert_as_pillow, difference, encoded, mutations, truncations
from images import alpha, picture
from PIL import Image

from sglang_mm_ray import _core


def with_alpha(width_px: int = 21, height_px: int = 14) -> Image.Image:
    image = picture("RGB", width_px, height_px)
    image.putalpha(Image.fromarray(alpha(width_px, height_px)))
    return image


def webp(image: Image.Image, **options: object) -> bytes:
    return encoded(image, "WEBP", **options)


def animation(image: Image.Image, **options: object) -> bytes:
    return webp(image, save_all=True, append_images=[image.rotate(180)], **options)


def chunk(name: bytes, content: bytes) -> bytes:
    return name + struct.pack("<L", len(content)) + content + b"\0" * (len(content) % 2)


def container(*chunks: bytes) -> bytes:
    content = b"WEBP" + b"".join(chunks)
    return b"RIFF" + struct.pack("<L", len(content)) + content


def u24(value: int) -> bytes:
    return struct.pack("<L", value)[:3]


def test_the_shipped_photographs(photos: list[Path]) -> None:
    files = [(path.name, path.read_bytes()) for path in photos if path.suffix == ".webp"]
    assert assert_as_pillow(files)["load"] >= 2


@pytest.mark.parametrize("width, height", [(1, 1), (3, 5), (16, 16), (17, 33), (70, 45)])
def test_encodings_sizes_and_alpha(width: int, height: int) -> None:
    options: list[dict[str, object]] = [
        {"quality": 0},
        {"quality": 80, "method": 6},
        {"quality": 100, "exif": b"Exif\0\0junk", "icc_profile": b"abc", "xmp": b"<x/>"},
        {"lossless": True},
        {"lossless": True, "exact": True, "quality": 100},
        {"quality": 70, "alpha_quality": 20},
    ]
    files = [
        (f"{kind} {image.mode} {save.__name__}", save(image, **kind))
        for image in (picture("RGB", width, height), with_alpha(width, height))
        for kind in options
        for save in (webp, animation)
    ]
    assert assert_as_pillow(files) == {"load": len(files)}


def test_lossy_chroma_is_upsampled_smoothly() -> None:
    pixels = np.zeros((16, 16, 3), np.uint8)
    pixels[:, :5, 0] = 255
    pixels[:, 5:, 2] = 255
    data = webp(Image.fromarray(pixels), quality=90)
    assert difference(data) is None
    row = _core.common.image_decode_rgb(data)[2].reshape(16, 16, 3)[0].tolist()
    assert row[4] not in ([255, 0, 0], row[3]) and row[15] != row[4]


def test_hidden_colours_stay_in_a_static_file() -> None:
    hidden = Image.new("RGBA", (2, 2), (255, 0, 0, 0))
    static = webp(hidden, lossless=True, exact=True)
    moving = webp(
        hidden, save_all=True, append_images=[Image.new("RGBA", (2, 2), (0, 255, 0, 255))], lossless=True
    )
    assert assert_as_pillow([("static", static), ("animation", moving)]) == {"load": 2}
    assert _core.common.image_decode_rgb(static)[2][:3].tolist() == [255, 0, 0]
    assert _core.common.image_decode_rgb(moving)[2][:3].tolist() == [0, 0, 0]


def frame_file(
    canvas: tuple[int, int], offset: tuple[int, int], size: tuple[int, int], claimed: tuple[int, int]
) -> bytes:
    """An animation of one frame of `size`, said to be `claimed`, at `offset` (even) of `canvas`."""
    bitstream = webp(with_alpha(*size), lossless=True)[12:]
    head = chunk(b"VP8X", b"\x12\0\0\0" + u24(canvas[0] - 1) + u24(canvas[1] - 1))
    place = u24(offset[0] // 2) + u24(offset[1] // 2) + u24(claimed[0] - 1) + u24(claimed[1] - 1)
    frame = chunk(b"ANMF", place + u24(100) + b"\0" + bitstream)
    return container(head, chunk(b"ANIM", b"\x80\x40\x20\xff\0\0"), frame)


def test_a_first_frame_smaller_than_the_canvas_stands_on_black() -> None:
    inside = frame_file((30, 20), (4, 6), (9, 7), (9, 7))
    files = [("inside", inside), ("whole", frame_file((9, 7), (0, 0), (9, 7), (9, 7)))]
    assert assert_as_pillow(files) == {"load": 2}
    pixels = _core.common.image_decode_rgb(inside)[2].reshape(20, 30, 3)
    assert not pixels[:6].any() and not pixels[:, :4].any() and pixels[6:13, 4:13].any()
    odd = [
        ("outside", frame_file((10, 10), (4, 6), (9, 7), (9, 7))),
        ("larger than said", frame_file((9, 7), (0, 0), (12, 12), (9, 7))),
        ("larger than said, with room", frame_file((30, 20), (0, 0), (9, 7), (8, 7))),
        ("smaller than said", frame_file((30, 20), (0, 0), (9, 7), (10, 8))),
    ]
    assert assert_as_pillow(odd)["refused"] >= 2


def test_still_pictures_in_odd_containers() -> None:
    image = with_alpha()
    lossless, lossy = webp(image, lossless=True)[12:], webp(picture("RGB", 21, 14))[12:]
    head = chunk(b"VP8X", b"\x10\0\0\0" + u24(20) + u24(13))
    files = [
        ("extended", container(head, lossless)),
        ("extended lossy", container(head, lossy)),
        ("unknown chunks", container(head, chunk(b"ABCD", b"xyz"), lossless, chunk(b"EXIF", b"j"))),
        ("two pictures", container(head, lossless, lossy)),
        ("no picture", container(head)),
        ("other canvas", container(chunk(b"VP8X", b"\x10\0\0\0" + u24(25) + u24(13)), lossless)),
        ("flagged as moving", container(chunk(b"VP8X", b"\x12\0\0\0" + u24(20) + u24(13)), lossless)),
        ("trailing junk", container(lossless) + b"junk" * 5),
        ("riff too long", b"RIFF" + struct.pack("<L", 9999) + container(lossless)[8:]),
        ("riff too short", b"RIFF" + struct.pack("<L", 30) + container(lossless)[8:]),
        ("odd riff", b"RIFF\xff\xff\xff\xff" + container(lossless)[8:]),
    ]
    verdicts = assert_as_pillow(files)
    assert verdicts["load"] >= 4 and verdicts["refused"] >= 2


@pytest.mark.parametrize(
    "data",
    [
        webp(picture("RGB", 21, 14)),
        webp(with_alpha(), quality=60),
        webp(with_alpha(), lossless=True),
        animation(with_alpha(11, 9)),
    ],
    ids=["lossy", "lossy alpha", "lossless", "animation"],
)
def test_every_length(data: bytes) -> None:
    assert assert_as_pillow(truncations("", data))["refused"] > 100


@pytest.mark.parametrize("seed", [0, 1, 3])
def test_mutated_files(seed: int) -> None:
    bases = [
        ("lossy", webp(picture("RGB", 33, 31))),
        ("alpha", webp(with_alpha(), quality=50)),
        ("lossless", webp(with_alpha(), lossless=True)),
        ("animation", animation(with_alpha())),
        ("lossless animation", animation(with_alpha(), lossless=True)),
        ("offset frame", frame_file((30, 20), (4, 6), (9, 7), (9, 7))),
        ("metadata", webp(picture("RGB", 9, 9), exif=b"Exif\0\0junk", icc_profile=b"abc")),
    ]
    verdicts = assert_as_pillow(file for name, data in bases for file in mutations(name, data, 250, seed))
    assert min(verdicts["load"], verdicts["refused"]) > 200


def test_the_header_is_read_without_pixels_and_limits_hold_before_memory() -> None:
    data = webp(picture("RGB", 64, 48))
    assert _core.common.probe(data) == ("WEBP", 64, 48)
    assert _core.common.decode_rgb(data, _core.Limits(max_pixels=3072))[3] == "webp"
    with pytest.raises(_core.LimitExceeded, match="3072, over the limit of 3071"):
        _core.common.decode_rgb(data, _core.Limits(max_pixels=3071))
    # The canvas, not the picture, is what takes the memory.
    wide = frame_file((16_000, 16_000), (0, 0), (9, 7), (9, 7))
    with pytest.raises(Image.DecompressionBombError):
        Image.open(io.BytesIO(wide))
    with pytest.raises(_core.LimitExceeded, match="256000000, over the limit of 178956970"):
        _core.common.image_decode_rgb(wide)
