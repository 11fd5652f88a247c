"""Who holds the CPUs of the cluster, by Ray's own tables. Blocking calls; keep them off loops.

The count of free CPUs that each node reports is always a moment late. The table of actors is not: it lists an
actor with its node before the actor's first line runs.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from ray._private import state
from ray.core.generated import common_pb2, gcs_pb2

__all__ = ["Holder", "actor_holders", "other_holders", "placed_on", "tell"]

# Made at Ray's build, without types.
_common: Any = common_pb2
_gcs: Any = gcs_pb2
_STATES = ("ALIVE", "PENDING_CREATION", "RESTARTING", "DEPENDENCIES_UNREADY")
_SHOWN = 4


@dataclass(frozen=True, slots=True)
class Holder:
    """Something that holds CPUs of a node."""

    what: str
    """For people: `worker of pool 'vision'`, `actor Trainer of job 02000000`."""
    node_id: str
    cpus: float


def _accessor() -> Any:
    return state.state._connect_and_get_accessor()


def _text(name: str, class_name: str, job_id: bytes) -> str:
    parts = name.split("/")
    if len(parts) >= 3 and parts[0] == "pool":
        return f"{parts[2]} of pool {parts[1]!r}"
    shown = f"actor {class_name}" + (f" {name!r}" if name else "")
    return f"{shown} of job {job_id.hex()}"


def actor_holders() -> list[Holder]:
    """The actors that have been placed on a node and have not ended, with the CPUs that they hold."""
    holders = []
    for wanted in _STATES:
        for packed in _accessor().get_actor_table(None, wanted):
            actor = _gcs.ActorTableData.FromString(packed)
            cpus = float(actor.required_resources.get("CPU", 0.0))
            if cpus > 0 and actor.address.port:
                what = _text(actor.name, actor.class_name, actor.job_id)
                holders.append(Holder(what, actor.address.node_id.hex(), cpus))
    return holders


def placed_on(actor: Any) -> str | None:
    """The node that took an actor, or None while none did; where it has ended, the node that it was on."""
    packed = _accessor().get_actor_info(actor._actor_id)
    if packed is None:
        return None
    found = _gcs.ActorTableData.FromString(packed)
    placed = bool(found.address.port) or found.state == _gcs.ActorTableData.DEAD
    return found.address.node_id.hex() if placed else None


def other_holders() -> list[Holder]:
    """Placement groups, and tasks that run as far as they have been reported, which takes a second or so."""
    holders = []
    for packed in _accessor().get_placement_group_table():
        group = _gcs.PlacementGroupTableData.FromString(packed)
        what = f"placement group {group.name!r}" if group.name else "a placement group"
        for bundle in group.bundles:
            cpus = float(bundle.unit_resources.get("CPU", 0.0))
            if cpus > 0 and bundle.node_id:
                holders.append(
                    Holder(f"{what} of job {group.creator_job_id.hex()}", bundle.node_id.hex(), cpus)
                )
    for packed in _accessor().get_task_events():
        task = _gcs.TaskEvents.FromString(packed)
        reached = task.state_updates.state_ts_ns
        ended = _common.FINISHED in reached or _common.FAILED in reached
        cpus = float(task.task_info.required_resources.get("CPU", 0.0))
        if cpus > 0 and _common.RUNNING in reached and not ended and not task.task_info.actor_id:
            what = f"task {task.task_info.name} of job {task.task_info.job_id.hex()}"
            holders.append(Holder(what, task.state_updates.node_id.hex(), cpus))
    return holders


def tell(holders: Iterable[Holder], node_ids: Sequence[str]) -> str:
    """The holders of some nodes in one line, those of one kind together, the largest first."""
    cpus: dict[str, float] = {}
    for holder in holders:
        if holder.node_id in node_ids:
            cpus[holder.what] = cpus.get(holder.what, 0.0) + holder.cpus
    ordered = sorted(cpus, key=lambda what: -cpus[what])
    parts = [f"{what}: {cpus[what]:g}" for what in ordered[:_SHOWN]]
    if len(ordered) > _SHOWN:
        rest = sum(cpus[what] for what in ordered[_SHOWN:])
        parts.append(f"{len(ordered) - _SHOWN} others: {rest:g}")
    return ", ".join(parts)
