"""What is sent where and when: queues, windows, work stealing, and what follows from a worker's death.

Pure policy over `placement` and `batching`; the router feeds it events and carries out the batches that it
returns, and so does the simulation. Not thread-safe: one loop owns it.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import Any

from .batching import BatchLimits, Cost, FairQueue
from .placement import Placement

__all__ = ["Batch", "Flight", "Scheduler", "SchedulerLimits"]

# Batches that fill a worker's window: one computes, one is on its way back, one waits for its turn.
_BATCHES_PER_WINDOW = 3
# Suspects in groups larger than this are halved, smaller ones go one by one.
_HALVE_ABOVE = 4


@dataclass(eq=False, slots=True)
class Flight:
    """One image under way, however many requests wait for it."""

    key: int
    """Where it belongs; see `placement.route_key`."""
    request_id: int
    cost: Cost
    payload: Any
    attempts: int = 0
    """How often it was sent."""
    lone_crashes: int = 0
    """How many workers died while they held this image and no other."""
    avoid: frozenset[str] = frozenset()
    worker_id: str | None = None
    """Where it is queued or running."""
    batch_id: int | None = None
    """The batch in which it runs."""


@dataclass(frozen=True, slots=True)
class Batch:
    """Images to send to one worker in one call."""

    batch_id: int
    worker_id: str
    flights: tuple[Flight, ...]
    work_px: float
    alone: bool
    """Suspects: the worker holds nothing else meanwhile."""


@dataclass(frozen=True, slots=True)
class SchedulerLimits:
    """Bounds of a batch, and of what one worker may hold."""

    batch: BatchLimits
    window_px: float
    """Work in flight for each thread of a worker."""
    max_worker_bytes: int
    """Input and output in flight on one worker; one batch is always allowed."""


@dataclass(slots=True)
class _Worker:
    threads: float
    queue: FairQueue[Flight] = field(default_factory=FairQueue)
    running: dict[int, Batch] = field(default_factory=dict)
    running_px: float = 0.0
    running_bytes: int = 0
    suspects: deque[list[Flight]] = field(default_factory=deque)
    draining: bool = False
    express: int = -1
    """The last batch that passed a full window."""


class Scheduler:
    """Images come in by `submit`, leave by `next_batches`, and end by `finish`, `lose` or `cancel`."""

    def __init__(self, limits: SchedulerLimits) -> None:
        self._limits = limits
        self._placement = Placement(limits.window_px)
        self._workers: dict[str, _Worker] = {}
        self._homeless: dict[Flight, None] = {}
        self._homeless_suspects: list[list[Flight]] = []
        self._backlogged: dict[str, None] = {}
        self._ready: dict[str, None] = {}
        self._next_batch_id = 0

    # Membership

    @property
    def worker_ids(self) -> list[str]:
        """Workers that take images."""
        return [worker_id for worker_id in self._workers if worker_id in self._placement]

    def join(self, worker_id: str, capacity: float) -> None:
        """A worker takes images from now on; `capacity` is the number of its threads."""
        self._workers[worker_id] = _Worker(capacity)
        self._placement.join(worker_id, capacity)
        self._ready[worker_id] = None
        homeless, self._homeless = self._homeless, {}
        for flight in homeless:
            self.submit(flight)
        groups, self._homeless_suspects = self._homeless_suspects, []
        for group in groups:
            self._isolate(group)

    def drain(self, worker_id: str) -> None:
        """A worker gets nothing new; what runs there may end there."""
        worker = self._workers.get(worker_id)
        if worker is None or worker.draining:
            return
        worker.draining = True
        self._placement.leave(worker_id)
        self._rehome(worker_id, worker)
        if not worker.running:
            del self._workers[worker_id]

    def lose(self, worker_id: str) -> list[Flight]:
        """A worker died. What it held is suspect and runs again in ever smaller groups, alone on a worker.

        Returns the images that were the only ones on it, whose `lone_crashes` has grown; they are not queued
        again unless the caller calls `retry`.
        """
        worker = self._workers.pop(worker_id, None)
        if worker is None:
            return []
        if worker_id in self._placement:
            self._placement.leave(worker_id)
        self._rehome(worker_id, worker)
        groups = [list(batch.flights) for batch in worker.running.values()]
        for group in groups:
            for flight in group:
                flight.batch_id = None
                flight.worker_id = None
                flight.avoid = flight.avoid | {worker_id} if len(flight.avoid) < 3 else frozenset({worker_id})
        if len(groups) == 1 and len(groups[0]) == 1:
            groups[0][0].lone_crashes += 1
            return groups[0]
        for group in groups:
            step = (len(group) + 1) // 2 if len(group) > _HALVE_ABOVE else 1
            for start in range(0, len(group), step):
                self._isolate(group[start : start + step])
        return []

    def retry(self, flight: Flight) -> None:
        """Queues a suspect again, alone."""
        self._isolate([flight])

    def _rehome(self, worker_id: str, worker: _Worker) -> None:
        self._backlogged.pop(worker_id, None)
        self._ready.pop(worker_id, None)
        for flight in worker.queue.drain():
            self.submit(flight)
        groups, worker.suspects = worker.suspects, deque()
        for group in groups:
            self._isolate(group)

    def _isolate(self, group: list[Flight]) -> None:
        target = self._placement.place(group[0].key, sum(f.cost.work_px for f in group), group[0].avoid)
        if target is None:
            self._homeless_suspects.append(group)
            return
        for flight in group:
            flight.worker_id = target
            self._placement.add_load(target, flight.cost.work_px)
        self._workers[target].suspects.append(group)
        # What waits there now waits for the suspects too, so whoever is idle may come for it.
        self._ready.update(dict.fromkeys(self._workers))

    # Images

    def submit(self, flight: Flight) -> None:
        """Queues an image at the worker that its key names, or the next one with room."""
        target = self._placement.place(flight.key, flight.cost.work_px, flight.avoid)
        flight.worker_id = target
        if target is None:
            self._homeless[flight] = None
            return
        self._placement.add_load(target, flight.cost.work_px)
        self._workers[target].queue.push(flight)
        self._backlogged[target] = None
        self._ready[target] = None

    def cancel(self, flight: Flight) -> bool:
        """Drops an image that still waits; False if it runs (or is unknown), which cannot be undone here."""
        if flight.batch_id is not None:
            return False
        if flight.worker_id is None:
            if self._homeless.pop(flight, flight) is None:
                return True
            return _remove_suspect(self._homeless_suspects, flight)
        worker = self._workers.get(flight.worker_id)
        if worker is None:
            return False
        if not worker.queue.remove(flight) and not _remove_suspect(worker.suspects, flight):
            return False
        self._placement.add_load(flight.worker_id, -flight.cost.work_px)
        if not worker.queue:
            self._backlogged.pop(flight.worker_id, None)
        self._ready[flight.worker_id] = None
        return True

    def finish(self, batch: Batch, busy_s: float = 0.0) -> None:
        """A batch came back, having kept the worker's threads busy for `busy_s` thread-seconds."""
        worker = self._workers.get(batch.worker_id)
        if worker is None or worker.running.pop(batch.batch_id, None) is None:
            return
        worker.running_px = worker.running_px - batch.work_px if worker.running else 0.0
        worker.running_bytes -= sum(flight.cost.total_bytes for flight in batch.flights)
        for flight in batch.flights:
            flight.batch_id = None
            flight.worker_id = None
        if worker.draining:
            if not worker.running:
                del self._workers[batch.worker_id]
            return
        self._placement.add_load(batch.worker_id, -batch.work_px)
        self._placement.observe(batch.worker_id, batch.work_px, busy_s)
        self._ready[batch.worker_id] = None

    def next_batches(self) -> list[Batch]:
        """Everything that can be sent now."""
        batches: list[Batch] = []
        while self._ready:
            worker_id = next(iter(self._ready))
            batch = self._next_batch(worker_id)
            if batch is not None:
                batches.append(batch)
                continue
            del self._ready[worker_id]
            victim_id = self._victim(worker_id)
            if victim_id is not None and victim_id in self._ready:
                # First let the victim send what it can; then there may be something to steal.
                self._ready[worker_id] = None
        return batches

    def _next_batch(self, worker_id: str) -> Batch | None:
        worker = self._workers.get(worker_id)
        if worker is None or worker.draining:
            return None
        if worker.suspects:
            # Suspects share the worker with nobody, so that a death tells something.
            return None if worker.running else self._send(worker_id, worker, worker.suspects.popleft(), True)
        if any(batch.alone for batch in worker.running.values()):
            return None
        flights = self._take(worker_id, worker)
        if not flights:
            return None
        for flight in flights:
            if flight.worker_id != worker_id and flight.worker_id is not None:
                self._placement.add_load(flight.worker_id, -flight.cost.work_px)
                self._placement.add_load(worker_id, flight.cost.work_px)
                if not self._workers[flight.worker_id].queue:
                    self._backlogged.pop(flight.worker_id, None)
        if not worker.queue:
            self._backlogged.pop(worker_id, None)
        return self._send(worker_id, worker, flights, False)

    def _take(self, worker_id: str, worker: _Worker) -> list[Flight]:
        window_px = self._placement.window_px(worker_id)
        limits = self._limits.batch
        whole_px = min(max(window_px / _BATCHES_PER_WINDOW, 1.0), limits.max_work_px)
        whole_bytes = min(self._limits.max_worker_bytes / _BATCHES_PER_WINDOW, limits.max_bytes)
        room_px = min(window_px - worker.running_px, whole_px)
        room_bytes = int(min(self._limits.max_worker_bytes - worker.running_bytes, limits.max_bytes))
        queue = worker.queue
        # What waits waits for a whole batch to have room, or each image that ends would let in only one more.
        cramped = room_px <= 0 or (room_px < whole_px and queue.work_px > room_px) or room_bytes < whole_bytes
        # Large images fill a window before each thread has one.
        idle = sum(len(batch.flights) for batch in worker.running.values()) < worker.threads
        if worker.running and (room_bytes <= 0 or (cramped and not idle)):
            # Short requests may pass a full window, one batch at a time: the worker takes turns image by
            # image, so they wait for an image there, where here they would wait for a batch.
            if not queue.has_short or room_bytes <= 0 or worker.express in worker.running:
                return []
            flights = queue.take_short(BatchLimits(limits.max_images, room_bytes, max(window_px / 4, 1.0)))
            worker.express = self._next_batch_id
            return flights
        if not queue:
            victim_id = self._victim(worker_id)
            if victim_id is None or victim_id in self._ready:
                return []
            queue = self._workers[victim_id].queue
        return queue.take(BatchLimits(limits.max_images, room_bytes, room_px))

    def _victim(self, thief_id: str) -> str | None:
        """Who has the longest queue, for a worker that has nothing left to do at all.

        Stealing gives up the warm cache of one image for a wait that would be longer than the work.
        """
        thief = self._workers.get(thief_id)
        if thief is None or thief.draining or thief.running or thief.queue or not self._backlogged:
            return None
        return max(self._backlogged, key=lambda other: self._workers[other].queue.work_px)

    def _send(self, worker_id: str, worker: _Worker, flights: list[Flight], alone: bool) -> Batch:
        work_px = sum(flight.cost.work_px for flight in flights)
        batch = Batch(self._next_batch_id, worker_id, tuple(flights), work_px, alone)
        self._next_batch_id += 1
        worker.running[batch.batch_id] = batch
        worker.running_px += work_px
        worker.running_bytes += sum(flight.cost.total_bytes for flight in flights)
        for flight in flights:
            flight.worker_id = worker_id
            flight.batch_id = batch.batch_id
            flight.attempts += 1
        return batch

    # What there is to see

    def running_on(self, worker_id: str) -> list[Batch]:
        """Batches under way on a worker."""
        worker = self._workers.get(worker_id)
        return list(worker.running.values()) if worker else []

    @property
    def queued_images(self) -> int:
        """Images that wait for a worker."""
        waiting = sum(len(worker.queue) + sum(map(len, worker.suspects)) for worker in self._workers.values())
        return waiting + len(self._homeless) + sum(map(len, self._homeless_suspects))

    @property
    def running_images(self) -> int:
        """Images on workers."""
        return sum(
            len(batch.flights) for worker in self._workers.values() for batch in worker.running.values()
        )


def _remove_suspect(groups: deque[list[Flight]] | list[list[Flight]], flight: Flight) -> bool:
    for group in groups:
        if flight in group:
            group.remove(flight)
            if not group:
                groups.remove(group)
            return True
    return False
