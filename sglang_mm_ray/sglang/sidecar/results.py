"""Images of a pool as what SGLang's process is to have: arrays in shared memory, or tickets."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ... import _core
from ...results.image import ProcessedImage
from ..desk import Desk, Ticket
from ..layout import AS_STORED, Layout, Layouts
from .messages import Preprocess, Value
from .wire import SharedArrays

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["copies", "is_unfinished", "share", "values_by_reference"]

# How a dtype tag is held: bfloat16 as its bits.
_NUMPY = {tag: tag for tag in ("float16", "float32", "uint8", "int32", "int64")} | {"bfloat16": "uint16"}
_FLOATS = {"bf16": "bfloat16", "float32": "float32"}

_Tensors = tuple[tuple[str, str, tuple[int, ...]], ...]


def is_unfinished(image: ProcessedImage) -> bool:
    """Whether it is stored as pixels that are still to be normalised, which may be done in any dtype."""
    return image.dtype == "uint8" and bool(image.facts.finished)


def share(
    images: Sequence[ProcessedImage], processor: _core.Processor, dtype: str, layouts: Layouts
) -> tuple[list[Value], SharedArrays]:
    """The images' tensors in shared memory, where a layout is flat in it, and what they are.

    Raises:
        ResultLost: one cannot be read any more.
        OSError: there is no memory.
    """
    values, arrays, their_layouts = [], [], []
    for image in images:
        tensors, stored = _read(image, processor, dtype)
        values.append(_value(image, tensors, layouts))
        arrays += stored
        their_layouts += [layouts.get(name, AS_STORED) for name, _, _ in tensors]
    return values, copies(arrays, their_layouts)


def copies(arrays: Sequence[NDArray[Any]], layouts: Sequence[Layout]) -> SharedArrays:
    """Copies of stored arrays in shared memory. A layout that moves nothing is its reader's.

    Raises:
        OSError: there is no memory.
    """
    shapes = [
        layout.shape(array.shape) if layout.is_flat else array.shape
        for array, layout in zip(arrays, layouts, strict=True)
    ]
    memory = SharedArrays([(array.dtype.name, shape) for array, shape in zip(arrays, shapes, strict=True)])
    try:
        for array, layout, out in zip(arrays, layouts, memory.arrays, strict=True):
            if array.shape == out.shape:
                np.copyto(out, array)
            else:
                layout.write(array, out)
    except BaseException:
        memory.close()
        raise
    return memory


def values_by_reference(
    images: Sequence[ProcessedImage], work: Preprocess, desk: Desk, timeout_s: float
) -> list[Value]:
    """What the images are, with tickets that the desk honours.

    Raises:
        ResultLost: there is no desk.
    """
    references, places = [], []
    for image in images:
        stored_object, place = image.stored.at
        several = len(image.facts.tensors) > 1
        for at in range(len(image.facts.tensors)):
            references.append(stored_object.ref)
            places.append((*(() if place is None else (place,)), *((at,) if several else ())))
    name, ids = desk.hold(references, work.readers, work.lease_s, timeout_s)
    remaining = iter(zip(ids, places, strict=True))
    values = []
    for image in images:
        value = _value(image, image.facts.tensors, work.layouts)
        tickets = []
        for tensor, dtype, shape in value.tensors:
            feature_id, path = next(remaining)
            layout = work.layouts.get(tensor, AS_STORED)
            tickets.append(Ticket(name, feature_id, path, dtype, shape, layout, work.address))
        values.append(dataclasses.replace(value, tickets=tuple(tickets)))
    return values


def _value(image: ProcessedImage, tensors: _Tensors, layouts: Layouts) -> Value:
    as_read = tuple((name, tag, layouts.get(name, AS_STORED).shape(shape)) for name, tag, shape in tensors)
    facts = image.facts
    return Value(
        facts.digest, facts.content_hash, facts.grid, facts.num_tokens, as_read, source_size=facts.source_size
    )


def _read(
    image: ProcessedImage, processor: _core.Processor, dtype: str
) -> tuple[_Tensors, list[NDArray[Any]]]:
    facts = image.facts
    if not is_unfinished(image):
        return facts.tensors, list(image.tensors().values())
    stored = [name for name, _, _ in facts.tensors]
    # Which of the two floats it is, only normalising decides.
    floats = {"bfloat16": _FLOATS[dtype], "float32": _FLOATS[dtype]}
    tensors = tuple(
        (name, tag if name in stored else floats.get(tag, tag), shape) for name, tag, shape in facts.finished
    )
    late = [tensor for tensor in tensors if tensor[0] not in stored]
    sizes = [np.dtype(_NUMPY[tag]).itemsize * int(np.prod(shape, dtype=np.int64)) for _, tag, shape in late]
    out = np.empty(sum(sizes), np.uint8)
    processor.finish(image.array(), dtype, out, source=facts.source_size)
    made = {}
    for (name, tag, shape), size, end in zip(late, sizes, np.cumsum(sizes), strict=True):
        made[name] = out[end - size : end].view(_NUMPY[tag]).reshape(shape)
    return tensors, [made[name] if name in made else image.array(name) for name, _, _ in tensors]
