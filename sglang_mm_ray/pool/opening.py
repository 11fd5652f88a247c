"""Starting a pool's controller: where it finds no room, or another one has its name, that is said in time."""

from __future__ import annotations

import time
from typing import Any

import ray
from ray.exceptions import GetTimeoutError, RayError

from ..cluster import CONTROLLER_CPUS, find_controller, kill_pool, live_nodes, reason_of
from ..config import PoolConfig
from ..errors import InvalidArgument, PoolNotFound, WorkerLost
from ..reservations import actor_holders, other_holders, placed_on
from .controller import create_controller
from .room import why_no_controller

__all__ = ["open_controller"]

# A node takes an actor within some hundredths of a second; where another one ends just now, within seconds.
_PLACED_WITHIN_S = 10.0
_POLL_S = 0.1
# For a pool of that name that was just told to end.
_NAME_FREE_WITHIN_S = 5.0
_ANSWERS_WITHIN_S = 2.0


def open_controller(name: str, config: PoolConfig, *, detached: bool) -> Any:
    """Starts a pool's controller; returns its handle once it answers.

    Raises:
        InvalidArgument: a pool of that name runs.
        WorkerLost: no node takes it, or it does not answer; the message says why.
    """
    controller = _created(name, config, detached)
    try:
        _wait(controller, config.start_timeout_s)
    except RayError as error:
        if placed_on(controller) is None:
            reason = why_no_controller(live_nodes(), [*actor_holders(), *other_holders()])
        else:
            reason = f"is this package installed on every node? ({reason_of(error)})"
        kill_pool(name, controller)
        raise WorkerLost(f"the controller of pool {name!r} did not start: {reason}") from None
    return controller


def _created(name: str, config: PoolConfig, detached: bool) -> Any:
    until = time.monotonic() + _NAME_FREE_WITHIN_S
    while True:
        try:
            return create_controller(config, name, detached=detached)
        except ValueError:
            if time.monotonic() > until or _answers(name):
                raise InvalidArgument(
                    f"a pool {name!r} runs already; connect to it, or choose another name"
                ) from None
        time.sleep(_POLL_S)


def _answers(name: str) -> bool:
    try:
        ray.get(find_controller(name).describe.remote(), timeout=_ANSWERS_WITHIN_S)
    except (PoolNotFound, RayError):
        return False
    return True


def _wait(controller: Any, timeout_s: float) -> None:
    described = controller.describe.remote()
    began = time.monotonic()
    while True:
        waited_s = time.monotonic() - began
        try:
            ray.get(described, timeout=min(_POLL_S * 5, timeout_s))
            return
        except GetTimeoutError:
            if waited_s > timeout_s or (waited_s > _PLACED_WITHIN_S and _is_hopeless(controller)):
                raise


def _is_hopeless(controller: Any) -> bool:
    if placed_on(controller) is not None:
        return False
    # Tasks end, actors stay.
    return all(node.free_cpus + node.other_cpus < CONTROLLER_CPUS for node in live_nodes())
