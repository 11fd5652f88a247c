"""A small local Ray, started once for each module of tests."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

STORE_BYTES = 700 << 20


@pytest.fixture(scope="module")
def local_ray() -> Iterator[None]:
    """Ray on this machine with four CPUs, whatever it really has."""
    import ray

    if ray.is_initialized():
        ray.shutdown()
    ray.init(
        address="local",
        num_cpus=4,
        object_store_memory=STORE_BYTES,
        include_dashboard=False,
        log_to_driver=False,
        logging_level="ERROR",
    )
    yield
    ray.shutdown()
