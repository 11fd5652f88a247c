"""How many workers a node gets, and with how many threads. Pure: nodes in, slots out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ..config import PoolConfig
from ..messages import Node

__all__ = ["Slot", "missing_slots", "worker_counts"]

# The controller holds a sliver of a CPU; a worker may hold the rest of that CPU and still run a thread on it.
_SLIVER_CPUS = 0.05
_RESOURCE_STEPS = 10_000


@dataclass(frozen=True, slots=True)
class Slot:
    """Where a worker is to start, with how many threads, holding how many CPUs."""

    node_id: str
    threads: int
    num_cpus: float


def _eligible(nodes: Sequence[Node], config: PoolConfig) -> list[Node]:
    labels = config.node_labels
    return [
        node
        for node in nodes
        if node.total_cpus >= 1 - _SLIVER_CPUS
        and all(node.labels.get(key) == value for key, value in labels.items())
        # A label that was asked for is a decision; without one, GPU nodes keep their CPUs for their GPUs.
        and (config.use_gpu_nodes or bool(labels) or not node.has_gpu)
    ]


def worker_counts(nodes: Sequence[Node], config: PoolConfig) -> dict[str, int]:
    """How many workers each node is to have: one each, or `num_workers` in turns, largest node first."""
    eligible = sorted(_eligible(nodes, config), key=lambda node: (-node.total_cpus, node.node_id))
    counts = {node.node_id: 0 for node in eligible}
    if config.num_workers is None:
        return dict.fromkeys(counts, 1)
    left = config.num_workers
    while left > 0 and eligible:
        # In proportion to CPUs: the node where one more leaves each worker the most.
        best = max(eligible, key=lambda node: node.total_cpus / (counts[node.node_id] + 1))
        counts[best.node_id] += 1
        left -= 1
    return counts


def missing_slots(nodes: Sequence[Node], config: PoolConfig, present: Mapping[str, int]) -> list[Slot]:
    """Slots for the workers that are missing, as far as free CPUs reach.

    `present` counts the workers that each node has or is about to have; `free_cpus` must already be without
    what those hold. Threads never exceed CPUs held, but for the sliver.
    """
    by_id = {node.node_id: node for node in nodes}
    slots: list[Slot] = []
    for node_id, wanted in worker_counts(nodes, config).items():
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
