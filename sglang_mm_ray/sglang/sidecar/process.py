"""The sidecar: `python -m sglang_mm_ray.sglang.sidecar.process SOCKET POOL ADDRESS`, started by `client`.

It ends with the process that started it, whose end of the socket is then closed, and with Ray's raylet.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import ray

from ...cluster import join_ray
from ...errors import DeadlineExceeded, InternalError, PoolClosed, PoolNotFound, PreprocessError
from ...pool.pool import PreprocessPool
from ..desk import Desk, take
from .messages import Call, Cancel, Delivered, Down, Failed, Fetch, Preprocess, Up, Value
from .results import copies, is_unfinished, share, values_by_reference
from .wire import Channel, SharedArrays

__all__: list[str] = []

logger = logging.getLogger("sglang_mm_ray.sglang")

_RETRY_S = 1.0


class _Sidecar:
    """Answers on an event loop of its own thread; the main thread connects, as Ray wants it."""

    def __init__(self, channel: Channel, pool_name: str, address: str) -> None:
        self._channel = channel
        self._pool_name = pool_name
        self._address = address
        self._pool: PreprocessPool | None = None
        self._lost = threading.Event()
        self._calls: dict[int, asyncio.Task[None]] = {}
        # Reading may bring the bytes from another node; writing copies them.
        self._threads = ThreadPoolExecutor(8, thread_name_prefix="mm-sidecar")
        self._down: PreprocessError = PoolNotFound("the connection to Ray is being set up")
        self._desk = Desk()
        self._loop = asyncio.new_event_loop()

    def run(self) -> None:
        """Serves for ever."""
        threading.Thread(target=self._loop.run_forever, name="mm-answer", daemon=True).start()
        threading.Thread(target=self._receive, name="mm-receive", daemon=True).start()
        while True:
            self._connect()
            self._lost.wait()
            self._lost.clear()
            pool, self._pool = self._pool, None
            if pool is not None:
                pool.close()

    def _connect(self) -> None:
        said = ""
        while True:
            try:
                self._channel.send(self._open())
                return
            except PreprocessError as error:
                self._down = error
            except Exception as error:
                self._down = PoolNotFound(f"no pool {self._pool_name!r} is reached: {error}")
            if str(self._down) != said:
                said = str(self._down)
                self._channel.send(Down(self._down))
            time.sleep(_RETRY_S)

    def _open(self) -> Up:
        if not self._pool_name:
            if not ray.is_initialized():
                join_ray(self._address)
            return Up("", 0)
        pool = PreprocessPool.connect(self._pool_name, address=self._address)
        self._pool = pool
        return Up(pool.config.to_json(), pool.status()["router"]["workers"])

    def _receive(self) -> None:
        try:
            while True:
                message, _ = self._channel.receive()
                self._loop.call_soon_threadsafe(self._hear, message)
        except EOFError:
            # Whom it served is gone. Ray cleans up after a driver that ends so, and cannot hold it up.
            os._exit(0)

    def _hear(self, message: Call | Cancel) -> None:
        if isinstance(message, Cancel):
            task = self._calls.get(message.number)
            if task is not None:
                task.cancel()
            return
        task = self._loop.create_task(self._answer(message))
        self._calls[message.number] = task
        task.add_done_callback(lambda _: self._calls.pop(message.number, None))

    async def _answer(self, call: Call) -> None:
        try:
            await asyncio.wait_for(self._do(call), call.timeout_s)
        except (asyncio.TimeoutError, TimeoutError) as error:
            self._fail(
                call,
                error
                if isinstance(error, PreprocessError)
                else DeadlineExceeded(f"the images of the request took longer than {call.timeout_s:g} s"),
            )
        except PreprocessError as error:
            self._fail(call, error)
        except asyncio.CancelledError:
            raise
        except Exception as error:
            logger.exception("a fault in the sidecar")
            self._fail(call, InternalError(f"{type(error).__name__}: {error}"))

    def _fail(self, call: Call, error: PreprocessError) -> None:
        self._channel.send(Failed(call.number, error))

    async def _do(self, call: Call) -> None:
        work = call.work
        if isinstance(work, Fetch):
            await self._loop.run_in_executor(self._threads, self._fetch, call, work)
            return
        pool = self._pool
        if pool is None:
            self._fail(call, self._down)
            return
        try:
            images = await pool.preprocess_async(work.sources, timeout_s=call.timeout_s)
        except (PoolClosed, PoolNotFound) as error:
            if pool is self._pool:
                self._down = PoolNotFound(f"pool {self._pool_name!r} is gone, and looked for again ({error})")
                self._lost.set()
            self._fail(call, self._down)
            return
        # Pixels are normalised here, so what is stored is not what the model reads.
        send = self._refer if work.readers and not any(map(is_unfinished, images)) else self._deliver
        await self._loop.run_in_executor(self._threads, send, call, work, pool, images)

    def _deliver(self, call: Call, work: Preprocess, pool: PreprocessPool, images: list[Any]) -> None:
        values, memory = share(images, pool.config.processor(), work.dtype, work.layouts)
        self._hand_over(call, values, memory)

    def _refer(self, call: Call, work: Preprocess, pool: PreprocessPool, images: list[Any]) -> None:
        values = values_by_reference(images, work, self._desk, call.timeout_s)
        self._channel.send(Delivered(call.number, values, []))

    def _fetch(self, call: Call, work: Fetch) -> None:
        memory = copies(take(work.tickets, call.timeout_s), [ticket.layout for ticket in work.tickets])
        self._hand_over(call, [], memory)

    def _hand_over(self, call: Call, values: list[Value], memory: SharedArrays) -> None:
        try:
            self._channel.send(Delivered(call.number, values, memory.places), [memory.descriptor])
        finally:
            memory.close()


if __name__ == "__main__":
    _Sidecar(Channel(socket.socket(fileno=int(sys.argv[1]))), sys.argv[2], sys.argv[3]).run()
