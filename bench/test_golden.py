"""Holds the core to the values that `generate_golden.py` wrote. Missing values fail; they never skip."""

from __future__ import annotations

import base64
import hashlib
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import generate_golden as golden
import numpy as np
import pytest
import reference

from sglang_mm_ray import _core

ORDERS = {"horizontal_first": False, "vertical_first": True}
PHOTOS = sorted(path for path in golden.PHOTOS.iterdir() if path.suffix != ".md")
CASES = [(name.split(".")[0], case) for name in golden.CROPS for case in golden.INKLING_CASES]


@pytest.fixture(scope="session")
def arrays() -> dict[str, golden.Arrays]:
    return golden.stored(golden.GOLDEN)[0]


@pytest.fixture(scope="session")
def facts() -> dict[str, Any]:
    return golden.stored(golden.GOLDEN)[1]


@pytest.fixture
def installed_order() -> Iterator[None]:
    yield
    _core.common.set_vertical_first_when_tall(reference.pillow_is_vertical_first())


def assert_equal(found: np.ndarray, expected: np.ndarray) -> None:
    assert found.dtype == expected.dtype
    assert found.shape == expected.shape
    wrong = np.argwhere(found != expected)
    assert len(wrong) == 0, f"{len(wrong)} of {expected.size} values differ, first at {wrong[0].tolist()}"


def test_pillow_and_numpy_still_give_the_stored_values() -> None:
    assert golden.differences(golden.GOLDEN) == []


def test_missing_values_fail(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        golden.stored(tmp_path)
    command = [sys.executable, golden.__file__, "--check", "--out", str(tmp_path)]
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    assert run.returncode == 1
    assert "is missing" in run.stderr


def test_a_changed_value_is_found(tmp_path: Path, arrays: dict[str, golden.Arrays]) -> None:
    for part, values in arrays.items():
        changed = dict(values)
        if part == "decode":
            changed["jpeg_420.rgb"] = changed["jpeg_420.rgb"].copy()
            changed["jpeg_420.rgb"][-1, -1, -1] ^= 1
        np.savez(tmp_path / f"{part}.npz", **changed)  # type: ignore[arg-type]
    (tmp_path / "facts.json").write_bytes((golden.GOLDEN / "facts.json").read_bytes())
    assert golden.differences(tmp_path) == ["decode/jpeg_420.rgb"]


def test_decode_every_format(arrays: dict[str, golden.Arrays]) -> None:
    files = [name for name in arrays["decode"] if name.endswith(".file")]
    assert len(files) >= 14
    for name in files:
        height, width, flat = _core.common.image_decode_rgb(arrays["decode"][name].tobytes())
        assert_equal(flat.reshape(height, width, 3), arrays["decode"][name.replace(".file", ".rgb")])


@pytest.mark.parametrize("resample", reference.FILTERS)
@pytest.mark.usefixtures("installed_order")
def test_resize_in_both_pass_orders(resample: str, arrays: dict[str, golden.Arrays]) -> None:
    compared = 0
    for name, expected in arrays["resize"].items():
        if f".{resample}." not in name:
            continue
        source, _, size, order = name.split(".")
        width, height = map(int, size.split("x"))
        _core.common.set_vertical_first_when_tall(ORDERS[order])
        flat = _core.common.resize_rgb(arrays["resize"][f"source.{source}"], width, height, resample)
        assert_equal(flat.reshape(height, width, 3), expected)
        compared += 1
    assert compared >= 12


def test_both_pass_orders_are_among_the_values(arrays: dict[str, golden.Arrays]) -> None:
    assert sum(name.endswith("vertical_first") for name in arrays["resize"]) >= 10


@pytest.mark.parametrize(("stem", "case"), CASES)
def test_inkling_patches(
    stem: str, case: tuple[int, float | None, int | None], arrays: dict[str, golden.Arrays]
) -> None:
    data = arrays["inkling"][f"{stem}.file"].tobytes()
    expected = arrays["inkling"]["{}.{}.{}.{}".format(stem, *case)]
    [(height, width, bits, content_hash)] = _core.inkling.preprocess_images([data], *case)
    assert_equal(bits.reshape(expected.shape), expected)
    assert bits.size == -(-height // case[0]) * (width // case[0] + 1) * case[0] ** 2 * 3
    assert content_hash == reference.data_hash(data)
    parameters = dict(zip(("patch_size", "rescale_frac", "rescale_cap"), case, strict=True))
    [processed] = _core.processor("inkling", json.dumps(parameters)).preprocess_batch([data])
    assert_equal(processed.tensors["patches"], expected)
    assert processed.content_hash == content_hash


def test_sizes_and_hashes(arrays: dict[str, golden.Arrays], facts: dict[str, Any]) -> None:
    for width, height, frac, cap, *expected in facts["scaled_dims"]:
        assert list(_core.common.scaled_dims(width, height, frac, cap)) == expected
    assert len(facts["data_hash"]) >= 14
    for kind, expected in facts["data_hash"].items():
        assert _core.common.data_hash(arrays["decode"][f"{kind}.file"].tobytes()) == expected


@pytest.mark.parametrize("photo", PHOTOS, ids=lambda path: path.name)
def test_whole_photographs(photo: Path, facts: dict[str, Any]) -> None:
    expected = facts["photos"][photo.name]
    data = photo.read_bytes()
    height, width, pixels = _core.common.image_decode_rgb(data)
    assert [height, width] == expected["decoded_hw"]
    assert hashlib.sha256(pixels.tobytes()).hexdigest() == expected["decoded_sha256"]
    [(height, width, bits, content_hash)] = _core.inkling.preprocess_images([data], 40, 2.0, 2048)
    assert [height, width] == expected["inkling_hw"]
    assert hashlib.sha256(bits.astype("<u2").tobytes()).hexdigest() == expected["inkling_bits_sha256"]
    assert content_hash == expected["content_hash"]


def test_published_functions_agree(arrays: dict[str, golden.Arrays]) -> None:
    for stem in (name.split(".")[0] for name in golden.CROPS):
        data = arrays["inkling"][f"{stem}.file"].tobytes()
        for patch_size, frac, cap in golden.INKLING_CASES:
            expected = arrays["inkling"][f"{stem}.{patch_size}.{frac}.{cap}"]
            pixels = reference.inkling_pixels(data, frac, cap)
            assert_equal(_core.inkling.patchify_rgb(pixels, patch_size).reshape(expected.shape), expected)
            one = _core.inkling.decode_patchify(data, patch_size, frac, cap)
            several = _core.inkling.decode_patchify_batch([data, data], patch_size, frac, cap)
            for height, width, bits in (one, *several):
                assert (height, width) == pixels.shape[:2]
                assert_equal(bits.reshape(expected.shape), expected)


@pytest.mark.parametrize("photo_bytes", [PHOTOS[0].read_bytes(), b"\xff\xef\xbe\xfb\x00\x01", b""], ids=len)
def test_base64(photo_bytes: bytes) -> None:
    assert bytes(_core.common.base64_decode(base64.b64encode(photo_bytes).decode())) == photo_bytes
    with pytest.raises(ValueError, match="base64"):
        _core.common.base64_decode("/    wAB")
