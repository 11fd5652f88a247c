"""What the rest needs to know of Ray's cluster: nodes, stores, names. Blocking calls; keep them off loops."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import re
import socket
import threading
import time
import traceback
from collections import defaultdict
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import numpy as np
import ray
from ray._private.node import Node as RayNode
from ray._private.state import available_resources_per_node
from ray._private.worker import global_worker
from ray.exceptions import RayError
from ray.experimental import internal_kv
from ray.util import list_named_actors

from .errors import InvalidArgument, PoolClosed, PoolNotFound
from .messages import Node
from .ray_token import is_let_in
from .reservations import actor_holders

__all__ = [
    "CONTROLLER_CPUS",
    "NAMESPACE",
    "actor_class",
    "alive_nodes",
    "check_not_forked",
    "connection",
    "controller_name",
    "find_controller",
    "is_disconnecting",
    "is_forked",
    "join_ray",
    "kill_pool",
    "live_nodes",
    "off_loop",
    "pool_names",
    "ray_nodes",
    "read_note",
    "reason_of",
    "scale_note",
    "start_ray",
    "store_bytes",
    "warm_bytes",
    "warm_store",
    "worker_name",
    "worker_names",
    "write_note",
]

T = TypeVar("T")

NAMESPACE = "sglang_mm_ray"
"""Ray namespace of all pools, whatever namespace their callers are in."""
CONTROLLER_CPUS = 0.01
"""More than nothing: a node whose only actor holds no resource counts as idle and may be scaled away."""

_PROBE_TIMEOUT_S = 5.0
_GONE_WITHIN_S = 10.0
_GONE_POLL_S = 0.02
_WARM_CHUNK_BYTES = 16 << 20
_STARTS = 3
_NODE_LATE = "timed out during startup"
_TUNABLES = "GLIBC_TUNABLES"
_NON_TEMPORAL_BYTES = 512 << 10
_COLOUR = re.compile(r"\x1b\[[0-9;]*m")


def controller_name(pool: str) -> str:
    """Actor name of a pool's controller."""
    return f"pool/{pool}/controller"


def worker_name(pool: str, worker_id: str) -> str:
    """Actor name of a pool's worker."""
    return f"pool/{pool}/worker/{worker_id}"


def _names() -> list[str]:
    actors = list_named_actors(all_namespaces=True)
    return [actor["name"] for actor in actors if actor["namespace"] == NAMESPACE]


def pool_names() -> list[str]:
    """Names of all pools that run in the cluster."""
    return sorted(name.split("/")[1] for name in _names() if name.endswith("/controller"))


def _names_of(pool: str) -> list[str]:
    return [name for name in _names() if name.split("/")[1] == pool]


def worker_names(pool: str) -> list[str]:
    """Actor names of a pool's workers."""
    prefix = worker_name(pool, "")
    return [name for name in _names() if name.startswith(prefix)]


def find_controller(pool: str) -> Any:
    """The controller of a pool.

    Raises:
        PoolNotFound: there is none; the message lists those that there are.
    """
    try:
        return ray.get_actor(controller_name(pool), namespace=NAMESPACE)
    except ValueError:
        running = ", ".join(pool_names()) or "none"
        raise PoolNotFound(
            f"no pool {pool!r} runs in this cluster (running: {running}); start it with "
            f"`sglang-mm-ray start --name {pool}`"
        ) from None


def is_forked() -> bool:
    """Whether this process was forked from one that was connected to Ray, whose threads it has not."""
    return _forked


def _note_fork() -> None:
    global _forked
    _forked = _forked or bool(global_worker.connected)


_forked = False
os.register_at_fork(after_in_child=_note_fork)


def _checked_address(address: str) -> str:
    address = address.strip()
    if not address:
        return address
    scheme, separator, rest = address.rpartition("://")
    plain = address in ("auto", "local")
    if not plain and ((separator and scheme != "ray") or not re.fullmatch(r"[^/\s]+:\d+|[^/\s]+", rest)):
        raise InvalidArgument(
            f"{address!r} is no address of a Ray cluster; pass host:port, ray://host:port, auto or local"
        )
    return address


def check_not_forked() -> None:
    """Raises `PoolClosed` in a process that was forked from one that was connected to Ray."""
    if is_forked():
        raise PoolClosed(
            "this process was forked from one that was connected to Ray, and Ray does not work in it; "
            'start it otherwise (multiprocessing.get_context("spawn"))'
        )


def _listens(host: str, port: int) -> bool:
    own_address: Any = ray.util.get_node_ip_address
    # Ray takes this machine's own address for loopback.
    for name in (host, own_address()) if host in ("127.0.0.1", "localhost") else (host,):
        with contextlib.suppress(OSError, OverflowError):
            socket.create_connection((name, port), _PROBE_TIMEOUT_S).close()
            return True
    return False


def join_ray(address: str | None, **options: Any) -> None:
    """`ray.init` on a cluster that runs: the one named, or in `RAY_ADDRESS`, or that of this machine.

    Raises:
        ConnectionError: none is there, or it lets this process not in; the message says which.
        InvalidArgument: it is no address at all.
        PoolClosed: this process was forked from one that was connected to Ray.
    """
    check_not_forked()
    address = _checked_address(address or os.environ.get("RAY_ADDRESS") or "auto")
    host, _, port = address.removeprefix("ray://").rpartition(":")
    # Ray would try for minutes where nobody listens.
    if host and port.isdigit() and not _listens(host.strip("[]"), int(port)):
        raise ConnectionError(f"no Ray cluster answers at {address}")
    if not is_let_in(address):
        raise ConnectionError(
            f"the Ray cluster at {address} asks for a token: set RAY_AUTH_MODE=token here too, and give this "
            "node the cluster's token"
        )
    try:
        ray.init(address=address, log_to_driver=False, logging_level=logging.WARNING, **options)
    except ConnectionError as error:
        # Ray says the same of a cluster that is gone and of one that refuses this process.
        if "Failed to connect" not in str(error):
            raise
        raise ConnectionError(f"{error}; if it asks for a token, set RAY_AUTH_MODE=token here too") from None


def start_ray(address: str | None, **options: Any) -> bool:
    """Connects to the running cluster, or starts one on this machine; True if it did the latter.

    With an `address`, or one in `RAY_ADDRESS`, nothing is ever started: a named cluster must be there.

    Raises:
        ConnectionError: it is not, or Ray does not start on this machine.
        InvalidArgument: it is no address at all.
        PoolClosed: this process was forked from one that was connected to Ray.
    """
    check_not_forked()
    if ray.is_initialized():
        return False
    named = _checked_address(address or os.environ.get("RAY_ADDRESS") or "")
    if named and named != "local":
        join_ray(named, **options)
        return False
    if not named and not options:
        try:
            join_ray("auto")
            return False
        except ConnectionError:
            pass
    quiet: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.WARNING, **options}
    with _copies_past_the_cache():
        for left in reversed(range(_STARTS)):
            try:
                ray.init(address="local", include_dashboard=False, **quiet)
                break
            except Exception as error:
                # Ray gives its node 30 s, which on a busy machine may be too short.
                if _NODE_LATE not in str(error):
                    raise
                _end_node_of(error)
                if not left:
                    raise ConnectionError(f"Ray does not start on this machine: {error}") from None
    return True


def _end_node_of(error: BaseException) -> None:
    """Ends the processes of a node that came up too late; Ray leaves them there."""
    for frame, _ in traceback.walk_tb(error.__traceback__):
        node = frame.f_locals.get("self")
        if isinstance(node, RayNode):
            node.kill_all_processes(check_alive=False, allow_graceful=False, wait=True)
            return


@contextlib.contextmanager
def _copies_past_the_cache() -> Iterator[None]:
    """Has the processes of a Ray that is started meanwhile copy large results with non-temporal stores.

    A result is larger than a core's cache and another process reads it, so it need not pass through. On
    virtual machines glibc takes the host's last-level cache for the guest's own and never does so by itself.
    """
    if _TUNABLES in os.environ:
        yield
        return
    os.environ[_TUNABLES] = f"glibc.cpu.x86_non_temporal_threshold={_NON_TEMPORAL_BYTES:#x}"
    try:
        yield
    finally:
        del os.environ[_TUNABLES]


async def off_loop(call: Callable[[], T]) -> T:
    """Awaits a blocking call on another thread; cancelled once the interpreter, which then has none, ends."""
    try:
        return await asyncio.to_thread(call)
    except RuntimeError:
        if threading.main_thread().is_alive():
            raise
        raise asyncio.CancelledError from None


def actor_class(cls: type, **options: Any) -> Any:
    """`ray.remote(**options)(cls)`; Ray's own types know only some of the options."""
    remote: Any = ray.remote
    return remote(**options)(cls)


def ray_nodes() -> list[dict[str, Any]]:
    """The live nodes as Ray describes them."""
    nodes: Any = ray.nodes
    return [node for node in nodes() if node["Alive"]]


def connection() -> object:
    """This process's connection to Ray, another object each time that it connects; None while it has none.

    To be compared before a thread that lives on calls Ray: after `ray.shutdown()` most of Ray's functions
    would start another one unasked. The ids that Ray tells are no good for it: they come from what
    `ray.shutdown()` may just be taking down, and repeat from one Ray to the next.
    """
    return getattr(global_worker, "node", None)


def is_disconnecting() -> bool:
    """Whether `ray.shutdown()` is at it: who lets go of a reference meanwhile has Ray end the process."""
    return not global_worker.connected and hasattr(global_worker, "core_worker")


def alive_nodes() -> frozenset[str]:
    """Ids of the live nodes."""
    return frozenset(node["NodeID"] for node in ray_nodes())


def live_nodes() -> list[Node]:
    """The live nodes with their CPUs."""
    available: Any = available_resources_per_node
    told = available()
    held: defaultdict[str, float] = defaultdict(float)
    for holder in actor_holders():
        held[holder.node_id] += holder.cpus
    nodes = []
    for node in ray_nodes():
        node_id, total = node["NodeID"], float(node["Resources"].get("CPU", 0.0))
        # What a node tells is a moment old: an actor that was just placed may still be missing there.
        without_actors = max(0.0, round(total - held[node_id], 4))
        free = min(float(told.get(node_id, {}).get("CPU", 0.0)), without_actors)
        nodes.append(
            Node(
                node_id=node_id,
                total_cpus=total,
                free_cpus=free,
                has_gpu=node["Resources"].get("GPU", 0.0) > 0,
                labels=dict(node.get("Labels") or {}),
                other_cpus=round(without_actors - free, 4),
            )
        )
    return nodes


def store_bytes(node_id: str | None = None) -> int:
    """Object store memory of a node, or of all live ones."""
    return int(
        sum(
            node["Resources"].get("object_store_memory", 0.0)
            for node in ray_nodes()
            if node_id is None or node["NodeID"] == node_id
        )
    )


def warm_bytes(most_bytes: int, node_id: str | None = None) -> int:
    """How much to touch of a node's object store, or of all: so much at most, and never above a quarter."""
    return min(most_bytes, store_bytes(node_id) // 4)


def reason_of(error: BaseException) -> str:
    """The telling line of an error, Ray's colours and traces left out."""
    lines = [line for line in _COLOUR.sub("", str(error)).splitlines() if line.strip()] or [""]
    # Where a constructor raised, the last line says what; elsewhere the first one does.
    line = lines[-1] if "creation task" in lines[0] else lines[0]
    return f"{type(error).__name__}: {line.strip()}"


def warm_store(size_bytes: int) -> None:
    """Touches object store memory in this process: a page's first touch costs ten times a copy of it."""
    chunk = np.ones(_WARM_CHUNK_BYTES, np.uint8)
    # Held together, so that each takes memory of its own; all freed at the end.
    refs = [ray.put(chunk) for _ in range(size_bytes // _WARM_CHUNK_BYTES)]
    refs.clear()


def write_note(key: str, value: str | None) -> None:
    """Leaves a short text (None: no more) where it outlives every process of the cluster but Ray's own."""
    if value is None:
        internal_kv._internal_kv_del(key, namespace=NAMESPACE)
    else:
        internal_kv._internal_kv_put(key, value, namespace=NAMESPACE)


def read_note(key: str) -> str | None:
    """What `write_note` left."""
    value: bytes | None = internal_kv._internal_kv_get(key, namespace=NAMESPACE)
    return None if value is None else value.decode()


def scale_note(controller_id: str) -> str:
    """Key of the note that tells a controller's next life how many workers there are to be."""
    return f"scale/{controller_id}"


def kill_pool(pool: str, controller: Any) -> None:
    """Kills a pool's controller and its workers; returns once they are gone."""
    with contextlib.suppress(RayError):
        write_note(scale_note(controller._actor_id.hex()), None)
    for name in (None, *worker_names(pool)):
        try:
            ray.kill(controller if name is None else ray.get_actor(name, namespace=NAMESPACE))
        except (ValueError, RayError):
            continue  # Dead already.
    # Ray kills by and by. Until then the name is taken, and whoever looks for the pool would find it.
    until = time.monotonic() + _GONE_WITHIN_S
    while _names_of(pool) and time.monotonic() < until:
        time.sleep(_GONE_POLL_S)
