"""`sglang-mm-ray bench`: what this machine does, in the core alone and through a pool."""

from __future__ import annotations

import argparse
import io
import json
import time
from pathlib import Path
from typing import Any

import numpy as np

from .. import _core
from ..errors import InvalidArgument, PreprocessError
from . import EXIT_OK
from .options import add_address, add_pool_options, address_or_local, pool_config, positive
from .table import bytes_text, render
from .walk import find_images


def add_parser(subparsers: Any) -> None:
    """Adds the subcommand."""
    parser: argparse.ArgumentParser = subparsers.add_parser(
        "bench",
        help="images per second of the core alone and of a pool, on this machine or a cluster",
        description="Measures the core in this process, then a pool over the same distinct images.",
    )
    parser.add_argument("paths", nargs="*", metavar="PATH", help="images (default: photo-like JPEG files)")
    parser.add_argument("--images", type=positive, default=256, help="images in all (default: %(default)s)")
    parser.add_argument(
        "--size", default="512x512", metavar="WxH", help="of made images (default: %(default)s)"
    )
    parser.add_argument("--no-pool", action="store_true", help="the core alone, without Ray")
    parser.add_argument("--json", action="store_true", help="one JSON object on stdout")
    add_pool_options(parser)
    add_address(parser, "this machine")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Runs the subcommand; returns the exit code."""
    config = pool_config(arguments)
    if arguments.paths:
        paths = find_images(arguments.paths).sources[: arguments.images]
        images = [Path(path).read_bytes() for path in paths]
    else:
        images = _make_images(arguments.images, *_size(arguments.size))
    if not images:
        raise InvalidArgument("there is no image to measure with")
    results = {
        "images": len(images),
        "encoded_bytes": sum(map(len, images)),
        "core": _core_alone(config, images),
    }
    if not arguments.no_pool:
        results["pool"] = _pool(config, address_or_local(arguments), images)
    if arguments.json:
        print(json.dumps(results, indent=1))
    else:
        _print(results)
    return EXIT_OK


def _size(text: str) -> tuple[int, int]:
    width, _, height = text.partition("x")
    if not (width.isdigit() and height.isdigit() and int(width) and int(height)):
        raise InvalidArgument(f"--size must look like 512x512, not {text!r}")
    return int(width), int(height)


def _make_images(count: int, width: int, height: int) -> list[bytes]:
    """Distinct JPEG files, smooth with some grain, so that they cost about what photos cost."""
    from PIL import Image

    random = np.random.default_rng(0)
    images = []
    for _ in range(count):
        coarse = random.integers(0, 256, (max(2, height // 32), max(2, width // 32), 3), np.uint8)
        smooth = Image.fromarray(coarse).resize((width, height), Image.Resampling.BICUBIC)
        grain = random.integers(-6, 7, (height, width, 1), np.int16)
        pixels = np.clip(np.asarray(smooth, np.int16) + grain, 0, 255).astype(np.uint8)
        buffer = io.BytesIO()
        Image.fromarray(pixels).save(buffer, "JPEG", quality=90)
        images.append(buffer.getvalue())
    return images


def _core_alone(config: Any, images: list[bytes]) -> dict[str, Any]:
    processor = config.processor()
    limits = config.policy.core_limits()

    def once() -> tuple[float, dict[str, float], int]:
        start = time.perf_counter()
        times: dict[str, float] = {}
        failed = 0
        for at in range(0, len(images), 16):
            for result in processor.preprocess_batch(images[at : at + 16], config.transport, limits):
                if isinstance(result, PreprocessError):
                    failed += 1
                    continue
                for stage, seconds in result.times.items():
                    times[stage] = times.get(stage, 0.0) + seconds
        return time.perf_counter() - start, times, failed

    once()
    seconds, times, failed = min((once() for _ in range(3)), key=lambda item: item[0])
    done = len(images) - failed
    return {
        "threads": _core.build_info()["threads"],
        "images_per_s": done / seconds,
        "failed": failed,
        "ms_per_image": {
            stage.removesuffix("_s"): 1e3 * value / max(1, done) for stage, value in times.items()
        },
    }


def _pool(config: Any, address: str | None, images: list[bytes]) -> dict[str, Any]:
    from ..pool.pool import PreprocessPool

    # Repeats would be answered from caches.
    with PreprocessPool(
        config=config.replace(router_cache_bytes=0, worker_cache_bytes=0), address=address
    ) as pool:
        pool.preprocess(images[:32], on_error="return")
        best, failed = float("inf"), 0
        for _ in range(3):
            start = time.perf_counter()
            outcomes = pool.preprocess(images, on_error="return")
            best = min(best, time.perf_counter() - start)
            failed = sum(isinstance(outcome, PreprocessError) for outcome in outcomes)
            result_bytes = sum(item.nbytes for item in outcomes if not isinstance(item, PreprocessError))
            del outcomes
        workers = len(pool.status()["workers"])
    return {
        "workers": workers,
        "images_per_s": (len(images) - failed) / best,
        "result_bytes_per_s": result_bytes / best,
        "failed": failed,
    }


def _print(results: dict[str, Any]) -> None:
    core = results["core"]
    stages = ", ".join(f"{stage} {value:.2f}" for stage, value in core["ms_per_image"].items())
    rows = [
        ["images", f"{results['images']}, {bytes_text(results['encoded_bytes'])} encoded"],
        [
            "core",
            f"{core['images_per_s']:.1f} images/s on {core['threads']} threads, {core['failed']} failed",
        ],
        ["of which, ms/image", stages],
    ]
    if "pool" in results:
        pool = results["pool"]
        rate = bytes_text(pool["result_bytes_per_s"])
        rows.append(
            [
                "pool",
                f"{pool['images_per_s']:.1f} images/s on {pool['workers']} workers, {rate}/s, "
                f"{pool['failed']} failed",
            ]
        )
    print(render(["", "result"], rows))
