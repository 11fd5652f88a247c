"""Why a pool has no room for a worker, in words. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from ..config import PoolConfig
from ..messages import Node
from ..reservations import Holder, tell
from .slots import eligible_nodes

__all__ = ["why_no_controller", "why_no_room"]

_SHOWN = 3


def why_no_room(nodes: Sequence[Node], config: PoolConfig, holders: Sequence[Holder]) -> str:
    """What stands in the way of every node, and the way out."""
    eligible = eligible_nodes(nodes, config)
    needed = config.threads_per_worker or 1
    if not any(node.total_cpus > 0 for node in nodes):
        reason = f"none of the {len(nodes)} nodes has CPUs for Ray; give Ray some (num_cpus)"
    elif not eligible and config.node_labels:
        reason = f"no node with CPUs has the labels {dict(config.node_labels)} (node_labels)"
    elif not eligible and any(node.total_cpus >= 1 for node in nodes):
        reason = "all nodes with CPUs have GPUs; set use_gpu_nodes, or node_labels to choose some"
    elif max((node.total_cpus for node in eligible), default=0.0) < needed - 0.05:
        most = max(node.total_cpus for node in nodes)
        reason = f"a worker needs {needed} CPUs, and no node has more than {most:g} (threads_per_worker)"
    else:
        reason = (
            f"{_held(eligible, holders)}; free CPUs, add nodes, or give each pool a part with "
            "threads_per_worker"
        )
    return f"no node has room for a worker: {reason}"


def why_no_controller(nodes: Sequence[Node], holders: Sequence[Holder]) -> str:
    """Why not even a controller finds its sliver of a CPU."""
    if not any(node.total_cpus > 0 for node in nodes):
        return f"none of the {len(nodes)} nodes has CPUs for Ray; give Ray some (num_cpus)"
    return f"{_held(nodes, holders)}; free CPUs, or give a pool that holds them less with threads_per_worker"


def _held(nodes: Sequence[Node], holders: Sequence[Holder]) -> str:
    parts = []
    for node in sorted(nodes, key=lambda node: -node.total_cpus)[:_SHOWN]:
        told = tell(holders, [node.node_id]) or "nobody known"
        free = f"{node.free_cpus:g} of {node.total_cpus:g} CPUs free"
        parts.append(f"node {node.node_id[:8]} has {free} (held by {told})")
    if len(nodes) > _SHOWN:
        parts.append(f"and {len(nodes) - _SHOWN} more nodes")
    return ", ".join(parts)
