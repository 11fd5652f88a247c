"""What a model makes of a stored tensor: an axis repeated, for models that see an image as several frames."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["AS_STORED", "Layout", "Layouts"]


@dataclass(frozen=True, slots=True)
class Layout:
    """Repeats an axis; the stored tensor has one entry there, or with `is_new` no such axis."""

    axis: int = 0
    copies: int = 1
    is_new: bool = False
    is_flat: bool = False
    """Whether all axes but the first become one, which moves every byte; otherwise none is moved."""

    def shape(self, stored: tuple[int, ...]) -> tuple[int, ...]:
        """What a stored shape becomes."""
        repeated = self._repeated(stored)
        if self.is_flat and len(stored) > 2:
            return (repeated[0], int(np.prod(repeated[1:], dtype=np.int64)))
        return repeated

    def apply(self, array: NDArray[Any]) -> NDArray[Any]:
        """The tensor in its new shape: a read-only view, or with `is_flat` an array of its own."""
        out_shape = self.shape(array.shape)
        if array.shape == out_shape:
            return array
        if not self.is_flat:
            return self._view(array)
        out = np.empty(out_shape, array.dtype)
        self.write(array, out)
        return out

    def write(self, array: NDArray[Any], out: NDArray[Any]) -> None:
        """The same into `out`, of the new shape and contiguous."""
        np.copyto(out.reshape(self._repeated(array.shape)), self._view(array))

    def _repeated(self, stored: tuple[int, ...]) -> tuple[int, ...]:
        if self.copies == 1 and not self.is_new:
            return stored
        if self.is_new:
            return (*stored[: self.axis], self.copies, *stored[self.axis :])
        # What has its copies already stays as it is.
        if len(stored) <= self.axis or stored[self.axis] != 1:
            return stored
        return (*stored[: self.axis], self.copies, *stored[self.axis + 1 :])

    def _view(self, array: NDArray[Any]) -> NDArray[Any]:
        if self.is_new:
            array = np.expand_dims(array, self.axis)
        shape = self._repeated(array.shape) if not self.is_new else self._repeated_new(array.shape)
        return np.broadcast_to(array, shape)

    def _repeated_new(self, expanded: tuple[int, ...]) -> tuple[int, ...]:
        return (*expanded[: self.axis], self.copies, *expanded[self.axis + 1 :])


AS_STORED = Layout()
Layouts: TypeAlias = Mapping[str, Layout]
"""By the tensor's name; what is missing is left as it is stored."""
