"""Qwen-VL through pool, `gather` and command line, held to the stored values of transformers."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import generate_golden_qwen as golden
import numpy as np
import pytest
import reference
import reference_qwen as qwen
import safetensors

import sglang_mm_ray as smr
from sglang_mm_ray.cli.shards import MANIFEST

COPIES = 2

pytestmark = pytest.mark.skipif(
    not reference.pillow_is_vertical_first(), reason="the stored values are those of Pillow 13's pass order"
)


def expected(path: Path, name: str) -> list[Any]:
    """Grid, and digests of float32, bfloat16 and resized pixels, the former two with all copies."""
    found: list[Any] = golden.stored()[0]["photos"][path.name][name]
    return found


def expanded(values: np.ndarray) -> np.ndarray:
    """`[patches, 3, 1, p, p]` as the model wants it: `[patches, 3 * copies * p * p]`."""
    return np.repeat(values, COPIES, axis=2).reshape(len(values), -1)


@pytest.mark.parametrize("transport", ["bf16", "uint8"])
def test_photographs_through_pool_and_gather(local_ray: None, photos: list[Path], transport: str) -> None:
    data = [path.read_bytes() for path in photos]
    with smr.PreprocessPool(
        model="qwen_vl",
        parameters=qwen.QWEN2_5_VL,
        transport=transport,
        num_workers=2,
        threads_per_worker=1,
        warm_bytes=32 << 20,
        name=f"qwen-{transport}",
    ) as pool:
        images = pool.preprocess(data)
        gathered = smr.gather(images)
        row = 0
        for path, image in zip(photos, images, strict=True):
            grid, _, bits, pixels = expected(path, "qwen2_5_vl.torchvision")
            assert list(image.grid_thw) == grid
            patches = int(np.prod(grid))
            assert image.num_tokens == patches // 4
            if transport == "uint8":
                assert qwen.digest(image.array()) == pixels
            else:
                # One copy of each patch is stored and moved, not two.
                assert image.nbytes == patches * 3 * 14 * 14 * 2
                assert qwen.digest(expanded(image.array())) == bits
            assert qwen.digest(expanded(gathered[row : row + patches])) == bits, path.name
            row += patches
        assert row == len(gathered)
        [thin, good] = pool.preprocess([np.zeros((1, 201, 3), np.uint8), data[0]], on_error="return")
        assert isinstance(thin, smr.InvalidArgument) and "201 x 1" in str(thin)
        assert isinstance(good, smr.ProcessedImage)


def test_command_line(root: Path, photos: list[Path], tmp_path: Path) -> None:
    out = tmp_path / "out"
    command = [sys.executable, "-m", "sglang_mm_ray.cli", "preprocess", *map(str, photos[:3])]
    command += ["--model", "qwen_vl", "--parameters", json.dumps(qwen.QWEN3_VL)]
    done = subprocess.run(
        [*command, "--out", str(out), "--json", "--address", "local"],
        capture_output=True,
        text=True,
        cwd=root,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    tensors = {
        (shard.name, name): item
        for shard in out.glob("*.safetensors")
        for name, item in safetensors.deserialize(shard.read_bytes())
    }
    lines = [json.loads(line) for line in (out / MANIFEST).read_text().splitlines()]
    assert len(lines) == 3
    for line, photo in zip(lines, photos, strict=False):
        item = tensors[line["shard"], line["tensors"][0]["name"]]
        assert item["dtype"] == "BF16"
        values = np.frombuffer(bytes(item["data"]), np.uint16).reshape(item["shape"])
        assert qwen.digest(expanded(values)) == expected(photo, "qwen3_vl.torchvision")[2]
