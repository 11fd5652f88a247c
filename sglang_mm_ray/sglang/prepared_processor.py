"""Hugging Face's image processors, for images that are preprocessed already.

The class stays what it is for all that asks for its type or attributes, and for images that are not prepared;
of prepared ones it only joins the tensors.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from .backend import Feature
from .prepared_image import PreparedImage

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["Outputs", "for_prepared_images", "joined"]

P = TypeVar("P")


@dataclass(frozen=True, slots=True)
class Outputs:
    """What a family's image processor returns of its images, as names of its entries."""

    features: tuple[str, ...]
    """The core's tensors, joined along the first axis, under their own names."""
    grid: str = ""
    """The images' grids, one row each; empty if there is none."""
    grid_axes: tuple[int, ...] = (0, 1, 2)
    """Which of temporal, rows and columns a row has."""


def for_prepared_images(image_processor: P, outputs: Outputs) -> P:
    """A copy of an image processor that takes `PreparedImage`s too."""
    cls = type(image_processor)
    made: Any = type(
        cls.__name__, (_ForPreparedImages, cls), {"__module__": cls.__module__, "_outputs": outputs}
    )
    # Its own constructor would check and change what is checked already.
    copy: P = made.__new__(made)
    copy.__dict__.update(image_processor.__dict__)
    return copy


class _ForPreparedImages:
    _outputs: Outputs

    def __call__(self, images: Any = None, *args: Any, **kwargs: Any) -> Any:
        return self.preprocess(images, *args, **kwargs)

    def preprocess(self, images: Any = None, *args: Any, **kwargs: Any) -> Any:
        """As the class below it; of prepared images a batch feature with their tensors."""
        flat = list(_flat(images))
        if not flat or not all(isinstance(image, PreparedImage) for image in flat):
            return super().preprocess(images, *args, **kwargs)  # type: ignore[misc]
        from transformers import BatchFeature

        return BatchFeature(data=_entries([image.feature for image in flat], self._outputs), tensor_type=None)

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        import copy

        made = type(self)
        clone = made.__new__(made)
        clone.__dict__.update({name: copy.deepcopy(value, memo) for name, value in self.__dict__.items()})
        return clone


def _flat(images: Any) -> Any:
    if isinstance(images, (list, tuple)):
        for each in images:
            yield from _flat(each)
    elif images is not None:
        yield images


def _entries(features: Sequence[Feature], outputs: Outputs) -> dict[str, Any]:
    import torch

    from .tensors import as_tensor

    entries: dict[str, Any] = {
        name: as_tensor(joined([feature.tensors[name] for feature in features]), features[0].dtypes[name])
        for name in outputs.features
    }
    if outputs.grid:
        grids = [[feature.grid[axis] for axis in outputs.grid_axes] for feature in features]
        entries[outputs.grid] = torch.tensor(grids, dtype=torch.long)
    return entries


def joined(arrays: Sequence[NDArray[Any]]) -> NDArray[Any]:
    """The arrays one after the other along the first axis; no copy where they lie so in memory already."""
    if len(arrays) == 1:
        return arrays[0]
    first = arrays[0]
    ends = [array.ctypes.data + array.nbytes for array in arrays]
    starts = [array.ctypes.data for array in arrays[1:]]
    rows = sum(array.shape[0] for array in arrays)
    if all(array.flags.c_contiguous for array in arrays) and ends[:-1] == starts:
        return np.asarray(_Adjacent(first, (rows, *first.shape[1:]), arrays))
    return np.concatenate(arrays)


class _Adjacent:
    """The memory of arrays that lie side by side, which it keeps."""

    def __init__(self, first: NDArray[Any], shape: tuple[int, ...], arrays: Sequence[NDArray[Any]]) -> None:
        self.__array_interface__ = {**first.__array_interface__, "shape": shape, "strides": None}
        self._arrays = arrays
