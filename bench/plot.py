"""Draws what `bench_core.py` or `bench_qwen.py` measured: a panel for each work, a bar for each contender."""

from __future__ import annotations

from pathlib import Path
from typing import Any

COLOURS = {"ours": "#1b6ca8", "peer": "#c44e52", "Pillow": "#8c8c8c", "pillow-simd": "#b8a04a"}


def colour(name: str) -> str:
    return next((value for start, value in COLOURS.items() if name.startswith(start)), "#6aa84f")


def draw(result: dict[str, Any], path: Path) -> None:
    """Writes the picture to `path`; its suffix says the format."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    rows = result["rows"]
    columns = 2
    figure, axes = pyplot.subplots(
        -(-len(rows) // columns), columns, figsize=(13, 1.7 * -(-len(rows) // columns) + 1), squeeze=False
    )
    for axis, entry in zip(axes.flat, rows, strict=False):
        names = list(entry["contenders"])[::-1]
        times = [entry["contenders"][name] for name in names]
        medians = [time["median_ms"] for time in times]
        spread = [
            [time["median_ms"] - time["p10_ms"] for time in times],
            [time["p90_ms"] - time["median_ms"] for time in times],
        ]
        axis.barh(names, medians, xerr=spread, color=[colour(name) for name in names], ecolor="#444444")
        axis.set_title(entry["work"], fontsize=9)
        axis.tick_params(labelsize=8)
        axis.set_xlim(left=0)
    for axis in list(axes.flat)[len(rows) :]:
        axis.set_visible(False)
    figure.suptitle(f"Medians in ms, 10th to 90th percentile; {result['machine']['cpu']}", fontsize=10)
    figure.tight_layout()
    figure.savefig(path)
