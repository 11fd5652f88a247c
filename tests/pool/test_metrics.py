"""Metrics are declared once, documented, and used with the tags that they declare."""

from __future__ import annotations

import ast
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


KIND_OF = {"count": "counter", "gauge": "gauge", "observe": "histogram"}


def uses() -> list[tuple[str, str, frozenset[str], str]]:
    """Every call that records: its metric, how, with which tags, and where; of the whole package."""
    found = []
    for module in sorted((ROOT / "sglang_mm_ray").rglob("*.py")):
        for node in ast.walk(ast.parse(module.read_text())):
            if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
                continue
            first = node.args[0] if node.args else None
            name = first.value if isinstance(first, ast.Constant) else None
            if node.func.attr in KIND_OF and isinstance(name, str) and re.match("(worker|router)_", name):
                tags = frozenset(keyword.arg or "**" for keyword in node.keywords)
                where = f"{module.relative_to(ROOT)}:{node.lineno}"
                found.append((name, KIND_OF[node.func.attr], tags - {"value"}, where))
    return found


def test_every_use_is_declared_and_every_declaration_used() -> None:
    found = uses()
    assert {name for name, *_ in found} == set(METRICS)
    # Not only where they are declared: the test once looked at a single file.
    assert any(where.startswith("sglang_mm_ray/router/") for *_, where in found)
    for name, kind, tags, where in found:
        declared, _, tag_keys = METRICS[name]
        # A worker's name is on all that it exports.
        assert (kind, tags) == (declared, set(tag_keys) - {"worker"}), f"{name} in {where}"


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
    WorkerMetrics(PoolConfig(), "p", "w").batch(BatchReply((facts, failure, facts), 0.5))
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
