"""Speed and parity of Qwen-VL on one thread, in one run: `python bench/bench_qwen.py [--peer FILE] [--json]`.

An encoded photograph (JPEG q90) becomes transformers' `pixel_values`, float32 with all temporal copies.
Images of up to 64 MB in all are held until a turn ends, as those of a request are. (`--held 1`: one at a
time. Then it depends on the run if the C library keeps the others' 6 MB for their next image, and so do
their leads.) The contenders take turns, in CPU time of the process, which with one thread is the time on an
idle machine: the core by the function that SGLang publishes; transformers' two backends behind Pillow,
where transformers is installed; and with `--peer` the compiled extension that SGLang ships
(`_multimodal.*.so`). A lead is the median of the ratios within each turn; the ratio of the best times
stands beside it. Where simplejpeg is installed, libjpeg-turbo decodes the file too, and no more. Parity is
against the backend of the same arithmetic. The exit code is 1 if the core differs from it in any bit.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import reference
import reference_qwen as qwen
from bench_core import Samples, cpu_name, row, take_turns
from bench_parity import encode, load_peer, synthetic_photo
from contenders import libjpeg_turbo
from numpy.typing import NDArray
from PIL import Image

SIZES = ((512, 512), (1920, 1080), (3840, 2160))
MODELS = ("qwen2_5_vl", "qwen3_vl")
# The peer reads these fields and no others.
PEER_FIELDS = ("patch_size", "merge_size", "temporal_patch_size", "image_mean", "image_std")
# What is asked of the core: its lead over each contender, by width.
GOALS = {"peer": {512: 4.0, 1920: 4.0, 3840: 2.0}, "torchvision": dict.fromkeys((512, 1920, 3840), 6.0)}
GOALS["pil"] = GOALS["torchvision"]
DECODE_ALONE = "libjpeg-turbo"
HELD_BYTES = 64 << 20

Work = Callable[[], NDArray[Any]]
Row = dict[str, Any]


def peer_spec(model: str, resample: str) -> str:
    config = qwen.MODELS[model]
    size = config.get("size", {})
    fields = {name: config[name] for name in PEER_FIELDS} | {
        "family": "qwen_vl",
        "image_token_id": 1,
        "resample": resample,
        "min_pixels": config.get("min_pixels", size.get("shortest_edge")),
        "max_pixels": config.get("max_pixels", size.get("longest_edge")),
    }
    return json.dumps(fields)


def transformers_work(model: str, backend: str, data: bytes) -> Work:
    processor = qwen.image_processor(qwen.MODELS[model], backend)

    def work() -> NDArray[Any]:
        image = Image.fromarray(reference.decode_rgb(data))
        values: NDArray[Any] = processor(image, return_tensors="pt")["pixel_values"].numpy().ravel()
        return values

    return work


def contenders(core: Any, peer: Any, model: str, data: bytes) -> dict[str, Work]:
    """By name. `ours` and `peer` have torchvision's arithmetic, which is what these checkpoints name."""
    spec, pil_spec = peer_spec(model, "aten_u8"), peer_spec(model, "pil")
    works: dict[str, Work] = {
        "ours": lambda: core.qwen_vl.preprocess(data, spec)[0],
        "ours, as pil": lambda: core.qwen_vl.preprocess(data, pil_spec)[0],
    }
    if peer is not None:
        works["peer"] = lambda: peer.qwen_vl.preprocess(data, spec)[0]
    if qwen.available():
        for backend in qwen.BACKENDS:
            works[backend] = transformers_work(model, backend, data)
    return works


def differing_values(works: dict[str, Work]) -> dict[str, int]:
    """Values that differ from transformers, by contender."""
    differing: dict[str, int] = {}
    for name, backend in (("ours", "torchvision"), ("ours, as pil", "pil"), ("peer", "torchvision")):
        if name in works and backend in works:
            found, expected = works[name](), works[backend]()
            same = found.shape == expected.shape
            differing[name] = int(np.count_nonzero(found != expected)) if same else expected.size
    return differing


def leads(samples: Samples) -> dict[str, dict[str, float]]:
    """How many times the core's time each contender takes: within each turn, and at best."""
    ours = samples["ours"]
    return {
        name: {
            "paired": statistics.median(other / own for other, own in zip(times, ours, strict=True)),
            "best": min(times) / min(ours),
        }
        for name, times in samples.items()
        if name != "ours"
    }


def measure(
    core: Any, peer: Any, model: str, size_px: tuple[int, int], seconds: float, most_held: int
) -> Row:
    """One picture and model."""
    width, height = size_px
    data = encode(synthetic_photo(width, height), "JPEG", quality=90)
    stages_ms = stages(core, model, data)
    works = contenders(core, peer, model, data)
    differing = differing_values(works)
    out_bytes = works["ours"]().nbytes
    decode = libjpeg_turbo(data)
    held = max(1, min(most_held, HELD_BYTES // out_bytes))
    samples = take_turns({**works, DECODE_ALONE: decode}, seconds, fewest_rounds=5, held=held)
    found = row(f"{width}x{height} {model}", samples, {})
    found |= {"leads": leads(samples), "differing_values": differing, "stages_ms": stages_ms}
    return {**found, "width_px": width, "out_mb": out_bytes / 1e6, "held": held}


def stages(core: Any, model: str, data: bytes) -> dict[str, float]:
    """Best milliseconds of each stage of the core, and of the whole as the pool ships it: bf16, one copy."""
    processor = core.processor("qwen_vl", json.dumps(qwen.MODELS[model] | {"expand_temporal": True}))
    best: dict[str, float] = {}
    for _ in range(9):
        [image] = processor.preprocess_batch([data], "float32")
        for name, value in image.times.items():
            best[name] = min(best.get(name, float("inf")), value)
    compact = core.processor("qwen_vl", json.dumps(qwen.MODELS[model]))
    for _ in range(9):
        started_s = time.process_time()
        compact.preprocess_batch([data], "bf16")
        best["bf16_one_copy"] = min(best.get("bf16_one_copy", 9e9), time.process_time() - started_s)
    return {name.removesuffix("_s"): value * 1e3 for name, value in best.items()}


def missed_goals(entry: Row) -> list[str]:
    """What was asked for and is not reached, and what libjpeg-turbo's decoding alone would be."""
    missed = []
    for name, least in GOALS.items():
        goal, lead = least[entry["width_px"]], entry["leads"].get(name)
        if lead is None or max(lead.values()) >= goal:
            continue
        line = f"{entry['work']}: {lead['paired']:.1f} x {name}, asked for {goal:.0f} x"
        if alone := entry["contenders"].get(DECODE_ALONE):
            most = entry["contenders"][name]["best_ms"] / alone["best_ms"]
            line += f"; libjpeg-turbo's decoding and nothing else would be {most:.1f} x"
        missed.append(line)
    return missed


def show(rows: list[Row]) -> None:
    for entry in rows:
        print(f"{entry['work']}, {entry['out_mb']:.1f} MB out, {entry['held']} held")
        for name, times in entry["contenders"].items():
            lead = entry["leads"].get(name)
            ratio = f"{lead['paired']:5.2f} x  ({lead['best']:.2f} at best)" if lead else ""
            print(f"    {name:14} {times['median_ms']:9.2f} ms, best {times['best_ms']:8.2f}  {ratio}")
        print("    stages, ms: " + ", ".join(f"{name} {ms:.2f}" for name, ms in entry["stages_ms"].items()))
        if entry["differing_values"]:
            found = ", ".join(f"{name} {count:,}" for name, count in entry["differing_values"].items())
            print(f"    values that differ from transformers: {found}")


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object and no table")
    parser.add_argument("--plot", metavar="FILE", type=Path, help="draw the medians (needs matplotlib)")
    parser.add_argument("--quick", action="store_true", help="small images only")
    parser.add_argument("--seconds", type=float, default=2.0, help="time for each row")
    parser.add_argument("--held", type=int, default=HELD_BYTES, help="most images of a turn")
    parser.add_argument("--peer", type=Path, help="the extension of SGLang to compare with as well")
    options = parser.parse_args()
    # Read when a library starts its threads, so before it is imported.
    os.environ["SGL_MM_RS_THREADS"] = os.environ["OMP_NUM_THREADS"] = "1"
    # The package, not only its core: importing it picks the installed Pillow's pass order.
    import sglang_mm_ray  # noqa: F401
    from sglang_mm_ray import _core

    if qwen.available():
        qwen.one_thread()
    peer = load_peer(options.peer) if options.peer else None
    rows = [
        measure(_core, peer, model, size, options.seconds, options.held)
        for size in (SIZES[:1] if options.quick else SIZES)
        for model in MODELS
    ]
    exact = all(n == 0 for entry in rows for name, n in entry["differing_values"].items() if name != "peer")
    missed = [line for entry in rows for line in missed_goals(entry)]
    versions = qwen.versions() if qwen.available() else {}
    result = {"machine": {"cpu": cpu_name()}, "versions": versions, "build": _core.build_info(), "rows": rows}
    if options.json:
        print(json.dumps({**result, "exact": exact, "missed": missed}))
    else:
        show(rows)
        print(f"\n{cpu_name()}, {versions or 'transformers is not installed'}\ncore {_core.build_info()}")
        print("every bit equals transformers'" if exact else "the core DIFFERS from transformers")
        print("\n".join(missed) or "every goal is met")
    if options.plot:
        from plot import draw

        draw(result, options.plot)
    return 0 if exact else 1


if __name__ == "__main__":
    sys.exit(main())
