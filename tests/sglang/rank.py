"""A scheduler's rank for tests: receives pickled requests, fetches their features, and says what it has.

It stands where SGLang's receiver stands after a broadcast, in a process group of its own; nothing of SGLang
is imported. One line of standard input names a file of pickled requests, one line of output says what became
of each: the SHA-256 of its features' bytes, or `failed`.
"""

from __future__ import annotations

import hashlib
import json
import pickle
import sys
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from sglang_mm_ray.sglang import materialise


def _digest(request: Any) -> str:
    if request.mm_inputs == "failed":
        return "failed"
    found = hashlib.sha256()
    for item in request.mm_inputs.mm_items:
        assert type(item.feature) is torch.Tensor
        found.update(item.feature.contiguous().numpy().tobytes())
    return found.hexdigest()


def _reject(request: Any) -> None:
    request.mm_inputs = "failed"


def main(rank: int, ranks: int, meeting: str) -> None:
    """Serves until its input ends."""
    dist.init_process_group("gloo", init_method=f"file://{meeting}", rank=rank, world_size=ranks)
    materialise.install = lambda: None
    materialise._groups = lambda: [dist.group.WORLD]
    materialise._reject = _reject
    print("ready", flush=True)
    for line in sys.stdin:
        # As it arrives by socket and is broadcast from the first rank to the others.
        requests = [pickle.loads(Path(line.strip()).read_bytes()) if rank == 0 else None]
        dist.broadcast_object_list(requests)
        materialise._after_receiving(lambda *_: None, None, requests[0])
        state = None
        if materialise._sidecar.cache_info().currsize:
            state = materialise._sidecar(requests[0][0].address).pid
        print(
            json.dumps({"sidecar": state, "requests": [_digest(request) for request in requests[0]]}),
            flush=True,
        )


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3])
