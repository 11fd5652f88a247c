"""The options that several subcommands share, and the configuration that they make."""

from __future__ import annotations

import argparse
import json
import os
from typing import TYPE_CHECKING, Any

from .. import _core
from ..errors import InvalidArgument

if TYPE_CHECKING:
    from ..config import PoolConfig

TRANSPORTS = ("bf16", "uint8", "float32")


def positive(text: str) -> int:
    """An argument type: an integer of at least 1."""
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError("must be at least 1")
    return value


def add_pool_options(parser: argparse.ArgumentParser) -> None:
    """What a new pool is told."""
    group = parser.add_argument_group("pool")
    models = ", ".join(_core.processor_names())
    group.add_argument("--model", help=f"model family: {models} (default: inkling)")
    group.add_argument(
        "--model-path", metavar="DIR", help="a checkpoint's folder, which names the family and its parameters"
    )
    group.add_argument("--parameters", metavar="JSON", help="parameters of the family, as a JSON object")
    group.add_argument("--transport", choices=TRANSPORTS, help="what is stored (default: bf16)")
    group.add_argument("--workers", type=positive, metavar="N", help="workers (default: one for each node)")
    group.add_argument("--threads", type=positive, metavar="N", help="threads of each worker")
    group.add_argument(
        "--config", metavar="FILE", help="a PoolConfig as JSON; the other options replace its fields"
    )


def add_address(parser: Any, default: str) -> None:
    """Which cluster; `default` says which one without the option."""
    parser.add_argument(
        "--address", help=f"Ray cluster: host:port, auto or local (default: RAY_ADDRESS, else {default})"
    )


def address_or_local(arguments: argparse.Namespace) -> str | None:
    """The cluster for work that is done when the command ends: this machine, unless another one is named."""
    address: str | None = arguments.address
    return address if address is not None or os.environ.get("RAY_ADDRESS") else "local"


def pool_config(arguments: argparse.Namespace, allowed_roots: tuple[str, ...] = ()) -> PoolConfig:
    """The configuration that the options make; `allowed_roots` are added to those of the file.

    Raises:
        InvalidArgument: the file or a value cannot work.
    """
    from ..config import PoolConfig

    fields = _json(arguments.config, _read(arguments.config)) if arguments.config else {}
    if arguments.model_path is not None:
        from ..checkpoints import family_of_folder

        if arguments.model is not None or arguments.parameters is not None:
            raise InvalidArgument(
                "--model-path names the family and its parameters; leave --model and --parameters out"
            )
        fields["model"], fields["parameters"] = family_of_folder(arguments.model_path)
    if arguments.parameters is not None:
        fields["parameters"] = _json("--parameters", arguments.parameters)
    for option, field in (
        ("model", "model"),
        ("transport", "transport"),
        ("workers", "num_workers"),
        ("threads", "threads_per_worker"),
    ):
        value = getattr(arguments, option)
        if value is not None:
            fields[field] = value
    policy = fields.get("policy") or {}
    roots = policy.get("allowed_roots", []) if isinstance(policy, dict) else None
    if not isinstance(roots, list):
        raise InvalidArgument("policy must be a JSON object, and its allowed_roots a list")
    policy = {**policy, "allowed_roots": [*roots, *allowed_roots]}
    return PoolConfig.from_dict({**fields, "policy": policy})


def _read(path: str) -> str:
    try:
        with open(path, encoding="utf-8") as file:
            return file.read()
    except (OSError, UnicodeDecodeError) as error:
        reason = os.strerror(error.errno or 0) if isinstance(error, OSError) else "it is not UTF-8"
        raise InvalidArgument(f"{path} cannot be read: {reason}") from None


def _json(name: str, text: str) -> dict[str, Any]:
    try:
        value = json.loads(text)
    except json.JSONDecodeError as error:
        raise InvalidArgument(f"{name} is not JSON: {error}") from None
    if not isinstance(value, dict):
        raise InvalidArgument(f"{name} must be a JSON object")
    return value
