"""`sglang-mm-ray preprocess`: what it reads, what it writes, what it reports and its exit codes."""

from __future__ import annotations

import json
import os
from argparse import Namespace
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors
from fake_pool import FakePool
from images import encode, picture
from reference import INKLING_DEFAULTS, inkling

from sglang_mm_ray.cli import main, preprocess
from sglang_mm_ray.cli.options import address_or_local, pool_config
from sglang_mm_ray.cli.shards import MANIFEST

Run = Callable[..., tuple[int, FakePool]]


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Run:
    """Runs the subcommand on a pool in this process, into `tmp_path/out`."""

    def run(*arguments: object, **behaviour: Any) -> tuple[int, FakePool]:
        pools = []

        def open_pool(parsed: Any, inputs: Any) -> FakePool:
            pools.append(FakePool(pool_config(parsed, inputs.roots), **behaviour))
            return pools[0]

        monkeypatch.setattr(preprocess, "_open_pool", open_pool)
        code = main(["preprocess", *map(str, arguments), "--out", str(tmp_path / "out")])
        return code, pools[0]

    return run


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "in"
    (folder / "sub").mkdir(parents=True)
    (folder / "b.png").write_bytes(encode(picture("RGB", 90, 50, 1), "PNG"))
    (folder / "a.JPG").write_bytes(encode(picture("RGB", 64, 48, 2), "JPEG"))
    (folder / "sub" / "c.tif").write_bytes(encode(picture("L", 20, 30, 3), "TIFF"))
    (folder / "notes.txt").write_text("not an image")
    return folder


def manifest(tmp_path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (tmp_path / "out" / MANIFEST).read_text().splitlines()]


def stored(tmp_path: Path, line: dict[str, Any]) -> bytes:
    (tensor,) = line["tensors"]
    shard = safetensors.deserialize((tmp_path / "out" / line["shard"]).read_bytes())
    (item,) = [item for name, item in shard if name == tensor["name"]]
    assert (item["dtype"], item["shape"]) == (tensor["dtype"], tensor["shape"])
    return bytes(item["data"])


def test_patches_on_disk_equal_the_reference(run: Run, folder: Path, tmp_path: Path) -> None:
    code, _ = run(folder)
    assert code == 0
    lines = manifest(tmp_path)
    assert [Path(line["file"]).name for line in lines] == ["a.JPG", "b.png", "c.tif"]
    for line in lines:
        data = Path(line["file"]).read_bytes()
        defaults = INKLING_DEFAULTS
        height, width, bits = inkling(
            data, defaults["patch_size"], defaults["rescale_frac"], defaults["rescale_cap"]
        )[:3]
        assert stored(tmp_path, line) == np.ascontiguousarray(bits).tobytes()
        assert (line["height"], line["width"]) == (height, width)
        assert line["tensors"][0]["dtype"] == "BF16"


def test_the_summary(run: Run, folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run(folder, "--json")
    summary = json.loads(capsys.readouterr().out)
    lines = manifest(tmp_path)
    assert (summary["files"], summary["processed"], summary["failed"]) == (3, 3, 0)
    assert summary["skipped_files"] == 1 and summary["shards"] == 1
    assert summary["pixels"] == sum(line["height"] * line["width"] for line in lines)
    assert summary["patches"] == sum(line["grid"][1] * line["grid"][2] for line in lines)
    assert summary["stored_bytes"] == sum(line["bytes"] for line in lines)
    assert summary["images_per_s"] > 0 and sum(summary["decoders"].values()) == 3


def test_a_bad_file_is_reported_and_skipped(
    run: Run, folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "bad.png").write_bytes(b"\x89PNG\r\n\x1a\n and no more")
    code, _ = run(folder, folder / "missing.jpg")
    assert code == 1
    out = capsys.readouterr().out
    assert "bad.png" in out and "missing.jpg" in out and "decode_error" in out and "fetch_failed" in out
    lines = manifest(tmp_path)
    assert [("error" in line) for line in lines] == [False, False, True, False, True]
    assert lines[2]["error"]["code"] == "decode_error"


@pytest.mark.parametrize(("transport", "dtype"), [("bf16", "BF16"), ("uint8", "U8"), ("float32", "F32")])
def test_transports(run: Run, folder: Path, tmp_path: Path, transport: str, dtype: str) -> None:
    assert run(folder, "--transport", transport)[0] == 0
    assert {line["tensors"][0]["dtype"] for line in manifest(tmp_path)} == {dtype}


def test_parameters_reach_the_model(run: Run, folder: Path, tmp_path: Path) -> None:
    parameters = '{"patch_size": 8, "rescale_frac": null, "rescale_cap": null}'
    assert run(folder, "--parameters", parameters)[0] == 0
    assert manifest(tmp_path)[0]["tensors"][0]["shape"] == [6 * 9, 8, 8, 3]


def test_links_that_the_user_put_there_are_followed(run: Run, folder: Path, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    target = tmp_path / "elsewhere" / "blob"
    target.write_bytes((folder / "b.png").read_bytes())
    (folder / "link.png").symlink_to(target)
    (tmp_path / "alias").symlink_to(folder)
    assert run(tmp_path / "alias", tmp_path / "alias" / "link.png")[0] == 0
    names = [line["file"] for line in manifest(tmp_path)]
    assert str(tmp_path / "alias" / "link.png") in names


def test_odd_names_are_paths_all_the_same(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    data = encode(picture("RGB", 9, 9), "PNG")
    for name in ("AAAA", "data:,x.png", "a b\nc.png", "ä.png"):
        (tmp_path / name).write_bytes(data)
        assert run(name, "--overwrite")[0] == 0


def test_upload_sends_bytes(run: Run, folder: Path) -> None:
    code, pool = run(folder, folder / "missing.png", "--upload")
    assert code == 1
    assert [type(source).__name__ for source in pool.seen] == ["bytes", "bytes", "bytes", "PosixPath"]


def test_a_lost_result_is_computed_again(run: Run, folder: Path) -> None:
    code, pool = run(folder, lose=1)
    assert code == 0 and pool.recomputed == 1


def test_an_interruption_leaves_what_is_done(run: Run, folder: Path, tmp_path: Path) -> None:
    code, _ = run(folder, interrupt_at=0)
    assert code == 130
    lines = manifest(tmp_path)
    assert [line.get("error", {}).get("code") for line in lines] == ["pool_closed", None, None]
    assert stored(tmp_path, lines[1])


def test_an_earlier_run_is_not_overwritten_unasked(
    run: Run, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(folder)[0] == 0
    assert run(folder)[0] == 3
    assert "--overwrite" in capsys.readouterr().err
    assert run(folder, "--overwrite")[0] == 0


def test_a_crash_is_not_taken_for_a_failed_file(
    run: Run, folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(FakePool, "stream", None)
    assert run(folder)[0] == 3
    assert "Traceback" in capsys.readouterr().err


def test_a_full_disk_is_said_in_words(
    run: Run, folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    assert run(folder)[0] == 3
    error = capsys.readouterr().err
    assert "No space left" in error and "Traceback" not in error


def test_upload_does_not_wait_for_what_never_ends(run: Run, folder: Path, tmp_path: Path) -> None:
    os.mkfifo(folder / "pipe.png")
    code, _ = run(folder, "--upload")
    assert code == 1
    (failed,) = [line for line in manifest(tmp_path) if "error" in line]
    assert failed["file"].endswith("pipe.png") and failed["error"]["code"] == "source_refused"


def test_nothing_to_do_is_a_failure(run: Run, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    assert run(tmp_path / "empty")[0] == 1


def test_a_pool_of_its_own_configuration_takes_no_other(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["preprocess", "x", "--out", "y", "--pool", "vision", "--model", "inkling"]) == 3
    assert "--model" in capsys.readouterr().err


@pytest.mark.parametrize(
    "options",
    [["--model", "no-such"], ["--parameters", "{"], ["--parameters", "[]"], ["--config", "/no/such/file"]],
)
def test_bad_options_are_errors_in_words(
    run: Run, folder: Path, options: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["preprocess", str(folder), "--out", "x", *options]) == 3
    assert capsys.readouterr().err.startswith("sglang-mm-ray: ")


@pytest.mark.parametrize(
    "text",
    ['{"policy": 5}', '{"policy": {"allowed_roots": "/"}}', '{"num_workers": "3"}', '{"parameters": 1}'],
)
def test_a_bad_configuration_is_an_error_in_words(
    run: Run, folder: Path, tmp_path: Path, text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "config.json").write_text(text)
    options = ["--config", str(tmp_path / "config.json")]
    assert main(["preprocess", str(folder), "--out", "x", *options]) == 3
    error = capsys.readouterr().err
    assert error.startswith("sglang-mm-ray: ") and "Traceback" not in error


@pytest.mark.parametrize(
    ("option", "environment", "address"),
    [
        (None, None, "local"),
        ("auto", None, "auto"),
        (None, "head:6379", None),
        ("local", "head:6379", "local"),
    ],
)
def test_it_runs_here_unless_a_cluster_is_named(
    option: str | None, environment: str | None, address: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    if environment is None:
        monkeypatch.delenv("RAY_ADDRESS", raising=False)
    else:
        monkeypatch.setenv("RAY_ADDRESS", environment)
    assert address_or_local(Namespace(address=option)) == address
