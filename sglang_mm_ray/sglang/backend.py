"""Where SGLang's process gets its images preprocessed: a pool, or the core in the process if so allowed."""

from __future__ import annotations

import asyncio
import dataclasses
import logging
import os
import threading
import uuid
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Protocol

from .. import _core
from ..config import PoolConfig
from ..errors import DeadlineExceeded, InvalidArgument, PoolNotFound, PreprocessError, with_context
from ..messages import BatchRequest, Failure
from ..results.gathering import gather
from ..sources.source import classify
from ..worker.engine import Engine
from .settings import Settings

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ..pool.pool import PreprocessPool
    from ..results.image import ProcessedImage

__all__ = ["Backend", "Feature", "local_images", "open_backend"]

logger = logging.getLogger(__name__)

_local_images = 0


def local_images() -> int:
    """How many images this process preprocessed itself because no pool was reachable."""
    return _local_images


@lru_cache(maxsize=1)
def _local_counter() -> Any:
    """SGLang's own metrics are Prometheus counters of its process; ours stands among them where it can."""
    try:
        from prometheus_client import Counter
    except ImportError:
        return None
    return Counter(
        "sglang_mm_ray_local_images_total",
        "Images that SGLang's process preprocessed itself because no pool was reachable",
    )


def _count_local(images: int) -> None:
    global _local_images
    _local_images += images
    counter = _local_counter()
    if counter is not None:
        counter.inc(images)


@dataclasses.dataclass(frozen=True, slots=True)
class Feature:
    """A preprocessed image, wherever it was made."""

    digest: bytes
    """SHA-256 of the content."""
    content_hash: int
    """SGLang's 64 bits: the first 8 bytes of the content digest, big-endian."""
    grid: tuple[int, int, int]
    """Patches: temporal, rows, columns."""
    num_tokens: int
    tensors: Mapping[str, NDArray[Any]]
    """By name, in stored order; read-only where they look into the object store."""
    dtypes: Mapping[str, str]
    ref: Any = None
    """The Ray reference of the tensors, if they are stored as the model reads them."""
    path: tuple[int, ...] = ()
    """Where they lie in what it refers to, if other images lie there too."""


class Backend(Protocol):
    """Preprocesses the images of a request without blocking the event loop."""

    @property
    def config(self) -> PoolConfig:
        """The model, its parameters and limits."""

    async def preprocess(self, sources: Sequence[object]) -> list[Feature]:
        """Features in input order; cancelling the call cancels the work.

        Raises:
            PreprocessError: the first image that failed, or the pool itself.
        """

    def preprocess_blocking(self, sources: Sequence[object]) -> list[Feature]:
        """The same for callers without an event loop."""


class PoolBackend:
    """Sends sources to a pool as they came: this process neither downloads nor decodes."""

    def __init__(self, pool: PreprocessPool, timeout_s: float) -> None:
        self._pool = pool
        self._timeout_s = timeout_s
        self._readers = ThreadPoolExecutor(4, thread_name_prefix="mm-ray-read")

    @property
    def config(self) -> PoolConfig:
        """That of the pool."""
        return self._pool.config

    async def preprocess(self, sources: Sequence[object]) -> list[Feature]:
        """See `Backend`."""
        images = await self._pool.preprocess_async(list(sources), timeout_s=self._timeout_s)
        # Reading may bring the bytes from another node.
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._readers, lambda: [_feature(image) for image in images])

    def preprocess_blocking(self, sources: Sequence[object]) -> list[Feature]:
        """See `Backend`."""
        images = self._pool.preprocess(list(sources), timeout_s=self._timeout_s)
        return [_feature(image) for image in images]


def _feature(image: ProcessedImage) -> Feature:
    facts = image.facts
    late = image.dtype == "uint8" and bool(facts.finished)
    described = image.finished() if late else facts.tensors
    stored_object, place = image.stored.at
    arrays = [gather([image])] if late else [image.array(name) for name, _, _ in described]
    return Feature(
        digest=facts.digest,
        content_hash=facts.content_hash,
        grid=facts.grid,
        num_tokens=facts.num_tokens,
        tensors={name: array for (name, _, _), array in zip(described, arrays, strict=True)},
        dtypes={name: dtype for name, dtype, _ in described},
        # Pixels are normalised here, so what is stored is not what the model reads.
        ref=None if late else stored_object.ref,
        path=() if place is None else (place,),
    )


class LocalBackend:
    """The same core, sources and limits inside this process; slower for all, but right."""

    def __init__(self, config: PoolConfig, timeout_s: float) -> None:
        self._config = config
        self._timeout_s = timeout_s
        threads = int(_core.build_info()["threads"])
        self._engine = Engine(config, threads)
        self._callers = ThreadPoolExecutor(32, thread_name_prefix="mm-ray-local")

    @property
    def config(self) -> PoolConfig:
        """As a pool's."""
        return self._config

    async def preprocess(self, sources: Sequence[object]) -> list[Feature]:
        """See `Backend`."""
        call_id = uuid.uuid4().hex
        loop = asyncio.get_running_loop()
        work = loop.run_in_executor(self._callers, self._run, call_id, list(sources))
        try:
            return await asyncio.wait_for(asyncio.shield(work), self._timeout_s)
        except asyncio.TimeoutError:
            raise DeadlineExceeded(
                f"the images of the request took longer than {self._timeout_s} s"
            ) from None
        finally:
            if not work.done():
                self._engine.cancel(call_id)
                work.add_done_callback(_forget)

    def preprocess_blocking(self, sources: Sequence[object]) -> list[Feature]:
        """See `Backend`."""
        return self._run(uuid.uuid4().hex, list(sources))

    def _run(self, call_id: str, sources: list[object]) -> list[Feature]:
        classified = tuple(classify(source) for source in sources)
        reply, values = self._engine.run(BatchRequest(call_id, classified, 0, 0.0))
        features = []
        for index, (outcome, value) in enumerate(zip(reply.outcomes, values, strict=True)):
            if isinstance(outcome, Failure):
                raise with_context(outcome.error, index=index)
            names = [name for name, _, _ in outcome.tensors]
            arrays = value if isinstance(value, tuple) else (value,)
            tensors = dict(zip(names, arrays, strict=True))
            dtypes = {name: dtype for name, dtype, _ in outcome.tensors}
            features.append(
                Feature(
                    outcome.digest,
                    outcome.content_hash,
                    outcome.grid,
                    outcome.num_tokens,
                    tensors,
                    dtypes,
                )
            )
        _count_local(len(features))
        return features


def _forget(work: asyncio.Future[Any]) -> None:
    # Its outcome is nobody's any more; asking for it keeps asyncio from reporting it as lost.
    if not work.cancelled():
        work.exception()


_backends: dict[tuple[int, Settings, str], Backend] = {}
_lock = threading.Lock()


def open_backend(model: str, parameters: Mapping[str, Any], settings: Settings | None = None) -> Backend:
    """The process's backend for a model, connected at the first call and shared by later ones.

    Args:
        model: family in the registry.
        parameters: what the model's configuration says; the pool's own must agree.
        settings: by default those of the environment.

    Raises:
        PoolNotFound: no pool is reachable and `on_unreachable` is `error`.
        InvalidArgument: the pool runs another model or other parameters.
    """
    settings = settings or Settings.from_environment()
    wanted = PoolConfig(model=model, parameters=dict(parameters), transport=settings.transport)
    key = (os.getpid(), settings, wanted.processor().parameters_json + model)
    with _lock:
        backend = _backends.get(key)
        if backend is None:
            backend = _backends[key] = _open(wanted, settings)
        return backend


def _open(wanted: PoolConfig, settings: Settings) -> Backend:
    try:
        pool = _connect(settings)
    except (PreprocessError, ConnectionError, OSError) as error:
        if settings.on_unreachable == "local":
            logger.warning(
                "no preprocessing pool %r at %r (%s): this process preprocesses images itself",
                settings.pool,
                settings.address,
                type(error).__name__,
            )
            return LocalBackend(wanted, settings.timeout_s)
        raise PoolNotFound(
            f"no preprocessing pool {settings.pool!r} at {settings.address!r} ({error}); start one with "
            f"`sglang-mm-ray start --name {settings.pool}`, or set SGLANG_MM_RAY_ON_UNREACHABLE=local"
        ) from error
    found, expected = pool.config.processor(), wanted.processor()
    if (found.name, found.parameters_json) != (expected.name, expected.parameters_json):
        raise InvalidArgument(
            f"pool {settings.pool!r} runs {found.name} with {found.parameters_json}, but the model needs "
            f"{expected.name} with {expected.parameters_json}; start a pool with those parameters"
        )
    return PoolBackend(pool, settings.timeout_s)


def _connect(settings: Settings) -> PreprocessPool:
    from ..pool.pool import PreprocessPool

    return PreprocessPool.connect(settings.pool, address=settings.address)
