"""The main job as a newcomer runs it: a process of its own, local Ray, the shipped photographs."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import safetensors
from reference import INKLING_DEFAULTS, inkling

from sglang_mm_ray.cli.shards import MANIFEST


def test_the_shipped_photographs(root: Path, photos: list[Path], tmp_path: Path) -> None:
    bad = tmp_path / "bad.png"
    bad.write_bytes(b"\x89PNG\r\n\x1a\n")
    command = [sys.executable, "-m", "sglang_mm_ray.cli", "preprocess", str(photos[0].parent), str(bad)]
    out = tmp_path / "out"
    done = subprocess.run(
        [*command, "--out", str(out), "--json", "--max-shard-mib", "16"],
        capture_output=True,
        text=True,
        cwd=root,
        timeout=300,
        env={name: value for name, value in os.environ.items() if name != "RAY_ADDRESS"},
    )
    assert done.returncode == 1, done.stderr
    summary = json.loads(done.stdout)
    assert (summary["processed"], summary["failed"]) == (len(photos), 1)
    assert summary["failures"][0]["file"] == str(bad)
    lines = [json.loads(line) for line in (out / MANIFEST).read_text().splitlines()]
    values = [INKLING_DEFAULTS[name] for name in ("patch_size", "rescale_frac", "rescale_cap")]
    tensors = {
        (shard.name, name): item
        for shard in out.glob("*.safetensors")
        for name, item in safetensors.deserialize(shard.read_bytes())
    }
    for line, photo in zip(lines, photos, strict=False):
        assert Path(line["file"]).name == photo.name
        _, _, bits = inkling(photo.read_bytes(), *values)[:3]
        item = tensors[line["shard"], line["tensors"][0]["name"]]
        assert item["dtype"] == "BF16" and bytes(item["data"]) == np.ascontiguousarray(bits).tobytes()
