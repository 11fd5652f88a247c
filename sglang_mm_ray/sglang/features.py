"""How a feature reaches SGLang's schedulers: as a plain tensor, or by reference."""

from __future__ import annotations

import logging
from collections.abc import Awaitable
from typing import Any, TypeVar

from ..errors import DeadlineExceeded, FetchError, InputError, PreprocessError, describe
from .backend import Dtype, Feature
from .settings import Settings
from .tensors import as_tensor

__all__ = ["as_sglang_answers", "feature_tensor", "model_dtype", "reader_count"]

logger = logging.getLogger("sglang_mm_ray.sglang")

T = TypeVar("T")


def reader_count(server_args: Any, settings: Settings) -> int:
    """How many scheduler processes read the features of one request by reference; 0 sends their values.

    Every rank of a tensor-parallel group does, in its first pipeline stage; with data-parallel attention only
    the ranks that share the request's waiting queue. On one node SGLang hands features on in shared memory,
    which no reference can better.
    """
    if settings.features != "reference":
        return 0
    if settings.readers:
        return settings.readers
    if int(getattr(server_args, "nnodes", 1) or 1) == 1:
        logger.warning(
            "SGLANG_MM_RAY_FEATURES=reference is of no use on one node: features are sent by value there"
        )
        return 0
    tp_size = int(getattr(server_args, "tp_size", 1) or 1)
    if getattr(server_args, "enable_dp_attention", False):
        tp_size //= int(getattr(server_args, "dp_size", 1) or 1)
    return max(1, tp_size)


def model_dtype(hf_config: Any, server_args: Any) -> Dtype:
    """In what a model reads features that SGLang's own processor makes in float32.

    A bfloat16 model rounds them to bfloat16 first, as the core does; any other needs them as they are.
    """
    import torch
    from sglang.srt.configs.model_config import _get_and_verify_dtype

    text = getattr(hf_config, "text_config", None) or hf_config
    dtype = _get_and_verify_dtype(text, getattr(server_args, "dtype", "auto"))
    return "bf16" if dtype == torch.bfloat16 else "float32"


def feature_tensor(feature: Feature, name: str) -> Any:
    """The named tensor of an image as its model reads it; without memory where it travels by reference."""
    if feature.tickets:
        from .by_reference import ReferencedTensor

        return ReferencedTensor.of(feature.tickets[name])
    return as_tensor(feature.tensors[name], feature.dtypes[name])


async def as_sglang_answers(work: Awaitable[T]) -> T:
    """Awaits `work`, with errors as SGLang's server expects them.

    Raises:
        ValueError: the input is at fault (answered with 400); the message begins with the image's place.
        fastapi.HTTPException: 503 if the pool is overloaded or unreachable, 504 past the deadline.
    """
    try:
        return await work
    except (InputError, FetchError) as error:
        raise _named(error) from error
    except PreprocessError as error:
        from fastapi import HTTPException

        status = 504 if isinstance(error, DeadlineExceeded) else 503 if _passing(error) else 500
        raise HTTPException(status_code=status, detail=describe(error)) from error


def _named(error: PreprocessError) -> ValueError:
    return ValueError(describe(error))


def _passing(error: PreprocessError) -> bool:
    from ..errors import PoolClosed, PoolNotFound

    return bool(getattr(error, "retriable", False)) or isinstance(error, (PoolNotFound, PoolClosed))
