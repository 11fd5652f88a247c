"""`models`: the families that this build knows."""

from __future__ import annotations

import argparse
import json
from typing import Any

from .. import _core
from ..errors import PreprocessError
from .table import render

_SIDE_PX = 1024


def add_parser(subparsers: Any) -> None:
    """Adds the subcommand."""
    parser = subparsers.add_parser("models", help="list the model families and what they make of an image")
    parser.add_argument("--json", action="store_true", help="for scripts")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Lists each family with its tokens and tensors for a square image, at the family's defaults."""
    rows = [describe(name) for name in _core.processor_names()]
    if arguments.json:
        print(json.dumps(rows))
        return 0
    header = ["model", f"tokens of {_SIDE_PX} x {_SIDE_PX}", "tensors"]
    print(render(header, [[row["model"], str(row["tokens"]), ", ".join(row["tensors"])] for row in rows]))
    return 0


def describe(name: str) -> dict[str, Any]:
    """What a family makes of a square image: `model`, `tokens`, and `tensors` as `name dtype [shape]`."""
    try:
        plan = _core.processor(name).plan(_SIDE_PX, _SIDE_PX)
    except PreprocessError as error:
        return {"model": name, "tokens": None, "tensors": [str(error)]}
    tensors = [f"{tensor} {dtype} {list(shape)}" for tensor, (dtype, shape) in plan["tensors"].items()]
    return {"model": name, "tokens": plan["num_tokens"], "tensors": tensors}
