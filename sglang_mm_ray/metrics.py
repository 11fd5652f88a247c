"""Ray metrics: their names, units and tags, all in one place.

Every name starts with `sglang_mm_ray_`. Tags: `pool` (its name), and where it says so `stage`, `result` or
`reason`. Counters end in `_total`, durations are in seconds, sizes in bytes.
"""

from __future__ import annotations

import threading
from collections import Counter as Tally
from typing import TYPE_CHECKING, Any

from .messages import BatchReply, Failure, Heartbeat

if TYPE_CHECKING:
    from .config import PoolConfig

__all__ = ["METRICS", "RouterMetrics", "WorkerMetrics"]

_SECONDS = [0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0]

METRICS: dict[str, tuple[str, str, tuple[str, ...]]] = {
    # Worker
    "worker_images_total": (
        "counter",
        "Images that a worker answered for; result: computed, worker_cache, joined, failed, busy.",
        ("worker", "result"),
    ),
    "worker_stage_seconds": (
        "histogram",
        "Time of one image in a stage: queue, resolve, hash, decode, resize, patchify, process.",
        ("stage",),
    ),
    "worker_batch_images": ("histogram", "Images in one batch.", ()),
    "worker_running_images": ("gauge", "Images on threads.", ("worker",)),
    "worker_waiting_images": ("gauge", "Images that wait for a thread.", ("worker",)),
    "worker_saturation_ratio": ("gauge", "Threads in use, of all; 1 means saturated.", ("worker",)),
    "worker_cache_bytes": ("gauge", "Results in a worker's cache.", ("worker",)),
    "worker_rss_bytes": ("gauge", "Resident memory of a worker.", ("worker",)),
    # Router
    "router_images_total": (
        "counter",
        "Images that a router answered for; result: computed, worker_cache, router_cache, joined, failed.",
        ("result",),
    ),
    "router_refusals_total": ("counter", "Images refused or given up; reason: an error's code.", ("reason",)),
    "router_retries_total": ("counter", "Images sent again after a worker died or was busy.", ("reason",)),
    "router_workers_lost_total": ("counter", "Workers that died with images of this router.", ()),
    "router_request_seconds": ("histogram", "From call to last result of a request.", ()),
    "router_image_seconds": ("histogram", "From call to result of an image.", ()),
    "router_call_seconds": ("histogram", "From sending a batch to its facts: worker, store and Ray.", ()),
    "router_queued_images": ("gauge", "Images that wait in the router.", ()),
    "router_running_images": ("gauge", "Images under way on workers.", ()),
    "router_saturation_ratio": (
        "gauge",
        "Images under way, of the bound; 1 means that more are refused.",
        (),
    ),
    "router_store_held_bytes": ("gauge", "Results of this router in the object store.", ()),
    "router_store_promised_bytes": ("gauge", "Store bytes promised to running requests.", ()),
    "router_store_budget_bytes": ("gauge", "The most that a router's results may hold of the store.", ()),
    "router_cache_bytes": ("gauge", "Results kept for repeats.", ()),
    "router_sent_bytes_total": ("counter", "Bytes of input sent to workers.", ()),
    "router_result_bytes_total": ("counter", "Bytes of results that workers stored.", ()),
}
"""Kind, meaning and tags (beside `pool`) of every metric, by name without the prefix."""

_BOUNDARIES = {"worker_batch_images": [1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0]}


class _Metrics:
    """Creates metrics at first use; does nothing where they are turned off."""

    def __init__(self, enabled: bool, pool: str, **tags: str) -> None:
        self._enabled = enabled
        self._tags = {"pool": pool, **tags}
        self._made: dict[str, Any] = {}
        self._lock = threading.Lock()

    def _metric(self, name: str) -> Any:
        with self._lock:
            if name not in self._made:
                from ray.util import metrics

                kind, meaning, tag_keys = METRICS[name]
                keys = ("pool", *tag_keys)
                full = f"sglang_mm_ray_{name}"
                if kind == "counter":
                    metric: Any = metrics.Counter(full, meaning, keys)
                elif kind == "gauge":
                    metric = metrics.Gauge(full, meaning, keys)
                else:
                    metric = metrics.Histogram(full, meaning, _BOUNDARIES.get(name, _SECONDS), keys)
                metric.set_default_tags({key: self._tags[key] for key in keys if key in self._tags})
                self._made[name] = metric
            return self._made[name]

    def count(self, name: str, value: float = 1.0, **tags: str) -> None:
        """Adds to a counter."""
        if self._enabled and value > 0:
            self._metric(name).inc(value, tags or None)

    def gauge(self, name: str, value: float) -> None:
        """Sets a gauge."""
        if self._enabled:
            self._metric(name).set(float(value))

    def observe(self, name: str, value: float, **tags: str) -> None:
        """Adds to a histogram."""
        if self._enabled:
            self._metric(name).observe(max(value, 0.0), tags or None)


class WorkerMetrics(_Metrics):
    """What a worker exports."""

    def __init__(self, config: PoolConfig, pool: str, worker_id: str) -> None:
        super().__init__(config.metrics, pool, worker=worker_id)

    def batch(self, reply: BatchReply) -> None:
        """Counts one batch."""
        if not self._enabled:
            return
        results: Tally[str] = Tally()
        for outcome in reply.outcomes:
            if isinstance(outcome, Failure):
                results["busy" if outcome.busy else "failed"] += 1
                continue
            results[outcome.origin] += 1
            for stage, seconds in outcome.times_s.items():
                self.observe("worker_stage_seconds", seconds, stage=stage)
        for result, images in results.items():
            self.count("worker_images_total", images, result=result)
        self.observe("worker_batch_images", len(reply.outcomes))

    def heartbeat(self, beat: Heartbeat) -> None:
        """Sets the gauges."""
        self.gauge("worker_running_images", beat.running_images)
        self.gauge("worker_waiting_images", beat.waiting_images)
        self.gauge("worker_saturation_ratio", min(1.0, beat.running_images / beat.threads))
        self.gauge("worker_cache_bytes", beat.cache["bytes"])
        self.gauge("worker_rss_bytes", beat.rss_bytes)


class RouterMetrics(_Metrics):
    """What a router exports."""

    def __init__(self, config: PoolConfig, pool: str) -> None:
        super().__init__(config.metrics, pool)
