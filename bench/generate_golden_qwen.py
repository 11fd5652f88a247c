"""Writes the golden values of Qwen-VL: `python bench/generate_golden_qwen.py [--check]`.

Needs transformers, torch and torchvision, whose own image processors make the values; the core is not
imported. The versions are stored with them. `--check` compares what is stored with what is installed.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import reference
import reference_qwen as qwen
from numpy.typing import NDArray

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests"))
from images import scene  # noqa: E402

GOLDEN = Path(__file__).resolve().parent / "golden"
FACTS, VALUES = "qwen.json", "qwen.npz"
PHOTOS = ROOT / "tests/data/photos"
RANDOM_COUNT, RANDOM_SEED = 1000, 1
# Width and height in pixels, and the fewest and most pixels, of the resizes that show what depends on the
# instruction set: grow, shrink, one direction each.
RESIZES = [(97, 61, 20000), (610, 970, 9000), (33, 1500, 30000), (512, 512, 262144)]


def random_digests() -> list[list[Any]]:
    """`[width, height, budget, digest by torchvision, digest by PIL]`, float32 with all copies."""
    rows: list[list[Any]] = []
    for number, (width, height, budget) in enumerate(qwen.random_sizes(RANDOM_COUNT, RANDOM_SEED)):
        rgb, config = scene(width, height, number), qwen.RANDOM_BUDGETS[budget][0]
        found = [qwen.digest(qwen.pixel_values(config, backend, rgb)[0]) for backend in qwen.BACKENDS]
        rows.append([width, height, budget, *found])
    return rows


def mode_digests() -> dict[str, dict[str, list[Any]]]:
    """By mode and backend: grid, and digests of float32, bfloat16 and the resized pixels."""
    table: dict[str, dict[str, list[Any]]] = {}
    for mode, config in (qwen.MODES | qwen.PIL_MODES).items():
        size = qwen.WHOLE_SIZE if mode == "no_resize" else qwen.MODE_SIZE
        rgb = scene(*size, seed=5)
        for backend in ("pil",) if mode in qwen.PIL_MODES else qwen.BACKENDS:
            values, grid = qwen.pixel_values(config, backend, rgb)
            pixels = rgb if mode == "no_resize" else qwen.resized_pixels(config, backend, rgb)
            found = [qwen.digest(array) for array in (values, qwen.bf16_bits(values), pixels)]
            table.setdefault(mode, {})[backend] = [grid, *found]
    return table


def photo_digests() -> dict[str, dict[str, list[Any]]]:
    """By photograph, and model and backend: grid, and digests of float32, bfloat16 and the resized pixels."""
    table: dict[str, dict[str, list[Any]]] = {}
    for path in sorted(PHOTOS.iterdir()):
        if path.suffix == ".md":
            continue
        rgb = reference.decode_rgb(path.read_bytes())
        for model in ("qwen2_5_vl", "qwen3_vl"):
            for backend in qwen.BACKENDS:
                values, grid = qwen.pixel_values(qwen.MODELS[model], backend, rgb)
                pixels = qwen.resized_pixels(qwen.MODELS[model], backend, rgb)
                found = [qwen.digest(array) for array in (values, qwen.bf16_bits(values), pixels)]
                table.setdefault(path.name, {})[f"{model}.{backend}"] = [grid, *found]
    return table


def aten_digests() -> dict[str, list[str]]:
    """Digests of torchvision's resizes by the instruction set of this process, by filter."""
    import torch
    from torchvision.transforms.v2 import functional

    found: dict[str, list[str]] = {}
    for name in ("bicubic", "bilinear", "lanczos"):
        for width, height, budget in RESIZES:
            size = qwen.smart_resize((height, width, 28, budget, budget))
            planes = torch.from_numpy(np.ascontiguousarray(scene(width, height, 3).transpose(2, 0, 1)))[None]
            mode = functional.InterpolationMode(name)
            out = functional.resize(planes, size, interpolation=mode, antialias=True)
            pixels = out[0].numpy().transpose(1, 2, 0)
            found.setdefault(name, []).append(qwen.digest(pixels))
    return found


def by_instruction_set() -> dict[str, dict[str, list[str]]]:
    """[`aten_digests`] of processes that ATen's environment variable holds to each of its x86 levels."""
    table = {}
    for level in ("default", "avx2", "avx512"):
        command = [sys.executable, __file__, "--aten-digests"]
        environment = os.environ | {"ATEN_CPU_CAPABILITY": level}
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
        table[level] = json.loads(done.stdout)
    return table


def facts() -> dict[str, Any]:
    return {
        "instruction_sets": by_instruction_set(),
        "modes": mode_digests(),
        "photos": photo_digests(),
        "random": random_digests(),
        "rope": [
            [model, prompt, 2, *qwen.rope_index(model, prompt, 2)]
            for model in ("qwen2_vl", "qwen2_5_vl", "qwen3_vl")
            for prompt in qwen.PROMPTS
        ],
        "smart_resize": [[*case, qwen.smart_resize(case)] for case in qwen.SMART_RESIZES],
        "versions": qwen.versions(),
    }


def values() -> dict[str, NDArray[Any]]:
    """`<model>.<backend>`: whole arrays of one small picture, so that a difference can be looked at."""
    rgb = scene(61, 33, seed=2)
    budget = {"qwen2_5_vl": {}, "qwen3_vl": {"size": {"longest_edge": 4096, "shortest_edge": 1024}}}
    return {
        f"{model}.{backend}": qwen.pixel_values(qwen.MODELS[model] | config, backend, rgb)[0]
        for model, config in budget.items()
        for backend in qwen.BACKENDS
    }


def rows(table: dict[str, Any]) -> str:
    """The facts as JSON, one row of a list a line."""
    parts = []
    for name, value in sorted(table.items()):
        if isinstance(value, list):
            lines = ",\n".join(json.dumps(row, separators=(",", ":")) for row in value)
            parts.append(f'"{name}": [\n{lines}\n]')
        else:
            parts.append(f'"{name}": {json.dumps(value, indent=1, sort_keys=True)}')
    return "{\n" + ",\n".join(parts) + "\n}\n"


def stored(folder: Path = GOLDEN) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
    """What is on disk. Raises FileNotFoundError if a part is missing."""
    with np.load(folder / VALUES) as archive:
        arrays = {name: archive[name] for name in archive.files}
    return json.loads((folder / FACTS).read_text(encoding="utf-8")), arrays


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, default=GOLDEN, help="folder of the golden values")
    parser.add_argument("--check", action="store_true", help="compare and write nothing")
    parser.add_argument("--aten-digests", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if not qwen.available():
        print("transformers, torch and torchvision are needed; install them first", file=sys.stderr)
        return 1
    if options.aten_digests:
        print(json.dumps(aten_digests()))
        return 0
    new_facts, new_values = json.loads(rows(facts())), values()
    if options.check:
        old_facts, old_values = stored(options.out)
        found = [name for name in new_facts if name != "versions" and new_facts[name] != old_facts[name]]
        found += [name for name in new_values if not np.array_equal(new_values[name], old_values[name])]
        print("\n".join(f"differs: {name}" for name in found) or "all golden values hold")
        print(f"stored: {old_facts['versions']}\nhere:   {new_facts['versions']}")
        return 1 if found else 0
    options.out.mkdir(parents=True, exist_ok=True)
    np.savez_compressed(options.out / VALUES, **new_values)  # type: ignore[arg-type]
    (options.out / FACTS).write_text(rows(new_facts), encoding="utf-8")
    for name in (FACTS, VALUES):
        print(f"{(options.out / name).stat().st_size:9,d} bytes  {name}")
    print(f"written with {new_facts['versions']}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
