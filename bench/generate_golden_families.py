"""Writes golden values of model families: `python bench/generate_golden_families.py [--check] [FAMILY ...]`.

Runs each family's reference on the CPU: Hugging Face's classes, SGLang's own code, or what a checkpoint's
code does (`reference_families`). The core is not imported. Needs transformers, torch, torchvision and sglang;
the versions are stored. `--check` compares with what is stored and writes nothing, so a newer transformers is
tried by running it with that one's interpreter. `--oracles` holds what is written anew here to SGLang's code.
"""

from __future__ import annotations

import argparse
import hashlib
import importlib.metadata
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from reference_families import inputs, oracles
from reference_families.registry import FAMILIES
from reference_families.variant import Result, Tensor, Variant

FOLDER = Path(__file__).resolve().parent / "golden" / "families"
SAMPLES = 64
Case = dict[str, Any]


def digest(array: NDArray[Any]) -> str:
    """SHA-256 of all values, little-endian; 32 of its 64 digits."""
    return hashlib.sha256(np.ascontiguousarray(array).tobytes()).hexdigest()[:32]


def bf16_bits(values: NDArray[np.float32]) -> NDArray[np.uint16]:
    """The bits of the values rounded to bfloat16, by torch."""
    import torch

    return torch.from_numpy(np.ascontiguousarray(values)).to(torch.bfloat16).view(torch.uint16).numpy()


def samples(array: NDArray[Any]) -> NDArray[Any]:
    """Values spread evenly, first and last among them, so that a difference can be looked at."""
    flat = array.reshape(-1)
    return flat[np.linspace(0, flat.size - 1, min(SAMPLES, flat.size)).astype(np.int64)]


def tensor_row(tensor: Tensor) -> Case:
    row: Case = {"dtype": tensor.dtype, "shape": list(tensor.array.shape), "sha256": digest(tensor.array)}
    if tensor.dtype == "float32":
        row["bf16"] = digest(bf16_bits(tensor.array))
    if tensor.array.dtype.kind in "iu" and tensor.dtype != "bfloat16" and tensor.array.size <= 16:
        row["values"] = tensor.array.tolist()
    return row


def run(variant: Variant, item: inputs.Input) -> tuple[Case, dict[str, NDArray[Any]]]:
    """A row of the table, and samples by tensor."""
    case: Case = {"variant": variant.name, "input": str(item)}
    try:
        result: Result = variant.run(inputs.encoded(item))
    except ValueError as refusal:
        return case | {"refused": str(refusal).split("\n")[0][:160]}, {}
    rows = {name: tensor_row(tensor) for name, tensor in result.tensors.items()}
    found = {name: samples(tensor.array) for name, tensor in result.tensors.items()}
    return case | {"num_tokens": result.num_tokens, "tensors": rows}, found


def family_values(name: str) -> tuple[Case, dict[str, NDArray[Any]]]:
    """Everything that is stored of a family."""
    table: Case = {"variants": {}, "inputs": {}, "cases": []}
    arrays: dict[str, NDArray[Any]] = {}
    for variant in FAMILIES[name]():
        table["variants"][variant.name] = {"parameters": variant.parameters, "request": variant.request}
        for item in variant.inputs:
            case, found = run(variant, item)
            table["cases"].append(case)
            table["inputs"][str(item)] = inputs.pixels_digest(item)
            arrays |= {f"{variant.name}|{item}|{tensor}": values for tensor, values in found.items()}
    return table, arrays


def versions() -> dict[str, str]:
    """What the values come from."""
    import torch

    names = ("numpy", "pillow", "sglang", "torch", "torchvision", "transformers")
    found = {name: importlib.metadata.version(name) for name in names}
    return found | {"aten_cpu_capability": torch.backends.cpu.get_cpu_capability()}


def text(table: Case) -> str:
    """The table as JSON, one case a line."""
    parts = []
    for name, value in sorted(table.items()):
        if name == "cases":
            parts.append(
                '"cases": [\n' + ",\n".join(json.dumps(row, separators=(",", ":")) for row in value) + "\n]"
            )
        else:
            rows = (
                f"{json.dumps(key)}: {json.dumps(row, sort_keys=True)}" for key, row in sorted(value.items())
            )
            parts.append(f"{json.dumps(name)}: {{\n" + ",\n".join(rows) + "\n}")
    return "{\n" + ",\n".join(parts) + "\n}\n"


def stored(name: str, folder: Path = FOLDER) -> tuple[Case, dict[str, NDArray[Any]]]:
    """What is on disk of a family. Raises FileNotFoundError if a part is missing."""
    with np.load(folder / f"{name}.npz") as archive:
        arrays = {key: archive[key] for key in archive.files}
    table: Case = json.loads((folder / f"{name}.json").read_text(encoding="utf-8"))
    return table, arrays


def differences(name: str, table: Case, folder: Path) -> list[str]:
    """What a family's stored table says otherwise."""
    old = stored(name, folder)[0]
    known = {(case["variant"], case["input"]): case for case in old["cases"]}
    found = []
    for case in table["cases"]:
        key = (case["variant"], case["input"])
        before = known.pop(key, None)
        if before != case and not (before and "refused" in before and "refused" in case):
            found.append(f"{name}: {key[0]}, {key[1]}")
    return found + [f"{name}: {key[0]}, {key[1]} is stored alone" for key in known]


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("families", nargs="*", metavar="FAMILY", help="all of them by default")
    parser.add_argument("--out", type=Path, default=FOLDER, help="folder of the golden values")
    parser.add_argument("--check", action="store_true", help="compare and write nothing")
    parser.add_argument("--oracles", action="store_true", help="check our own references, and write nothing")
    options = parser.parse_args()
    unknown = set(options.families) - set(FAMILIES)
    if unknown:
        parser.error(f"no such family: {', '.join(sorted(unknown))}; there are {', '.join(sorted(FAMILIES))}")
    if options.oracles:
        wrong = oracles.faults()
        print("\n".join(wrong) or "all of them hold")
        return 1 if wrong else 0
    differing: list[str] = []
    for name in options.families or sorted(FAMILIES):
        table, arrays = family_values(name)
        if options.check:
            differing += differences(name, table, options.out)
            print(f"{name}: {len(table['cases'])} cases compared", flush=True)
            continue
        options.out.mkdir(parents=True, exist_ok=True)
        np.savez_compressed(options.out / f"{name}.npz", **arrays)  # type: ignore[arg-type]
        (options.out / f"{name}.json").write_text(text(table | {"versions": versions()}), encoding="utf-8")
        size = sum((options.out / f"{name}.{kind}").stat().st_size for kind in ("json", "npz"))
        print(f"{name}: {len(table['cases'])} cases, {size:,d} bytes", flush=True)
    print("\n".join(f"differs: {line}" for line in differing))
    return 1 if differing else 0


if __name__ == "__main__":
    sys.exit(main())
