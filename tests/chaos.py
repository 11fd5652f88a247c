"""Random faults against a pool of several nodes while requests run; every result is held to the reference.

`PYTHONPATH=.:bench python tests/chaos.py --minutes 10 --seed 3` runs it for long, and
`tests/cluster/test_chaos.py` for seconds.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import gc
import os
import random
import signal
import tempfile
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import ray
from deadly import Deadly, Hanging
from pooling import patches, photo, png
from ray.cluster_utils import Cluster

import sglang_mm_ray as smr
from sglang_mm_ray.cluster import find_controller

STORE_BYTES = 200 << 20
IMAGES = 80


class Chaos:
    """A cluster, a pool on it, requests, and somebody who breaks things."""

    def __init__(self, seed: int, seconds: float) -> None:
        self.chance = random.Random(seed)
        self.seconds = seconds
        self.until = 0.0
        self.told: Counter[str] = Counter()
        self.took_s: list[float] = []
        # Some too large for a call, which go by the object store.
        sizes = [(600, 450) if n % 40 == 0 else (40 + n % 60, 30 + n % 40) for n in range(IMAGES)]
        self.files = [png(photo(n, *size)) for n, size in enumerate(sizes)]
        self.wanted = [patches(data) for data in self.files]
        self.marker = Path(tempfile.mkdtemp()) / "marks"
        self.cluster = Cluster(
            initialize_head=True,
            head_node_args={"num_cpus": 1, "num_gpus": 1, "object_store_memory": STORE_BYTES},
        )
        self.nodes = [self.add_node() for _ in range(2)]
        ray.init(address=self.cluster.address, log_to_driver=False, logging_level="ERROR")
        self.pool = smr.PreprocessPool.start(
            f"chaos-{seed}",
            warm_bytes=0,
            heartbeat_interval_s=0.25,
            heartbeat_timeout_s=5.0,
            image_timeout_s=4.0,
            lease_s=20.0,
            max_attempts=30,
            max_queued_images=400,
            router_cache_bytes=1 << 20,
            worker_cache_bytes=4 << 20,
            object_store_budget_bytes=64 << 20,
            metrics=False,
        )

    def add_node(self) -> Any:
        return self.cluster.add_node(num_cpus=1, object_store_memory=STORE_BYTES)

    # Faults

    def pids(self) -> list[int]:
        try:
            return [worker["pid"] for worker in self.pool.status()["workers"] if worker["state"] == "live"]
        except smr.PoolClosed:
            return []

    def _signal(self, number: signal.Signals) -> None:
        pids = self.pids()
        if pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.chance.choice(pids), number)

    def kill_worker(self) -> None:
        self._signal(signal.SIGKILL)

    def stop_worker(self) -> None:
        self._signal(signal.SIGSTOP)

    def kill_controller(self) -> None:
        with contextlib.suppress(Exception):
            os.kill(ray.get(find_controller(self.pool.name).pid.remote(), timeout=5), signal.SIGKILL)

    def lose_node(self) -> None:
        if len(self.nodes) > 1:
            self.cluster.remove_node(self.nodes.pop(0), allow_graceful=False)

    def gain_node(self) -> None:
        if len(self.nodes) < 3:
            self.nodes.append(self.add_node())

    def scale(self) -> None:
        with contextlib.suppress(Exception):
            self.pool.scale(self.chance.choice([None, 1, 2]))

    def break_things(self) -> None:
        """Until the time is up, a fault every few seconds."""
        faults = [self.kill_worker] * 5 + [self.stop_worker, self.kill_controller, self.lose_node]
        faults += [self.gain_node, self.gain_node, self.scale]
        while time.monotonic() < self.until:
            time.sleep(self.chance.uniform(1.0, 6.0))
            fault = self.chance.choice(faults)
            self.told[fault.__name__] += 1
            fault()

    # Requests

    def sources(self) -> tuple[list[Any], list[int | type[Exception]]]:
        """Sources of a request, and what each is to become: the number of an image, or an error."""
        sources: list[Any] = []
        becomes: list[int | type[Exception]] = []
        for _ in range(self.chance.choice([1, 1, 2, 8, 40])):
            kind = self.chance.random()
            number = self.chance.randrange(IMAGES)
            if kind < 0.04:
                sources.append(self.files[number][: len(self.files[number]) // 2])
                becomes.append(smr.DecodeError)
            elif kind < 0.042:
                sources.append(ray.put(Deadly(self.marker)))
                becomes.append(smr.PoisonImage)
            elif kind < 0.043:
                sources.append(ray.put(Hanging(self.marker, 3600)))
                becomes.append(smr.PoisonImage)
            else:
                sources.append(self.files[number])
                becomes.append(number)
        return sources, becomes

    async def client(self) -> None:
        """One request after the other, some of them short of time or given up."""
        while time.monotonic() < self.until:
            sources, becomes = self.sources()
            timeout_s = self.chance.choice([None, None, 120.0, 0.2])
            began = time.monotonic()
            call = asyncio.ensure_future(
                self.pool.preprocess_async(sources, timeout_s=timeout_s, on_error="return")
            )
            if self.chance.random() < 0.1:
                await asyncio.sleep(self.chance.uniform(0, 0.3))
                call.cancel()
            try:
                outcomes = await call
            except asyncio.CancelledError:
                self.told["requests cancelled"] += 1
                continue
            except smr.PoolOverloaded:
                self.told["requests refused"] += 1
                await asyncio.sleep(0.2)
                continue
            self.told["requests"] += 1
            self.took_s.append(time.monotonic() - began)
            for source, expected, outcome in zip(sources, becomes, outcomes, strict=True):
                await asyncio.to_thread(self.check, source, expected, outcome)

    def check(self, source: Any, expected: int | type[Exception], outcome: Any) -> None:
        """Raises unless the outcome is what the source was to become, or a fault that may happen here."""
        if isinstance(outcome, (smr.DeadlineExceeded, smr.PoolOverloaded)):
            self.told[type(outcome).__name__] += 1
            return
        if isinstance(expected, type):
            assert isinstance(outcome, expected), f"{outcome!r} instead of {expected.__name__}"
            self.told[expected.__name__] += 1
            return
        assert isinstance(outcome, smr.ProcessedImage), repr(outcome)
        try:
            array = outcome.array(timeout_s=30)
        except smr.ResultLost:
            self.told["results lost with their node"] += 1
            with contextlib.suppress(smr.ResultLost):
                np.testing.assert_array_equal(
                    self.pool.recompute(outcome, source).array(timeout_s=30), self.wanted[expected]
                )
            return
        np.testing.assert_array_equal(array, self.wanted[expected])
        self.told["images right"] += 1

    async def clients(self) -> None:
        """Several clients at once; the first thing that is wrong ends all."""
        await asyncio.gather(*(self.client() for _ in range(4)))

    # The end

    def settle(self) -> None:
        """After the faults the pool is whole again, works, and holds nothing of the past."""
        _until(lambda: self._scaled(), 60)
        _until(lambda: len(self.pids()) >= 1, 90)
        images = self.pool.preprocess(self.files, timeout_s=120)
        for wanted, image in zip(self.wanted, images, strict=True):
            try:
                np.testing.assert_array_equal(image.array(), wanted)
            except smr.ResultLost:
                np.testing.assert_array_equal(self.pool.recompute(image).array(), wanted)
        del images, image
        gc.collect()
        _until(lambda: self._idle(), 60)
        router = self.pool._live().status()
        assert router["store_held_bytes"] <= 1 << 20, router
        self.pool.stop()
        _until(lambda: smr.PreprocessPool.names() == [], 30)
        _until(lambda: _in_use("CPU") == 0, 60)
        gc.collect()
        _until(lambda: _in_use("object_store_memory") == 0, 60)

    def _scaled(self) -> bool:
        try:
            self.pool.scale(None)
        except Exception:
            return False
        return True

    def _idle(self) -> bool:
        router = self.pool._live().status()
        return not any(
            router[key]
            for key in ("under_way_images", "queued_images", "running_images", "store_promised_bytes")
        )

    def percentiles(self) -> str:
        """How long requests took that were answered, faults included."""
        shares = (50, 90, 95, 99, 100)
        found = np.percentile(self.took_s, shares)
        return "requests, s: " + ", ".join(f"p{n} {s:.2f}" for n, s in zip(shares, found, strict=True))

    def run(self) -> Counter[str]:
        """The whole of it; what happened how often."""
        # From here: where others build, starting the nodes alone may take as long.
        self.until = time.monotonic() + self.seconds
        try:
            # Ray adds nodes from the main thread only, so it is the requests that get another.
            with ThreadPoolExecutor(1) as thread:
                requests = thread.submit(lambda: asyncio.run(self.clients()))
                requests.add_done_callback(lambda _: setattr(self, "until", 0.0))
                self.break_things()
                requests.result()
            self.settle()
            return self.told
        finally:
            ray.shutdown()
            self.cluster.shutdown()


def _in_use(resource: str) -> float:
    total, free = ray.cluster_resources(), ray.available_resources()
    return total.get(resource, 0.0) - free.get(resource, 0.0)


def _until(condition: Any, timeout_s: float) -> None:
    end = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < end, "it never happened"
        time.sleep(0.2)


def main() -> None:
    """Runs chaos for some minutes and prints what happened."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=5.0)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    chaos = Chaos(arguments.seed, arguments.minutes * 60)
    for what, times in sorted(chaos.run().items()):
        print(f"{times:8d} {what}")
    print(chaos.percentiles())


if __name__ == "__main__":
    main()
