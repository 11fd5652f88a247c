"""The README's main command from end to end: photographs in, patches on disk, equal to numpy in every bit."""

from __future__ import annotations

import json
import re
import shlex
import struct
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import reference
from ground import pages, tree


def read_shard(path: Path) -> dict[str, tuple[str, np.ndarray]]:
    """Tensors by name, read by the published layout of safetensors and not by our own code."""
    data = path.read_bytes()
    (header_bytes,) = struct.unpack_from("<Q", data)
    header: dict[str, Any] = json.loads(data[8 : 8 + header_bytes])
    header.pop("__metadata__", None)
    body = memoryview(data)[8 + header_bytes :]
    tensors, end = {}, 0
    for name, entry in sorted(header.items(), key=lambda item: item[1]["data_offsets"]):
        first, last = entry["data_offsets"]
        assert first == end, "tensors leave no gap and do not overlap"
        end = last
        # numpy has no bfloat16: its bits are compared.
        kind = {"BF16": "<u2", "F32": "<f4", "U8": "u1", "I64": "<i8"}[entry["dtype"]]
        tensors[name] = (entry["dtype"], np.frombuffer(body[first:last], kind).reshape(entry["shape"]))
    assert end == len(body)
    return tensors


@pytest.mark.timeout(300)
def test_shards_of_the_main_command_equal_the_reference(tmp_path: Path, photos: list[Path]) -> None:
    _, shown = pages.command("the main command").split("bin/sglang-mm-ray ")
    arguments = [str(tmp_path / word) if word == "patches" else word for word in shlex.split(shown)]
    # Not the cluster of somebody else on this machine.
    printed = tree.run(sys.executable, "-m", "sglang_mm_ray.cli", *arguments, "--address", "local")
    assert re.search(rf"processed +{len(photos)}\b", printed), printed

    rows = [json.loads(line) for line in (tmp_path / "patches/manifest.jsonl").read_text().splitlines()]
    assert [Path(row["file"]).name for row in rows] == [path.name for path in photos]
    shards = {name: read_shard(tmp_path / "patches" / name) for name in {row["shard"] for row in rows}}
    for path, row in zip(photos, rows, strict=True):
        height, width, expected, _ = reference.inkling(path.read_bytes())
        [tensor] = row["tensors"]
        dtype, bits = shards[row["shard"]][tensor["name"]]
        assert dtype == "BF16"
        assert np.array_equal(bits, expected), path.name
        assert (row["height"], row["width"], row["tokens"]) == (height, width, len(expected))
