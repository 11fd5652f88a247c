"""What routers, workers and the controller say to each other. Plain data; the images travel beside it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from .errors import PreprocessError
from .sources.source import Source

__all__ = [
    "BatchReply",
    "BatchRequest",
    "Failure",
    "Heartbeat",
    "ImageFacts",
    "Membership",
    "Node",
    "WorkerRecord",
]


@dataclass(frozen=True, slots=True)
class BatchRequest:
    """Images for one worker, from one router."""

    call_id: str
    sources: tuple[Source, ...]
    estimated_bytes: int
    """Input and output that the router expects."""
    work_px: float
    together: bool = False
    """Whether the results share one object, of one request that is."""
    requests: int = 1
    """Of how many requests the images are; only short ones share a batch."""


@dataclass(frozen=True, slots=True)
class ImageFacts:
    """What is known of a preprocessed image beside its tensors."""

    digest: bytes
    """SHA-256 of the content, all 32 bytes."""
    content_hash: int
    """Its first 8 bytes, big-endian."""
    height: int
    """After resizing, in pixels."""
    width: int
    grid: tuple[int, int, int]
    """Patches: temporal, rows, columns."""
    num_tokens: int
    tensors: tuple[tuple[str, str, tuple[int, ...]], ...]
    """Name, dtype tag (`bfloat16` travels as its bits in uint16) and shape of each, in stored order."""
    nbytes: int
    decoder: str
    times_s: dict[str, float]
    """Seconds by stage: `queue` and `resolve` on the worker, `hash`, `decode`, `process` in the core."""
    origin: str
    """`computed`, `worker_cache`, or `joined` where it was computed for another request at the same time."""
    finished: tuple[tuple[str, str, tuple[int, ...]], ...] = ()
    """For pixels of the `uint8` transport: the tensors that they become, as `tensors` lists them."""
    source_size: tuple[int, int] | None = None
    """Width and height of the source in pixels: what late normalising cuts by."""


@dataclass(frozen=True, slots=True)
class Failure:
    """An image that has no result, and why."""

    error: PreprocessError
    busy: bool = False
    """The worker had no room; the image itself was not looked at."""


@dataclass(frozen=True, slots=True)
class BatchReply:
    """The inline part of a worker's answer; the tensors travel beside it."""

    outcomes: tuple[ImageFacts | Failure, ...]
    busy_s: float
    """Thread-seconds spent on the batch."""


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """How a worker is doing; it answers while its threads compute."""

    worker_id: str
    node_id: str
    pid: int
    threads: int
    core_threads: int
    """Threads that the native core runs: as many as the worker was given, or its share would be a lie."""
    fingerprint: str
    completed_images: int
    failed_images: int
    waiting_images: int
    running_images: int
    oldest_running_s: float
    """How long the oldest image has been on a thread; a stuck one shows here."""
    oldest_running_digest: bytes | None
    backlog_px: float
    cache: dict[str, int]
    uptime_s: float
    rss_bytes: int


@dataclass(frozen=True, slots=True)
class WorkerRecord:
    """A live worker as the controller publishes it."""

    worker_id: str
    node_id: str
    threads: int
    handle: Any = field(repr=False)
    draining: bool = False


@dataclass(frozen=True, slots=True)
class Membership:
    """Who is alive. `version` only grows; a controller that restarts begins above its predecessor."""

    version: int
    workers: tuple[WorkerRecord, ...]
    fingerprint: str
    poisoned: tuple[tuple[bytes, float], ...] = ()
    """Routing keys of images that kill workers, and for how many more seconds they are refused."""
    closed: bool = False
    wanted: int = 0
    """How many workers there are to be."""
    last_error: str = ""
    """Why workers are missing, if they are."""
    hopeless_s: float = 0.0
    """For how long there has been no worker, and no room for one that waiting could bring."""


@dataclass(frozen=True, slots=True)
class Node:
    """A live node of the cluster."""

    node_id: str
    total_cpus: float
    free_cpus: float
    """Not held by any actor, nor by anything else that the node has told of."""
    has_gpu: bool
    labels: Mapping[str, str]
    other_cpus: float = 0.0
    """Held by tasks and placement groups, or given back a moment ago, which the node has yet to tell."""
