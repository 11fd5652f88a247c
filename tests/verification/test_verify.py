"""The comparison with Pillow: every verdict is reached, and a killed or hung decoder is a line."""

from __future__ import annotations

import io
import os
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from images import encode, picture, scene
from PIL import Image

from sglang_mm_ray.errors import DecodeError, InvalidArgument
from sglang_mm_ray.sources.policy import SourcePolicy
from sglang_mm_ray.verification import verify
from sglang_mm_ray.verification.damage import damaged
from sglang_mm_ray.verification.verify import FileReport, compare, first_difference

POLICY = SourcePolicy()


def judge(data: bytes, policy: SourcePolicy = POLICY) -> FileReport:
    return compare("name", data, policy, lambda stage: None)


def test_equal_and_refused_alike() -> None:
    report = judge(encode(picture("RGB", 37, 29), "TIFF"))
    assert (report.verdict, report.format, report.decoder) == (verify.EQUAL, "TIFF", "pillow:TIFF")
    assert (report.width_px, report.height_px) == (37, 29) and report.core_s > 0 and report.pillow_s > 0
    assert judge(b"no image").verdict == verify.REFUSED_ALIKE
    assert judge(b"no image").good


def test_a_single_wrong_value_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    data = encode(picture("RGB", 20, 10), "TIFF")
    pixels = scene(20, 10)
    pixels[7, 3, 1] ^= 4
    monkeypatch.setattr(verify, "decode_rgb", lambda *_: (pixels, "broken"))
    report = judge(data)
    assert report.verdict == verify.PIXELS_DIFFER and not report.good
    assert "x=3 y=7" in report.detail and "1 of 200 pixels, by up to 4" in report.detail


def test_differing_verdicts_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    data = encode(picture("RGB"), "TIFF")

    def refuse(*_: object) -> None:
        raise DecodeError("no")

    monkeypatch.setattr(verify, "decode_rgb", refuse)
    assert judge(data).verdict == verify.ONLY_PILLOW_ACCEPTS and not judge(data).good
    monkeypatch.setattr(verify, "decode_rgb", lambda *_: (scene(4, 4), "lenient"))
    assert judge(b"no image").verdict == verify.ONLY_CORE_ACCEPTS and not judge(b"no image").good


def test_a_format_outside_the_policy_is_left_out_not_differing() -> None:
    report = judge(encode(picture("RGB"), "TIFF"), SourcePolicy(pillow_formats=()))
    assert report.verdict == verify.NOT_LISTED and report.good


def test_a_native_format_without_its_decoder_is_a_difference(monkeypatch: pytest.MonkeyPatch) -> None:
    from sglang_mm_ray.errors import UnsupportedFormat

    def refuse(*_: object) -> None:
        error = UnsupportedFormat("no native decoder for PNG images")
        error.format = "PNG"
        raise error

    monkeypatch.setattr(verify, "decode_rgb", refuse)
    assert judge(encode(picture("RGB"), "PNG")).verdict == verify.ONLY_PILLOW_ACCEPTS


def test_first_difference_of_sizes() -> None:
    assert first_difference(scene(4, 5), scene(4, 5)) == ""
    assert first_difference(scene(4, 5), scene(5, 4)) == "size 4x5, Pillow has 5x4"
    with_rows = np.zeros((2, 2, 3), np.uint8)
    other = with_rows.copy()
    other[1, 0, 2] = 255
    assert "x=0 y=1: (0,0,0), Pillow has (0,0,255)" in first_difference(with_rows, other)


# Children are spawned and import `verify` afresh: nothing can be patched in them, but their target can be.
def _killer(pipe, policy) -> None:  # type: ignore[no-untyped-def]
    pipe.send("ready")
    while True:
        path, _ = pipe.recv()
        pipe.send("the core")
        if path.endswith("kill"):
            os._exit(11)
        if path.endswith("hang"):
            threading.Event().wait()
        pipe.send(FileReport(path, verify.EQUAL))


def test_a_crash_and_a_hang_are_lines_and_the_rest_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(verify, "_serve", _killer)
    paths = ["a", "kill", "b", "kill", "c"]
    reports = list(verify.verify(paths, timeout_s=300.0))
    assert [report.path for report in reports] == paths
    equal, crash = verify.EQUAL, verify.CRASH
    assert [report.verdict for report in reports] == [equal, crash, equal, crash, equal]
    assert "in the core" in reports[1].detail and "11" in reports[1].detail
    hangs = list(verify.verify(["hang", "kill", "2nd hang"], timeout_s=2.0))
    assert hangs[0].verdict == hangs[2].verdict == verify.HANG
    assert hangs[0].detail.endswith("after 2 s")


def _slow_to_start(pipe, policy) -> None:  # type: ignore[no-untyped-def]
    time.sleep(1.5)
    _killer(pipe, policy)


def test_a_start_is_no_part_of_a_files_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(verify, "_serve", _slow_to_start)
    (report,) = verify.verify(["a"], timeout_s=1.0)
    assert report.verdict == verify.EQUAL


@pytest.mark.parametrize(
    "arguments",
    [
        *({"timeout_s": value} for value in (float("nan"), float("inf"), 0, -1.0, 1e12, "5", None, True)),
        *({"jobs": value} for value in (0, -1, 1.5, float("nan"), "2", None, True)),
        *({"damaged_copies": value} for value in (-1, 0.5, float("nan"), "2", None, True)),
    ],
    ids=repr,
)
def test_numbers_that_cannot_work_are_refused_before_anything_starts(arguments: dict[str, Any]) -> None:
    with pytest.raises(InvalidArgument, match=next(iter(arguments))):
        verify.verify([], **arguments)


def test_damaged_copies_are_the_same_every_time_and_named_by_their_seed(tmp_path: Path) -> None:
    data = encode(picture("RGB"), "PNG")
    copies = [damaged(data, seed) for seed in range(200)]
    assert copies == [damaged(data, seed) for seed in range(200)]
    assert len(set(copies)) > 190 and data not in copies[:5]
    assert damaged(b"", 3) == b""
    # Most get past the checksums, some are still read, and some are not.
    verdicts = [judge(copy).verdict for copy in copies]
    assert 20 < verdicts.count(verify.EQUAL) < 180 and verdicts.count(verify.REFUSED_ALIKE) > 20
    (tmp_path / "a.png").write_bytes(data)
    path = str(tmp_path / "a.png")
    reports = list(verify.verify([path], damaged_copies=2, first_seed=7))
    assert [report.path for report in reports] == [
        path,
        f"{path} (damaged, seed 7)",
        f"{path} (damaged, seed 8)",
    ]
    assert all(report.good for report in reports)


def test_files_on_disk(tmp_path: Path) -> None:
    (tmp_path / "a.tif").write_bytes(encode(picture("RGB"), "TIFF"))
    (tmp_path / "b.png").write_bytes(b"<html>")
    paths = [str(tmp_path / name) for name in ("a.tif", "b.png", "missing.png")]
    reports = list(verify.verify(paths, jobs=2))
    assert [report.verdict for report in reports] == [verify.EQUAL, verify.REFUSED_ALIKE, verify.UNREADABLE]
    assert Image.open(io.BytesIO((tmp_path / "a.tif").read_bytes())).format == reports[0].format
