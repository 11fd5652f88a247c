"""Arrays as torch tensors: no copy, no warning.

The tensors may share memory that others read: they are for reading only.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    import torch
    from numpy.typing import NDArray

__all__ = ["as_tensor", "shared_view"]


class _Memory:
    """Hands numpy the memory of a read-only array as if it could be written, and keeps the array alive."""

    def __init__(self, array: NDArray[Any]) -> None:
        self._array = array
        interface = dict(array.__array_interface__)
        interface["data"] = (interface["data"][0], False)
        self.__array_interface__ = interface


def shared_view(array: NDArray[Any]) -> NDArray[Any]:
    """The same memory, without the read-only flag that `torch.from_numpy` warns about."""
    if array.flags.writeable:
        return array
    if array.size == 0:
        return np.empty_like(array)
    return np.asarray(_Memory(array))


def as_tensor(array: NDArray[Any], dtype: str) -> torch.Tensor:
    """A CPU tensor over the array's memory, for reading.

    `dtype` is the tag that travels with the array: `bfloat16` arrives as its bits in uint16 and is
    reinterpreted, never cast; every other tag is the array's own dtype.
    """
    import torch

    view = shared_view(array)
    if dtype != "bfloat16":
        return torch.from_numpy(view)
    # int16 rather than uint16, which torch knows only since 2.3.
    return torch.from_numpy(view.view(np.int16)).view(torch.bfloat16)
