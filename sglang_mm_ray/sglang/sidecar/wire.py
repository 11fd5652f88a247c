"""Messages over a socket of this machine: pickled, with a length before them, and descriptors of memory."""

from __future__ import annotations

import array
import contextlib
import mmap
import os
import pickle
import socket
import struct
import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["Channel", "SharedArrays", "read_arrays"]

_LENGTH = struct.Struct("<Q")
_ALIGNMENT_BYTES = 64
_MOST_DESCRIPTORS = 8


class Channel:
    """One end of a socket pair. Any thread may send; one thread receives."""

    def __init__(self, connected: socket.socket) -> None:
        self._socket = connected
        self._sending = threading.Lock()

    def send(self, message: Any, descriptors: Sequence[int] = ()) -> None:
        """Sends a message, and copies of open descriptors with it.

        Raises:
            OSError: the other end is gone.
        """
        data = pickle.dumps(message, protocol=5)
        header = _LENGTH.pack(len(data))
        ancillary = (
            [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", descriptors))] if descriptors else []
        )
        with self._sending:
            # So few bytes are sent whole or not at all.
            self._socket.sendmsg([header], ancillary)
            self._socket.sendall(data)

    def receive(self) -> tuple[Any, list[int]]:
        """The next message and its descriptors, which are the caller's to close; blocks.

        Raises:
            EOFError: the other end is gone.
        """
        try:
            header, descriptors, _, _ = socket.recv_fds(self._socket, _LENGTH.size, _MOST_DESCRIPTORS)
            header += self._exactly(_LENGTH.size - len(header)) if header else b""
            if not header:
                raise EOFError
            return pickle.loads(self._exactly(_LENGTH.unpack(header)[0])), descriptors
        except OSError:
            raise EOFError from None

    def _exactly(self, size_bytes: int) -> bytearray:
        data = bytearray(size_bytes)
        view = memoryview(data)
        while view:
            received = self._socket.recv_into(view)
            if received == 0:
                raise EOFError
            view = view[received:]
        return data

    def close(self) -> None:
        """Ends both directions; the other end's `receive` raises `EOFError`."""
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()


class SharedArrays:
    """Memory without a name for the arrays of one message: it is gone when nobody has it open or mapped."""

    def __init__(self, shapes: Sequence[tuple[str, tuple[int, ...]]]) -> None:
        """`shapes`: numpy's name of the dtype, and the shape, of each array."""
        self.places: list[tuple[int, str, tuple[int, ...]]] = []
        size_bytes = 0
        for dtype, shape in shapes:
            self.places.append((size_bytes, dtype, shape))
            size_bytes += _nbytes(dtype, shape) + -_nbytes(dtype, shape) % _ALIGNMENT_BYTES
        self.descriptor = os.memfd_create("mm-features")
        try:
            os.ftruncate(self.descriptor, max(size_bytes, 1))
            # Takes the pages now: where there are none, an error instead of a signal while they are written.
            os.posix_fallocate(self.descriptor, 0, max(size_bytes, 1))
            self.arrays = read_arrays(self.descriptor, self.places)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Closes this process's descriptor; arrays that were made stay."""
        os.close(self.descriptor)


def read_arrays(descriptor: int, places: Sequence[tuple[int, str, tuple[int, ...]]]) -> list[NDArray[Any]]:
    """Arrays over the memory of a descriptor, which they keep; it may be closed afterwards."""
    memory = mmap.mmap(descriptor, 0)
    return [
        np.frombuffer(memory, dtype, int(np.prod(shape, dtype=np.int64)), offset).reshape(shape)
        for offset, dtype, shape in places
    ]


def _nbytes(dtype: str, shape: tuple[int, ...]) -> int:
    return int(np.dtype(dtype).itemsize * np.prod(shape, dtype=np.int64))
