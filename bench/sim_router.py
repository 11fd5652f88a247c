"""The routing and batching code itself, on virtual workers and a virtual clock.

    python bench/sim_router.py [--workers 1000] [--images 1000000] [--json]

Drives `sglang_mm_ray.routing.scheduler.Scheduler`, the object that a router runs, through a load that no
test machine has: a thousand workers of three speeds, a million images in requests of 1 to 512, contents
repeated by Zipf's law, bursts, workers that die and workers that join. Only the computing is made up: a
worker takes a time that its speed and the image's pixels give, or next to none if its cache holds the
content. The processor time of the router is real.
"""

from __future__ import annotations

import argparse
import heapq
import json
import sys
import time
from collections import OrderedDict
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from sglang_mm_ray.config import PoolConfig
from sglang_mm_ray.routing.batching import BatchLimits, Cost
from sglang_mm_ray.routing.placement import Placement, route_key
from sglang_mm_ray.routing.scheduler import Batch, Flight, Scheduler, SchedulerLimits

# Pixels a thread takes in a second, and the share of workers of each speed.
SPEEDS_PX_PER_S = ((150e6, 0.6), (250e6, 0.3), (75e6, 0.1))
THREADS_PER_WORKER = 8
CALL_S = 0.001
HIT_S = 0.0005
REQUEST_SIZES = ((1, 0.80), (8, 0.14), (64, 0.05), (512, 0.01))
# Width and height of pictures, before and after resizing, and how many are of each kind.
PICTURES_PX = (
    (512 * 512, 1024 * 1024, 0.5),
    (1920 * 1080, 2048 * 1152, 0.4),
    (3840 * 2160, 3840 * 2160, 0.1),
)
BYTES_PER_RESULT_PX = 6


@dataclass(slots=True)
class Worker:
    """A worker as the simulation sees it."""

    speed_px_per_s: float
    free_at: list[float]
    cache: OrderedDict[int, int] = field(default_factory=OrderedDict)
    cache_bytes: int = 0
    busy_s: float = 0.0
    since_s: float = 0.0


@dataclass(slots=True)
class Content:
    """What the images of one content have in common."""

    number: int
    arrived_s: float


class Simulation:
    """One run; `run` returns what there is to tell."""

    def __init__(self, workers: int, images: int, *, load: float, zipf: float, seed: int) -> None:
        config = PoolConfig()
        batch = BatchLimits(config.chunk_max_images, config.chunk_max_bytes, config.chunk_max_pixels)
        self.scheduler = Scheduler(
            SchedulerLimits(batch, config.window_pixels_per_thread, config.max_inflight_bytes)
        )
        self.cache_bytes = config.worker_cache_bytes
        self.rng = np.random.default_rng(seed)
        self.workers: dict[str, Worker] = {}
        self.retired: list[Worker] = []
        self.next_worker = 0
        self.now_s = 0.0
        self.events: list[tuple[float, int, str, Any]] = []
        self.next_event = 0
        self.router_s = 0.0
        self.waits_s: list[float] = []
        self.hits = self.joined = self.done = self.lost_batches = 0
        self.in_flight: dict[int, Flight] = {}
        for _ in range(workers):
            self.add_worker()
        self._plan(workers, images, load, zipf)

    # The load

    def _plan(self, workers: int, images: int, load: float, zipf: float) -> None:
        sizes, shares = zip(*REQUEST_SIZES, strict=True)
        mean_size = float(np.dot(sizes, shares))
        requests = self.rng.choice(sizes, round(images / mean_size) + 1, p=shares)
        requests = requests[: int(np.searchsorted(np.cumsum(requests), images)) + 1]
        self.images = int(requests.sum())
        ranks = self.rng.zipf(zipf, self.images) if zipf > 1 else np.arange(self.images)
        # Ranks beyond the catalogue are pictures that come once.
        catalogue = max(1000, images // 5)
        rare = ranks > catalogue
        ranks[rare] = catalogue + 1 + np.arange(int(rare.sum()))
        self.contents = ranks
        self.repeats = self.images - len(np.unique(ranks))
        kinds = np.array([share for *_, share in PICTURES_PX])
        self.kind_of_rank = self.rng.choice(len(kinds), int(ranks.max()) + 1, p=kinds)
        work_px = np.array([read + written for read, written, _ in PICTURES_PX])
        mean_work_px = float(work_px[self.kind_of_rank[ranks]].mean())
        speed = sum(px * share for px, share in SPEEDS_PX_PER_S) * THREADS_PER_WORKER * workers
        rate = load * speed / mean_work_px / mean_size
        # Every fourth of the requests comes in a burst, at four times the rate.
        gaps = self.rng.exponential(1 / rate, len(requests))
        gaps[np.arange(len(gaps)) // 500 % 4 == 3] /= 4
        starts = np.cumsum(gaps)
        first = np.concatenate(([0], np.cumsum(requests)[:-1]))
        self.requests = list(zip(starts.tolist(), first.tolist(), requests.tolist(), strict=True))
        for fraction in (0.2, 0.4, 0.6, 0.8):
            self.at(float(starts[-1]) * fraction, "change", max(1, workers // 100))

    def at(self, when_s: float, kind: str, value: Any) -> None:
        """Schedules an event."""
        heapq.heappush(self.events, (when_s, self.next_event, kind, value))
        self.next_event += 1

    # Workers

    def add_worker(self) -> None:
        """A worker joins."""
        speeds, shares = zip(*SPEEDS_PX_PER_S, strict=True)
        speed = float(self.rng.choice(speeds, p=shares))
        name = f"worker-{self.next_worker}"
        self.next_worker += 1
        self.workers[name] = Worker(speed, [self.now_s] * THREADS_PER_WORKER, since_s=self.now_s)
        self.timed(self.scheduler.join, name, float(THREADS_PER_WORKER))

    def change(self, count: int) -> None:
        """Some workers die without a word, and as many new ones join."""
        for name in self.rng.choice(sorted(self.workers), count, replace=False):
            self.lost_batches += len(self.scheduler.running_on(str(name)))
            self.retired.append(self.workers.pop(str(name)))
            for flight in self.timed(self.scheduler.lose, str(name)):
                self.timed(self.scheduler.retry, flight)
        for _ in range(count):
            self.add_worker()

    def send(self, batch: Batch) -> None:
        """A worker computes a batch: its threads take the images in order."""
        worker = self.workers[batch.worker_id]
        finished, busy_s = 0.0, 0.0
        for flight in batch.flights:
            content: Content = flight.payload
            start_s = max(self.now_s + CALL_S, heapq.heappop(worker.free_at))
            if content.number in worker.cache:
                worker.cache.move_to_end(content.number)
                self.hits += 1
                took_s = HIT_S
            else:
                took_s = flight.cost.work_px / worker.speed_px_per_s
                self.remember(worker, content.number, flight.cost.output_bytes)
            heapq.heappush(worker.free_at, start_s + took_s)
            finished = max(finished, start_s + took_s)
            busy_s += took_s
            self.waits_s.append(start_s - content.arrived_s)
        worker.busy_s += busy_s
        self.at(finished + CALL_S, "finish", (batch, busy_s))

    def remember(self, worker: Worker, number: int, size_bytes: int) -> None:
        """Puts a result into a worker's cache."""
        worker.cache[number] = size_bytes
        worker.cache_bytes += size_bytes
        while worker.cache_bytes > self.cache_bytes:
            worker.cache_bytes -= worker.cache.popitem(last=False)[1]

    # The router's side

    def timed(self, call: Any, *args: Any) -> Any:
        """Calls into the code under test and counts its processor time."""
        started = time.process_time()
        result = call(*args)
        self.router_s += time.process_time() - started
        return result

    def submit(self, request_id: int, first: int, count: int) -> None:
        """A request arrives; contents that are under way are joined."""
        flights = []
        for number in self.contents[first : first + count].tolist():
            if number in self.in_flight:
                self.joined += 1
                self.done += 1
                continue
            read_px, written_px, _ = PICTURES_PX[self.kind_of_rank[number]]
            cost = Cost(read_px // 8, written_px * BYTES_PER_RESULT_PX, float(read_px + written_px))
            key = route_key(number.to_bytes(8, "big"))
            flight = Flight(key, request_id, cost, Content(number, self.now_s))
            self.in_flight[number] = flight
            flights.append(flight)
        self.timed(self.submit_all, flights)

    def submit_all(self, flights: list[Flight]) -> None:
        """What a router does with the images of a request."""
        for flight in flights:
            self.scheduler.submit(flight)

    def pump(self) -> None:
        """Carries out what the scheduler wants sent."""
        for batch in self.timed(self.scheduler.next_batches):
            self.send(batch)

    def run(self) -> dict[str, Any]:
        """Runs to the end."""
        for request_id, (start_s, first, count) in enumerate(self.requests):
            self.at(start_s, "request", (request_id, first, count))
        steps = 0
        while self.events:
            self.now_s, _, kind, value = heapq.heappop(self.events)
            if kind == "request":
                self.submit(*value)
            elif kind == "change":
                self.change(value)
            else:
                batch, busy_s = value
                if batch.worker_id not in self.workers:
                    continue
                for flight in batch.flights:
                    del self.in_flight[flight.payload.number]
                self.done += len(batch.flights)
                self.timed(self.scheduler.finish, batch, busy_s)
            self.pump()
            steps += 1
            if steps % 20_000 == 0:
                print(f"\r{self.done:,} of {self.images:,} images", end="", file=sys.stderr)
        print("\r" + " " * 50 + "\r", end="", file=sys.stderr)
        return self.report()

    def report(self) -> dict[str, Any]:
        """The figures of the run."""
        if self.done != self.images or self.in_flight:
            raise AssertionError(f"{self.images - self.done} images were lost")
        waits_ms = np.array(self.waits_s) * 1e3
        veterans = [worker for worker in self.workers.values() if worker.since_s == 0.0]
        use = np.array([worker.busy_s / THREADS_PER_WORKER / self.now_s for worker in veterans])
        scheduled = self.images - self.joined
        return {
            "workers": len(self.workers),
            "images": self.images,
            "simulated_s": self.now_s,
            "joined_in_flight": self.joined,
            "worker_cache_hits": self.hits,
            "hit_rate": (self.hits + self.joined) / self.images,
            "hit_rate_possible": self.repeats / self.images,
            "mean_utilisation": float(use.mean()),
            "utilisation_max_over_mean": float(use.max() / use.mean()),
            "queue_ms": {str(q): float(np.percentile(waits_ms, q)) for q in (50, 90, 99, 99.9)},
            "batches_lost": self.lost_batches,
            "router_us_per_scheduled_image": self.router_s / scheduled * 1e6,
            "scheduled_images_per_s_one_router": scheduled / self.router_s,
        }


def moved_keys(workers: int, keys: int = 20_000) -> dict[str, float]:
    """Share of keys whose first choice changes when one worker in a hundred leaves, and when as many join."""
    placement = Placement(1.0)
    for number in range(workers):
        placement.join(f"worker-{number}", 1.0)
    all_keys = [route_key(number.to_bytes(8, "big")) for number in range(keys)]
    count = max(1, workers // 100)

    def first_choices() -> list[str]:
        return [next(placement.preference(key)) for key in all_keys]

    before = first_choices()
    for number in range(count):
        placement.leave(f"worker-{number}")
    after_leave = first_choices()
    for number in range(count):
        placement.join(f"new-{number}", 1.0)
    after_join = first_choices()

    def moved(old: list[str], new: list[str]) -> float:
        return sum(one != other for one, other in zip(old, new, strict=True)) / keys

    return {
        "leave": moved(before, after_leave),
        "join": moved(after_leave, after_join),
        "ideal": count / workers,
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--workers", type=int, default=1000)
    parser.add_argument("--images", type=int, default=1_000_000)
    parser.add_argument("--load", type=float, default=0.7, help="share of the workers' capacity without hits")
    parser.add_argument("--zipf", type=float, default=1.2, help="exponent of the repeats; 1 means none")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    simulation = Simulation(
        options.workers, options.images, load=options.load, zipf=options.zipf, seed=options.seed
    )
    report = simulation.run()
    report["moved_keys"] = moved_keys(options.workers)
    if options.json:
        print(json.dumps(report, indent=2))
        return 0
    for name, value in report.items():
        if isinstance(value, dict):
            value = ", ".join(f"{key}: {number:.4g}" for key, number in value.items())
        elif isinstance(value, float):
            value = f"{value:.4g}"
        print(f"{name:34} {value}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
