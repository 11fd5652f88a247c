"""`sglang-mm-ray verify`: its table, its JSON and its exit codes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from images import encode, picture

from sglang_mm_ray.cli import main
from sglang_mm_ray.cli.verify import summarise
from sglang_mm_ray.verification import verify
from sglang_mm_ray.verification.verify import FileReport


def _reports(*reports: FileReport):  # type: ignore[no-untyped-def]
    return lambda paths, policy, **options: iter(reports)


def test_agreement_is_exit_code_0(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "a.tif").write_bytes(encode(picture("RGB"), "TIFF"))
    (tmp_path / "b.jpg").write_bytes(b"<html>")
    (tmp_path / ".hidden").write_bytes(b"not looked at")
    assert main(["verify", str(tmp_path)]) == 0
    out = capsys.readouterr().out
    assert "TIFF" in out and "2 of 2 files alike" in out


def test_a_difference_is_exit_code_1_and_names_the_file(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    bad = FileReport("photos/a\x1b[2Jb.png", verify.PIXELS_DIFFER, "PNG", detail="first at x=3 y=7")
    monkeypatch.setattr(verify, "verify", _reports(bad, FileReport("b.png", verify.EQUAL, "PNG")))
    assert main(["verify", "photos"]) == 1
    out = capsys.readouterr().out
    assert (
        "a\\x1b[2Jb.png: PNG: pixels differ. first at x=3 y=7" in out
        and "b.png: PNG" not in out.split("\n", 1)[1]
    )
    assert "1 of 2 files alike" in out


def test_json_says_the_same(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    bad = FileReport("a.png", verify.ONLY_PILLOW_ACCEPTS, "PNG", detail="why")
    monkeypatch.setattr(verify, "verify", _reports(bad))
    assert main(["verify", "--json", "photos"]) == 1
    shown = json.loads(capsys.readouterr().out)
    assert shown["agree"] is False
    assert shown["files"][0]["path"] == "a.png" and shown["files"][0]["verdict"] == verify.ONLY_PILLOW_ACCEPTS
    assert shown["formats"][0]["verdicts"] == {verify.ONLY_PILLOW_ACCEPTS: 1}


def test_nothing_compared_is_no_agreement(tmp_path: Path) -> None:
    assert main(["verify", str(tmp_path)]) == 1
    assert main(["verify", str(tmp_path / "missing")]) == 1


def test_speed_is_the_geometric_mean_of_the_files() -> None:
    reports = [
        FileReport("a", verify.EQUAL, "PNG", core_s=1.0, pillow_s=2.0),
        FileReport("b", verify.EQUAL, "PNG", core_s=1.0, pillow_s=8.0),
        FileReport("c", verify.REFUSED_ALIKE, "PNG"),
    ]
    (record,) = summarise(reports)
    assert record["speed_ratio"] == pytest.approx(4.0) and record["files"] == 3


@pytest.mark.parametrize("arguments", [[], ["verify"], ["verify", "--jobs", "0", "x"], ["no-such-command"]])
def test_wrong_usage_is_exit_code_2(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main(arguments)
    assert caught.value.code == 2
    assert "usage" in capsys.readouterr().err
