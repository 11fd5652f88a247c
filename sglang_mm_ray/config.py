"""`PoolConfig`: everything that a pool can be told, in one frozen dataclass that is also JSON."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from typing import Any

from . import _core
from .errors import InvalidArgument
from .fields import check_types
from .fingerprint import fingerprint
from .sources.policy import SourcePolicy

__all__ = ["PoolConfig"]

_TRANSPORTS = ("bf16", "uint8", "float32")


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class PoolConfig:
    """A pool's model, workers, bounds and patience. `to_json` and `from_json` are inverses.

    Raises:
        InvalidArgument: a value that cannot work; an unknown model, parameter or transport.
    """

    model: str = "inkling"
    """Family in the core's registry."""
    parameters: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    """The family's parameters; what is missing takes the family's default."""
    transport: str = "bf16"
    """What the object store holds: `bf16`, `uint8` (resized pixels, see `gather`) or `float32`."""
    policy: SourcePolicy = dataclasses.field(default_factory=SourcePolicy)
    """What may be read, and the limits of one image."""

    # Workers
    num_workers: int | None = None
    """How many in all, spread over the nodes; by default one for each node with CPUs."""
    threads_per_worker: int | None = None
    """Threads that compute, and CPUs that the worker reserves; by default all of its node's share."""
    use_gpu_nodes: bool = False
    """Whether nodes with GPUs get workers; their CPUs usually have other work."""
    node_labels: Mapping[str, str] = dataclasses.field(default_factory=dict)
    """Only nodes with all of these Ray labels get workers."""
    fetch_threads: int = 16
    """Threads of a worker that read files, URLs and references."""

    # Batches and what is under way
    chunk_max_images: int = 16
    chunk_max_bytes: int = 128 << 20
    """Input and output of one batch."""
    chunk_max_pixels: int = 48_000_000
    """Pixels read and written by one batch."""
    window_pixels_per_thread: int = 60_000_000
    """Work that a router keeps on a worker for each of its threads: enough that it never waits."""
    max_inflight_bytes: int = 1 << 30
    """Input and output under way on one worker, for each router."""
    max_worker_bytes: int = 4 << 30
    """Input and output that a worker accepts from all routers before it says that it is busy."""
    max_worker_pixels: int = 2_000_000_000
    """Pixels, likewise."""
    max_queued_images: int = 16_384
    """Images under way in one router, waiting or running; more are refused with `PoolOverloaded`."""
    max_queued_bytes: int = 8 << 30
    """Encoded bytes under way in one router."""
    object_store_budget_bytes: int | None = None
    """Results that one router holds or has promised; by default 60 % of the pool's object stores."""
    store_wait_s: float = 10.0
    """How long a request waits for store bytes while nothing else runs, before `PoolOverloaded`."""

    # Caches
    worker_cache_bytes: int = 256 << 20
    """Results on the heap of each worker."""
    router_cache_bytes: int = 256 << 20
    """Results in the object store that a router keeps for repeats; part of the budget above."""

    # Failures
    max_attempts: int = 12
    """How often an image is sent before `WorkerLost`."""
    poison_crashes: int = 3
    """Workers that die of one image alone before it is `PoisonImage`; more while others die without it."""
    quarantine_s: float = 600.0
    """How long a poisonous image is refused at once."""
    no_worker_timeout_s: float = 60.0
    """How long images wait while the pool has no worker at all, before `WorkerLost`."""
    retry_backoff_s: float = 0.05
    """Pause before the second attempt at a busy worker; doubles up to 40 times itself."""
    heartbeat_interval_s: float = 1.0
    heartbeat_timeout_s: float = 20.0
    """A worker that does not answer for so long is replaced."""
    image_timeout_s: float = 120.0
    """A worker with an image on a thread for so long is stuck, and replaced."""
    lease_s: float = 60.0
    """A worker of a detached pool that hears from no controller for so long ends itself."""
    drain_timeout_s: float = 30.0
    start_timeout_s: float = 120.0
    """How long starting a pool may take."""
    read_timeout_s: float = 60.0
    """How long reading a result may take before `ResultLost`."""
    warm_bytes: int = 1 << 30
    """Store memory that each worker touches at start; at most a quarter of the store. 0 turns it off.
    Ray takes freed memory back once a second, so a busy worker writes to as much as a second's results.
    Beside it the worker touches `worker_cache_bytes` of its own, no more than these and 256 MiB."""
    metrics: bool = True
    """Whether Ray metrics are exported."""

    def __post_init__(self) -> None:
        check_types(self)
        object.__setattr__(self, "parameters", dict(self.parameters))
        object.__setattr__(self, "node_labels", dict(self.node_labels))
        if self.transport not in _TRANSPORTS:
            raise InvalidArgument(
                f"transport {self.transport!r} is unknown; choose {', '.join(_TRANSPORTS[:-1])} or "
                f"{_TRANSPORTS[-1]}"
            )
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            if isinstance(value, bool) or not isinstance(value, (int, float)):
                continue
            least_zero = field.name in ("warm_bytes", "worker_cache_bytes", "router_cache_bytes")
            if not (value >= 0 if least_zero else value > 0):
                raise InvalidArgument(f"{field.name} must be {'at least 0' if least_zero else 'positive'}")
            if value >= 1 << 63:
                raise InvalidArgument(f"{field.name} is {value:g}; the most is 2**63 - 1")
        self.processor()

    def processor(self) -> _core.Processor:
        """The core's processor for the model and its parameters."""
        return _core.processor(self.model, json.dumps(self.parameters))

    def fingerprint(self) -> str:
        """64 hex digits over everything that changes a result.

        Two processes with equal fingerprints give equal results for equal content; caches and workers of
        different fingerprints never mix.
        """
        return fingerprint(self.processor(), self.transport, self.policy.pillow_formats)

    def replace(self, **changes: Any) -> PoolConfig:
        """A copy with some fields changed."""
        return dataclasses.replace(self, **changes)

    def to_dict(self) -> dict[str, Any]:
        """All fields as plain JSON values."""
        fields = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        return {**fields, "policy": self.policy.to_dict()}

    @classmethod
    def from_dict(cls, fields: Mapping[str, Any]) -> PoolConfig:
        """The inverse of `to_dict`; missing fields take their defaults.

        Raises:
            InvalidArgument: an unknown field, or a value that cannot work.
        """
        if not isinstance(fields, Mapping):
            raise InvalidArgument(f"a PoolConfig is a JSON object, not {type(fields).__name__}")
        unknown = set(fields) - {field.name for field in dataclasses.fields(cls)}
        if unknown:
            raise InvalidArgument(f"PoolConfig has no field {', '.join(sorted(unknown))}")
        values = dict(fields)
        if isinstance(values.get("policy"), Mapping):
            values["policy"] = SourcePolicy.from_dict(dict(values["policy"]))
        return cls(**values)

    def to_json(self) -> str:
        """All fields as canonical JSON."""
        return json.dumps(self.to_dict(), sort_keys=True)

    @classmethod
    def from_json(cls, text: str) -> PoolConfig:
        """The inverse of `to_json`."""
        return cls.from_dict(json.loads(text))
