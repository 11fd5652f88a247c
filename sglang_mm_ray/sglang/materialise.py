"""Where SGLang's ranks fetch features that came by reference, and agree on which requests fail.

SGLang has such a place for its own shared memory: after a request was broadcast and before anything is done
with it, every rank opens the request's features, all ranks tell each other which requests failed anywhere,
and those end with an error in all of them. A hook of SGLang's plugin framework does the same for tickets.
"""

from __future__ import annotations

import functools
import logging
import threading
from collections.abc import Iterator, Sequence
from typing import Any

from ..errors import PreprocessError, ResultLost
from .by_reference import PendingFeature
from .sidecar.client import Sidecar
from .sidecar.messages import Down, Fetch
from .tensors import as_tensor

__all__ = ["FAILED", "check_hooks", "install"]

logger = logging.getLogger("sglang_mm_ray.sglang")

FAILED = "The images of the request were lost on their way to a scheduler"
"""How the message begins that a client gets, with 503."""

_RECEIVER = "sglang.srt.managers.scheduler_components.request_receiver.SchedulerRequestReceiver"
_FINALIZE = f"{_RECEIVER}._finalize_shm_features"
_ABORT = "sglang.srt.managers.schedule_batch.Req.set_finish_with_abort"
# All requests of a server wait for the one that is fetched, so not for long.
_FETCH_TIMEOUT_S = 10.0
_START_TIMEOUT_S = 30.0

_lock = threading.Lock()
_installed = False


def check_hooks() -> None:
    """Raises `AttributeError` or `ImportError` where this version of SGLang has no such place."""
    import pkgutil

    for target in (_FINALIZE, _ABORT):
        pkgutil.resolve_name(target.rpartition(".")[0])
        getattr(pkgutil.resolve_name(target.rpartition(".")[0]), target.rpartition(".")[2])


def install() -> None:
    """Hooks into this process's scheduler; calling it again does nothing."""
    global _installed
    with _lock:
        if _installed:
            return
        from sglang.srt.plugins.hook_registry import HookRegistry, HookType

        HookRegistry.register(_FINALIZE, _after_receiving, HookType.AROUND)
        HookRegistry.register(_ABORT, _unavailable, HookType.BEFORE)
        HookRegistry.apply_hooks()
        _installed = True


@functools.lru_cache(maxsize=4)
def _sidecar(address: str) -> Sidecar:
    return Sidecar("", address)


def _after_receiving(original: Any, receiver: Any, requests: Any) -> Any:
    result = original(receiver, requests)
    waiting = [request for request in _tokenized(requests or ()) if any(_pending_items(request))]
    # All ranks received the same requests, so that all of them come here, or none.
    if waiting:
        errors = [_fetch(request) for request in waiting]
        for request, failed in zip(waiting, _failed_anywhere(errors), strict=True):
            if failed:
                _reject(request)
    return result


def _tokenized(requests: Sequence[Any]) -> Iterator[Any]:
    for request in requests:
        batch = getattr(request, "batch", None)
        yield from batch if isinstance(batch, list) else [request]


def _pending_items(request: Any) -> Iterator[Any]:
    for item in getattr(getattr(request, "mm_inputs", None), "mm_items", None) or ():
        if isinstance(item.feature, PendingFeature):
            yield item


def _fetch(request: Any) -> PreprocessError | None:
    items = list(_pending_items(request))
    tickets = [item.feature.ticket for item in items]
    try:
        sidecar = _sidecar(tickets[0].address)
        state = sidecar.wait_for_state(_START_TIMEOUT_S)
        if isinstance(state, Down):
            raise state.error
        _, arrays = sidecar.ask(Fetch(tickets), _FETCH_TIMEOUT_S).result()
        for item, ticket, array in zip(items, tickets, arrays, strict=True):
            laid_out = array if ticket.layout.is_flat else ticket.layout.apply(array)
            item.feature = as_tensor(laid_out, ticket.dtype)
    except PreprocessError as error:
        logger.error("request %s: %s", getattr(request, "rid", ""), error)
        return error
    except Exception as error:
        logger.exception("request %s", getattr(request, "rid", ""))
        return ResultLost(f"{type(error).__name__}: {error}")
    return None


def _failed_anywhere(errors: Sequence[PreprocessError | None]) -> list[bool]:
    import torch
    from torch.distributed import ReduceOp, all_reduce

    failed = torch.tensor([error is not None for error in errors], dtype=torch.int32)
    for group in _groups():
        all_reduce(failed, op=ReduceOp.MAX, group=group)
    return [bool(value) for value in failed.tolist()]


def _groups() -> list[Any]:
    """The process groups whose ranks share these requests, as SGLang has them."""
    from sglang.srt.runtime_context import get_parallel

    parallel = get_parallel()
    if parallel.attn_dp_enabled:
        sized = [
            (parallel.attn_tp_size, "attn_tp_group"),
            (parallel.attn_cp_size, "attn_cp_group"),
        ]
    else:
        sized = [(parallel.tp_size, "tp_group")]
    return [getattr(parallel, name).cpu_group for size, name in sized if size > 1]


def _reject(request: Any) -> None:
    from sglang.srt.managers.io_struct import MMInputsProcessError

    # Which rank it was and why is in its log; the message is the same in all.
    request.mm_inputs = MMInputsProcessError(f"{FAILED}; send the request again")


def _unavailable(request: Any, error_msg: str, *args: Any, **kwargs: Any) -> Any:
    if not str(error_msg).startswith(FAILED):
        return None
    from http import HTTPStatus

    return (request, error_msg), {
        "status_code": HTTPStatus.SERVICE_UNAVAILABLE,
        "err_type": "ServiceUnavailable",
    }
