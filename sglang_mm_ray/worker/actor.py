"""`PreprocessWorker`: the actor that computes. It knows the engine, not who sends it batches."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from typing import Any, TypeVar, cast

import ray
from ray.exceptions import GetTimeoutError, RayError, RayTaskError
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from .. import _core
from ..arguments import from_arguments
from ..cluster import actor_class, warm_store
from ..config import PoolConfig
from ..errors import FetchError
from ..messages import Heartbeat
from ..metrics import WorkerMetrics
from ..stored_array import in_pieces
from .engine import Engine

__all__ = ["CONCURRENT_BATCHES", "PreprocessWorker", "create_worker"]

# Calls that may be inside the actor at a time: each waits on a thread of its own while the engine's threads
# compute, so there are enough for the batches of several routers.
CONCURRENT_BATCHES = 32

F = TypeVar("F", bound=Callable[..., Any])
# Ray types what it decorates as remote; inside the actor these are plain methods.
_process = cast(Callable[[F], F], ray.method(concurrency_group="process"))
_control = cast(Callable[[F], F], ray.method(concurrency_group="control"))


class PreprocessWorker:
    """A stateful worker: threads that compute, a cache of results, and control calls that always answer.

    `process` returns the facts, small enough to travel inline, then the tensors as values that the
    caller owns: one for each image (`num_returns` is one more than there are), or one for all `together`.
    """

    def __init__(
        self, config_json: str, pool: str, worker_id: str, threads: int, lease_s: float | None
    ) -> None:
        # Ray narrows neither the affinity mask nor the core count, so the share must be said; a number in the
        # node's environment is meant for one process, not for each of several workers.
        os.environ.pop("SGL_MM_RS_THREADS", None)
        _core.set_thread_budget(threads)
        self._config = PoolConfig.from_json(config_json)
        self._worker_id = worker_id
        self._node_id: str = ray.get_runtime_context().get_node_id()
        self._threads = threads
        self._fingerprint = self._config.fingerprint()
        self._engine = Engine(self._config, threads, self._read_ref)
        self._metrics = WorkerMetrics(self._config, pool, worker_id)
        self._started = time.monotonic()
        self._last_contact = time.monotonic()
        if lease_s is not None:
            threading.Thread(target=self._end_without_controller, args=(lease_s,), daemon=True).start()

    def _read_ref(self, ref: Any) -> object:
        timeout_s = self._config.read_timeout_s
        try:
            return ray.get(ref, timeout=timeout_s)
        except RayTaskError as error:  # First: it is of the type that the task raised as well.
            raise FetchError(
                f"the task that makes the object failed ({type(error.cause).__name__})"
            ) from None
        except GetTimeoutError:
            raise FetchError(
                f"the object did not arrive within {timeout_s:g} s (read_timeout_s)", retriable=True
            ) from None
        except RayError as error:
            raise FetchError(
                f"the object is lost ({type(error).__name__}); make it again and pass the new ObjectRef"
            ) from None

    @_process
    def process(self, *arguments: Any) -> Any:
        """A batch's `BatchReply`, then each image's value or None, or all of these in a tuple."""
        request = from_arguments(arguments)
        reply, values = self._engine.run(request)
        self._metrics.batch(reply)
        pieces = tuple(map(in_pieces, values))
        return (reply, pieces) if request.together else (reply, *pieces)

    @_control
    def cancel(self, call_id: str) -> bool:
        """Drops the images of a call that have not started."""
        return self._engine.cancel(call_id)

    @_control
    def heartbeat(self) -> Heartbeat:
        """How the worker is doing. Only the controller calls this: the lease counts from the last call."""
        self._last_contact = time.monotonic()
        return self.status()

    @_control
    def status(self) -> Heartbeat:
        """As `heartbeat`, for anybody."""
        engine = self._engine
        running, oldest_s, oldest_digest = engine.oldest_running()
        beat = Heartbeat(
            worker_id=self._worker_id,
            node_id=self._node_id,
            pid=os.getpid(),
            threads=self._threads,
            core_threads=_core.build_info()["threads"],
            fingerprint=self._fingerprint,
            completed_images=engine.completed_images,
            failed_images=engine.failed_images,
            waiting_images=max(0, engine.waiting_images()),
            running_images=running,
            oldest_running_s=oldest_s,
            oldest_running_digest=oldest_digest,
            backlog_px=engine.backlog_px,
            cache=engine.cache_counters(),
            uptime_s=time.monotonic() - self._started,
            rss_bytes=_rss_bytes(),
        )
        self._metrics.heartbeat(beat)
        return beat

    @_control
    def warm(self, size_bytes: int) -> float:
        """Touches memory of the store, and for as much as the cache will hold; returns seconds.

        The first touch of a page costs ten times a copy. The first worker of a node is given no request
        before this is done; one that replaces it is.
        """
        started = time.monotonic()
        heap = threading.Thread(
            target=_core.touch_ahead, args=(min(size_bytes, self._config.worker_cache_bytes),)
        )
        heap.start()
        warm_store(size_bytes)
        heap.join()
        return time.monotonic() - started

    def _end_without_controller(self, lease_s: float) -> None:
        while time.monotonic() - self._last_contact < lease_s:
            time.sleep(min(1.0, lease_s / 4))
        os._exit(0)


def _rss_bytes() -> int:
    try:
        with open("/proc/self/statm") as statm:
            return int(statm.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        return 0


def create_worker(
    config_json: str,
    pool: str,
    worker_id: str,
    node_id: str,
    threads: int,
    num_cpus: float,
    *,
    name: str,
    namespace: str,
    lease_s: float | None = None,
) -> Any:
    """Starts a worker on a node and returns its handle at once; a detached one if it has a lease.

    Ray never restarts it: who dies is replaced by the controller, under another identity, so that nobody
    mistakes the new one's empty queue for the old one's.
    """
    strategy = NodeAffinitySchedulingStrategy(node_id, soft=False)
    # By its name others can tell which pool holds the CPUs.
    options: dict[str, Any] = {"num_cpus": num_cpus, "scheduling_strategy": strategy}
    options |= {"name": name, "namespace": namespace}
    if lease_s is not None:
        options["lifetime"] = "detached"
    actor = actor_class(
        PreprocessWorker,
        max_restarts=0,
        max_task_retries=0,
        concurrency_groups={"process": CONCURRENT_BATCHES, "control": 4},
    )
    return actor.options(**options).remote(config_json, pool, worker_id, threads, lease_s)
