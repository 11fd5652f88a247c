"""`gather`: the tensors of many images as one contiguous array, in order."""

from __future__ import annotations

import os
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np

from .. import _core
from ..errors import InvalidArgument
from .image import ProcessedImage

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["gather", "gather_shape"]

_NUMPY = {
    "bfloat16": np.uint16,
    "float16": np.float16,
    "float32": np.float32,
    "uint8": np.uint8,
    "int32": np.int32,
    "int64": np.int64,
}
_TRANSPORT = {"bfloat16": "bf16", "float16": "bf16", "float32": "float32"}
_MOST_THREADS = 8


@lru_cache(maxsize=8)
def _processor(family: str, parameters_json: str) -> _core.Processor:
    return _core.processor(family, parameters_json)


@lru_cache(maxsize=1)
def _threads(process_id: int) -> ThreadPoolExecutor:
    # Keyed by the process: a fork does not inherit threads.
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return ThreadPoolExecutor(min(_MOST_THREADS, cores), thread_name_prefix="mm-gather")


def _finished(image: ProcessedImage, name: str | None) -> tuple[str, str, tuple[int, ...]]:
    if not isinstance(image, ProcessedImage):
        raise InvalidArgument(
            f'gather joins ProcessedImages, not {type(image).__name__}; leave out what on_error="return" '
            "put in an image's place"
        )
    tensors = image.finished()
    for tensor in tensors:
        if name is None or tensor[0] == name:
            return tensor
    raise InvalidArgument(f"no tensor {name!r}; there are {', '.join(tensor[0] for tensor in tensors)}")


def gather_shape(images: Iterable[ProcessedImage], name: str | None = None) -> tuple[str, tuple[int, ...]]:
    """Dtype tag and shape of what `gather` returns: all images' rows, one image after the other.

    Raises:
        InvalidArgument: no image, or images whose rows differ in shape or dtype.
    """
    images = list(images)
    if not images:
        raise InvalidArgument("there is no image to gather; pass at least one")
    tensors = [_finished(image, name) for image in images]
    _, dtype, (_, *row) = tensors[0]
    for index, (_, other, shape) in enumerate(tensors):
        if other != dtype or shape[1:] != tuple(row):
            raise InvalidArgument(
                f"image {index} has rows of {other} {list(shape[1:])}, the first image of {dtype} {row}; "
                "gather images of one model and transport"
            )
    return dtype, (sum(shape[0] for _, _, shape in tensors), *row)


def gather(
    images: Iterable[ProcessedImage],
    out: NDArray[Any] | None = None,
    *,
    name: str | None = None,
    timeout_s: float = 60.0,
) -> NDArray[Any]:
    """The tensors of `images` in one array, joined along the first axis, in order.

    For Inkling that is `[sum of patches, ps, ps, 3]`; bfloat16 as its bits in uint16. Pixels of the `uint8`
    transport are normalised and patchified on the way, bit for bit as a worker would have. Images are copied
    side by side, without the GIL.

    `out` may be given to be filled: contiguous, writable, of the shape and dtype that `gather_shape` tells.

    Raises:
        ResultLost: a result cannot be read any more.
        InvalidArgument: nothing to gather, rows that do not fit together, or an unfit `out`.
    """
    images = list(images)
    dtype, shape = gather_shape(images, name)
    numpy_dtype = np.dtype(_NUMPY[dtype])
    if out is None:
        out = np.empty(shape, numpy_dtype)
    elif not isinstance(out, np.ndarray):
        raise InvalidArgument(f"out must be a numpy array, not {type(out).__name__}")
    elif out.shape != shape or out.dtype != numpy_dtype or not out.flags.c_contiguous:
        raise InvalidArgument(
            f"out must be a contiguous {numpy_dtype} array of shape {list(shape)}, not {out.dtype} "
            f"{list(out.shape)}"
        )
    if not out.flags.writeable:
        raise InvalidArgument("out is read-only; pass a writable array")
    jobs = []
    row = 0
    for image in images:
        rows = _finished(image, name)[2][0]
        jobs.append((image, out[row : row + rows]))
        row += rows
    if len(jobs) == 1:
        _fill(*jobs[0], dtype, name, timeout_s)
    else:
        futures = [_threads(os.getpid()).submit(_fill, *job, dtype, name, timeout_s) for job in jobs]
        errors = [error for future in futures if (error := future.exception()) is not None]
        if errors:
            raise errors[0]
    return out


def _fill(
    image: ProcessedImage, target: NDArray[Any], dtype: str, name: str | None, timeout_s: float
) -> None:
    facts = image.facts
    stored = [tensor[0] for tensor in facts.tensors]
    late = [tensor for tensor in facts.finished if tensor[0] not in stored]
    name = name or image.finished()[0][0]
    if name not in [tensor[0] for tensor in late]:
        # numpy copies equal dtypes without the GIL.
        np.copyto(target, image.array(name, timeout_s=timeout_s))
        return
    processor = _processor(*image.finish_with)
    pixels = image.array(timeout_s=timeout_s)
    out = target.reshape(-1).view(np.uint8)
    if len(late) == 1:
        processor.finish(pixels, _TRANSPORT[dtype], out, source=facts.source_size)
        return
    # All of them are made of the pixels together, one after the other.
    sizes = [int(np.prod(shape)) * np.dtype(_NUMPY[kind]).itemsize for _, kind, shape in late]
    at = [tensor[0] for tensor in late].index(name)
    made = np.empty(sum(sizes), np.uint8)
    processor.finish(pixels, _TRANSPORT[dtype], made, source=facts.source_size)
    np.copyto(out, made[sum(sizes[:at]) : sum(sizes[: at + 1])])
