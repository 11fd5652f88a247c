"""SGLang's end: starts the sidecar, starts another one when it dies, and asks it without blocking."""

from __future__ import annotations

import itertools
import logging
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

from ...errors import DeadlineExceeded, PoolNotFound, PreprocessError
from .messages import Call, Cancel, Delivered, Down, Failed, Fetch, Preprocess, Up, Value
from .wire import Channel, read_arrays

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["Sidecar"]

logger = logging.getLogger("sglang_mm_ray.sglang")

_FIRST_PAUSE_S = 0.5
_LONGEST_PAUSE_S = 5.0
# How much longer than the sidecar itself a caller waits for its answer.
_GRACE_S = 1.0

Answer = tuple[list[Value], "list[NDArray[Any]]"]


class Sidecar:
    """The process that holds this one's connection to Ray. May be called from any thread.

    Args:
        pool: name of the pool; empty if features are only fetched.
        address: Ray address of its cluster.
        on_change: called on another thread with an `Up` or a `Down` each time that the pool is found or lost.
    """

    def __init__(self, pool: str, address: str, on_change: Callable[[Up | Down], None] | None = None) -> None:
        self._pool = pool
        self._address = address
        self._on_change = on_change or (lambda _: None)
        self._numbers = itertools.count(1)
        self._pending: dict[int, Future[Answer]] = {}
        self._lock = threading.Lock()
        self._channel: Channel | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._state: Up | Down | None = None
        self._told = threading.Condition(self._lock)
        self._closed = False
        # Sending copies the images, so it is not done on an event loop.
        self._senders = ThreadPoolExecutor(4, thread_name_prefix="mm-sidecar-send")
        threading.Thread(target=self._keep, name="mm-sidecar", daemon=True).start()

    @property
    def pid(self) -> int | None:
        """The process that runs now."""
        process = self._process
        return None if process is None else process.pid

    @property
    def state(self) -> Up | Down | None:
        """What the sidecar said last; None while the first one starts."""
        return self._state

    def wait_for_state(self, timeout_s: float) -> Up | Down:
        """Blocks until the sidecar says whether it reached the pool."""
        with self._told:
            self._told.wait_for(lambda: self._state is not None, timeout_s)
            return self._state or Down(PoolNotFound(f"Ray did not answer within {timeout_s:g} s"))

    def ask(self, work: Preprocess | Fetch, timeout_s: float) -> Future[Answer]:
        """The future has the values, and the arrays that they say; cancelling it cancels the work.

        Its errors are `PreprocessError`s: `PoolNotFound` while there is no connection, or if it ends.
        """
        number = next(self._numbers)
        future: Future[Answer] = Future()
        with self._lock:
            channel = self._channel
            if channel is None:
                future.set_exception(self._absent())
                return future
            self._pending[number] = future
        deadline = threading.Timer(timeout_s + _GRACE_S, self._give_up, (number, timeout_s, channel))
        deadline.daemon = True
        deadline.start()
        future.add_done_callback(lambda done: self._settled(number, done, deadline, channel))
        self._senders.submit(self._send, channel, Call(number, work, timeout_s))
        return future

    def close(self) -> None:
        """Ends the sidecar; what is pending fails."""
        with self._lock:
            self._closed = True
            channel, process = self._channel, self._process
        if channel is not None:
            channel.close()
        if process is not None:
            process.kill()

    def _absent(self) -> PreprocessError:
        state = self._state
        error = (
            state.error if isinstance(state, Down) else PoolNotFound("the connection to Ray is being set up")
        )
        return error

    def _send(self, channel: Channel, message: Call | Cancel) -> None:
        try:
            channel.send(message)
        except OSError:
            # The receiving thread sees the same end, and fails what is pending.
            logger.debug("the sidecar is gone")
        except Exception as error:
            # A source that cannot be pickled is the caller's.
            if isinstance(message, Call):
                self._fail(message.number, PreprocessError(f"the images cannot be sent: {error}"))

    def _settled(
        self, number: int, future: Future[Answer], deadline: threading.Timer, channel: Channel
    ) -> None:
        deadline.cancel()
        with self._lock:
            self._pending.pop(number, None)
        if future.cancelled():
            self._senders.submit(self._send, channel, Cancel(number))

    def _give_up(self, number: int, timeout_s: float, channel: Channel) -> None:
        # Its own deadline would have come first: it is stuck, and so is whatever else it was asked.
        self._fail(number, DeadlineExceeded(f"the images of the request took longer than {timeout_s:g} s"))
        with self._lock:
            process = self._process if self._channel is channel else None
        if process is not None:
            logger.warning("the connection to Ray does not answer; it is set up anew")
            process.kill()

    def _fail(self, number: int, error: PreprocessError) -> None:
        with self._lock:
            future = self._pending.pop(number, None)
        if future is not None and future.set_running_or_notify_cancel():
            future.set_exception(error)

    # The process

    def _keep(self) -> None:
        pause_s = _FIRST_PAUSE_S
        while not self._closed:
            started = time.monotonic()
            try:
                self._serve(self._start())
            except OSError as error:
                self._change(
                    Down(PoolNotFound(f"the process for the connection to Ray does not start: {error}"))
                )
            if self._closed:
                return
            # One that ran for a while died of something that may be over.
            pause_s = (
                _FIRST_PAUSE_S if time.monotonic() - started > 30 else min(2 * pause_s, _LONGEST_PAUSE_S)
            )
            time.sleep(pause_s)

    def _start(self) -> Channel:
        ours, theirs = socket.socketpair()
        command = [
            sys.executable,
            "-m",
            f"{__package__}.process",
            str(theirs.fileno()),
            self._pool,
            self._address,
        ]
        with theirs:
            self._process = subprocess.Popen(
                command,
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                # What Ray prints is no output of the server's.
                stdout=sys.__stderr__,
                # A signal from a terminal is for SGLang; with it, this one ends by the socket.
                start_new_session=True,
                env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
            )
        channel = Channel(ours)
        with self._lock:
            self._channel = channel
        return channel

    def _serve(self, channel: Channel) -> None:
        try:
            while True:
                message, descriptors = channel.receive()
                try:
                    self._hear(message, descriptors)
                finally:
                    for descriptor in descriptors:
                        os.close(descriptor)
        except EOFError:
            pass
        with self._lock:
            self._channel = None
            pending = list(self._pending)
            process = self._process
        channel.close()
        if process is not None:
            process.kill()
            process.wait()
        error = PoolNotFound(
            f"pool {self._pool!r} is not reached: the connection to Ray ended; it is set up anew"
        )
        self._change(Down(error))
        for number in pending:
            self._fail(number, error)

    def _hear(self, message: Any, descriptors: list[int]) -> None:
        if isinstance(message, (Up, Down)):
            self._change(message)
        elif isinstance(message, Failed):
            self._fail(message.number, message.error)
        elif isinstance(message, Delivered):
            arrays = read_arrays(descriptors[0], message.places) if descriptors else []
            with self._lock:
                future = self._pending.pop(message.number, None)
            if future is not None and future.set_running_or_notify_cancel():
                future.set_result((message.values, arrays))

    def _change(self, state: Up | Down) -> None:
        if self._closed:
            return
        before = self._state
        # Whoever waits finds what the change brought about.
        if type(before) is not type(state) or (isinstance(state, Up) and state != before):
            self._on_change(state)
        with self._told:
            self._state = state
            self._told.notify_all()
