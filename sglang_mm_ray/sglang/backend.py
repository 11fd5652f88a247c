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
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeAlias

from .. import _core
from ..config import PoolConfig
from ..errors import (
    DeadlineExceeded,
    InvalidArgument,
    PoolNotFound,
    with_context,
)
from ..messages import BatchRequest, Failure
from ..sources.source import classify
from ..worker.engine import Engine
from .layout import AS_STORED, Layouts
from .settings import Settings
from .sidecar.client import Answer, Sidecar
from .sidecar.messages import Down, Preprocess, Up

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["Backend", "Dtype", "Feature", "local_images", "open_backend"]

logger = logging.getLogger("sglang_mm_ray.sglang")

Dtype: TypeAlias = Literal["bf16", "float32"]

_CONNECT_TIMEOUT_S = 60.0

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
    """By name, as the model reads them; may be read-only. Empty where they travel by reference."""
    dtypes: Mapping[str, str]
    shapes: Mapping[str, tuple[int, ...]] = dataclasses.field(default_factory=dict)
    tickets: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    """How each tensor is fetched, where they travel by reference."""
    source_size: tuple[int, int] | None = None
    """Width and height of the source, in pixels."""


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
    """Sends sources to a pool as they came: this process neither downloads nor decodes, nor is it Ray's."""

    def __init__(
        self, wanted: PoolConfig, settings: Settings, dtype: Dtype, layouts: Layouts, readers: int = 0
    ) -> None:
        self._wanted = wanted
        self._settings = settings
        self._dtype = dtype
        self._layouts = layouts
        self._readers = readers
        self._local: LocalBackend | None = None
        self._config: PoolConfig | None = None
        self._misfit: InvalidArgument | None = None
        self._sidecar = Sidecar(settings.pool, settings.address, self._changed)

    @property
    def config(self) -> PoolConfig:
        """That of the pool; of the model while there was none yet."""
        return self._config or self._wanted

    def connect(self) -> None:
        """Blocks until the pool is there, or the work may be done here.

        Raises:
            PoolNotFound: no pool is reachable and `on_unreachable` is `error`.
            InvalidArgument: the pool runs another model or other parameters.
        """
        settings = self._settings
        state = self._sidecar.wait_for_state(_CONNECT_TIMEOUT_S)
        if isinstance(state, Up):
            if self._misfit is not None or self._config is None:
                self._sidecar.close()
                raise self._misfit or InvalidArgument("the pool does not say what it runs")
            return
        if isinstance(state.error, InvalidArgument) or settings.on_unreachable != "local":
            self._sidecar.close()
            if isinstance(state.error, InvalidArgument):
                raise state.error
            raise PoolNotFound(
                f"no preprocessing pool {settings.pool!r} at {settings.address!r} ({state.error}); start "
                f"one with `sglang-mm-ray start --name {settings.pool}`, or set "
                "SGLANG_MM_RAY_ON_UNREACHABLE=local"
            )

    def _changed(self, state: Up | Down) -> None:
        name = self._settings.pool
        if isinstance(state, Down):
            then = (
                "this process preprocesses images itself"
                if self._settings.on_unreachable == "local"
                else "requests with images get 503"
            )
            logger.warning("pool %r is not reached, until it is %s: %s", name, then, state.error)
            return
        config = PoolConfig.from_json(state.config_json)
        self._misfit = _misfit(self._settings, config, self._wanted)
        if self._misfit is not None:
            logger.error("%s", self._misfit)
            return
        self._config = config
        logger.warning(
            "pool %r preprocesses this server's images: model %s, transport %s, %d workers, features by %s",
            name,
            config.model,
            config.transport,
            state.workers,
            "reference" if self._readers else "value",
        )
        difference = _dtype_difference(config, self._dtype)
        if difference:
            logger.warning("%s", difference)

    async def preprocess(self, sources: Sequence[object]) -> list[Feature]:
        """See `Backend`."""
        try:
            return self._features(await asyncio.wrap_future(self._ask(sources)))
        except PoolNotFound:
            local = await asyncio.get_running_loop().run_in_executor(None, self._stand_in)
            if local is None:
                raise
        return await local.preprocess(sources)

    def preprocess_blocking(self, sources: Sequence[object]) -> list[Feature]:
        """See `Backend`."""
        try:
            return self._features(self._ask(sources).result())
        except PoolNotFound:
            local = self._stand_in()
            if local is None:
                raise
        return local.preprocess_blocking(sources)

    def _ask(self, sources: Sequence[object]) -> Any:
        if self._misfit is not None:
            raise PoolNotFound(str(self._misfit))
        work = Preprocess(
            list(sources),
            self._dtype,
            self._layouts,
            self._readers,
            self._settings.lease_s,
            self._settings.address,
        )
        return self._sidecar.ask(work, self._settings.timeout_s)

    def _stand_in(self) -> LocalBackend | None:
        if self._settings.on_unreachable != "local":
            return None
        if self._local is None:
            config = self._wanted.replace(transport=self._dtype)
            self._local = LocalBackend(config, self._settings.timeout_s, self._layouts)
        return self._local

    def _features(self, answer: Answer) -> list[Feature]:
        values, arrays = answer
        remaining = iter(arrays)
        features = []
        for value in values:
            tensors, shapes, tickets = {}, {}, {}
            for at, (name, _, shape) in enumerate(value.tensors):
                shapes[name] = shape
                if value.tickets:
                    tickets[name] = value.tickets[at]
                    continue
                array, layout = next(remaining), self._layouts.get(name, AS_STORED)
                tensors[name] = array if layout.is_flat else layout.apply(array)
            dtypes = {name: dtype for name, dtype, _ in value.tensors}
            features.append(
                Feature(
                    value.digest,
                    value.content_hash,
                    value.grid,
                    value.num_tokens,
                    tensors,
                    dtypes,
                    shapes,
                    tickets,
                    value.source_size,
                )
            )
        return features


class LocalBackend:
    """The same core, sources and limits inside this process; slower for all, but right."""

    def __init__(self, config: PoolConfig, timeout_s: float, layouts: Layouts) -> None:
        self._config = config
        self._timeout_s = timeout_s
        self._layouts = layouts
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
            arrays = value if isinstance(value, tuple) else (value,)
            tensors = {
                name: self._layouts.get(name, AS_STORED).apply(array)
                for (name, _, _), array in zip(outcome.tensors, arrays, strict=True)
            }
            features.append(
                Feature(
                    outcome.digest,
                    outcome.content_hash,
                    outcome.grid,
                    outcome.num_tokens,
                    tensors,
                    {name: dtype for name, dtype, _ in outcome.tensors},
                    {name: tensor.shape for name, tensor in tensors.items()},
                    source_size=outcome.source_size,
                )
            )
        _count_local(len(features))
        return features


def _forget(work: asyncio.Future[Any]) -> None:
    # Its outcome is nobody's any more; asking for it keeps asyncio from reporting it as lost.
    if not work.cancelled():
        work.exception()


_backends: dict[tuple[Any, ...], PoolBackend] = {}
_lock = threading.Lock()


def open_backend(
    model: str,
    parameters: Mapping[str, Any],
    settings: Settings | None = None,
    *,
    dtype: Dtype = "bf16",
    layouts: Layouts | None = None,
    readers: int = 0,
) -> Backend:
    """The process's backend for a model, connected at the first call and shared by later ones.

    Args:
        model: family in the registry.
        parameters: what the model's configuration says; the pool's own must agree.
        settings: by default those of the environment.
        dtype: in which the model computes: what this process, or a pool of pixels, makes.
        layouts: what the model makes of the stored tensors.
        readers: scheduler processes that fetch each feature by reference; 0 asks for values.

    Raises:
        PoolNotFound: no pool is reachable and `on_unreachable` is `error`.
        InvalidArgument: the pool runs another model or other parameters.
    """
    settings = settings or Settings.from_environment()
    dtype = settings.transport or dtype
    layouts = dict(layouts or {})
    wanted = PoolConfig(model=model, parameters=dict(parameters), transport=dtype)
    fixed = (
        wanted.processor().parameters_json,
        model,
        dtype,
        readers,
        tuple(sorted(layouts.items(), key=lambda item: item[0])),
    )
    key = (os.getpid(), settings, *fixed)
    with _lock:
        backend = _backends.get(key)
        if backend is None:
            backend = PoolBackend(wanted, settings, dtype, layouts, readers)
            backend.connect()
            _backends[key] = backend
        return backend


def _misfit(settings: Settings, config: PoolConfig, wanted: PoolConfig) -> InvalidArgument | None:
    found, expected = config.processor(), wanted.processor()
    if (found.name, found.parameters_json) == (expected.name, expected.parameters_json):
        return None
    return InvalidArgument(
        f"pool {settings.pool!r} runs {found.name} with {found.parameters_json}, but the model needs "
        f"{expected.name} with {expected.parameters_json}; start a pool with those parameters"
    )


def _dtype_difference(config: PoolConfig, dtype: Dtype) -> str:
    if config.transport == "uint8" or dtype == "bf16" or config.transport == dtype:
        return ""
    return (
        f"the pool sends bfloat16, but the model computes in {dtype}: features differ from SGLang's own by "
        "their rounding; start the pool with --transport float32 or uint8 for the same values"
    )
