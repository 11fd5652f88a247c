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
from typing import Any, TypeVar

import ray
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
    worker_name,
    worker_names,
    write_note,
)
from ..config import PoolConfig
from ..messages import Membership, Node, WorkerRecord
from ..reservations import actor_holders, other_holders, placed_on
from ..worker.actor import create_worker
from .keeping import Keeper, Worker
from .room import why_no_room
from .slots import Settling, Slot, may_have_room, missing_slots, worker_counts

__all__ = ["PoolController", "create_controller"]

T = TypeVar("T")
logger = logging.getLogger("sglang_mm_ray.controller")

_LONG_POLL_S = 10.0
_RECONCILE_S = 0.5
# While workers are missing or starting.
_RECONCILE_SOON_S = 0.1
_NO_ROOM_EVERY_S = 1.0
_START_PAUSE_S = 0.25
_LONGEST_START_PAUSE_S = 10.0


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
        self._workers: dict[str, Worker] = {}
        self._keeper = Keeper(self._config, self._note, self._came, self._went)
        self._settling = Settling()
        self._poisoned: dict[bytes, float] = {}
        # Microseconds: a restarted controller starts above whatever its predecessor can have published.
        self._version = time.time_ns() // 1000
        self._last_error = ""
        self._no_room = ""
        self._no_room_told_at = 0.0
        self._hopeless_since: float | None = None
        self._failed_starts = 0
        self._start_after = 0.0
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
            try:
                await asyncio.to_thread(self._adopt)
            except Exception as error:
                self._note(reason_of(error))
        while not self._closing:
            whole = False
            try:
                whole = await self._reconcile()
            except Exception as error:
                self._note(reason_of(error))
            with contextlib.suppress(asyncio.TimeoutError):
                await asyncio.wait_for(self._wake.wait(), _RECONCILE_S if whole else _RECONCILE_SOON_S)
            self._wake.clear()

    def _note(self, error: str) -> None:
        if error != self._last_error:
            logger.warning("pool %s: %s", self._pool, error)
        self._last_error = error

    def _adopt(self) -> None:
        # A detached pool's workers outlive its controller; the next one takes them over, caches and all.
        for name in worker_names(self._pool):
            try:
                handle = ray.get_actor(name, namespace=NAMESPACE)
            except ValueError:
                continue
            node_id = placed_on(handle)
            if node_id is None:
                # Of the life before, which asked for it and ended. Nobody would wait for it.
                ray.kill(handle)
                continue
            worker = Worker(name.rsplit("/", 1)[1], handle, node_id, 0, adopted=True, placed=True)
            self._loop.call_soon_threadsafe(self._keep, worker)

    async def _reconcile(self) -> bool:
        """Starts and drains workers until there are as many as there are to be; whether there are."""
        nodes = await asyncio.to_thread(live_nodes)
        alive = {node.node_id for node in nodes}
        for worker in list(self._workers.values()):
            if worker.node_id not in alive and worker.watch is not None:
                worker.watch.cancel()
        present = Counter(worker.node_id for worker in self._workers.values() if not worker.draining)
        counts = worker_counts(nodes, self._config, present)
        self._wanted = sum(counts.values())
        for worker in list(self._workers.values()):
            if not worker.draining and present[worker.node_id] > counts.get(worker.node_id, 0):
                present[worker.node_id] -= 1
                self._drain_worker(worker)
        now = time.monotonic()
        # Where a worker has yet to be placed, what is free depends on it.
        asked = {worker.node_id for worker in self._workers.values() if not worker.placed}
        settled = {node.node_id for node in self._settling.settled(nodes, now)}
        usable = settled - asked if now >= self._start_after else set()
        slots = missing_slots(nodes, self._config, present, usable)
        for slot in slots:
            self._start(slot)
        short = [node for node in nodes if present[node.node_id] < counts.get(node.node_id, 0)]
        if (short or not counts) and not slots and settled >= alive - asked and not asked:
            await self._tell_no_room(short or nodes, now)
        elif not short:
            self._no_room = ""
        self._hope(bool(self._workers) or may_have_room(nodes, self._config), now)
        return not short and all(worker.live for worker in self._workers.values())

    async def _tell_no_room(self, nodes: list[Node], now: float) -> None:
        if now - self._no_room_told_at < _NO_ROOM_EVERY_S:
            return
        self._no_room_told_at = now
        holders = await asyncio.to_thread(lambda: [*actor_holders(), *other_holders()])
        before, self._no_room = self._no_room, why_no_room(nodes, self._config, holders)
        if not before:
            logger.warning("pool %s: %s", self._pool, self._no_room)
        if before != self._no_room:
            self._publish()

    def _hope(self, there_is: bool, now: float) -> None:
        hopeless = self._hopeless_since is not None
        if there_is == hopeless:
            self._hopeless_since = None if there_is else now
            self._publish()

    def _start(self, slot: Slot) -> None:
        worker_id = uuid.uuid4().hex[:12]
        handle = create_worker(
            self._config.to_json(),
            self._pool,
            worker_id,
            slot.node_id,
            slot.threads,
            slot.num_cpus,
            name=worker_name(self._pool, worker_id),
            namespace=NAMESPACE,
            lease_s=self._config.lease_s if self._detached else None,
        )
        self._keep(Worker(worker_id, handle, slot.node_id, slot.threads, slot.num_cpus))

    def _keep(self, worker: Worker) -> None:
        self._workers[worker.worker_id] = worker
        self._keeper.keep(worker, self._loop)

    def _came(self, worker: Worker) -> None:
        worker.live = True
        self._failed_starts = 0
        self._publish()

    def _went(self, worker: Worker) -> None:
        self._workers.pop(worker.worker_id, None)
        if worker.live and not worker.draining:
            self._replaced += 1
        elif worker.placed and not worker.live:
            # Were it to die again and again at its start, it would keep its node busy with nothing else.
            self._failed_starts += 1
            pause_s = min(_START_PAUSE_S * 2**self._failed_starts, _LONGEST_START_PAUSE_S)
            self._start_after = time.monotonic() + pause_s
        worker.live = False
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
        return Membership(
            version=self._version,
            workers=records,
            fingerprint=self._fingerprint,
            poisoned=tuple((key, until - now) for key, until in self._poisoned.items()),
            closed=self._closing,
            wanted=self._wanted,
            last_error=self._no_room or self._last_error,
            hopeless_s=0.0 if self._hopeless_since is None else now - self._hopeless_since,
        )

    async def _check_now(self, worker_id: str) -> None:
        worker = self._workers.get(worker_id)
        if worker is None or not worker.live:
            return
        try:
            await self._keeper.beat(worker, self._config.heartbeat_timeout_s)
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

    def _drain_worker(self, worker: Worker) -> None:
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
            "last_error": self._no_room or self._last_error,
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
