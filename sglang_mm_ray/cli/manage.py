"""`sglang-mm-ray start`, `status` and `stop`: named pools that go on without their callers."""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import sys
import time
from typing import Any

from ..errors import PoolNotFound, PreprocessError
from . import EXIT_ERROR, EXIT_FAILURES, EXIT_OK
from .options import add_address, add_pool_options, pool_config
from .table import bytes_text, count_text, printable, render

_CONTROL_TIMEOUT_S = 30.0


def _pause_s(text: str) -> float:
    seconds = float(text)
    if not 0 < seconds < 1e6:
        raise argparse.ArgumentTypeError("must be a positive number of seconds")
    return seconds


def add_parser(subparsers: Any) -> None:
    """Adds the subcommands."""
    start: argparse.ArgumentParser = subparsers.add_parser(
        "start",
        help="start a named pool on the cluster that outlives this command",
        description="Starts a detached pool on a Ray cluster that runs already; "
        "PreprocessPool.connect(NAME) finds it.",
    )
    start.add_argument("--name", default="default", help="name of the pool (default: %(default)s)")
    start.add_argument(
        "--allow-root", action="append", default=[], metavar="DIR", help="workers may read files below DIR"
    )
    start.add_argument(
        "--replace",
        action="store_true",
        help="take the place of the pool of that name, if one runs: it ends what it has begun, and requests "
        "that come meanwhile wait for the new one",
    )
    start.add_argument("--json", action="store_true", help="the status as one JSON object on stdout")
    add_pool_options(start)
    add_address(start, "the running one")
    start.set_defaults(run=run_start)

    status: argparse.ArgumentParser = subparsers.add_parser(
        "status",
        help="the pools of the cluster, or one pool's workers, caches and queues",
        description="Exit code 0 if every worker of the pool is live, 1 if some are missing.",
    )
    status.add_argument("--name", help="name of a pool (default: a line for each)")
    status.add_argument("--watch", action="store_true", help="go on, and redraw")
    status.add_argument(
        "--interval-s", type=_pause_s, default=2.0, help="pause of --watch (default: %(default)s)"
    )
    status.add_argument("--json", action="store_true", help="JSON on stdout; with --watch a line each time")
    add_address(status, "the running one")
    status.set_defaults(run=run_status)

    stop: argparse.ArgumentParser = subparsers.add_parser(
        "stop", help="end a named pool", description="Lets the workers finish what they have, then ends them."
    )
    stop.add_argument("--name", default="default", help="name of the pool (default: %(default)s)")
    stop.add_argument("--no-drain", action="store_true", help="end the workers at once")
    add_address(stop, "the running one")
    stop.set_defaults(run=run_stop)


def _connect(address: str | None) -> None:
    # Never starts a cluster of its own, which would end with this command.
    import ray

    from ..cluster import join_ray, reason_of

    if ray.is_initialized():
        return
    try:
        join_ray(address)
    except ConnectionError as error:
        raise PoolNotFound(
            "no Ray cluster is reachable; start one with `ray start --head`, or pass --address "
            f"({reason_of(error)})"
        ) from None


def run_start(arguments: argparse.Namespace) -> int:
    """Starts a pool; returns the exit code."""
    from ..pool.pool import PreprocessPool

    _connect(arguments.address)
    roots = tuple(os.path.abspath(root) for root in arguments.allow_root)
    pool = PreprocessPool.start(
        arguments.name, config=pool_config(arguments, roots), replace=arguments.replace
    )
    try:
        status = pool.status()
    finally:
        pool.close()
    if arguments.json:
        print(json.dumps(status, indent=1))
    else:
        print(f"pool {arguments.name!r} runs: {len(status['workers'])} workers, model {status['model']}")
    return EXIT_OK


def run_status(arguments: argparse.Namespace) -> int:
    """Shows pools; returns the exit code."""
    _connect(arguments.address)
    while True:
        code, text, facts = _look(arguments.name)
        if arguments.watch and not arguments.json:
            print("\x1b[H\x1b[2J" if sys.stdout.isatty() else "", end="")
        print(
            json.dumps(facts, indent=None if arguments.watch else 1) if arguments.json else text, flush=True
        )
        if not arguments.watch:
            return code
        time.sleep(arguments.interval_s)


def _look(name: str | None) -> tuple[int, str, Any]:
    from ray.exceptions import RayError

    from ..cluster import find_controller, pool_names

    if name is None:
        return _look_at_all(pool_names())
    try:
        status = _status(find_controller(name))
    except RayError as error:
        return EXIT_ERROR, f"the controller of {name!r} does not answer ({type(error).__name__})", None
    return EXIT_OK if _is_whole(status) else EXIT_FAILURES, describe_pool(status), status


def _status(controller: Any) -> dict[str, Any]:
    import ray

    status: dict[str, Any] = ray.get(controller.status.remote(), timeout=_CONTROL_TIMEOUT_S)
    return status


def _is_whole(status: dict[str, Any]) -> bool:
    live = all(worker["state"] != "starting" for worker in status["workers"])
    return live and bool(status["workers"]) and not status["last_error"]


def _look_at_all(names: list[str]) -> tuple[int, str, Any]:
    from ray.exceptions import RayError

    from ..cluster import find_controller

    if not names:
        return EXIT_OK, "no pool runs in this cluster", []
    rows, facts, code = [], [], EXIT_OK
    for name in names:
        try:
            status = _status(find_controller(name))
        except (RayError, PoolNotFound) as error:
            code = EXIT_FAILURES
            facts.append({"pool": name, "last_error": f"does not answer ({type(error).__name__})"})
            rows.append([printable(name), *["-"] * 6, "its controller does not answer"])
            continue
        workers = status["workers"]
        code = code if _is_whole(status) else EXIT_FAILURES
        facts.append(status)
        rows.append(
            [
                printable(name),
                status["model"],
                status["transport"],
                f"{sum(worker['state'] == 'live' for worker in workers)} of {len(workers)}",
                count_text(sum(worker.get("threads", 0) for worker in workers)),
                count_text(sum(worker.get("completed_images", 0) for worker in workers)),
                count_text(status["replaced_workers"]),
                printable(status["last_error"]) or "-",
            ]
        )
    header = ["pool", "model", "transport", "live", "threads", "done", "replaced", "last error"]
    return code, render(header, rows), facts


def describe_pool(status: dict[str, Any]) -> str:
    """A pool's status as text."""
    lines = [
        f"pool {status['pool']!r}: model {status['model']}, transport {status['transport']}, "
        f"{status['replaced_workers']} workers replaced, {status['quarantined_images']} images in quarantine"
    ]
    if status["last_error"]:
        lines.append(f"last error: {printable(status['last_error'])}")
    rows = []
    for worker in status["workers"]:
        cache = worker.get("cache", {})
        seen = cache.get("hits", 0) + cache.get("misses", 0)
        rows.append(
            [
                worker["worker_id"],
                worker["node_id"][:12],
                worker["state"],
                str(worker.get("threads", 0)),
                count_text(worker.get("completed_images", 0)),
                count_text(worker.get("failed_images", 0)),
                f"{worker.get('waiting_images', 0)}+{worker.get('running_images', 0)}",
                f"{100 * cache.get('hits', 0) / seen:.0f} %" if seen else "-",
                bytes_text(cache.get("bytes", 0)),
                bytes_text(worker.get("rss_bytes", 0)),
            ]
        )
    header = ["worker", "node", "state", "threads", "done", "failed", "wait+run", "hits", "cache", "memory"]
    return "\n".join([*lines, render(header, rows)])


def run_stop(arguments: argparse.Namespace) -> int:
    """Ends a pool; returns the exit code."""
    import ray
    from ray.exceptions import RayError

    from ..cluster import find_controller, kill_pool
    from ..config import PoolConfig

    _connect(arguments.address)
    controller = find_controller(arguments.name)
    if not arguments.no_drain:
        # Whatever becomes of it, the pool is ended below.
        with contextlib.suppress(RayError, PreprocessError):
            config_json, _ = ray.get(controller.describe.remote(), timeout=_CONTROL_TIMEOUT_S)
            patience_s = PoolConfig.from_json(config_json).drain_timeout_s + _CONTROL_TIMEOUT_S
            ray.get(controller.drain.remote(), timeout=patience_s)
    kill_pool(arguments.name, controller)
    print(f"pool {arguments.name!r} is stopped")
    return EXIT_OK
