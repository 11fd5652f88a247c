"""The scripts in bench/ run as their page says."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from . import pages, tree

SCRIPTS = sorted(
    str(path.relative_to(tree.ROOT))
    for pattern in ("bench_*.py", "generate_*.py", "sim_*.py")
    for path in (tree.ROOT / "bench").glob(pattern)
)


def test_every_script_is_listed() -> None:
    listed = {word for row in pages.rows("Scripts") for word in pages.code(row[0])}
    assert listed == {*SCRIPTS, "bench/test_golden.py"}


@pytest.mark.parametrize("script", SCRIPTS)
def test_every_script_tells_its_options(script: str) -> None:
    assert "usage: " in tree.run(sys.executable, script, "--help")


@pytest.mark.timeout(300)
def test_parity_benchmark_finds_no_difference() -> None:
    output = tree.run(sys.executable, "bench/bench_parity.py", "--quick", "--json", "--seconds", "0")
    found = json.loads(output)
    assert found["exact"] is True
    assert len(found["rows"]) >= 20
    assert all(row["ms"]["core"] > 0 and row["ms"]["pillow"] > 0 for row in found["rows"])


@pytest.mark.timeout(300)
def test_decoding_benchmark_finds_no_difference() -> None:
    output = tree.run(sys.executable, "bench/bench_decode.py", "--quick", "--json", "--seconds", "0")
    found = json.loads(output)
    assert found["exact"] is True
    assert {"pillow", "core"} <= set(found["rows"][0]["ms"])
    assert len(found["rows"]) >= 25


def test_rows_of_all_modes_are_drawn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("matplotlib")
    monkeypatch.syspath_prepend(str(tree.ROOT / "bench"))
    import bench_cluster

    rows = [
        {"mode": "published", "contender": "pool", "images_per_s": 2.0},
        {"mode": "published", "contender": "core", "images_per_s": 3.0},
        {"mode": "latency", "contender": "pool, idle", "p50_ms": 4.0},
    ]
    picture = tmp_path / "rows.png"
    bench_cluster.plot(rows, picture)
    assert picture.read_bytes().startswith(b"\x89PNG")
