"""Speed and parity of Qwen-VL on one thread, in one run: `python bench/bench_qwen.py [--peer FILE] [--json]`.

An encoded photograph (JPEG q90) becomes transformers' `pixel_values`, float32 with all temporal copies. The
contenders take turns and the best of many repeats counts, in CPU time of the process, which with one thread
is the time on an idle machine: the core by the function that SGLang publishes; transformers' two backends
behind Pillow, where transformers is installed; and with `--peer` the compiled extension that SGLang ships
(`_multimodal.*.so`). Parity is against the backend of the same arithmetic. The exit code is 1 if the
core differs from it in any bit.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import reference
import reference_qwen as qwen
from bench_parity import encode, load_peer, synthetic_photo
from numpy.typing import NDArray
from PIL import Image

SIZES = ((512, 512), (1920, 1080), (3840, 2160))
MODELS = ("qwen2_5_vl", "qwen3_vl")
# The peer reads these fields and no others.
PEER_FIELDS = ("patch_size", "merge_size", "temporal_patch_size", "image_mean", "image_std")
# What issue and README promise: the core's lead over each contender, by size.
GOALS = {"peer": {512: 4.0, 1920: 4.0, 3840: 2.0}, "torchvision": dict.fromkeys((512, 1920, 3840), 6.0)}
GOALS["pil"] = GOALS["torchvision"]

Work = Callable[[], NDArray[Any]]


@dataclass
class Row:
    """One picture and model: best milliseconds of each contender, values that differ from transformers."""

    work: str
    width_px: int
    ms: dict[str, float] = field(default_factory=dict)
    differing_values: dict[str, int] = field(default_factory=dict)
    stages_ms: dict[str, float] = field(default_factory=dict)


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
    """By name. `core` and `peer` have torchvision's arithmetic, which is what these checkpoints name."""
    spec, pil_spec = peer_spec(model, "aten_u8"), peer_spec(model, "pil")
    works: dict[str, Work] = {
        "core": lambda: core.qwen_vl.preprocess(data, spec)[0],
        "core_pil": lambda: core.qwen_vl.preprocess(data, pil_spec)[0],
    }
    if peer is not None:
        works["peer"] = lambda: peer.qwen_vl.preprocess(data, spec)[0]
    if qwen.available():
        for backend in qwen.BACKENDS:
            works[backend] = transformers_work(model, backend, data)
    return works


def measure(row: Row, works: dict[str, Work], seconds: float) -> Row:
    for name, backend in (("core", "torchvision"), ("peer", "torchvision"), ("core_pil", "pil")):
        if name in works and backend in works:
            found, expected = works[name](), works[backend]()
            same = found.shape == expected.shape
            row.differing_values[name] = int(np.count_nonzero(found != expected)) if same else expected.size
    best = dict.fromkeys(works, float("inf"))
    deadline_s, repeats = time.perf_counter() + seconds, 0
    while repeats < 3 or time.perf_counter() < deadline_s:
        for name, run in works.items():
            started_s = time.process_time()
            run()
            best[name] = min(best[name], time.process_time() - started_s)
        repeats += 1
    row.ms = {name: value * 1e3 for name, value in best.items()}
    return row


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


def goals(row: Row) -> list[str]:
    """What was promised and is not kept."""
    return [
        f"{row.work}: {row.ms[name] / row.ms['core']:.1f} x {name}, promised {least[row.width_px]:.0f} x"
        for name, least in GOALS.items()
        if name in row.ms and row.ms[name] < least[row.width_px] * row.ms["core"]
    ]


def show(rows: list[Row]) -> None:
    for row in rows:
        print(
            f"{row.work}: core {row.ms['core']:.2f} ms, with Pillow's arithmetic {row.ms['core_pil']:.2f} ms"
        )
        for name, ms in row.ms.items():
            if not name.startswith("core"):
                print(f"    {name:12} {ms:9.2f} ms  {ms / row.ms['core']:5.1f} x")
        print("    stages, ms: " + ", ".join(f"{name} {ms:.2f}" for name, ms in row.stages_ms.items()))
        if row.differing_values:
            found = ", ".join(f"{name} {count:,}" for name, count in row.differing_values.items())
            print(f"    values that differ from transformers: {found}")


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object and no table")
    parser.add_argument("--quick", action="store_true", help="small images only")
    parser.add_argument("--seconds", type=float, default=2.0, help="time for each row")
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
    rows = []
    for width, height in SIZES[:1] if options.quick else SIZES:
        data = encode(synthetic_photo(width, height), "JPEG", quality=90)
        for model in MODELS:
            row = Row(f"{width}x{height} {model}", width)
            row.stages_ms = stages(_core, model, data)
            rows.append(measure(row, contenders(_core, peer, model, data), options.seconds))
    exact = all(count == 0 for row in rows for name, count in row.differing_values.items() if name != "peer")
    missed = [line for row in rows for line in goals(row)]
    versions = qwen.versions() if qwen.available() else {}
    if options.json:
        about = {"versions": versions, "build": _core.build_info(), "exact": exact, "missed": missed}
        print(json.dumps({**about, "rows": [asdict(row) for row in rows]}))
    else:
        show(rows)
        print(f"\n{versions or 'transformers is not installed'}\ncore {_core.build_info()}")
        print("every bit equals transformers'" if exact else "the core DIFFERS from transformers")
        print("\n".join(missed) or "every goal is met")
    return 0 if exact else 1


if __name__ == "__main__":
    sys.exit(main())
