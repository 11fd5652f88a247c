"""How many workers a node gets, and with how many threads. Pure: nodes in, slots out."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from ..config import PoolConfig
from ..messages import Node

__all__ = ["Settling", "Slot", "eligible_nodes", "may_have_room", "missing_slots", "worker_counts"]

# The controller holds a sliver of a CPU; a worker may hold the rest of that CPU and still run a thread on it.
_SLIVER_CPUS = 0.05
_RESOURCE_STEPS = 10_000
# What a node tells of its CPUs is some tenths of a second old, or a second where it is busy.
_SETTLED_S = 1.5


@dataclass(frozen=True, slots=True)
class Slot:
    """Where a worker is to start, with how many threads, holding how many CPUs."""

    node_id: str
    threads: int
    num_cpus: float


class Settling:
    """Which nodes' counts of free CPUs may be used now.

    Where actors hold all that is held there is nothing to wait for. Elsewhere the difference may be a worker
    that has just ended, and a new one would get fewer threads than there are, for good; so the difference
    must have lasted for a while.
    """

    def __init__(self) -> None:
        self._since: dict[str, float] = {}

    def settled(self, nodes: Sequence[Node], now_s: float) -> list[Node]:
        """The nodes whose counts may be used."""
        self._since = {
            node.node_id: self._since.get(node.node_id, now_s) for node in nodes if node.other_cpus > 0
        }
        return [node for node in nodes if now_s >= self._since.get(node.node_id, -_SETTLED_S) + _SETTLED_S]


def eligible_nodes(nodes: Sequence[Node], config: PoolConfig) -> list[Node]:
    """The nodes that may have workers, whether or not they have room."""
    labels = config.node_labels
    return [
        node
        for node in nodes
        if node.total_cpus >= 1 - _SLIVER_CPUS
        and all(node.labels.get(key) == value for key, value in labels.items())
        # A label that was asked for is a decision; without one, GPU nodes keep their CPUs for their GPUs.
        and (config.use_gpu_nodes or bool(labels) or not node.has_gpu)
    ]


def _room(node: Node, config: PoolConfig) -> int:
    """How many more workers waiting could bring a node room for: tasks end, actors stay."""
    needed = config.threads_per_worker or 1
    return int((node.free_cpus + node.other_cpus + _SLIVER_CPUS) / needed)


def may_have_room(nodes: Sequence[Node], config: PoolConfig) -> bool:
    """Whether waiting could bring a node room for a worker."""
    return any(_room(node, config) for node in eligible_nodes(nodes, config))


def worker_counts(
    nodes: Sequence[Node], config: PoolConfig, present: Mapping[str, int] | None = None
) -> dict[str, int]:
    """How many workers each node is to have: one each, or `num_workers` in turns, largest node first.

    Nodes whose CPUs others hold are passed over, as long as one is left that has or will have room.
    """
    present = present or {}
    eligible = sorted(eligible_nodes(nodes, config), key=lambda node: (-node.total_cpus, node.node_id))
    counts = {node.node_id: 0 for node in eligible}
    if config.num_workers is None:
        return dict.fromkeys(counts, 1)
    room = {node.node_id: present.get(node.node_id, 0) + _room(node, config) for node in eligible}
    for _ in range(config.num_workers if eligible else 0):
        roomy = [node for node in eligible if counts[node.node_id] < room[node.node_id]]
        # In proportion to CPUs: the node where one more leaves each worker the most.
        best = max(roomy or eligible, key=lambda node: node.total_cpus / (counts[node.node_id] + 1))
        counts[best.node_id] += 1
    return counts


def missing_slots(
    nodes: Sequence[Node], config: PoolConfig, present: Mapping[str, int], usable: Collection[str]
) -> list[Slot]:
    """Slots for the workers that are missing, as far as free CPUs reach, on nodes that are `usable` now.

    `present` counts the workers that each node has or is about to have; `free_cpus` must already be without
    what those hold. Threads never exceed CPUs held, but for the sliver.
    """
    by_id = {node.node_id: node for node in nodes}
    slots: list[Slot] = []
    for node_id, wanted in worker_counts(nodes, config, present).items():
        if node_id not in usable:
            continue
        missing = wanted - present.get(node_id, 0)
        free = by_id[node_id].free_cpus
        while missing > 0:
            threads = config.threads_per_worker or max(1, int((free + _SLIVER_CPUS) / missing))
            num_cpus = min(float(threads), int(free * _RESOURCE_STEPS) / _RESOURCE_STEPS)
            if num_cpus < threads - _SLIVER_CPUS:
                break
            slots.append(Slot(node_id, threads, num_cpus))
            free -= num_cpus
            missing -= 1
    return slots
