"""`PoolController`: the small actor that keeps a pool's workers alive and says who they are.

It starts a worker where one is missing, replaces those that die or get stuck, follows nodes as they come and
go, and publishes the membership. No image and no result ever passes through it, and routers go on without it
while it restarts.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import threading
import time
import uuid
from collections import Counter
from collections.abc import Coroutine
from dataclasses import dataclass
from typing import Any, TypeVar

import ray
from ray.exceptions import GetTimeoutError, RayActorError, RayError
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from ..cluster import (
    CONTROLLER_CPUS,
    NAMESPACE,
    actor_class,
    controller_name,
    live_nodes,
    read_note,
    reason_of,
    scale_note,
    warm_bytes,
    worker_name,
    worker_names,
    write_note,
)
from ..config import PoolConfig
from ..messages import Heartbeat, Membership, WorkerRecord
from ..worker.actor import create_worker
from .slots import Slot, missing_slots, worker_counts

__all__ = ["PoolController", "create_controller"]

T = TypeVar("T")
logger = logging.getLogger("sglang_mm_ray.controller")

_LONG_POLL_S = 10.0
_RECONCILE_S = 0.5


@dataclass(eq=False)
class _Worker:
    worker_id: str
    handle: Any
    node_id: str
    threads: int
    live: bool = False
    draining: bool = False
    beat: Heartbeat | None = None
    watch: asyncio.Task[None] | None = None


class PoolController:
    """One for each pool. Its state lives on a loop of its own, which a restart starts again."""

    def __init__(self, config_json: str, pool: str, detached: bool) -> None:
        self._config = PoolConfig.from_json(config_json)
        # The same for all its lives: what `scale` said in an earlier one holds.
        self._scale_note = scale_note(ray.get_runtime_context().get_actor_id() or "")
        scaled = read_note(self._scale_note)
        if scaled is not None:
            self._config = self._config.replace(num_workers=json.loads(scaled))
        self._pool = pool
        self._detached = detached
        self._fingerprint = self._config.fingerprint()
        self._workers: dict[str, _Worker] = {}
        self._poisoned: dict[bytes, float] = {}
        # Microseconds: a restarted controller starts above whatever its predecessor can have published.
        self._version = time.time_ns() // 1000
        self._last_error = ""
        self._replaced = 0
        self._wanted = 0
        self._closing = False
        self._loop = asyncio.new_event_loop()
        self._changed = asyncio.Event()
        self._wake = asyncio.Event()
        threading.Thread(target=self._loop.run_forever, name="mm-controller", daemon=True).start()
        asyncio.run_coroutine_threadsafe(self._run(), self._loop)

    async def _on_loop(self, work: Coroutine[Any, Any, T]) -> T:
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work, self._loop))

    # What others call

    async def describe(self) -> tuple[str, str]:
        """The pool's configuration as JSON, and its fingerprint."""
        return self._config.to_json(), self._fingerprint

    async def pid(self) -> int:
        """The controller's process."""
        return os.getpid()

    async def membership(self, known_version: int) -> Membership:
        """Who is alive; returns once that differs from the known version, or after some seconds."""
        return await self._on_loop(self._membership(known_version))

    async def report_lost(self, worker_id: str) -> None:
        """A router saw a worker die; the heartbeat would notice later."""
        await self._on_loop(self._check_now(worker_id))

    async def report_poison(self, key: bytes) -> None:
        """An image that kills workers, by its routing key; all routers refuse it for a while."""
        await self._on_loop(self._quarantine(key))

    async def scale(self, num_workers: int | None) -> None:
        """Changes how many workers there are to be; surplus ones are drained."""
        await self._on_loop(self._scale(num_workers))

    async def status(self) -> dict[str, Any]:
        """What there is to see, as plain JSON values."""
        return await self._on_loop(self._status())

    async def drain(self) -> None:
        """Stops taking images, lets running ones end, and kills the workers."""
        await self._on_loop(self._drain())

    # On the loop

    async def _run(self) -> None:
        if self._detached:
            await asyncio.to_thread(self._adopt)
        while not self._closing:
            try:
                await self._reconcile()
            except Exception as error:
                self._note(reason_of(error))
            with contextlib.suppress(asyncio.TimeoutError):
                await asyncio.wait_for(self._wake.wait(), _RECONCILE_S)
            self._wake.clear()

    def _note(self, error: str) -> None:
        if error != self._last_error:
            logger.warning("pool %s: %s", self._pool, error)
        self._last_error = error

    def _adopt(self) -> None:
        # A detached pool's workers outlive its controller; the next one takes them over, caches and all.
        for name in worker_names(self._pool):
            worker_id = name.rsplit("/", 1)[1]
            try:
                handle = ray.get_actor(name, namespace=NAMESPACE)
                beat: Heartbeat = ray.get(handle.heartbeat.remote(), timeout=self._config.heartbeat_timeout_s)
            except (ValueError, GetTimeoutError, RayError):
                continue
            worker = _Worker(worker_id, handle, beat.node_id, beat.threads)
            self._loop.call_soon_threadsafe(self._watch, worker)

    async def _reconcile(self) -> None:
        nodes = await asyncio.to_thread(live_nodes)
        alive = {node.node_id for node in nodes}
        for worker in list(self._workers.values()):
            if worker.node_id not in alive and worker.watch is not None:
                worker.watch.cancel()
        counts = worker_counts(nodes, self._config)
        self._wanted = sum(counts.values())
        present = Counter(worker.node_id for worker in self._workers.values() if not worker.draining)
        for worker in list(self._workers.values()):
            if not worker.draining and present[worker.node_id] > counts.get(worker.node_id, 0):
                present[worker.node_id] -= 1
                self._drain_worker(worker)
        if any(not worker.live for worker in self._workers.values()):
            # Ray's count of free CPUs does not know yet what starting workers will hold.
            return
        slots = missing_slots(nodes, self._config, present)
        for slot in slots:
            self._start(slot)
        if not slots and not self._workers:
            self._note(
                f"no node has room for a worker ({len(nodes)} nodes, "
                f"{sum(node.free_cpus for node in nodes):g} CPUs free); "
                "free CPUs, or set threads_per_worker, use_gpu_nodes or node_labels"
            )

    def _start(self, slot: Slot) -> None:
        worker_id = uuid.uuid4().hex[:12]
        name = worker_name(self._pool, worker_id) if self._detached else None
        handle = create_worker(
            self._config.to_json(),
            self._pool,
            worker_id,
            slot.node_id,
            slot.threads,
            slot.num_cpus,
            name=name,
            namespace=NAMESPACE,
            lease_s=self._config.lease_s if self._detached else None,
        )
        self._watch(_Worker(worker_id, handle, slot.node_id, slot.threads))

    def _watch(self, worker: _Worker) -> None:
        self._workers[worker.worker_id] = worker
        worker.watch = self._loop.create_task(self._keep(worker))

    async def _keep(self, worker: _Worker) -> None:
        config = self._config
        try:
            await self._beat(worker, config.start_timeout_s)
            await self._warm(worker)
            worker.live = True
            self._publish()
            while True:
                await asyncio.sleep(config.heartbeat_interval_s)
                beat = await self._beat(worker, config.heartbeat_timeout_s)
                if beat.oldest_running_s > config.image_timeout_s:
                    digest = (beat.oldest_running_digest or b"").hex()[:16]
                    self._note(f"worker {worker.worker_id} is stuck on image sha256:{digest}; replacing it")
                    return
                if worker.draining and not beat.waiting_images and not beat.running_images:
                    return
        except (asyncio.TimeoutError, TimeoutError):
            self._note(f"worker {worker.worker_id} does not answer; replacing it")
        except RayActorError as error:
            self._note(f"worker {worker.worker_id} died: {reason_of(error)}")
        except asyncio.CancelledError:
            pass
        except Exception as error:
            self._note(f"worker {worker.worker_id}: {reason_of(error)}")
        finally:
            self._remove(worker)

    async def _beat(self, worker: _Worker, timeout_s: float) -> Heartbeat:
        beat: Heartbeat = await asyncio.wait_for(worker.handle.heartbeat.remote(), timeout_s)
        if beat.fingerprint != self._fingerprint:
            raise RuntimeError(
                "its core or Pillow is of another version, so its results would differ; install the same "
                "packages on every node"
            )
        worker.beat = beat
        return beat

    async def _warm(self, worker: _Worker) -> None:
        size_bytes = await asyncio.to_thread(warm_bytes, self._config.warm_bytes, worker.node_id)
        if size_bytes > 0:
            await asyncio.wait_for(worker.handle.warm.remote(size_bytes), self._config.start_timeout_s)

    def _remove(self, worker: _Worker) -> None:
        self._workers.pop(worker.worker_id, None)
        if worker.live and not worker.draining:
            self._replaced += 1
        worker.live = False
        try:
            ray.kill(worker.handle)
        except Exception:
            logger.debug("worker %s was dead already", worker.worker_id)
        self._publish()
        self._wake.set()

    def _publish(self) -> None:
        self._version = max(self._version + 1, time.time_ns() // 1000)
        self._changed.set()
        self._changed = asyncio.Event()

    async def _membership(self, known_version: int) -> Membership:
        if known_version == self._version:
            with contextlib.suppress(asyncio.TimeoutError):
                await asyncio.wait_for(self._changed.wait(), _LONG_POLL_S)
        now = time.monotonic()
        self._poisoned = {key: until for key, until in self._poisoned.items() if until > now}
        records = tuple(
            WorkerRecord(worker.worker_id, worker.node_id, worker.threads, worker.handle, worker.draining)
            for worker in self._workers.values()
            if worker.live
        )
        poisoned = tuple((key, until - now) for key, until in self._poisoned.items())
        return Membership(
            self._version, records, self._fingerprint, poisoned, self._closing, self._wanted, self._last_error
        )

    async def _check_now(self, worker_id: str) -> None:
        worker = self._workers.get(worker_id)
        if worker is None or not worker.live:
            return
        try:
            await self._beat(worker, self._config.heartbeat_timeout_s)
        except Exception:
            if worker.watch is not None:
                worker.watch.cancel()

    async def _quarantine(self, key: bytes) -> None:
        self._poisoned[key] = time.monotonic() + self._config.quarantine_s
        self._publish()

    async def _scale(self, num_workers: int | None) -> None:
        self._config = self._config.replace(num_workers=num_workers)
        self._wake.set()
        await asyncio.to_thread(write_note, self._scale_note, json.dumps(num_workers))

    def _drain_worker(self, worker: _Worker) -> None:
        worker.draining = True
        self._publish()

    async def _drain(self) -> None:
        self._closing = True
        for worker in self._workers.values():
            worker.draining = True
        self._publish()
        tasks = [worker.watch for worker in self._workers.values() if worker.watch is not None]
        if tasks:
            _, late = await asyncio.wait(tasks, timeout=self._config.drain_timeout_s)
            for task in late:
                task.cancel()
            await asyncio.gather(*late, return_exceptions=True)

    async def _status(self) -> dict[str, Any]:
        workers = []
        for worker in self._workers.values():
            beat = worker.beat
            facts = {} if beat is None else {key: _plain(getattr(beat, key)) for key in beat.__slots__}
            state = "draining" if worker.draining else "live" if worker.live else "starting"
            workers.append(
                {**facts, "worker_id": worker.worker_id, "node_id": worker.node_id, "state": state}
            )
        return {
            "pool": self._pool,
            "model": self._config.model,
            "transport": self._config.transport,
            "fingerprint": self._fingerprint,
            "detached": self._detached,
            "version": self._version,
            "workers": workers,
            "replaced_workers": self._replaced,
            "quarantined_images": len(self._poisoned),
            "last_error": self._last_error,
        }


def _plain(value: Any) -> Any:
    return value.hex() if isinstance(value, bytes) else value


def create_controller(config: PoolConfig, pool: str, *, detached: bool) -> Any:
    """Starts a controller and returns its handle at once.

    Raises:
        ValueError: a pool of that name runs already.
    """
    actor = actor_class(PoolController, num_cpus=CONTROLLER_CPUS, max_restarts=-1, max_concurrency=1000)
    # Beside whoever starts the pool, so that the loss of another node does not cost the controller as well.
    here = NodeAffinitySchedulingStrategy(ray.get_runtime_context().get_node_id(), soft=True)
    options: dict[str, Any] = {"name": controller_name(pool), "namespace": NAMESPACE}
    options["scheduling_strategy"] = here
    if detached:
        options["lifetime"] = "detached"
    return actor.options(**options).remote(config.to_json(), pool, detached)
