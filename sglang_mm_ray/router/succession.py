"""Which pool has a name now: the known one, another one, or none. Blocking; keep it off loops."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any, Literal

import ray
from ray.exceptions import RayError

from ..cluster import find_controller, read_note, write_note
from ..config import PoolConfig
from ..errors import PoolNotFound

__all__ = ["Seen", "await_successor", "look", "successor_is_awaited"]

_ANSWERS_WITHIN_S = 5.0


@dataclass(frozen=True, slots=True)
class Seen:
    """Who has the pool's name."""

    who: Literal["same", "other", "none", "unknown"]
    controller: Any = None
    why_not: str = ""
    """For another pool that gives other results: what differs."""


def look(pool: str, config: PoolConfig, known: Any) -> Seen:
    """Who has the name, `known` being the controller until now and `config` its pool's configuration."""
    try:
        controller = find_controller(pool)
        if controller._actor_id == known._actor_id:
            return Seen("same")
        config_json, fingerprint = ray.get(controller.describe.remote(), timeout=_ANSWERS_WITHIN_S)
    except PoolNotFound:
        return Seen("none")
    except RayError:
        return Seen("unknown")
    if fingerprint == config.fingerprint():
        return Seen("other", controller)
    return Seen("other", controller, _difference(config, PoolConfig.from_json(config_json)))


def _difference(mine: PoolConfig, theirs: PoolConfig) -> str:
    was, now = mine.processor(), theirs.processor()
    for what, before, after in (
        ("model", was.name, now.name),
        ("parameters", was.parameters_json, now.parameters_json),
        ("transport", mine.transport, theirs.transport),
        ("pillow_formats", sorted(mine.policy.pillow_formats), sorted(theirs.policy.pillow_formats)),
    ):
        if before != after:
            return f"its {what} is {after}, and was {before}"
    return "its core or its Pillow is of another version than this process has"


def _note(pool: str) -> str:
    return f"successor/{pool}"


def await_successor(pool: str, for_s: float | None) -> None:
    """Tells all routers of a pool to hold their requests while another one takes its name; None: no more."""
    write_note(_note(pool), None if for_s is None else str(time.time() + for_s))


def successor_is_awaited(pool: str) -> bool:
    """Whether somebody said so, and it is not too long ago."""
    try:
        until = read_note(_note(pool))
    except RayError:
        return False
    return until is not None and time.time() < float(until)
