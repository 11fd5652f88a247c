"""Starting a pool's controller: where it finds no room, or another one has its name, that is said in time."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from typing import Any

import ray
from ray.exceptions import GetTimeoutError, RayError

from ..cluster import CONTROLLER_CPUS, find_controller, kill_pool, live_nodes, reason_of
from ..config import PoolConfig
from ..deadline import within
from ..errors import DeadlineExceeded, InvalidArgument, PoolNotFound, WorkerLost
from ..reservations import actor_holders, other_holders, placed_on
from ..router.succession import await_successor
from .controller import create_controller
from .room import why_no_controller

__all__ = ["open_controller"]

# A node takes an actor within some hundredths of a second; where another one ends just now, within seconds.
_PLACED_WITHIN_S = 10.0
_POLL_S = 0.1
# For a pool of that name that was just told to end.
_NAME_FREE_WITHIN_S = 5.0
_ANSWERS_WITHIN_S = 2.0
_DRAIN_MORE_S = 10.0


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
        reason = f"is this package installed on every node? ({reason_of(error)})"
        # A Ray client has no tables.
        with contextlib.suppress(Exception):
            if placed_on(controller) is None:
                reason = why_no_controller(live_nodes(), [*actor_holders(), *other_holders()])
        kill_pool(name, controller)
        raise WorkerLost(f"the controller of pool {name!r} did not start: {reason}") from None
    return controller


@contextlib.contextmanager
def making_way(name: str, config: PoolConfig) -> Iterator[None]:
    """Ends the pool of a name, if there is one, for another that starts meanwhile; its routers wait."""
    try:
        controller = find_controller(name)
    except PoolNotFound:
        yield
        return
    drains_s = config.drain_timeout_s + _DRAIN_MORE_S
    await_successor(name, drains_s + config.start_timeout_s)
    try:
        with contextlib.suppress(RayError, DeadlineExceeded):
            within(lambda: ray.get(controller.drain.remote(), timeout=drains_s), drains_s)
        kill_pool(name, controller)
        yield
    finally:
        await_successor(name, None)


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
    with contextlib.suppress(Exception):  # A Ray client has no tables.
        # Tasks end, actors stay.
        return placed_on(controller) is None and all(
            node.free_cpus + node.other_cpus < CONTROLLER_CPUS for node in live_nodes()
        )
    return False
