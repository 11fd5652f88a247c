"""Ray clusters of several raylets on this machine."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

STORE_BYTES = 200 << 20


@pytest.fixture
def cluster() -> Iterator[Any]:
    """A cluster whose head has a GPU, so that no worker starts there; the test adds nodes."""
    import ray
    from ray.cluster_utils import Cluster

    if ray.is_initialized():
        ray.shutdown()
    made = Cluster(
        initialize_head=True,
        head_node_args={
            "num_cpus": 1,
            "num_gpus": 1,
            "object_store_memory": STORE_BYTES,
            "include_dashboard": False,
        },
    )
    ray.init(address=made.address, log_to_driver=False, logging_level="ERROR")
    try:
        yield made
    finally:
        ray.shutdown()
        made.shutdown()


def add_node(cluster: Any, num_cpus: float = 1, **options: Any) -> Any:
    """Adds a raylet of its own store to the cluster."""
    return cluster.add_node(num_cpus=num_cpus, object_store_memory=STORE_BYTES, **options)


@pytest.fixture
def grow() -> Any:
    """`add_node`."""
    return add_node
