"""How an array is written to the object store: in pieces that Ray copies on the calling thread.

Ray copies a buffer of more than a megabyte with six threads that it starts for that one copy and ends after
it. On a node whose cores all compute, they cost more time than the copy. Ray lays the buffers of one value
side by side, so pieces that are no longer than that come back as the one array that they were.
"""

from __future__ import annotations

import pickle
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["PIECE_BYTES", "in_pieces"]

PIECE_BYTES = 1 << 20
"""A multiple of the 64 bytes to which Ray aligns each buffer, or there would be gaps."""


class _InPieces:
    """Pickles as an array of many out-of-band buffers; unpickles as a plain array."""

    __slots__ = ("_array",)

    def __init__(self, array: NDArray[Any]) -> None:
        self._array = array

    def __reduce_ex__(self, protocol: Any) -> Any:
        flat: Any = self._array.reshape(-1).view(np.uint8)
        pieces = [
            pickle.PickleBuffer(flat[start : start + PIECE_BYTES])
            for start in range(0, flat.nbytes, PIECE_BYTES)
        ]
        return _joined, (self._array.shape, self._array.dtype.str, pieces)


class _Joined:
    """The memory of adjacent pieces, all of which it keeps alive."""

    __slots__ = ("__array_interface__", "_kept")

    def __init__(self, pieces: list[NDArray[np.uint8]], shape: tuple[int, ...], dtype: str) -> None:
        self.__array_interface__ = pieces[0].__array_interface__ | {"shape": shape, "typestr": dtype}
        self._kept = pieces


def _joined(shape: tuple[int, ...], dtype: str, pieces: list[Any]) -> NDArray[Any]:
    arrays = [np.frombuffer(piece, np.uint8) for piece in pieces]
    starts = [array.__array_interface__["data"][0] for array in arrays]
    if all(
        start + array.nbytes == after for start, array, after in zip(starts, arrays, starts[1:], strict=False)
    ):
        return np.asarray(_Joined(arrays, shape, dtype))
    # Another version of Ray may lay them out otherwise.
    whole = np.concatenate(arrays).view(dtype).reshape(shape)
    whole.flags.writeable = False
    return whole


def in_pieces(value: Any) -> Any:
    """The array, or each array of a tuple, made to be pickled in pieces if it is large and contiguous."""
    if isinstance(value, tuple):
        return tuple(in_pieces(each) for each in value)
    if isinstance(value, np.ndarray) and value.nbytes > PIECE_BYTES and value.flags.c_contiguous:
        return _InPieces(value)
    return value
