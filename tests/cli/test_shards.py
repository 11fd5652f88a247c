"""Shards and manifest, read back by the safetensors package."""

from __future__ import annotations

import json
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors

from sglang_mm_ray.cli import shards
from sglang_mm_ray.cli.shards import MANIFEST, ImageRecord, ShardWriter, write_safetensors
from sglang_mm_ray.errors import DecodeError, InvalidArgument, with_context


def record(values: Any, tag: str = "bfloat16", digest: str = "sha256:00") -> ImageRecord:
    return ImageRecord(digest, 4, 6, (1, 2, 3), 6, "jpeg", [("patches", tag, np.asarray(values))])


def tensors_of(path: Path) -> dict[str, tuple[str, list[int], bytes]]:
    stored = safetensors.deserialize(path.read_bytes())
    return {name: (item["dtype"], item["shape"], bytes(item["data"])) for name, item in stored}


def lines_of(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / MANIFEST).read_text().splitlines()]


def test_every_dtype_is_read_back_bit_for_bit(tmp_path: Path) -> None:
    values = [
        ("a", "uint8", np.arange(5, dtype=np.uint8)),
        ("b", "bfloat16", np.array([[0x3F80, 0xBF80, 0x7FC0]], np.uint16)),
        ("c", "float32", np.array([[1.5], [np.nan]], np.float32)),
        ("d", "int64", np.array(-7, np.int64)),
        ("e", "uint8", np.zeros((2, 0, 3), np.uint8)),
        ("f", "uint8", np.arange(24, dtype=np.uint8).reshape(2, 3, 4)[:, ::-1]),
        ("g", "float16", np.array([1.5, -2.0], np.float16)),
        ("h", "int32", np.array([[3, -4]], np.int32)),
    ]
    path = tmp_path / "x.safetensors"
    write_safetensors(path, values, {"made": "here"})
    read = tensors_of(path)
    assert {name: item[0] for name, item in read.items()} == {
        "a": "U8",
        "b": "BF16",
        "c": "F32",
        "d": "I64",
        "e": "U8",
        "f": "U8",
        "g": "F16",
        "h": "I32",
    }
    for name, _, array in values:
        assert read[name][1] == list(array.shape) and read[name][2] == array.tobytes()
    header_bytes = int.from_bytes(path.read_bytes()[:8], "little")
    assert header_bytes % 8 == 0
    header = json.loads(path.read_bytes()[8 : 8 + header_bytes])
    assert header["__metadata__"] == {"made": "here"}
    for name, _, array in values:
        assert header[name]["data_offsets"][0] % array.itemsize == 0


def test_a_dtype_that_does_not_fit_is_refused(tmp_path: Path) -> None:
    for tag, array in (("bfloat16", np.zeros(1, np.float32)), ("float64", np.zeros(1))):
        with pytest.raises(InvalidArgument):
            write_safetensors(tmp_path / "x", [("a", tag, array)], {})
    assert list(tmp_path.iterdir()) == []


def test_shards_are_bounded_and_hold_what_the_manifest_says(tmp_path: Path) -> None:
    images = [np.full((3, 10), index, np.uint16) for index in range(7)]
    with ShardWriter(tmp_path, {"model": "m"}, max_shard_bytes=130) as writer:
        for index in (3, 0, 1, 2, 6, 5, 4):
            writer.add(index, f"{index}.jpg", record(images[index], digest=f"sha256:{index:02d}"))
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        MANIFEST,
        *(f"shard-{number:05d}.safetensors" for number in range(4)),
    ]
    lines = lines_of(tmp_path)
    assert [line["index"] for line in lines] == list(range(7))
    for line, values in zip(lines, images, strict=True):
        (tensor,) = line["tensors"]
        dtype, shape, data = tensors_of(tmp_path / line["shard"])[tensor["name"]]
        assert (dtype, shape) == (tensor["dtype"], tensor["shape"]) == ("BF16", [3, 10])
        assert data == values.tobytes()
        assert line["file"] == f"{line['index']}.jpg" and line["digest"] == f"sha256:{line['index']:02d}"
        assert (line["height"], line["width"], line["grid"], line["tokens"]) == (4, 6, [1, 2, 3], 6)
    assert writer.num_shards == 4 and writer.stored_bytes == 7 * 60
    with safetensors.safe_open(str(tmp_path / "shard-00000.safetensors"), "np") as shard:
        assert shard.metadata() == {"format": "sglang-mm-ray/1", "model": "m"}


def test_an_image_larger_than_a_shard_is_alone(tmp_path: Path) -> None:
    with ShardWriter(tmp_path, {}, max_shard_bytes=10) as writer:
        for index in range(3):
            writer.add(index, "x", record(np.zeros(100, np.uint16), digest=str(index)))
    assert [line["shard"] for line in lines_of(tmp_path)] == [shards._shard_name(index) for index in range(3)]


def test_equal_contents_are_stored_once(tmp_path: Path) -> None:
    with ShardWriter(tmp_path, {}) as writer:
        writer.add(0, "a.jpg", record(np.ones(4, np.uint16)))
        writer.add(1, "copy of a.jpg", record(np.ones(4, np.uint16)))
    first, second = lines_of(tmp_path)
    assert first["tensors"] == second["tensors"] and first["file"] != second["file"]
    assert len(tensors_of(tmp_path / first["shard"])) == 1


def test_values_are_copied_when_they_are_added(tmp_path: Path) -> None:
    values = np.ones(4, np.uint16)
    with ShardWriter(tmp_path, {}) as writer:
        writer.add(0, "a", record(values))
        values[:] = 9
    assert tensors_of(tmp_path / "shard-00000.safetensors")["00000000.patches"][2] == b"\1\0" * 4


def test_failures_are_lines_too(tmp_path: Path) -> None:
    error = with_context(DecodeError("cannot decode PNG image: cut"), digest=b"\xab" * 32)
    with ShardWriter(tmp_path, {}) as writer:
        writer.fail(1, "bad\udcff.png", error)
        writer.fail(0, "odd.png", RuntimeError("what"))
    odd, bad = lines_of(tmp_path)
    assert bad["error"] == {
        "code": "decode_error",
        "type": "DecodeError",
        "message": "cannot decode PNG image: cut",
        "retriable": False,
    }
    assert bad["digest"] == "sha256:" + "ab" * 32 and bad["file"] == "bad\udcff.png"
    assert odd["error"]["code"] == "internal_error" and "tensors" not in odd
    assert [path.name for path in tmp_path.iterdir()] == [MANIFEST]


def test_an_earlier_run_is_not_mixed_with(tmp_path: Path) -> None:
    with ShardWriter(tmp_path, {}, max_shard_bytes=1) as writer:
        for index in range(3):
            writer.add(index, "x", record(np.ones(4, np.uint16), digest=str(index)))
    (tmp_path / "notes.txt").write_text("keep")
    with pytest.raises(InvalidArgument, match="--overwrite"):
        ShardWriter(tmp_path, {})
    with ShardWriter(tmp_path, {}, overwrite=True) as writer:
        writer.add(0, "y", record(np.ones(4, np.uint16)))
    names = sorted(path.name for path in tmp_path.iterdir())
    assert names == [MANIFEST, "notes.txt", "shard-00000.safetensors"]


def test_a_reader_never_sees_a_part(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "x.safetensors"
    write_safetensors(path, [("a", "uint8", np.arange(9, dtype=np.uint8))], {})
    before = path.read_bytes()

    def full(*_: object) -> None:
        raise OSError("no space left")

    monkeypatch.setattr(shards.os, "fsync", full)
    with pytest.raises(OSError, match="space"):
        write_safetensors(path, [("b", "uint8", np.arange(8, dtype=np.uint8))], {})
    assert path.read_bytes() == before and list(tmp_path.iterdir()) == [path]
    with pytest.raises(OSError, match="space"), ShardWriter(tmp_path / "out", {}) as writer:
        writer.add(0, "x", record(np.ones(4, np.uint16)))
    assert list((tmp_path / "out").iterdir()) == []


def test_many_threads_may_add(tmp_path: Path) -> None:
    with ShardWriter(tmp_path, {}, max_shard_bytes=100) as writer:

        def add(first: int) -> None:
            for index in range(first, first + 20):
                writer.add(index, str(index), record(np.full(9, index, np.uint16), digest=str(index)))

        threads = [threading.Thread(target=add, args=(20 * number,)) for number in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    lines = lines_of(tmp_path)
    assert [line["index"] for line in lines] == list(range(80))
    for line in lines:
        data = tensors_of(tmp_path / line["shard"])[line["tensors"][0]["name"]][2]
        assert data == np.full(9, line["index"], np.uint16).tobytes()
