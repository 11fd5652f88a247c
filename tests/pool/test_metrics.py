"""Metrics are declared once, documented, and used with the tags that they declare."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from ground import pages

from sglang_mm_ray.config import PoolConfig
from sglang_mm_ray.errors import DecodeError
from sglang_mm_ray.messages import BatchReply, Failure, Heartbeat, ImageFacts
from sglang_mm_ray.metrics import METRICS, RouterMetrics, WorkerMetrics

ROOT = Path(__file__).parents[2]


def test_the_page_lists_every_metric_with_its_kind() -> None:
    listed = [(row[0].strip("`").removeprefix("sglang_mm_ray_"), row[1]) for row in pages.rows("Metrics")]
    assert listed == [(name, kind) for name, (kind, _, _) in METRICS.items()]


def test_every_use_is_declared_and_every_declaration_used() -> None:
    used = set()
    for module in (ROOT / "sglang_mm_ray").glob("*.py"):
        used |= set(
            re.findall(r'"((?:worker|router)_\w+_(?:total|seconds|images|ratio|bytes))"', module.read_text())
        )
    assert used == set(METRICS)


@pytest.fixture
def recorded(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, float, dict[str, str]]]:
    from ray.util import metrics

    seen: list[tuple[str, float, dict[str, str]]] = []

    class Fake:
        def __init__(self, name: str, description: str, *rest: Any) -> None:
            self.name, self.keys, self.default = name, set(rest[-1]), {}

        def set_default_tags(self, tags: dict[str, str]) -> None:
            self.default = tags

        def _record(self, value: float, tags: dict[str, str] | None = None) -> None:
            every = {**self.default, **(tags or {})}
            assert set(every) == self.keys, self.name
            seen.append((self.name.removeprefix("sglang_mm_ray_"), value, every))

        inc = set = observe = _record

    for kind in ("Counter", "Gauge", "Histogram"):
        monkeypatch.setattr(metrics, kind, Fake)
    return seen


def test_a_batch_is_counted_by_result_and_timed_by_stage(recorded: list[Any]) -> None:
    facts = ImageFacts(b"d" * 32, 1, 2, 3, (1, 1, 1), 1, (), 10, "png", {"decode": 0.25}, "computed")
    failure = Failure(DecodeError("broken"))
    WorkerMetrics(PoolConfig(), "p", "w").batch(BatchReply((facts, failure, facts), 0.5, 0.0))
    tags = {"pool": "p", "worker": "w"}
    assert ("worker_images_total", 2, {**tags, "result": "computed"}) in recorded
    assert ("worker_images_total", 1, {**tags, "result": "failed"}) in recorded
    assert recorded.count(("worker_stage_seconds", 0.25, {"pool": "p", "stage": "decode"})) == 2
    assert ("worker_batch_images", 3, {"pool": "p"}) in recorded


def test_saturation_shows_in_a_heartbeat(recorded: list[Any]) -> None:
    cache = {"bytes": 7}
    beat = Heartbeat("w", "n", 1, 2, 2, "f", 0, 0, 5, 2, 0.0, None, 0.0, cache, 1.0, 99)
    WorkerMetrics(PoolConfig(), "p", "w").heartbeat(beat)
    assert ("worker_saturation_ratio", 1.0, {"pool": "p", "worker": "w"}) in recorded


def test_metrics_that_are_off_cost_nothing(recorded: list[Any]) -> None:
    metrics = RouterMetrics(PoolConfig(metrics=False), "p")
    metrics.count("router_images_total", result="failed")
    metrics.gauge("router_queued_images", 1)
    metrics.observe("router_request_seconds", 1.0)
    assert recorded == []
    with pytest.raises(KeyError):
        RouterMetrics(PoolConfig(), "p").count("unknown_total")
