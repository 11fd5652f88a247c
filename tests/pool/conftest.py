"""A small local Ray, started once for each module of tests."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

STORE_BYTES = 700 << 20


@pytest.fixture(scope="module")
def local_ray() -> Iterator[None]:
    """Ray on this machine with four CPUs, whatever it really has."""
    import ray

    from sglang_mm_ray.cluster import start_ray

    if ray.is_initialized():
        ray.shutdown()
    # It tries again where Ray gives up on a node that is slow to come up.
    start_ray("local", num_cpus=4, object_store_memory=STORE_BYTES, logging_level="ERROR")
    yield
    ray.shutdown()
