"""A pool against the core in the process and against `ray.util.ActorPool`, in one run; locally or as a job.

    python bench/bench_cluster.py --mode published [--images 512] [--peer FILE] [--json] [--plot FILE]
    ray job submit --working-dir . -- python bench/bench_cluster.py --mode published

Modes: `published` (distinct images of 512x512, as in the workload of 16 requests of 512 images; `--images
8192` is the whole of it), `throughput` (1920x1080, bf16 and uint8), `mixed` (sizes and repeats by Zipf's
law), `one` (one request of 512), `latency` (a single image, alone and beside a request of 512), `repeats`
(a worker's cache against a `ray.put` of the same bytes). Contenders take turns, piece by piece, so that a
busy machine slows all of them alike; `over` compares turn by turn. `--peer FILE` adds the extension that
SGLang ships (`_multimodal.*.so`).
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import ray
from bench_parity import encode, synthetic_photo
from cluster_contenders import (
    Contender,
    actor_pool_contender,
    bare_call,
    core_contender,
    pool_contender,
    put_seconds,
)

import sglang_mm_ray as smr

PUBLISHED_S = 62.7
PUBLISHED_IMAGES = 8192
WARMING_IMAGES = 32


@dataclass(frozen=True, slots=True)
class Turn:
    """One contender's run over one piece of the work."""

    elapsed_s: float
    cpu_s: float
    size_bytes: int


def distinct_photos(count: int, width_px: int, height_px: int, seed: int) -> list[bytes]:
    """JPEG files, q90, no two alike: photographs in little, each with a corner of its own."""
    rng = np.random.default_rng(seed)
    base = synthetic_photo(width_px, height_px)
    files = []
    for number in range(count):
        pixels = base.copy() if number % 64 else np.roll(base, int(rng.integers(width_px)), axis=1)
        pixels[:8, :8] = rng.integers(0, 256, (8, 8, 3), np.uint8)
        files.append(encode(pixels, "JPEG", quality=90))
        if number % 100 == 99:
            print(f"\rmaking photos: {number + 1} of {count}", end="", file=sys.stderr)
    print("\r" + " " * 40 + "\r", end="", file=sys.stderr)
    return files


def cpu_seconds() -> float:
    """CPU time so far of this process and of the raylets and workers of its cluster on this machine."""
    sockets = [node["RayletSocketName"].encode() for node in ray.nodes() if node["Alive"]]
    raylets: set[int] = set()
    spent_s: dict[int, tuple[int, float]] = {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            command = (folder / "cmdline").read_bytes()
            # Fields 4, 14 and 15, counted after the name, which may hold spaces.
            fields = (folder / "stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue  # It ended meanwhile.
        parent, ticks = int(fields[1]), int(fields[11]) + int(fields[12])
        spent_s[int(folder.name)] = parent, ticks / os.sysconf("SC_CLK_TCK")
        if b"raylet\0" in command and any(socket in command for socket in sockets):
            raylets.add(int(folder.name))
    ours = (seconds for pid, (parent, seconds) in spent_s.items() if pid in raylets or parent in raylets)
    return time.process_time() + sum(ours)


def take_turns(contenders: dict[str, Contender], files: Sequence[bytes], pieces: int) -> list[dict[str, Any]]:
    """Runs every contender over all files, in `pieces` turns; the first contender is the one in question.

    A row each: images/s, milliseconds of CPU and megabytes moved for an image. `over` is the first one's
    speed in terms of this one's: the median of the ratios of the turns.
    """
    samples: dict[str, list[Turn]] = {name: [] for name in contenders}
    # Processes, threads and memory as they are in the midst of work, for every contender alike.
    for contender in contenders.values():
        for _ in contender(files[:WARMING_IMAGES]):
            pass
    for part in np.array_split(np.arange(len(files)), pieces):
        piece = [files[index] for index in part]
        for name, contender in contenders.items():
            print(f"\r{name}: image {part[0]} of {len(files)}    ", end="", file=sys.stderr)
            cpu_before, started = cpu_seconds(), time.perf_counter()
            size_bytes = sum(array.nbytes for array in contender(piece))
            elapsed_s = time.perf_counter() - started
            size_bytes += sum(map(len, piece))
            samples[name].append(Turn(elapsed_s, cpu_seconds() - cpu_before, size_bytes))
    print("\r" + " " * 50 + "\r", end="", file=sys.stderr)
    first = next(iter(samples.values()))
    rows = []
    for name, turns in samples.items():
        row = {
            "contender": name,
            "images": len(files),
            "images_per_s": len(files) / sum(turn.elapsed_s for turn in turns),
            "cpu_ms_per_image": 1e3 * sum(turn.cpu_s for turn in turns) / len(files),
            "mb_per_image": sum(turn.size_bytes for turn in turns) / 1e6 / len(files),
        }
        if turns is not first:
            row["over"] = float(
                np.median([b.elapsed_s / a.elapsed_s for a, b in zip(first, turns, strict=True)])
            )
        rows.append(row)
    return rows


class Bench:
    """The modes, on the cluster that is connected."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        self.cores = int(ray.cluster_resources().get("CPU", 1))

    def pool(self, transport: str = "bf16", **fields: Any) -> smr.PreprocessPool:
        """A pool over the whole cluster."""
        return smr.PreprocessPool(model="inkling", transport=transport, **fields)

    def published(self) -> list[dict[str, Any]]:
        """Distinct images of 512x512 against the core in the process and ActorPool, all in the same turns."""
        count = self.options.images or 640
        files = distinct_photos(count, 512, 512, seed=1)
        kinds = ["pillow", *(["peer"] if self.options.peer else [])]
        with self.pool(router_cache_bytes=0) as pool:
            contenders = {"pool": pool_contender(pool), "core": core_contender("bf16")}
            for kind in kinds:
                contenders[f"ActorPool {kind}"] = actor_pool_contender(kind, self.cores, self.options.peer)
            rows = take_turns(contenders, files, pieces=max(2, count // 128))
        for row in rows:
            row["s_for_8192"] = PUBLISHED_IMAGES / row["images_per_s"]
        return rows

    def throughput(self) -> list[dict[str, Any]]:
        """1920x1080 in both transports, pool over core."""
        files = distinct_photos(self.options.images or 192, 1920, 1080, seed=2)
        rows = []
        for transport in ("bf16", "uint8"):
            with self.pool(transport, router_cache_bytes=0, worker_cache_bytes=0) as pool:
                contenders = {
                    f"pool {transport}": pool_contender(pool),
                    f"core {transport}": core_contender(transport),
                }
                rows += take_turns(contenders, files, pieces=max(2, len(files) // 32))
        return rows

    def mixed(self) -> list[dict[str, Any]]:
        """Sizes and repeats by Zipf's law."""
        count = self.options.images or 400
        kinds = [(512, 512), (1280, 720), (1920, 1080), (640, 1600), (3840, 2160)]
        shares = np.array([8, 5, 4, 2, 1]) / 20
        rng = np.random.default_rng(3)
        catalogue: list[bytes] = []
        for (width_px, height_px), share in zip(kinds, shares, strict=True):
            catalogue += distinct_photos(max(2, int(share * count / 4)), width_px, height_px, seed=4)
        ranks = (rng.zipf(1.3, count) - 1) % len(catalogue)
        files = [catalogue[rank] for rank in rng.permutation(len(catalogue))[ranks]]
        with self.pool() as pool:
            rows = take_turns({"pool": pool_contender(pool), "core": core_contender("bf16")}, files, pieces=4)
            status = pool.status()
        distinct = len(set(files))
        rows[0]["repeats_share"] = 1 - distinct / count
        rows[0]["decoded_images"] = sum(worker["completed_images"] for worker in status["workers"])
        return rows

    def one(self) -> list[dict[str, Any]]:
        """One request of 512 images."""
        files = distinct_photos(self.options.images or 512, 512, 512, seed=5)
        with self.pool(router_cache_bytes=0) as pool:
            return take_turns({"one request": pool_contender(pool)}, files, pieces=1)

    def latency(self) -> list[dict[str, Any]]:
        """A single 1920x1080 image through the pool and in the process, and beside a request of 512.

        "Ray alone" is an actor call with the same bytes in and out that computes nothing.
        """
        repeats = self.options.images or 60
        files = distinct_photos(2 * repeats + 2, 1920, 1080, seed=6)
        load = distinct_photos(512, 512, 512, seed=7)
        core = core_contender("bf16")
        with self.pool(router_cache_bytes=0) as pool:
            (image,) = pool.preprocess(files[-1:])
            ray_alone = bare_call(image.nbytes)
            del image
            ray_alone(files[-1])

            async def alone() -> tuple[list[float], list[float], list[float]]:
                through, inside, bare = [], [], []
                for data in files[:repeats]:
                    started = time.perf_counter()
                    (image,) = await pool.preprocess_async([data])
                    image.array()
                    through.append(time.perf_counter() - started)
                    del image
                    started = time.perf_counter()
                    list(core([data]))
                    inside.append(time.perf_counter() - started)
                    started = time.perf_counter()
                    ray_alone(data)
                    bare.append(time.perf_counter() - started)
                return through, inside, bare

            async def beside() -> list[float]:
                async def consume() -> None:
                    while not done:
                        async for _, image in pool.stream(load):
                            del image
                            if done:
                                return

                done = False
                times = []
                busy = asyncio.create_task(consume())
                await asyncio.sleep(0.5)
                for data in files[repeats : 2 * repeats]:
                    started = time.perf_counter()
                    (image,) = await pool.preprocess_async([data])
                    times.append(time.perf_counter() - started)
                    del image
                done = True
                await busy
                return times

            through, inside, bare = asyncio.run(alone())
            under_load = asyncio.run(beside())

        def row(name: str, times: list[float]) -> dict[str, Any]:
            p50, p90, p99 = (float(np.percentile(times, q)) * 1e3 for q in (50, 90, 99))
            return {"contender": name, "images": len(times), "p50_ms": p50, "p90_ms": p90, "p99_ms": p99}

        rows = [row("core, idle", inside), row("pool, idle", through), row("pool, beside 512", under_load)]
        rows.append(row("Ray alone", bare))
        rows[1]["over_core_ms"] = float(np.median(np.subtract(through, inside))) * 1e3
        rows[2]["over_idle"] = rows[2]["p50_ms"] / rows[1]["p50_ms"]
        return rows

    def repeats(self) -> list[dict[str, Any]]:
        """What a worker's cache costs against a `ray.put` of the same bytes."""
        [data] = distinct_photos(1, 1920, 1080, seed=8)
        with self.pool(router_cache_bytes=0) as pool:
            (image,) = pool.preprocess([data])
            size_bytes = image.nbytes
            ray_alone = bare_call(size_bytes)
            ray_alone(data)
            times, bare, origins = [], [], set()
            for _ in range(self.options.images or 40):
                del image
                time.sleep(0.02)
                started = time.perf_counter()
                (image,) = pool.preprocess([data])
                times.append(time.perf_counter() - started)
                origins.add(image.origin)
                started = time.perf_counter()
                ray_alone(data)
                bare.append(time.perf_counter() - started)
            put_s = put_seconds(size_bytes)
        hit_s = float(np.median(times))
        return [
            {
                "contender": "worker cache hit",
                "images": len(times),
                "p50_ms": hit_s * 1e3,
                "put_ms": put_s * 1e3,
                "over_put": hit_s / put_s,
                "ray_alone_ms": float(np.median(bare)) * 1e3,
                "origins": ",".join(sorted(origins)),
            }
        ]


def print_table(rows: list[dict[str, Any]]) -> None:
    """The rows, each with the figures that it has; `over` is how many times as fast the first one is."""
    for row in rows:
        figures = [
            f"{name} {value:.2f}" if isinstance(value, float) else f"{name} {value}"
            for name, value in row.items()
            if name not in ("mode", "contender")
        ]
        print(f"{row['mode']:11}{row['contender']:18} " + ", ".join(figures))


def plot(rows: list[dict[str, Any]], path: Path) -> None:
    """A panel for each mode: images/s, or milliseconds, as bars."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    panels: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for row in rows:
        figure_name = "images_per_s" if "images_per_s" in row else "p50_ms"
        panels.setdefault((row["mode"], figure_name), []).append(row)
    figure, axes = pyplot.subplots(
        len(panels), figsize=(8, 0.5 * len(rows) + len(panels)), squeeze=False, layout="constrained"
    )
    for axis, ((mode, figure_name), entries) in zip(axes.flat, panels.items(), strict=True):
        axis.barh([row["contender"] for row in entries][::-1], [row[figure_name] for row in entries][::-1])
        axis.set_title(f"{mode}, {figure_name.replace('_per_', '/').replace('_', ' ')}", fontsize=9)
    figure.savefig(path, dpi=150)


def main() -> int:
    modes = ("published", "throughput", "mixed", "one", "latency", "repeats")
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--mode", choices=(*modes, "all"), default="published")
    parser.add_argument("--images", type=int, default=0, help="how many; each mode has its own default")
    parser.add_argument("--peer", type=Path, help="the extension of SGLang to compare with as well")
    parser.add_argument("--address", help="Ray cluster; by default the job's, else a local one")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--plot", type=Path, metavar="FILE")
    options = parser.parse_args()
    from sglang_mm_ray.cluster import start_ray

    start_ray(options.address)
    # Ray workers of a local run find the contenders' modules as this process does.
    bench = Bench(options)
    rows: list[dict[str, Any]] = []
    for mode in modes if options.mode == "all" else (options.mode,):
        run: Callable[[], list[dict[str, Any]]] = getattr(bench, mode)
        rows += [{"mode": mode, **row} for row in run()]
    if options.json:
        print(json.dumps(rows, indent=2))
    else:
        print_table(rows)
    if options.plot:
        plot(rows, options.plot)
    return 0


if __name__ == "__main__":
    sys.exit(main())
