"""JPEG of the core against Pillow: encodings, broken files, and the segments that Pillow judges itself."""

from __future__ import annotations

import base64
import io
import random
import struct
from pathlib import Path

import numpy as np
import pytest
from decoding import (
    AS_PILLOWS_SIMD,
    assert_as_pillow,
    difference,
    encoded,
    mutations,
    pillow_rgb,
    truncations,
)
from images import picture
from jpegs import segment
from PIL import Image

from sglang_mm_ray import _core

# Encodings that Pillow cannot write: 12x10 pixels of the scene, made with `cjpeg`.
ARITHMETIC = base64.b64decode(
    "/9j/4AAQSkZJRgABAQAAAQABAAD/2wBDAAoHBwgHBgoICAgLCgoLDhgQDg0NDh0VFhEYIx8lJCIfIiEmKzcvJik0KSEiMEExNDk7"
    "Pj4+JS5ESUM8SDc9Pjv/2wBDAQoLCw4NDhwQEBw7KCIoOzs7Ozs7Ozs7Ozs7Ozs7Ozs7Ozs7Ozs7Ozs7Ozs7Ozs7Ozs7Ozs7Ozs7"
    "Ozs7Ozs7Ozv/yQARCAAKAAwDASIAAhEBAxEB/8wACgAQEAUBEBEF/9oADAMBAAIRAxEAPwD+587jbZ5QYC5LQ0TLvp+j58XsFssK"
    "zFL0u05xQM3iZcl71aJPWT3CBZbqfAvBByYCx8whkEUEa6CLqbDzqkRPH6finqrX3+mxD5F9Kfa0qtP4KblVzOPPAV5Jq+WUQYZF"
    "CITVUA/qHYS/Tdj/2Q=="
)
ARITHMETIC_PROGRESSIVE = base64.b64decode(
    "/9j/4AAQSkZJRgABAQAAAQABAAD/2wBDAAoHBwgHBgoICAgLCgoLDhgQDg0NDh0VFhEYIx8lJCIfIiEmKzcvJik0KSEiMEExNDk7"
    "Pj4+JS5ESUM8SDc9Pjv/2wBDAQoLCw4NDhwQEBw7KCIoOzs7Ozs7Ozs7Ozs7Ozs7Ozs7Ozs7Ozs7Ozs7Ozs7Ozs7Ozs7Ozs7Ozs7"
    "Ozs7Ozs7Ozv/ygARCAAKAAwDASIAAhEBAxEB/8wABgAQARD/2gAMAwEAAhADEAAAAf3csseL7o7/zAAEEAX/2gAIAQEAAQUCGBsl"
    "Oh22gjvj7jD/zAAEEQX/2gAIAQMBAT8BD37svM38/8wABBEF/9oACAECAQE/AYXymMs9NOD/zAAEEAX/2gAIAQEABj8CbKAeaL9S"
    "DUD/zAAEEAX/2gAIAQEAAT8hL+ozl27EJ8iqd6u6Fe7/2gAMAwEAAgADAAAAEND/zAAEEQX/2gAIAQMBAT8QincIR+D/zAAEEQX/"
    "2gAIAQIBAT8Q8ON4sGkX9zrVp9D/zAAEEAX/2gAIAQEAAT8QwSug5oFUkrOrmi4aYz1yDOoCKopWRQNyyGB75hpnUP/Z"
)
LOSSLESS = base64.b64decode(
    "/9j/7gAOQWRvYmUAZAAAAAAA/8MAEQgACgAMA1IRAEcRAEIRAP/EAB0AAAEFAQEBAQAAAAAAAAAAAAMAAgQFBgEHCAn/2gAMA1IA"
    "RwBCAAQAAPBPJ/Zrm3gWtXPs6Jl7rH2GK+MbgfbmyHbkJcy49pV/avw5o4fb9Bw8t11EPtY8fAyC6Hhtz0GBTrFByZz68DY7GJG2"
    "AGZ4/GO6Zr7oMfAGLqE2tUn0WEDITRY+W7Q/GQ6AqKIukCLNGbB/aJ8+O60a2C5Jz7b8Y2xeNKk977hgMDNk+mwn28IGLm9IiX6Z"
    "VsQH8Yu6FPswdIfsyGykmCzxDaoY6fnK3vZiT19/VBWL7NLpxcCUecMyqDI3X4whyhDapjK96Y4WV/Zj4G3TSa5By5GVI3WJZPoo"
    "g5BJJ1kJBK2EuBX6ADcOOi6ZpL1zKZjKt48/KmeuRYfkUp9tFdP6fd8/Pypj9u/jIefP2WB92weYfJ9I/Y+J5RLLq063QcLI7J/F"
    "3sgn/9k="
)


def jpeg(mode: str = "RGB", width_px: int = 40, height_px: int = 27, **options: object) -> bytes:
    return encoded(picture(mode, width_px, height_px), "JPEG", **options)


def frame_at(data: bytes) -> int:
    """Where the content of the (first) frame header starts."""
    return next(data.index(bytes((0xFF, code))) for code in (0xC0, 0xC2) if bytes((0xFF, code)) in data) + 4


def patched(data: bytes, at: int, replacement: bytes) -> bytes:
    return data[:at] + replacement + data[at + len(replacement) :]


def before_frame(data: bytes, inserted: bytes) -> bytes:
    return data[:2] + inserted + data[2:]


def test_the_shipped_photographs(photos: list[Path]) -> None:
    files = [(path.name, path.read_bytes()) for path in photos if path.suffix in (".jpg", ".jpeg")]
    assert assert_as_pillow(files)["load"] >= 4


@pytest.mark.parametrize("mode", ["L", "RGB", "CMYK"])
def test_qualities_sizes_and_scan_kinds(mode: str) -> None:
    kinds: list[dict[str, object]] = [
        {},
        {"progressive": True},
        {"optimize": True},
        {"restart_marker_blocks": 1},
        {"restart_marker_rows": 1, "progressive": True},
    ]
    files = (
        (f"{mode} {width}x{height} q{quality} {kind}", jpeg(mode, width, height, quality=quality, **kind))
        for width, height in ((1, 1), (7, 9), (8, 8), (17, 16), (33, 31), (130, 65))
        for quality in (1, 35, 75, 95, 100)
        for kind in kinds
    )
    assert assert_as_pillow(files) == {"load": 150}


@pytest.mark.parametrize("subsampling", ["4:4:4", "4:2:2", "4:2:0"])
def test_subsamplings_of_the_encoder(subsampling: str) -> None:
    files = (
        (f"{width}x{height}", jpeg("RGB", width, height, subsampling=subsampling, progressive=progressive))
        for width in range(1, 36, 2)
        for height in (1, 2, 8, 15, 17, 33)
        for progressive in (False, True)
    )
    assert assert_as_pillow(files)["refused"] == 0


@AS_PILLOWS_SIMD
def test_every_sampling_factor() -> None:
    # The factors in the header say how the blocks of the scan are laid out; changed ones give another
    # picture, as good for a comparison as any.
    base = jpeg("RGB", 61, 43, subsampling="4:4:4")
    factors = [h << 4 | v for h in (1, 2, 3, 4) for v in (1, 2, 3, 4)]
    at = frame_at(base) + 6
    files = (
        (
            f"{luma:02x} {blue:02x} {red:02x} {progressive}",
            patched(
                patched(patched(data, at + 1, bytes((luma,))), at + 4, bytes((blue,))), at + 7, bytes((red,))
            ),
        )
        for progressive, data in ((False, base), (True, jpeg("RGB", 61, 43, subsampling=0, progressive=True)))
        for luma in factors
        for blue, red in ((0x11, 0x11), (0x21, 0x11), (0x12, 0x21), (0x22, 0x22), (0x14, 0x41))
    )
    verdicts = assert_as_pillow(files)
    assert verdicts["load"] > 60


def test_arithmetic_and_lossless_files_decode() -> None:
    files = [("arithmetic", ARITHMETIC), ("progressive", ARITHMETIC_PROGRESSIVE), ("lossless", LOSSLESS)]
    assert assert_as_pillow(files) == {"load": 3}


def test_an_arithmetic_scan_ends_with_its_block_of_64_kib() -> None:
    # Pillow reads in blocks and libjpeg's arithmetic decoder cannot wait for the next one.
    files = (
        (f"{before} {name}", before_frame(data, segment(0xFE, bytes(before))))
        for name, data in (("sequential", ARITHMETIC), ("progressive", ARITHMETIC_PROGRESSIVE))
        for before in range(65_536 - 2 - 4 - len(data), 65_530)
    )
    verdicts = assert_as_pillow(files)
    assert verdicts["load"] > 50 and verdicts["refused"] > 50


@pytest.mark.parametrize("kind", ["lossless", "sequential", "progressive"])
def test_what_breaks_behind_the_last_row_counts_only_if_it_is_in_the_same_block(kind: str) -> None:
    data = LOSSLESS if kind == "lossless" else jpeg(progressive=kind == "progressive")
    scan, ends = data[:-2], (b"\xff\xda\x00\x03", b"\xff\xc4\x00\x03\x00", b"\xff\xf0", b"\xff\xd8")
    files = []
    for scan_end in range(65_520, 65_545):
        padded = before_frame(scan, segment(0xFE, bytes(scan_end - len(scan) - 4)))
        files += [(f"{scan_end} {end!r}", padded + end + b"\xff\xd9") for end in ends]
    verdicts = assert_as_pillow(files)
    assert verdicts["refused"] > 30 and (verdicts["load"] > 0) == (kind != "progressive")


def test_a_huffman_file_of_several_blocks_cut_anywhere() -> None:
    noise = Image.fromarray(np.random.default_rng(0).integers(0, 256, (400, 380, 3), dtype=np.uint8))
    whole = encoded(noise, "JPEG", quality=95)
    assert len(whole) > 2 * 65_536
    chance = random.Random(3)
    lengths = [*(len(whole) - n for n in range(1, 30)), *(chance.randrange(len(whole)) for _ in range(20))]
    lengths += [n * 65_536 + d for n in (1, 2) for d in (-1, 0, 1)]
    assert assert_as_pillow((f"{n}", whole[:n]) for n in lengths)["refused"] > 40
    # Without an end marker how far the decoder read ahead decides, and that depends on the cuts.
    assert_as_pillow((f"pad {n}", before_frame(whole, segment(0xFE, bytes(n)))[:-2]) for n in range(0, 64, 3))


@pytest.mark.parametrize(
    "data",
    [jpeg("L", 24, 17), jpeg("RGB", 24, 17, progressive=True), jpeg("CMYK", 9, 9), ARITHMETIC],
    ids=["grey", "progressive", "cmyk", "arithmetic"],
)
def test_every_length(data: bytes) -> None:
    verdicts = assert_as_pillow(truncations("", data))
    assert verdicts["refused"] > len(data) * 9 // 10


@pytest.mark.parametrize("missing", [1, 2, 3, 10, 128])
@pytest.mark.parametrize("progressive", [False, True])
def test_a_missing_end_is_refused_and_a_longer_one_is_not(missing: int, progressive: bool) -> None:
    data = jpeg("RGB", 64, 48, progressive=progressive)
    assert difference(data[:-missing]) is None
    with pytest.raises(_core.DecodeError, match="truncated"):
        _core.common.image_decode_rgb(data[:-missing])
    assert difference(data + bytes(range(8))) is None
    assert difference(data[:-2] + b"\0\0") is None


@AS_PILLOWS_SIMD
@pytest.mark.parametrize("seed", range(4))
def test_mutated_files(seed: int) -> None:
    bases = [
        ("baseline", jpeg("RGB", 33, 31)),
        ("restarts", jpeg("RGB", 40, 20, restart_marker_blocks=1)),
        ("progressive", jpeg("RGB", 33, 31, progressive=True)),
        ("grey", jpeg("L", 16, 16)),
        ("cmyk", jpeg("CMYK", 16, 16)),
        ("arithmetic", ARITHMETIC),
        ("arithmetic progressive", ARITHMETIC_PROGRESSIVE),
        ("lossless", LOSSLESS),
    ]
    verdicts = assert_as_pillow(file for name, data in bases for file in mutations(name, data, 200, seed))
    assert min(verdicts["load"], verdicts["refused"]) > 200


@AS_PILLOWS_SIMD
def test_flipped_scan_bytes_mostly_load() -> None:
    data = jpeg("RGB", 64, 48)
    start = data.index(b"\xff\xda") + 14
    chance = random.Random(1)
    places = [chance.randrange(start, len(data) - 2) for _ in range(300)]
    flipped = ((f"{at}", patched(data, at, bytes((data[at] ^ 1 << at % 8,)))) for at in places)
    assert assert_as_pillow(flipped)["load"] > 200


def test_solid_colours_near_black() -> None:
    for value in range(0, 256, 3):
        colour = (
            (value, (value * 7 + 3) % 256, 255 - value) if value > 60 else (value // 2, value // 3, value)
        )
        assert difference(encoded(Image.new("RGB", (16, 16), colour), "JPEG", subsampling=0)) is None, colour


def test_one_picture_baseline_and_progressive() -> None:
    baseline, progressive = (pillow_rgb(jpeg("RGB", 33, 31, progressive=kind)) for kind in (False, True))
    assert baseline is not None and np.array_equal(baseline, progressive)
    for kind in (False, True):
        height, width, flat = _core.common.image_decode_rgb(jpeg("RGB", 33, 31, progressive=kind))
        assert np.array_equal(flat.reshape(height, width, 3), baseline)


def test_adobe_transforms_and_inverted_inks() -> None:
    cmyk = encoded(Image.new("CMYK", (16, 16), (10, 200, 30, 40)), "JPEG", quality=100)
    adobe = cmyk.index(b"\xff\xee")
    transform = adobe + 15
    without = cmyk[:adobe] + cmyk[adobe + 16 :]
    rgb_stored = encoded(picture("RGB", 64, 48), "JPEG", keep_rgb=True)
    files = [("Adobe", cmyk), ("no Adobe", without), ("RGB", rgb_stored)]
    files += [(f"transform {n}", patched(cmyk, transform, bytes((n,)))) for n in (1, 2, 255)]
    files += [(f"RGB {n}", patched(rgb_stored, rgb_stored.index(b"Adobe") + 11, bytes((n,)))) for n in (1, 2)]
    assert assert_as_pillow(files) == {"load": 8}
    for data in (cmyk, without):
        assert _core.common.image_decode_rgb(data)[2][:3].tolist() == [207, 46, 190]
    assert _core.common.image_decode_rgb(patched(cmyk, transform, b"\2"))[2][:3].tolist() == [0, 46, 117]


def test_component_names_without_markers_decide_the_colours() -> None:
    base = jpeg("RGB", 24, 24, subsampling=0)
    base = base[:2] + base[20:]  # without JFIF
    at, scan = frame_at(base) + 6, base.index(b"\xff\xda") + 5
    for names in (b"RGB", b"\0\1\2", b"\1\2\3", b"rgb", b"\1\1\1"):
        renamed = base
        for index, name in enumerate(names):
            renamed = patched(renamed, at + 3 * index, bytes((name,)))
            renamed = patched(renamed, scan + 2 * index, bytes((name,)))
        assert difference(renamed) is None, names


def test_rare_kinds_have_pillows_verdict() -> None:
    base = jpeg("RGB", 64, 48)
    at = frame_at(base)
    files = [(f"precision {bits}", patched(base, at, bytes((bits,)))) for bits in (2, 7, 12, 16)]
    files += [(f"frame {code:02x}", patched(base, at - 3, bytes((code,)))) for code in range(0xC0, 0xE0)]
    files += [(f"{n} components", patched(base, at + 5, bytes((n,)))) for n in range(6)]
    files += [("0 wide", patched(base, at + 3, b"\0\0")), ("0 high", patched(base, at + 1, b"\0\0"))]
    files += [
        ("shifted", b"\0" + base),
        ("no scan", base[: base.index(b"\xff\xda")]),
        ("signature", base[:3]),
    ]
    files += [("wider", patched(base, at + 3, b"\0\xff")), ("higher", patched(base, at + 1, b"\1\0"))]
    files += [("tables first", base[:2] + base[20 : at - 4] + b"\xff\xd9" + base)]
    files += [("two frames", before_frame(base, segment(0xC0, base[at : at + 15])))]
    verdicts = assert_as_pillow(files)
    assert verdicts["load"] >= 4 and verdicts["refused"] > 30


SHORT_SEGMENTS = [
    (0xE0, b"JFIF"),
    (0xE0, b"JFIF\0\1\2"),
    (0xE0, b"JFIF\0\1\2\1"),
    (0xE0, b""),
    (0xE1, b"Exif\0\0"),
    (0xE1, b"Exif\0\0junk"),
    (0xE1, b"Exif\0\0II*\0\xff\xff\xff\xff"),
    (0xE1, b"http://ns.adobe.com/xap/1.0/\0"),
    (0xE2, b"ICC_PROFILE\0"),
    (0xE2, b"ICC_PROFILE\0\1"),
    (0xE2, b"ICC_PROFILE\0\1\1"),
    (0xE2, b"FPXR\0"),
    (0xE2, b"MPF\0"),
    (0xE2, b"MPF\0II*\0\x08\0\0\0"),
    (0xED, b"Photoshop 3.0\0"),
    (0xED, b"Photoshop 3.0\x008BIM"),
    (0xED, b"Photoshop 3.0\x008BIM\3\xed"),
    (0xED, b"Photoshop 3.0\x008BIM\3\xed\0"),
    (0xED, b"Photoshop 3.0\x008BIM\3\xed\0\0\0\0\0\2ab8BIM\0\0"),
    (0xED, b"Photoshop 3.0\x008BIM\3\xee\0\0\0\0\0\2ab8BIM\0\0"),
    (0xED, b"Photoshop 3.0\x008BIM\3\xee\1\0\0\0\0\3abc\x008BIM\0\0"),
    (0xEE, b"Adobe"),
    (0xEE, b"Adobe\0\x64"),
    (0xEE, b"Adobe\0\x64\0\0\0\0"),
    (0xFE, b""),
    (0xDB, b"\0"),
    (0xDB, b"\0" + b"\1" * 64),
    (0xDB, b"\x10" + b"\1" * 127),
    (0xDB, b"\x10" + b"\1" * 128),
    (0xDB, b"\x13" + b"\0" * 128 + b"\2" + b"\1" * 64),
    (0xDC, b"\0\x09"),
    (0xDD, b"\0\1"),
    (0xDF, b"\0"),
    (0xDE, b"\x08\0\x1b\0\x28\1\1\x11\0"),
]


def test_segments_that_pillow_parses_itself() -> None:
    base = jpeg("RGB", 16, 16)
    plain = base[:2] + base[20:]
    files = [
        (f"{code:02x} {content[:24]!r} {kind}", before_frame(data, segment(code, content)))
        for code, content in SHORT_SEGMENTS
        for kind, data in (("JFIF", base), ("plain", plain))
    ]
    files += [(f"length {n}", before_frame(base, b"\xff\xe5" + bytes((0, n)))) for n in (0, 1, 2, 3)]
    files += [(f"byte {n:02x}", before_frame(base, bytes((0xFF, n)))) for n in range(256)]
    files += [("filling", before_frame(base, b"\xff\xff\xff\0\1\2")), ("junk", before_frame(base, b"abc"))]
    two = segment(0xE2, b"ICC_PROFILE\0\2\2b") + segment(0xE2, b"ICC_PROFILE\0\1")
    files += [("short profile first", before_frame(base, two))]
    verdicts = assert_as_pillow(files)
    assert verdicts["load"] > 60 and verdicts["refused"] > 60


def test_multi_picture_files_give_the_first_picture() -> None:
    first, second = picture("RGB", 64, 48), picture("RGB", 64, 48, seed=1)
    data = encoded(first, "MPO", save_all=True, append_images=[second])
    directory = data.index(b"MPF\0")
    count = data.index(struct.pack("<HHLL", 0xB001, 4, 1, 2)) + 8
    files = [
        ("whole", data),
        ("count 3", patched(data, count, b"\3")),
        ("count 0", patched(data, count, b"\0")),
    ]
    files += [
        ("magic", patched(data, directory + 4, b"junkjunk")),
        ("one", data[: len(encoded(first, "JPEG")) + 120]),
    ]
    files += [(f"cut {n}", data[:-n]) for n in (1, 500)]
    assert assert_as_pillow(files)["load"] >= 5
    assert _core.common.probe(data) == ("JPEG", 64, 48)


def test_metadata_never_changes_pixels() -> None:
    rotated = Image.Exif()
    rotated[0x0112] = 6
    tagged = jpeg("RGB", 64, 48, exif=rotated, icc_profile=b"LAB " * 20, comment="x")
    assert difference(tagged) is None
    height, width, flat = _core.common.image_decode_rgb(tagged)
    assert (height, width) == (48, 64)
    assert np.array_equal(flat, _core.common.image_decode_rgb(jpeg("RGB", 64, 48))[2])


def test_the_header_is_read_without_pixels_and_limits_hold_before_memory() -> None:
    data = jpeg("RGB", 64, 48)
    assert _core.common.probe(data) == ("JPEG", 64, 48)
    huge = patched(data, frame_at(data) + 1, b"\xff\xff\xff\xff")
    assert _core.common.probe(huge) == ("JPEG", 65_535, 65_535)
    with pytest.raises(Image.DecompressionBombError):
        Image.open(io.BytesIO(huge))
    with pytest.raises(
        _core.LimitExceeded, match="image size in pixels is 4294836225, over the limit of 178956970"
    ):
        _core.common.image_decode_rgb(huge)
    with pytest.raises(_core.LimitExceeded, match="3072, over the limit of 3071"):
        _core.common.decode_rgb(data, _core.Limits(max_pixels=3071))
    with pytest.raises(_core.LimitExceeded, match="encoded size in bytes"):
        _core.common.decode_rgb(data, _core.Limits(max_input_bytes=len(data) - 1))
    assert _core.common.decode_rgb(data, _core.Limits(max_pixels=3072))[3] == "jpeg"


def test_scans_without_end_are_a_limit_and_not_an_hour() -> None:
    data = jpeg("L", 64, 48, progressive=True)
    scan = data.rindex(b"\xff\xda")
    last = data[scan:-2]
    # A scan that refines what has been refined is only worth a warning to libjpeg.
    assert difference(data[:-2] + last * 200 + data[-2:]) is None
    with pytest.raises(_core.LimitExceeded, match="number of scans is 257, over the limit of 256"):
        _core.common.image_decode_rgb(data[:-2] + last * 300 + data[-2:])
