"""Requests through SGLang's Inkling processor in one run: its Python path, its Rust path, ours over a pool.

    pip install '.[sglang]' && python bench/bench_sglang.py [--images 1,8,64,512] [--repeats 3] [--json]

Each request holds distinct images that no cache has seen. Beside images/s stands the longest stall of the
event loop while the request was processed: for so long no other request was answered.
"""

from __future__ import annotations

import argparse
import asyncio
import io
import json
import statistics
import sys
import time
import warnings
from types import SimpleNamespace
from typing import Any

import numpy as np
from PIL import Image

_TICK_S = 0.001


def photos(count: int, side_px: int, rng: np.random.Generator) -> list[bytes]:
    """Distinct JPEG files of smooth noise, `side_px` square, quality 90."""
    files = []
    for _ in range(count):
        coarse = Image.fromarray(rng.integers(0, 256, (side_px // 16, side_px // 16, 3), np.uint8))
        buffer = io.BytesIO()
        coarse.resize((side_px, side_px), Image.Resampling.BICUBIC).save(buffer, "JPEG", quality=90)
        files.append(buffer.getvalue())
    return files


async def timed_request(processor: Any, files: list[bytes]) -> tuple[float, float]:
    """Seconds that a request took, and the longest stall of the loop meanwhile, in seconds."""
    longest_s = 0.0
    done = False

    async def watch() -> None:
        nonlocal longest_s
        last = time.perf_counter()
        while not done:
            await asyncio.sleep(_TICK_S)
            now = time.perf_counter()
            longest_s = max(longest_s, now - last - _TICK_S)
            last = now

    watcher = asyncio.create_task(watch())
    await asyncio.sleep(0)
    ids = [token for _ in files for token in (processor.IMAGE_TOKEN_ID, 1)]
    started = time.perf_counter()
    output = await processor.process_mm_data_async(
        image_data=list(files), input_text="", request_obj=SimpleNamespace(input_ids=ids)
    )
    took_s = time.perf_counter() - started
    # The stall that ends with the request is seen only at the watcher's next turn.
    await asyncio.sleep(2 * _TICK_S)
    done = True
    await watcher
    assert len(output.mm_items) == len(files)
    return took_s, longest_s


def build_processors(server_args: Any) -> dict[str, Any]:
    """The three processors by name; the pool must run already."""
    from sglang.srt.multimodal.inkling import InklingImageProcessor
    from sglang.srt.multimodal.inkling.image_processing_rust import InklingRustImageProcessor
    from sglang.srt.multimodal.processors.inkling import InklingMultimodalProcessor

    from sglang_mm_ray.sglang.inkling import InklingPoolProcessor

    config = SimpleNamespace(
        architectures=["InklingForConditionalGeneration"],
        vision_config=SimpleNamespace(decoder_dmodel=64, patch_size=40),
        audio_config=None,
        image_token_id=None,
    )

    def build(cls: Any) -> Any:
        return cls(config, server_args, None, "default", skip_mm_pool=True)

    python, rust = build(InklingMultimodalProcessor), build(InklingMultimodalProcessor)
    python.inkling_processor.image_processor = InklingImageProcessor(patch_size=40)
    rust.inkling_processor.image_processor = InklingRustImageProcessor(patch_size=40)
    return {"sglang python": python, "sglang rust": rust, "sglang-mm-ray": build(InklingPoolProcessor)}


def measure(processors: dict[str, Any], sizes: list[int], side_px: int, repeats: int) -> list[dict[str, Any]]:
    """One row for each processor and size: medians over the repeats, the processors taking turns."""
    rng = np.random.default_rng(time.time_ns())
    for processor in processors.values():
        asyncio.run(timed_request(processor, photos(2, side_px, rng)))
    rows = []
    for size in sizes:
        times: dict[str, list[tuple[float, float]]] = {name: [] for name in processors}
        for repeat in range(repeats):
            files = photos(size, side_px, rng)
            for name, processor in processors.items():
                times[name].append(asyncio.run(timed_request(processor, files)))
                print(f"\r{size} images, run {repeat + 1} of {repeats}: {name:16}", end="", file=sys.stderr)
        for name, pairs in times.items():
            took_s = [took for took, _ in pairs]
            rows.append(
                {
                    "images": size,
                    "processor": name,
                    "images_per_s": size / statistics.median(took_s),
                    "request_s": statistics.median(took_s),
                    "request_s_min_max": [min(took_s), max(took_s)],
                    "longest_stall_s": max(stall for _, stall in pairs),
                }
            )
    print(file=sys.stderr)
    return rows


def print_table(rows: list[dict[str, Any]]) -> None:
    """The rows with their ratios to SGLang's two paths."""
    print(f"{'images':>6}  {'processor':14} {'images/s':>9} {'request ms':>22} {'stall ms':>9}  ratio")
    by_key = {(row["images"], row["processor"]): row for row in rows}
    for row in rows:
        ratios = ""
        if row["processor"] == "sglang-mm-ray":
            python, rust = (
                row["images_per_s"] / by_key[row["images"], name]["images_per_s"]
                for name in ("sglang python", "sglang rust")
            )
            ratios = f"{python:.1f} x python, {rust:.1f} x rust"
        low, high = row["request_s_min_max"]
        span = f"{row['request_s'] * 1e3:.1f} ({low * 1e3:.1f}-{high * 1e3:.1f})"
        print(
            f"{row['images']:>6}  {row['processor']:14} {row['images_per_s']:>9.1f} {span:>22} "
            f"{row['longest_stall_s'] * 1e3:>9.1f}  {ratios}"
        )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--images", default="1,8,64,512", help="sizes of the requests")
    parser.add_argument("--side", type=int, default=512, help="side of the images, in pixels")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    import os

    import sglang.srt.runtime_context as runtime_context
    from sglang.srt.server_args import ServerArgs

    import sglang_mm_ray as smr

    server_args = ServerArgs(
        model_path="none",
        device="cpu",
        skip_tokenizer_init=True,
        mm_process_config={},
        mm_io_worker_num=4,
        mm_processor_worker_num=1,
    )
    runtime_context.get_context().set_server_args(server_args)
    pool = smr.PreprocessPool.start("bench-sglang", model="inkling")
    try:
        import ray

        os.environ["SGLANG_MM_RAY_POOL"] = "bench-sglang"
        os.environ["SGLANG_MM_RAY_ADDRESS"] = ray.get_runtime_context().gcs_address
        processors = build_processors(server_args)
        sizes = [int(size) for size in options.images.split(",")]
        rows = measure(processors, sizes, options.side, options.repeats)
        for processor in processors.values():
            processor.shutdown()
    finally:
        pool.stop()
    if options.json:
        print(json.dumps(rows, indent=2))
    else:
        print_table(rows)
    return 0


if __name__ == "__main__":
    sys.exit(main())
