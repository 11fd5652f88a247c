"""`PreprocessPool`: start or find a pool of workers, and preprocess images with it."""

from __future__ import annotations

import contextlib
import os
import threading
import time
import uuid
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence
from types import TracebackType
from typing import Any

import ray
from ray.exceptions import RayError

from ..cluster import (
    check_not_forked,
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
from ..deadline import awaited, waited, within
from ..errors import DeadlineExceeded, InvalidArgument, PoolClosed, PoolNotFound, ResultLost, WorkerLost
from ..fields import check_seconds
from ..results.image import ProcessedImage
from ..router.router import Router
from .calls import OnError, blocking_stream, checked, configured, many, pool_name, raises, stream
from .opening import making_way, open_controller

__all__ = ["PreprocessPool"]

_STORE_SHARE = 0.6
_CONTROL_TIMEOUT_S = 30.0


class PreprocessPool:
    """Workers on the CPU nodes of a Ray cluster, and this process's way to them.

    As a context manager it starts a pool that ends with the block, or with this process however that ends.
    If Ray is not running and no cluster is reachable, it starts Ray on this machine. `start` leaves a pool
    running under a name, and `connect` finds it from anywhere in the cluster. What they return follows the
    name: where the pool ends and another one is started that gives the same results, requests go on there.

    All methods may be called from any thread.

    Args:
        model: Family in the core's registry; `config.model` if there is a config.
        config: Everything else; see `PoolConfig`. Further keyword arguments replace its fields.
        address: Ray cluster; None takes the running one or starts one, `"local"` always starts one.
        name: Name of the pool; a random one by default.

    Raises:
        InvalidArgument: a configuration that cannot work, or a name that is taken.
        WorkerLost: no worker came up in time; the message says why.
        PoolNotFound: the named cluster is not there, or Ray does not start on this machine.
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
        config = configured(model, config, fields)
        name = pool_name(name or f"pool-{uuid.uuid4().hex[:8]}")
        self._owns_ray = _start_ray(address)
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
        self._pid = os.getpid()
        budget = config.object_store_budget_bytes or int(store_bytes() * _STORE_SHARE)
        # One that ends with its starter has no other of its name; whoever came by the name follows it.
        follows = not self._owns_pool
        self._router: Router | None = Router(name, config, controller, budget, follows=follows)

    def _wait(self, config: PoolConfig) -> None:
        began = time.monotonic()
        # Beside the workers, which take longer to start.
        warming = threading.Thread(target=_warm, args=(config.warm_bytes,), name="mm-warm", daemon=True)
        warming.start()
        if self._live().wait_for_workers(config.start_timeout_s) == 0:
            reason = self._live().last_error or "it is still starting"
            raise WorkerLost(f"no worker came up within {time.monotonic() - began:.0f} s: {reason}")
        warming.join(config.start_timeout_s)

    @classmethod
    def start(
        cls,
        name: str,
        model: str | None = None,
        config: PoolConfig | None = None,
        *,
        address: str | None = None,
        replace: bool = False,
        **fields: Any,
    ) -> PreprocessPool:
        """Starts a pool that goes on when this process ends; `stop` ends it.

        Args:
            name: Name of the pool.
            model: As in `PreprocessPool`, and so are `config`, `address` and further keyword arguments.
            replace: Whether to take the place of a pool of that name, if one runs. It ends what it has under
                way; what is asked of it meanwhile waits, and goes on with the workers of the new pool where
                that gives the same results.

        Raises:
            InvalidArgument: a configuration that cannot work, or a name that is taken.
            WorkerLost: no worker came up in time.
            PoolNotFound: no cluster is there.
        """
        config = configured(model, config, fields)
        pool_name(name)
        pool = cls.__new__(cls)
        pool._owns_ray = _start_ray(address)
        pool._owns_pool = False
        with making_way(name, config) if replace else contextlib.nullcontext():
            pool._open(name, config, detached=True)
        return pool

    @classmethod
    def connect(cls, name: str, *, address: str | None = None) -> PreprocessPool:
        """A pool that runs already, with the configuration that it was started with.

        Raises:
            PoolNotFound: none of that name; the message lists those that run.
            PoolClosed: this process was forked from one that was connected to Ray.
        """
        check_not_forked()
        if not ray.is_initialized():
            try:
                join_ray(address)
            except ConnectionError as error:
                raise PoolNotFound(
                    f"no Ray cluster is reachable, so there is no pool {name!r}; set RAY_ADDRESS or "
                    f"pass address= ({reason_of(error)})"
                ) from None
        controller = find_controller(name)
        try:
            config_json, fingerprint = within(
                lambda: ray.get(controller.describe.remote(), timeout=_CONTROL_TIMEOUT_S), _CONTROL_TIMEOUT_S
            )
        except RayError as error:
            raise PoolNotFound(
                f"the controller of pool {name!r} does not answer ({reason_of(error)})"
            ) from None
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
        if self._is_forked():
            raise PoolClosed(
                f"pool {self.name!r} was opened by process {self._pid}, which forked this one, and Ray does "
                'not work in a forked process; start it otherwise (multiprocessing.get_context("spawn")) and '
                "connect there"
            )
        if not self._router.is_connected():
            raise PoolClosed(f"pool {self.name!r} is gone, since Ray was shut down in this process")
        return self._router

    def _is_forked(self) -> bool:
        return os.getpid() != self._pid

    def _asked(self, call: Callable[[Any], Any], timeout_s: float = _CONTROL_TIMEOUT_S) -> Any:
        controller = self._live().controller
        return within(lambda: ray.get(call(controller), timeout=timeout_s), timeout_s)

    # Images

    def preprocess(
        self, sources: Sequence[Any], *, timeout_s: float | None = None, on_error: OnError = "raise"
    ) -> list[Any]:
        """Preprocesses all sources, side by side on all workers; returns `ProcessedImage`s in input order.

        Args:
            sources: What `source.classify` accepts.
            timeout_s: For the whole request; it holds whatever state Ray is in.
            on_error: `raise` raises the first error (by index) after all images are settled; `return` puts
                each error in its image's place.

        Raises:
            PoolOverloaded: the queue is at its bound, or the results could not be held; nothing was started.
            DeadlineExceeded: the time ran out.
            PreprocessError: whatever is wrong with an image.
        """
        timeout_s = check_seconds("timeout_s", timeout_s)
        first_raises = raises(on_error)
        future = self._live().submit(list(many(sources)), timeout_s, first_raises)
        outcomes = waited(future, timeout_s)
        return checked(outcomes) if first_raises else outcomes

    async def preprocess_async(
        self, sources: Sequence[Any], *, timeout_s: float | None = None, on_error: OnError = "raise"
    ) -> list[Any]:
        """As `preprocess`, but awaits; cancelling the task drops what has not started."""
        timeout_s = check_seconds("timeout_s", timeout_s)
        first_raises = raises(on_error)
        future = self._live().submit(list(many(sources)), timeout_s, first_raises)
        outcomes = await awaited(future, timeout_s)
        return checked(outcomes) if first_raises else outcomes

    def stream(
        self, sources: Iterable[Any], *, timeout_s: float | None = None, on_error: OnError = "raise"
    ) -> AsyncIterator[tuple[int, Any]]:
        """Yields `(index, image)` as images finish; with `on_error="return"` the image may be an error.

        Sources are drawn lazily and results wait no further than the object store budget reaches, so there
        may be any number of them, as long as the consumer lets go of the images.

        Raises:
            As `preprocess`; with `on_error="raise"` at the first failed image, which ends the stream.
        """
        timeout_s = check_seconds("timeout_s", timeout_s)
        return stream(self._live(), many(sources), timeout_s, raises(on_error))

    def stream_blocking(
        self, sources: Iterable[Any], *, timeout_s: float | None = None, on_error: OnError = "raise"
    ) -> Iterator[tuple[int, Any]]:
        """As `stream`, for callers without an event loop: `for index, image in pool.stream_blocking(...)`."""
        timeout_s = check_seconds("timeout_s", timeout_s)
        return blocking_stream(self._live(), many(sources), timeout_s, raises(on_error))

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
            status = self._asked(lambda controller: controller.status.remote())
        except (RayError, DeadlineExceeded) as error:
            raise PoolClosed(
                f"the controller of pool {self.name!r} does not answer ({reason_of(error)})"
            ) from None
        return {**status, "router": router.status()}

    def scale(self, num_workers: int | None) -> None:
        """Changes how many workers there are to be (None: one for each node); surplus ones are drained.

        Raises:
            InvalidArgument: not a positive number.
            PoolClosed: the pool's controller is gone.
            DeadlineExceeded: it does not answer.
        """
        self.config.replace(num_workers=num_workers)  # Refuses a number that cannot be.
        try:
            self._asked(lambda controller: controller.scale.remote(num_workers))
        except RayError as error:
            raise PoolClosed(
                f"the controller of pool {self.name!r} does not answer ({reason_of(error)})"
            ) from None

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
        if self._is_forked() or not self._router.is_connected():
            self._leave()
            return
        controller = self._router.controller
        # Whatever becomes of it, it is killed below.
        with contextlib.suppress(RayError, DeadlineExceeded):
            if drain:
                timeout_s = self.config.drain_timeout_s + _CONTROL_TIMEOUT_S
                self._asked(lambda controller: controller.drain.remote(), timeout_s)
        with contextlib.suppress(RayError, DeadlineExceeded):
            within(lambda: kill_pool(self.name, controller), _CONTROL_TIMEOUT_S)
        self._leave()

    def _leave(self) -> None:
        router, self._router = self._router, None
        # In a forked process the router's thread is not there, and Ray is another's.
        if router is None or self._is_forked():
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


def _warm(most_bytes: int) -> None:
    # It only saves time: what is wrong with Ray shows elsewhere.
    with contextlib.suppress(Exception):
        warm_store(warm_bytes(most_bytes))


def _start_ray(address: str | None) -> bool:
    try:
        return start_ray(address)
    except ConnectionError as error:
        raise PoolNotFound(str(error)) from None
