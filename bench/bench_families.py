"""Every family against its own reference on one thread: `python bench/bench_families.py [FAMILY...]`.

An encoded photograph (JPEG q90) becomes the family's tensors in float32, by the core and by the CPU
reference that its golden values come from (`bench/reference_families`: transformers, the checkpoint's code,
or SGLang's). References that are not installed are left out, by name. The contenders take turns, in CPU time
of the process; a lead is the median of the ratios within each turn. The exit code is 1 if a tensor differs
in any bit.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

import generate_golden_families as golden
from bench_core import cpu_name
from bench_parity import encode, synthetic_photo
from reference_families.registry import FAMILIES
from reference_families.variant import Result, Variant

SIZES = ((512, 512), (1920, 1080), (3840, 2160))
SERVED_BY = {"gemma3_pan_and_scan": "gemma3"}

Row = dict[str, Any]


def variants(family: str) -> list[Variant]:
    """The checkpoint's parameters, once for each reference: not those that are there for small images."""
    found = FAMILIES[family]()
    first = found[0].name.split(".")[0]
    return [variant for variant in found if variant.name.split(".")[0] == first and not variant.request]


def difference(result: Result, image: Any) -> str:
    """What differs, or nothing; grids may be the image's own."""
    for name, tensor in result.tensors.items():
        if name not in image.tensors and "grid" in name:
            continue
        found = image.tensors.get(name)
        if tensor.dtype == "bfloat16":
            continue
        if found is None or golden.digest(found) != golden.digest(tensor.array):
            return name
    return ""


def seconds(work: Callable[[], Any]) -> float:
    started = time.process_time()
    work()
    return time.process_time() - started


def measure(core: Any, family: str, variant: Variant, data: bytes, budget_s: float) -> Row:
    processor = core.processor(SERVED_BY.get(family, family), json.dumps(variant.parameters))

    works = {
        "ours": lambda: processor.preprocess_batch([data], "float32")[0],
        "reference": lambda: variant.run(data),
    }
    result, image = works["reference"](), works["ours"]()
    row: Row = {"reference": variant.name, "tokens": image.num_tokens, "differs": difference(result, image)}
    turns: list[dict[str, float]] = []
    until = time.monotonic() + budget_s
    while len(turns) < 3 or time.monotonic() < until:
        order = list(works) if len(turns) % 2 else list(reversed(works))
        turns.append({name: seconds(works[name]) for name in order})
    for name in works:
        row[f"{name}_ms"] = 1000 * statistics.median(turn[name] for turn in turns)
    row["times"] = statistics.median(turn["reference"] / turn["ours"] for turn in turns)
    return row


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("families", nargs="*", metavar="FAMILY", help="by default all that the core has")
    parser.add_argument("--seconds", type=float, default=1.0, help="for each row, at least (default: 1)")
    parser.add_argument("--json", action="store_true", help="for scripts")
    arguments = parser.parse_args()
    os.environ["SGL_MM_RS_THREADS"] = "1"
    from sglang_mm_ray import _core

    try:
        import torch

        torch.set_num_threads(1)
    except ImportError:
        print("torch is not installed: the references that need it are left out", file=sys.stderr)
    known = [name for name in FAMILIES if SERVED_BY.get(name, name) in _core.processor_names()]
    rows: list[Row] = []
    for family in arguments.families or sorted(known):
        for width, height in SIZES:
            data = encode(synthetic_photo(width, height), "JPEG", quality=90)
            print(f"{family}, {width} x {height}", end="\r", file=sys.stderr, flush=True)
            for variant in variants(family):
                try:
                    measured = measure(_core, family, variant, data, arguments.seconds)
                except ImportError as error:
                    print(f"{family}, {variant.name}: left out, {error}", file=sys.stderr)
                    continue
                row = {"family": family, "size": f"{width}x{height}", **measured}
                rows.append(row)
                if not arguments.json:
                    said = f"differs in {row['differs']}" if row["differs"] else "equal"
                    print(
                        f"{family:20} {row['size']:>10} {row['reference']:26} {row['ours_ms']:8.2f} ms "
                        f"{row['reference_ms']:9.1f} ms {row['times']:6.1f} x  {said}",
                        flush=True,
                    )
    if arguments.json:
        print(json.dumps({"cpu": cpu_name(), "rows": rows}))
    return 1 if any(row["differs"] for row in rows) else 0


if __name__ == "__main__":
    sys.exit(main())
