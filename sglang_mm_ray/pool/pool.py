"""`PreprocessPool`: start or find a pool of workers, and preprocess images with it."""

from __future__ import annotations

import asyncio
import contextlib
import uuid
from collections import deque
from collections.abc import AsyncIterator, Iterable, Sequence
from types import TracebackType
from typing import Any, Literal

import ray
from ray.exceptions import RayError

from ..cluster import (
    find_controller,
    join_ray,
    kill_pool,
    pool_names,
    reason_of,
    start_ray,
    store_bytes,
    warm_bytes,
    warm_store,
)
from ..config import PoolConfig
from ..errors import InvalidArgument, PoolClosed, PoolNotFound, PreprocessError, ResultLost, WorkerLost
from ..results.image import ProcessedImage
from ..router.requests import ImageOutcome
from ..router.router import Router
from .opening import open_controller

__all__ = ["PreprocessPool"]

OnError = Literal["raise", "return"]

_STORE_SHARE = 0.6
_CONTROL_TIMEOUT_S = 30.0


class PreprocessPool:
    """Workers on the CPU nodes of a Ray cluster, and this process's way to them.

    As a context manager it starts a pool that ends with the block, or with this process however that ends.
    If Ray is not running and no cluster is reachable, it starts Ray on this machine. `start` leaves a pool
    running under a name, and `connect` finds it from anywhere in the cluster.

    All methods may be called from any thread.

    Args:
        model: Family in the core's registry; `config.model` if there is a config.
        config: Everything else; see `PoolConfig`. Further keyword arguments replace its fields.
        address: Ray cluster; None takes the running one or starts one, `"local"` always starts one.
        name: Name of the pool; a random one by default.

    Raises:
        InvalidArgument: a configuration that cannot work, or a name that is taken.
        WorkerLost: no worker came up in time; the message says why.
    """

    def __init__(
        self,
        model: str | None = None,
        config: PoolConfig | None = None,
        *,
        address: str | None = None,
        name: str | None = None,
        **fields: Any,
    ) -> None:
        config = _configured(model, config, fields)
        name = _checked_name(name or f"pool-{uuid.uuid4().hex[:8]}")
        self._owns_ray = start_ray(address)
        self._owns_pool = True
        try:
            self._open(name, config, detached=False)
        except BaseException:
            if self._owns_ray:
                ray.shutdown()
            raise

    def _open(self, name: str, config: PoolConfig, *, detached: bool) -> None:
        controller = open_controller(name, config, detached=detached)
        self._attach(name, config, controller)
        try:
            self._wait(config)
        except BaseException:
            self.stop(drain=False)
            raise

    def _attach(self, name: str, config: PoolConfig, controller: Any) -> None:
        self.name = name
        self.config = config
        self._controller = controller
        budget = config.object_store_budget_bytes or int(store_bytes() * _STORE_SHARE)
        self._router: Router | None = Router(name, config, controller, budget)

    def _wait(self, config: PoolConfig) -> None:
        if self._live().wait_for_workers(config.start_timeout_s) == 0:
            reason = self._live().last_error or "it is still starting"
            raise WorkerLost(f"no worker came up within {config.start_timeout_s:g} s: {reason}")
        warm_store(warm_bytes(config.warm_bytes))

    @classmethod
    def start(
        cls,
        name: str,
        model: str | None = None,
        config: PoolConfig | None = None,
        *,
        address: str | None = None,
        **fields: Any,
    ) -> PreprocessPool:
        """Starts a pool that goes on when this process ends; `stop` ends it.

        Raises:
            InvalidArgument: a configuration that cannot work, or a name that is taken.
            WorkerLost: no worker came up in time.
        """
        config = _configured(model, config, fields)
        _checked_name(name)
        pool = cls.__new__(cls)
        pool._owns_ray = start_ray(address)
        pool._owns_pool = False
        pool._open(name, config, detached=True)
        return pool

    @classmethod
    def connect(cls, name: str, *, address: str | None = None) -> PreprocessPool:
        """A pool that runs already, with the configuration that it was started with.

        Raises:
            PoolNotFound: none of that name; the message lists those that run.
        """
        if not ray.is_initialized():
            try:
                join_ray(address)
            except ConnectionError as error:
                raise PoolNotFound(
                    f"no Ray cluster is reachable, so there is no pool {name!r}; set RAY_ADDRESS or "
                    f"pass address= ({reason_of(error)})"
                ) from None
        controller = find_controller(name)
        config_json, fingerprint = ray.get(controller.describe.remote(), timeout=_CONTROL_TIMEOUT_S)
        config = PoolConfig.from_json(config_json)
        if config.fingerprint() != fingerprint:
            raise InvalidArgument(
                f"pool {name!r} runs another version of the core or of Pillow than this process, so "
                "results would differ; install the same packages"
            )
        pool = cls.__new__(cls)
        pool._owns_ray = False
        pool._owns_pool = False
        pool._attach(name, config, controller)
        pool._wait(config)
        return pool

    @staticmethod
    def names() -> list[str]:
        """Names of the pools that run in the connected cluster."""
        return pool_names()

    def _live(self) -> Router:
        if self._router is None:
            raise PoolClosed(f"pool {self.name!r} is closed")
        if not self._router.is_connected():
            raise PoolClosed(f"pool {self.name!r} is gone, since Ray was shut down in this process")
        return self._router

    # Images

    def preprocess(
        self, sources: Sequence[Any], *, timeout_s: float | None = None, on_error: OnError = "raise"
    ) -> list[Any]:
        """Preprocesses all sources, side by side on all workers; returns `ProcessedImage`s in input order.

        Args:
            sources: What `source.classify` accepts.
            timeout_s: For the whole request.
            on_error: `raise` raises the first error (by index) after all images are settled; `return` puts
                each error in its image's place.

        Raises:
            PoolOverloaded: the queue is at its bound, or the results could not be held; nothing was started.
            DeadlineExceeded: the time ran out.
            PreprocessError: whatever is wrong with an image.
        """
        raises = _raises(on_error)
        future = self._live().submit(list(_many(sources)), timeout_s, raises)
        try:
            outcomes = future.result()
        except BaseException:
            future.cancel()
            raise
        return _checked(outcomes) if raises else outcomes

    async def preprocess_async(
        self, sources: Sequence[Any], *, timeout_s: float | None = None, on_error: OnError = "raise"
    ) -> list[Any]:
        """As `preprocess`, but awaits; cancelling the task drops what has not started."""
        raises = _raises(on_error)
        outcomes = await asyncio.wrap_future(self._live().submit(list(_many(sources)), timeout_s, raises))
        return _checked(outcomes) if raises else outcomes

    async def stream(
        self, sources: Iterable[Any], *, timeout_s: float | None = None, on_error: OnError = "raise"
    ) -> AsyncIterator[tuple[int, Any]]:
        """Yields `(index, image)` as images finish; with `on_error="return"` the image may be an error.

        Sources are drawn lazily and results wait no further than the object store budget reaches, so there
        may be any number of them, as long as the consumer lets go of the images.

        Raises:
            As `preprocess`; with `on_error="raise"` at the first failed image, which ends the stream.
        """
        raises = _raises(on_error)
        loop = asyncio.get_running_loop()
        finished: deque[tuple[int, ImageOutcome] | BaseException | None] = deque()
        arrived = asyncio.Event()

        def put(item: tuple[int, ImageOutcome] | BaseException | None) -> None:
            finished.append(item)
            # One wake for all that come before the consumer looks; one whose loop is closed hears nothing.
            if len(finished) == 1:
                with contextlib.suppress(RuntimeError):
                    loop.call_soon_threadsafe(arrived.set)

        running = self._live().stream(_many(sources), put, timeout_s)
        try:
            while True:
                while not finished:
                    arrived.clear()
                    if not finished:
                        await arrived.wait()
                item = finished.popleft()
                if item is None:
                    return
                if isinstance(item, BaseException):
                    raise item
                index, outcome = item
                del item
                if raises and isinstance(outcome, PreprocessError):
                    raise outcome
                yield index, outcome
                # A generator that waits for the next image must not keep the last one.
                del outcome
        finally:
            running.cancel()

    def recompute(self, image: ProcessedImage, source: Any = None, *, timeout_s: float | None = None) -> Any:
        """Preprocesses an image again whose result was lost; returns a new `ProcessedImage`.

        Args:
            image: The image; what it was made from is used again, as long as this process still has it.
            source: To be used instead.
            timeout_s: As in `preprocess`.

        Raises:
            ResultLost: the source is unknown here, or its content has changed since.
        """
        source = image.source if source is None else source
        if source is None:
            raise ResultLost("the image came from another process without its source; pass source=")
        self._live().forget(image.facts.digest)
        (again,) = self.preprocess([source], timeout_s=timeout_s)
        if again.content_digest != image.content_digest:
            raise ResultLost(
                f"the source now holds other content ({again.content_digest[:23]}) than the lost image "
                f"({image.content_digest[:23]})"
            )
        return again

    # The pool

    def status(self) -> dict[str, Any]:
        """Workers, caches and queues, as plain JSON values.

        Raises:
            PoolClosed: the pool's controller is gone.
        """
        router = self._live()
        try:
            status = ray.get(self._controller.status.remote(), timeout=_CONTROL_TIMEOUT_S)
        except RayError as error:
            raise PoolClosed(f"the controller of pool {self.name!r} does not answer: {error}") from None
        return {**status, "router": router.status()}

    def scale(self, num_workers: int | None) -> None:
        """Changes how many workers there are to be (None: one for each node); surplus ones are drained.

        Raises:
            InvalidArgument: not a positive number.
        """
        self._live()
        self.config.replace(num_workers=num_workers)  # Refuses a number that cannot be.
        ray.get(self._controller.scale.remote(num_workers), timeout=_CONTROL_TIMEOUT_S)

    def close(self) -> None:
        """Leaves the pool; ends it if this object started it and it is not detached."""
        if self._router is None:
            return
        if self._owns_pool:
            self.stop()
        else:
            self._leave()

    def stop(self, *, drain: bool = True) -> None:
        """Ends the pool for everybody: workers finish what they have, up to `drain_timeout_s`, and go."""
        if self._router is None:
            return
        if not self._router.is_connected():
            self._leave()
            return
        with contextlib.suppress(RayError):  # Whatever becomes of it, it is killed below.
            if drain:
                timeout_s = self.config.drain_timeout_s + _CONTROL_TIMEOUT_S
                ray.get(self._controller.drain.remote(), timeout=timeout_s)
        kill_pool(self.name, self._controller)
        self._leave()

    def _leave(self) -> None:
        router, self._router = self._router, None
        if router is None:
            return
        # One that the caller started in its place is not ours to end.
        ends_ray = self._owns_ray and router.is_connected()
        self._owns_ray = False
        router.close()
        if ends_ray:
            ray.shutdown()

    def __enter__(self) -> PreprocessPool:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _configured(model: str | None, config: PoolConfig | None, fields: dict[str, Any]) -> PoolConfig:
    if model is not None:
        fields = {"model": model, **fields}
    try:
        return PoolConfig(**fields) if config is None else config.replace(**fields)
    except TypeError as error:
        raise InvalidArgument(f"PoolConfig: {error}") from None


def _checked_name(name: str) -> str:
    if not name or "/" in name or not name.isprintable():
        raise InvalidArgument(f"a pool's name must be printable and without slashes, not {name!r}")
    return name


def _many(sources: Any) -> Any:
    # A text or one file's bytes would be taken apart, and each character refused.
    if isinstance(sources, (str, bytes, bytearray, memoryview)):
        raise InvalidArgument(f"pass a list of sources, not one {type(sources).__name__}")
    return sources


def _raises(on_error: str) -> bool:
    if on_error not in ("raise", "return"):
        raise InvalidArgument(f'on_error must be "raise" or "return", not {on_error!r}')
    return on_error == "raise"


def _checked(outcomes: list[Any]) -> list[Any]:
    for outcome in outcomes:
        if isinstance(outcome, PreprocessError):
            raise outcome
    return outcomes
