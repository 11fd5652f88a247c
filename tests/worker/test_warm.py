"""What a worker touches before it is said to be live."""

from __future__ import annotations

import pytest

from sglang_mm_ray import _core
from sglang_mm_ray.config import PoolConfig
from sglang_mm_ray.worker import actor


@pytest.mark.parametrize(
    ("size_bytes", "cache_bytes", "own_bytes"),
    [(1 << 30, 256 << 20, 256 << 20), (32 << 20, 1 << 30, 32 << 20)],
)
def test_the_store_and_as_much_as_its_cache_will_hold(
    monkeypatch: pytest.MonkeyPatch, size_bytes: int, cache_bytes: int, own_bytes: int
) -> None:
    touched: dict[str, int] = {}
    monkeypatch.setattr(actor, "warm_store", lambda size: touched.update(store=size))
    monkeypatch.setattr(_core, "touch_ahead", lambda size: touched.update(own=size))
    worker = object.__new__(actor.PreprocessWorker)
    worker._config = PoolConfig(worker_cache_bytes=cache_bytes)
    assert worker.warm(size_bytes) >= 0
    assert touched == {"store": size_bytes, "own": own_bytes}
