"""One worker's life as its controller sees it: placed on a node, started, warm, live, and gone one day."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import ray
from ray.exceptions import RayActorError

from ..cluster import live_nodes, reason_of, warm_bytes
from ..config import PoolConfig
from ..messages import Heartbeat
from ..reservations import placed_on

__all__ = ["Keeper", "Worker"]

logger = logging.getLogger("sglang_mm_ray.controller")

# A node tells that it has taken a worker once it has a process for it, which takes seconds where it is busy.
# What cannot be is seen at once; where tasks may hold the CPUs it is asked again, each time after longer.
_PATIENCE_S = 5.0
_LOOK_EVERY_S = 0.5
_PLACED_POLL_S = 0.03
_ROUNDING_CPUS = 1e-4


@dataclass(eq=False)
class Worker:
    """A worker of the pool, from before it is placed until it is removed."""

    worker_id: str
    handle: Any
    node_id: str
    threads: int
    num_cpus: float = 0.0
    adopted: bool = False
    """Whether an earlier life of the controller started it."""
    placed: bool = False
    live: bool = False
    draining: bool = False
    beat: Heartbeat | None = None
    watch: asyncio.Task[None] | None = None


class Keeper:
    """Sees workers through their lives, and says when one is live, and when it is gone. Belongs to a loop."""

    def __init__(
        self,
        config: PoolConfig,
        note: Callable[[str], None],
        on_live: Callable[[Worker], None],
        on_gone: Callable[[Worker], None],
    ) -> None:
        self._config = config
        self._fingerprint = config.fingerprint()
        self._note = note
        self._on_live = on_live
        self._on_gone = on_gone
        self._taken_back = 0
        self._warm_nodes: set[str] = set()
        self._background: set[asyncio.Future[None]] = set()

    def keep(self, worker: Worker, loop: asyncio.AbstractEventLoop) -> None:
        """Begins; `worker.watch` ends with the worker, and ends the worker where it is cancelled."""
        worker.watch = loop.create_task(self._keep(worker))

    async def _keep(self, worker: Worker) -> None:
        try:
            if not worker.adopted:
                await self._wait_until_placed(worker)
            await self._start(worker)
            self._on_live(worker)
            await self._watch(worker)
        except (asyncio.TimeoutError, TimeoutError):
            self._note(f"worker {worker.worker_id} does not answer; replacing it")
        except RayActorError as error:
            self._note(f"worker {worker.worker_id} died: {reason_of(error)}")
        except asyncio.CancelledError:
            pass
        except Exception as error:
            self._note(f"worker {worker.worker_id}: {reason_of(error)}")
        finally:
            try:
                ray.kill(worker.handle)
            except Exception:
                logger.debug("worker %s was dead already", worker.worker_id)
            self._on_gone(worker)

    async def _wait_until_placed(self, worker: Worker) -> None:
        loop = asyncio.get_running_loop()
        asked_at = looked_at = loop.time()
        patience_s = min(_PATIENCE_S * 2**self._taken_back, self._config.start_timeout_s)
        while await asyncio.to_thread(placed_on, worker.handle) is None:
            now = loop.time()
            vain = now - asked_at > patience_s
            if now - looked_at > _LOOK_EVERY_S:
                looked_at = now
                vain |= not await asyncio.to_thread(_may_take, worker)
            if vain:
                # It would wait for as long as the CPUs are held, and take them from whoever lets go last.
                self._taken_back += 1
                raise RuntimeError(
                    f"node {worker.node_id[:8]} did not take it within {now - asked_at:.1f} s; its CPUs were "
                    "not free after all, so another is asked for by what is free now"
                )
            await asyncio.sleep(_PLACED_POLL_S)
        worker.placed = True

    async def _start(self, worker: Worker) -> None:
        config = self._config
        timeout_s = config.heartbeat_timeout_s if worker.adopted else config.start_timeout_s
        beat = await self.beat(worker, timeout_s)
        self._taken_back = 0
        worker.threads = beat.threads
        if worker.adopted:
            return
        if worker.node_id in self._warm_nodes:
            # Its store has been touched, and somebody may be waiting: the rest it does beside its work.
            self._background.add(task := asyncio.ensure_future(self._warm(worker)))
            task.add_done_callback(self._background.discard)
        else:
            await self._warm(worker)
            self._warm_nodes.add(worker.node_id)

    async def _warm(self, worker: Worker) -> None:
        size_bytes = await asyncio.to_thread(warm_bytes, self._config.warm_bytes, worker.node_id)
        if size_bytes > 0:
            await asyncio.wait_for(worker.handle.warm.remote(size_bytes), self._config.start_timeout_s)

    async def _watch(self, worker: Worker) -> None:
        config = self._config
        while True:
            await asyncio.sleep(config.heartbeat_interval_s)
            beat = await self.beat(worker, config.heartbeat_timeout_s)
            if beat.oldest_running_s > config.image_timeout_s:
                digest = (beat.oldest_running_digest or b"").hex()[:16]
                self._note(f"worker {worker.worker_id} is stuck on image sha256:{digest}; replacing it")
                return
            if worker.draining and not beat.waiting_images and not beat.running_images:
                return

    async def beat(self, worker: Worker, timeout_s: float) -> Heartbeat:
        """Asks a worker how it is doing.

        Raises:
            RuntimeError: it would give other results than this pool.
        """
        beat: Heartbeat = await asyncio.wait_for(worker.handle.heartbeat.remote(), timeout_s)
        if beat.fingerprint != self._fingerprint:
            raise RuntimeError(
                "its core or Pillow is of another version, so its results would differ; install the same "
                "packages on every node"
            )
        worker.beat = beat
        return beat


def _may_take(worker: Worker) -> bool:
    """Whether its node can have the CPUs for it, now or once tasks end."""
    rooms = {node.node_id: node.free_cpus + node.other_cpus for node in live_nodes()}
    return rooms.get(worker.node_id, 0.0) >= worker.num_cpus - _ROUNDING_CPUS
