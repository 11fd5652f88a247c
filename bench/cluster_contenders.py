"""Who competes in `bench_cluster.py`: the pool, the core in the process, `ray.util.ActorPool` over others.

Each contender takes encoded images and yields patches (bfloat16 bits) one image after the other, letting go
of each before the next, as a consumer with bounded memory would.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import ray
import reference
from bench_parity import load_peer
from numpy.typing import NDArray

import sglang_mm_ray as smr
from sglang_mm_ray import _core
from sglang_mm_ray.arguments import cut
from sglang_mm_ray.cluster import warm_bytes, warm_store
from sglang_mm_ray.stored_array import in_pieces

CHUNK_IMAGES = 16

Contender = Callable[[Sequence[bytes]], Iterator[NDArray[Any]]]


def chunks(files: Sequence[bytes]) -> Iterator[list[bytes]]:
    """`files` in pieces of one call."""
    for start in range(0, len(files), CHUNK_IMAGES):
        yield list(files[start : start + CHUNK_IMAGES])


def core_contender(transport: str) -> Contender:
    """The core in this process, on as many threads as there are cores."""
    processor = _core.processor("inkling")

    def run(files: Sequence[bytes]) -> Iterator[NDArray[Any]]:
        for chunk in chunks(files):
            for image in processor.preprocess_batch(chunk, transport=transport):
                if isinstance(image, Exception):
                    raise image
                yield next(iter(image.tensors.values()))

    return run


def pool_contender(pool: smr.PreprocessPool) -> Contender:
    """A pool, as one request that is streamed."""

    def run(files: Sequence[bytes]) -> Iterator[NDArray[Any]]:
        loop = asyncio.new_event_loop()
        stream = pool.stream(files)
        try:
            while True:
                try:
                    _, image = loop.run_until_complete(anext(stream))
                except StopAsyncIteration:
                    return
                yield image.array()
                del image
        finally:
            loop.run_until_complete(stream.aclose())
            loop.close()

    return run


# No CPU reserved, since the pool beside them holds all; who waits for its turn uses none.
@ray.remote(num_cpus=0)
class _PeerActor:
    """The compiled extension that SGLang ships, on one thread."""

    def __init__(self, path: str) -> None:
        os.environ["SGL_MM_RS_THREADS"] = "1"
        self._inkling = load_peer(Path(path)).inkling

    def process(self, files: list[bytes]) -> list[NDArray[Any]]:
        return [bits for _, _, bits, _ in self._inkling.preprocess_images(files, 40, 2.0, 2048)]


@ray.remote(num_cpus=0)
class _PillowActor:
    """Pillow and numpy, as the reference computes."""

    def process(self, files: list[bytes]) -> list[NDArray[Any]]:
        return [reference.inkling(data)[2] for data in files]


def actor_pool_contender(kind: str, actors: int, peer: Path | None) -> Contender:
    """`ray.util.ActorPool` over one actor for each core, with the calls in flight that it allows."""
    from ray.util import ActorPool

    handles = [
        _PeerActor.remote(str(peer)) if kind == "peer" else _PillowActor.remote() for _ in range(actors)
    ]

    def run(files: Sequence[bytes]) -> Iterator[NDArray[Any]]:
        pool = ActorPool(handles)
        for results in pool.map_unordered(lambda actor, chunk: actor.process.remote(chunk), chunks(files)):
            yield from results
            del results

    return run


@ray.remote(num_cpus=0)
class _Echo:
    """Answers at once with as many bytes as a result has: what Ray itself takes for such a call.

    With what makes a pool's worker fast beside its own work: store memory touched beforehand, arguments in
    the call, an answer that is copied by one thread.
    """

    def __init__(self, size_bytes: int) -> None:
        self._answer = np.ones(size_bytes, np.uint8)
        warm_store(warm_bytes(smr.PoolConfig().warm_bytes))

    def call(self, *_pieces: bytes) -> Any:
        return in_pieces(self._answer)


def bare_call(size_bytes: int) -> Callable[[bytes], None]:
    """A call that sends a file to an actor and reads `size_bytes` of answer, and computes nothing."""
    actor = _Echo.remote(size_bytes)

    def call(data: bytes) -> None:
        ray.get(actor.call.remote(*cut(data)))

    return call


def put_seconds(size_bytes: int, repeats: int = 20) -> float:
    """Seconds of a `ray.put` of so many bytes, the median of several into memory that was touched before."""
    import time

    array = np.ones(size_bytes, np.uint8)
    times = []
    for _ in range(repeats):
        started = time.perf_counter()
        ref = ray.put(array)
        times.append(time.perf_counter() - started)
        del ref
        time.sleep(0.02)
    return float(np.median(times))
