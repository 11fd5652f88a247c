"""Speed of the core in one run: `python bench/bench_core.py [--json FILE] [--plot FILE]`.

One thread unless said. One-thread work is timed in seconds of the CPU, so that waiting for it on a busy
machine does not count; batches in seconds of the clock. The contenders of a piece of work take turns. Shown
are medians with the spread from the 10th to the 90th percentile. A ratio is the median of the ratios of the
rounds: the two calls of a round share the state of the machine, whose clock may change. Contenders: the
peer's core (SGLang's extension: `SGLANG_MULTIMODAL_SO`, else fetched by pip), Pillow, pillow-simd where it
installs (`PILLOW_SIMD_DIR`), and libjpeg-turbo alone through simplejpeg. What is not here is left out.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import random
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import PIL
from bench_parity import encode, synthetic_photo
from contenders import libjpeg_turbo, peer, pillow_simd_dir, pillow_simd_resize
from PIL import Image

from sglang_mm_ray import _core

Work = Callable[[], Any]
Samples = dict[str, list[float]]
Row = dict[str, Any]

SECONDS_A_ROW, FEWEST_ROUNDS, MOST_ROUNDS = 4.0, 9, 200
BICUBIC, LANCZOS = Image.Resampling.BICUBIC, Image.Resampling.LANCZOS
RESIZES = (
    ((1920, 1080), (2048, 1152), "pil_lanczos", LANCZOS),
    ((512, 512), (1024, 1024), "pil_lanczos", LANCZOS),
    ((1920, 1080), (960, 540), "pil_lanczos", LANCZOS),
    ((3840, 2160), (1288, 728), "pil_bicubic", BICUBIC),
)
# width, height, frac, cap; at least this many times the peer; at most this many times libjpeg-turbo alone.
IMAGES = (
    (512, 512, 2.0, 2048, 7.0, None),
    (1920, 1080, 2.0, 2048, 5.0, 1.5),
    (3840, 2160, None, None, 2.2, 1.2),
)


def take_turns(
    works: dict[str, Work | None],
    seconds: float = SECONDS_A_ROW,
    clock_s: Callable[[], float] = time.process_time,
    fewest_rounds: int = FEWEST_ROUNDS,
    untimed_s: float = 0.0,
    held: int = 1,
) -> Samples:
    """Seconds of a call of each contender, who take turns in an order that changes from round to round.

    So none always finds in the caches what the same other one left, which is nothing of a kernel's own data;
    untimed calls, one or as many as fit into `untimed_s`, bring that back, and the clock to what the kernel's
    instructions allow. A turn is `held` calls, whose results are let go together.
    """
    order = random.Random(0)
    present = {name: work for name, work in works.items() if work is not None}
    samples: Samples = {name: [] for name in present}
    for work in present.values():
        work()
    ends = time.perf_counter() + seconds
    for done in range(MOST_ROUNDS):
        if done >= fewest_rounds and time.perf_counter() > ends:
            break
        for name, work in order.sample(sorted(present.items()), len(present)):
            warm_at = time.perf_counter() + untimed_s
            while time.perf_counter() < warm_at:
                work()
            started_s = clock_s()
            results = [work() for _ in range(held)]
            results.clear()
            samples[name].append((clock_s() - started_s) / held)
    return samples


def row(work: str, samples: Samples, targets: dict[str, Any], apart: tuple[str, ...] = ()) -> Row:
    """`targets`: `"ours/peer": (limit, at_least)` compares two contenders, round by round.

    Those in `apart` took no turns with the others, so they are compared by medians.
    """
    found: dict[str, Any] = {}
    for name, seconds in samples.items():
        if seconds:
            tenths = statistics.quantiles(seconds, n=10) if len(seconds) > 1 else [seconds[0]] * 9
            found[name] = {
                "median_ms": statistics.median(seconds) * 1e3,
                "p10_ms": tenths[0] * 1e3,
                "p90_ms": tenths[-1] * 1e3,
                "best_ms": min(seconds) * 1e3,
                "rounds": len(seconds),
            }
    checks = []
    for pair, (limit, at_least) in targets.items():
        top, bottom = pair.split("/")
        if top in found and bottom in found:
            if {top, bottom} & {*apart}:
                ratio = found[top]["median_ms"] / found[bottom]["median_ms"]
            else:
                rounds = zip(samples[top], samples[bottom], strict=True)
                ratio = statistics.median(over / under for over, under in rounds)
            best = found[top]["best_ms"] / found[bottom]["best_ms"]
            met = ratio >= limit if at_least else ratio <= limit
            checks.append(
                {"pair": pair, "ratio": ratio, "best": best, "limit": limit, "at_least": at_least, "met": met}
            )
    return {"work": work, "contenders": found, "targets": checks}


def image_rows(rival: Any) -> list[Row]:
    rows = []
    for width, height, frac, cap, against_peer, against_decode in IMAGES:
        data = encode(synthetic_photo(width, height), "JPEG", quality=90)
        works: dict[str, Work | None] = {
            "ours": lambda d=data, f=frac, c=cap: _core.inkling.preprocess_images([d], 40, f, c),
            "peer": rival and (lambda d=data, f=frac, c=cap: rival.inkling.preprocess_images([d], 40, f, c)),
            "libjpeg-turbo": libjpeg_turbo(data),
        }
        targets = {"peer/ours": (against_peer, True)}
        if against_decode:
            targets["ours/libjpeg-turbo"] = (against_decode, False)
        name = f"preprocess_images {width}x{height}" + (f", frac {frac:g}, cap {cap}" if frac else "")
        rows.append(row(name, take_turns(works), targets))
    return rows


def at_level(level: str, work: Work) -> Work:
    def run() -> None:
        _core.set_simd_level(level)
        work()

    return run


def resize_rows(rival: Any) -> list[Row]:
    rows, simd_dir = [], pillow_simd_dir()
    levels = _core.build_info()["simd_available"]
    for source, out, name, resample in RESIZES:
        noise = np.random.default_rng(7).integers(0, 256, (source[1], source[0], 3), dtype=np.uint8)
        image = Image.fromarray(noise)
        ours = lambda a=noise, o=out, n=name: _core.common.resize_rgb(a, *o, n)  # noqa: E731
        works: dict[str, Work | None] = {
            f"ours {level}": at_level(level, ours) for level in levels if level != "scalar"
        }
        works["peer"] = rival and (lambda a=noise, o=out, n=name: rival.common.resize_rgb(a, *o, n))
        works["Pillow"] = lambda i=image, o=out, r=resample: i.resize(o, r)
        # A kernel alone is measured as pillow-simd is in its own process: by calls that follow each other.
        samples = take_turns(works, SECONDS_A_ROW * 1.5, untimed_s=0.03)
        if simd_dir:
            samples["pillow-simd"] = pillow_simd_resize(simd_dir, source, out, int(resample), 40)
        targets: dict[str, Any] = {}
        for level, limit in (("avx2", 11.0), ("avx512", 20.0)):
            targets[f"Pillow/ours {level}"] = (limit, True)
            targets[f"pillow-simd/ours {level}"] = (1.0, True)
        sizes = f"{source[0]}x{source[1]} -> {out[0]}x{out[1]}"
        work = f"resize {sizes} {name.removeprefix('pil_')}"
        rows.append(row(work, samples, targets, apart=("pillow-simd",)))
    _core.set_simd_level(None)
    return rows


def patchify_rows(rival: Any) -> list[Row]:
    width, height = 2048, 1152
    pixels = synthetic_photo(width, height)
    processor = _core.processor("inkling")
    rows = []
    for transport in ("bf16", "float32"):
        [(dtype, shape)] = processor.finished(width, height, transport).values()
        out = np.ones(int(np.prod(shape)) * (2 if dtype == "bfloat16" else 4), np.uint8)
        other = np.ones_like(out)
        works: dict[str, Work | None] = {
            "ours": lambda t=transport, o=out: processor.finish(pixels, t, o),
            "ours scalar": at_level("scalar", lambda t=transport, o=out: processor.finish(pixels, t, o)),
            "copy of the output": lambda o=out, c=other: np.copyto(c, o),
        }
        works["ours"] = at_level(_core.build_info()["simd_detected"], works["ours"] or (lambda: None))
        if transport == "bf16" and rival:
            works["peer"] = lambda: rival.inkling.patchify_rgb(pixels, 40)
        rows.append(
            row(f"patchify {width}x{height} to {transport}", take_turns(works), {"peer/ours": (4.0, True)})
        )
    _core.set_simd_level(None)
    return rows


def decode_rows(rival: Any) -> list[Row]:
    rows = []
    for format_name, options in (("JPEG", {"quality": 90}), ("PNG", {})):
        for width, height in ((512, 512), (1920, 1080), (3840, 2160)):
            data = encode(synthetic_photo(width, height), format_name, **options)
            works: dict[str, Work | None] = {
                "ours": lambda d=data: _core.common.image_decode_rgb(d),
                "peer": rival and (lambda d=data: rival.common.image_decode_rgb(d)),
                "Pillow": lambda d=data: np.asarray(Image.open(__import__("io").BytesIO(d)).convert("RGB")),
            }
            if format_name == "JPEG":
                works["libjpeg-turbo"] = libjpeg_turbo(data)
            rows.append(row(f"decode {format_name} {width}x{height}", take_turns(works, 2.0), {}))
    return rows


def mixed_batch() -> list[bytes]:
    """64 JPEGs from 0.05 to 8 megapixels, as a request mixes them."""
    sizes = [
        (320, 160),
        (512, 512),
        (800, 600),
        (1024, 768),
        (640, 1136),
        (1920, 1080),
        (1500, 1000),
        (3840, 2160),
    ]
    kinds = [encode(synthetic_photo(*size), "JPEG", quality=90) for size in sizes]
    return [kinds[at % 7] if at % 32 else kinds[7] for at in range(64)]


def batch_samples() -> Samples:
    """Of as many threads as this process has: the batch, and writing alone as much as its results are."""
    datas, processor = mixed_batch(), _core.processor("inkling")
    threads = _core.build_info()["threads"]
    results = processor.preprocess_batch(datas)
    result_bytes = sum(value.nbytes for image in results for value in image.tensors.values())
    del results
    parts = [np.empty(result_bytes // threads, np.uint8) for _ in range(threads)]
    with ThreadPoolExecutor(threads) as writers:
        return take_turns(
            {
                "batch of 64": lambda: processor.preprocess_batch(datas),
                "writing its results": lambda: list(writers.map(lambda part: part.fill(1), parts)),
            },
            10.0,
            time.perf_counter,
        )


def bandwidth_limit(one: Samples, two: Samples) -> float:
    """How many times as fast two threads can be: the work halves, its writing takes what it takes alone."""
    alone = {n: statistics.median(x["writing its results"]) for n, x in ((1, one), (2, two))}
    whole_s = statistics.median(one["batch of 64"])
    return whole_s / ((whole_s - alone[1]) / 2 + alone[2])


def memory_rows() -> list[dict[str, Any]]:
    """Peak of memory over the process before the first image, and page faults once warm."""
    rows = []
    for width, height in ((1920, 1080), (4000, 3000)):
        # The image is made by a process of its own, whose peak is not this one's.
        command = [sys.executable, __file__, "--encode", str(width), str(height)]
        data = subprocess.run(command, capture_output=True, check=True).stdout
        for frac in (None, 2.0):
            # The mark of the most memory, set back to what is resident before the first image.
            code = (
                "import sys, json, re, resource; from sglang_mm_ray import _core;"
                "d = sys.stdin.buffer.read();"
                "tiny = _core.inkling.patchify_rgb(__import__('numpy').zeros((4, 4, 3), 'u1'), 40);"
                "open('/proc/self/clear_refs', 'w').write('5');"
                "status = lambda: open('/proc/self/status').read();"
                "peak = lambda: int(re.search(r'VmHWM:\\s+(\\d+)', status())[1]); base = peak();"
                "faults = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_minflt;"
                f"run = lambda: _core.inkling.preprocess_images([d], 40, {frac}, {frac and 2048})[0];"
                "h, w = run()[:2]; most = peak(); run(); run(); before = faults(); run();"
                "print(json.dumps([h, w, (most - base) * 1024, faults() - before]))"
            )
            done = subprocess.run([sys.executable, "-c", code], input=data, capture_output=True, check=True)
            out_h, out_w, peak, faults = json.loads(done.stdout)
            largest = max(width * height, out_h * out_w) / 1e6
            rows.append(
                {
                    "work": f"{width}x{height} -> {out_w}x{out_h}",
                    "peak_bytes": peak,
                    "peak_bytes_per_megapixel": peak / largest,
                    "page_faults_when_warm": faults,
                }
            )
    return rows


def child(part: str, threads: int) -> Any:
    """A part of the run in a process with a fixed number of threads."""
    variables = {**os.environ, "SGL_MM_RS_THREADS": str(threads)}
    done = subprocess.run(
        [sys.executable, __file__, "--part", part], stdout=subprocess.PIPE, env=variables, check=True
    )
    return json.loads(done.stdout)


PARTS: dict[str, Callable[[], Any]] = {
    "images": lambda: image_rows(peer()),
    "resize": lambda: resize_rows(peer()),
    "patchify": lambda: patchify_rows(peer()),
    "decode": lambda: decode_rows(peer()),
    "batch": batch_samples,
    "memory": memory_rows,
}


def cpu_name() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    return next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), "unknown")


def measure(parts: list[str]) -> dict[str, Any]:
    result: dict[str, Any] = {
        "machine": {"cpu": cpu_name(), "cores": os.cpu_count(), "load": os.getloadavg()[0]},
        "build": _core.build_info(),
        "pillow": PIL.__version__,
        "rows": [],
    }
    for part in parts:
        if part == "batch":
            one, two = child(part, 1), child(part, 2)
            samples = {
                f"{name}, {n} thread{'s' * (n > 1)}": s
                for n, x in ((1, one), (2, two))
                for name, s in x.items()
            }
            limit = round(min(1.9, bandwidth_limit(one, two)), 2)
            targets = {"batch of 64, 1 thread/batch of 64, 2 threads": (limit, True)}
            result["rows"].append(row("batch of 64 mixed sizes", samples, targets, apart=tuple(samples)))
        elif part == "memory":
            result["memory"] = child(part, 1)
        else:
            result["rows"].extend(child(part, 1))
    return result


def show(result: dict[str, Any]) -> None:
    machine, build = result["machine"], result["build"]
    print(
        f"{machine['cpu']}, {machine['cores']} cores, load {machine['load']:.1f}; simd {build['simd']}, "
        f"JPEG SIMD {'yes' if build['jpeg_simd'] else 'NO'}, Pillow {result['pillow']}\n"
    )
    for entry in result["rows"]:
        print(entry["work"])
        for name, times in entry["contenders"].items():
            spread = f"{times['p10_ms']:.3f} to {times['p90_ms']:.3f}, best {times['best_ms']:.3f}"
            print(f"    {name:28} {times['median_ms']:9.3f} ms  ({spread}, {times['rounds']} x)")
        for check in entry["targets"]:
            relation = "at least" if check["at_least"] else "at most"
            verdict = "met" if check["met"] else "MISSED"
            ratio = f"{check['ratio']:.2f} (best {check['best']:.2f})"
            print(f"    {check['pair']}: {ratio}, {relation} {check['limit']:g}: {verdict}")
    for entry in result.get("memory", []):
        peak = f"{entry['peak_bytes_per_megapixel'] / 1e6:.1f} MB a megapixel"
        print(f"memory {entry['work']}: {peak}, {entry['page_faults_when_warm']} page faults when warm")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument(
        "--json", metavar="FILE", help="write everything measured to FILE (- for the terminal)"
    )
    parser.add_argument("--plot", metavar="FILE", help="draw the medians to FILE (needs matplotlib)")
    parser.add_argument("--only", nargs="+", choices=PARTS, default=list(PARTS), help="only these parts")
    parser.add_argument("--part", choices=PARTS, help=argparse.SUPPRESS)
    parser.add_argument("--encode", nargs=2, type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.encode:
        sys.stdout.buffer.write(encode(synthetic_photo(*options.encode), "JPEG", quality=90))
        return
    if options.part:
        print(json.dumps(PARTS[options.part]()))
        return
    result = measure(options.only)
    if options.json == "-":
        print(json.dumps(result, indent=1))
    else:
        show(result)
        if options.json:
            Path(options.json).write_text(json.dumps(result, indent=1) + "\n")
    if options.plot:
        from plot import draw

        draw(result, Path(options.plot))


if __name__ == "__main__":
    main()
