"""Parity and speed of the core against Pillow and numpy, in one run: `python bench/bench_parity.py [--json]`.

Parity counts values that differ and the largest difference; the exit code is 1 if any differs. Speed is the
best of many short repeats, taken in turns, so that a busy machine slows all columns alike. `--peer FILE` adds
a column for the compiled extension that SGLang ships (`_multimodal.*.so`); its parity does not count.
"""

from __future__ import annotations

import argparse
import importlib.util
import io
import json
import os
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import PIL
import reference
from numpy.typing import NDArray
from PIL import Image

PHOTOS = Path(__file__).resolve().parents[1] / "tests/data/photos"
SIZES = ((512, 512), (1920, 1080), (3840, 2160))
RESIZES = (((1920, 1080), (2048, 1152)), ((1920, 1080), (960, 540)), ((512, 512), (1024, 1024)))

Work = Callable[[], NDArray[Any]]


@dataclass
class Row:
    """One piece of work: best time of each contender in milliseconds, and how the results compare."""

    work: str
    ms: dict[str, float] = field(default_factory=dict)
    differing_values: dict[str, int] = field(default_factory=dict)
    largest_difference: dict[str, float] = field(default_factory=dict)


def synthetic_photo(width: int, height: int) -> NDArray[np.uint8]:
    """`[h, w, 3]`: smooth light, edges and sensor noise; compresses about as a photograph does."""
    y, x = np.mgrid[0:height, 0:width].astype(np.float32)
    random = np.random.default_rng(7)
    planes = [
        128 + 90 * np.sin(x / (37 + 20 * c)) * np.cos(y / (53 - 9 * c)) + 25 * ((x // 64 + y // 48) % 2)
        for c in range(3)
    ]
    noisy = np.stack(planes, -1) + random.normal(0, 4, (height, width, 3)).astype(np.float32)
    return np.clip(noisy, 0, 255).astype(np.uint8)


def encode(pixels: NDArray[np.uint8], format_name: str, **options: Any) -> bytes:
    buffer = io.BytesIO()
    Image.fromarray(pixels).save(buffer, format=format_name, **options)
    return buffer.getvalue()


def load_peer(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location("_multimodal", path)
    if spec is None or spec.loader is None:
        raise SystemExit(f"{path} is no extension module")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def bits_f32(bits: NDArray[np.uint16]) -> NDArray[np.float32]:
    return (bits.astype(np.uint32) << 16).view(np.float32)


def core_works(
    core: Any, data: bytes, rgb: NDArray[np.uint8], size: tuple[int, int] | None
) -> dict[str, Work]:
    """The published functions; ours and the peer's have the same names and results."""
    works: dict[str, Work] = {
        "decode": lambda: core.common.image_decode_rgb(data)[2],
        "inkling": lambda: core.inkling.preprocess_images([data], 40, 2.0, 2048)[0][2],
    }
    if size is not None:
        works["resize"] = lambda: core.common.resize_rgb(rgb, *size)
    return works


def reference_works(data: bytes, rgb: NDArray[np.uint8], size: tuple[int, int] | None) -> dict[str, Work]:
    works: dict[str, Work] = {
        "decode": lambda: reference.decode_rgb(data),
        "inkling": lambda: reference.inkling(data)[2],
    }
    if size is not None:
        works["resize"] = lambda: reference.pil_resize(rgb, *size)
    return works


def measure(work: str, contenders: dict[str, Work], seconds: float) -> Row:
    """Runs all contenders in turns; the reference is the first of them."""
    row = Row(work)
    results = {name: np.asarray(run()).ravel() for name, run in contenders.items()}
    expected = results["pillow"]
    as_number = bits_f32 if expected.dtype == np.uint16 else lambda values: values.astype(np.float32)
    for name, found in results.items():
        if name == "pillow":
            continue
        if found.size != expected.size:
            row.differing_values[name], row.largest_difference[name] = expected.size, float("inf")
            continue
        row.differing_values[name] = int(np.count_nonzero(found != expected))
        distance = np.abs(as_number(found) - as_number(expected))
        row.largest_difference[name] = float(distance.max()) if found.size else 0.0
    del results
    deadline_s = time.perf_counter() + seconds
    best = dict.fromkeys(contenders, float("inf"))
    repeats = 0
    while repeats < 1 or time.perf_counter() < deadline_s:
        for name, run in contenders.items():
            started_s = time.perf_counter()
            run()
            best[name] = min(best[name], time.perf_counter() - started_s)
        repeats += 1
    row.ms = {name: value * 1e3 for name, value in best.items()}
    return row


def cases(quick: bool) -> list[tuple[str, list[str], bytes, tuple[int, int] | None]]:
    """`(name, kinds of work, encoded image, size to resize to)`."""
    found: list[tuple[str, list[str], bytes, tuple[int, int] | None]] = []
    for path in sorted(PHOTOS.iterdir()):
        if path.suffix != ".md":
            found.append((path.name, ["decode", "inkling"], path.read_bytes(), None))
    sizes = SIZES[:1] if quick else SIZES
    for width, height in sizes:
        pixels = synthetic_photo(width, height)
        for label, data in (
            ("JPEG q90", encode(pixels, "JPEG", quality=90)),
            ("PNG", encode(pixels, "PNG")),
        ):
            kinds = ["decode", "inkling"] if label != "PNG" else ["decode"]
            found.append((f"{width}x{height} {label}", kinds, data, None))
    for (in_w, in_h), size in RESIZES[-1:] if quick else RESIZES:
        data = encode(synthetic_photo(in_w, in_h), "PNG", compress_level=1)
        found.append((f"{in_w}x{in_h} to {size[0]}x{size[1]} Lanczos", ["resize"], data, size))
    return found


def show(rows: list[Row]) -> None:
    names = [name for name in rows[0].ms if name != "pillow"]
    width = max(len(row.work) for row in rows)
    head = f"{'work':{width}}  {'Pillow+numpy':>12}"
    print(
        head + "".join(f"  {name + ', ms':>10} {'faster':>7}  {'values that differ':>22}" for name in names)
    )
    for row in rows:
        line = f"{row.work:{width}}  {row.ms['pillow']:9.2f} ms"
        for name in names:
            wrong, largest = row.differing_values[name], row.largest_difference[name]
            parity = "none" if wrong == 0 else f"{wrong:,} (up to {largest:.3g})"
            line += f"  {row.ms[name]:10.2f} {row.ms['pillow'] / row.ms[name]:6.1f}x  {parity:>22}"
        print(line)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object and no table")
    parser.add_argument("--quick", action="store_true", help="small images only")
    parser.add_argument("--seconds", type=float, default=0.6, help="time for each row")
    parser.add_argument("--threads", type=int, default=1, help="threads of the core (Pillow has one)")
    parser.add_argument("--peer", type=Path, help="the extension of SGLang to compare with as well")
    options = parser.parse_args()
    # Read when the core starts its threads, so before it is imported.
    os.environ["SGL_MM_RS_THREADS"] = str(options.threads)
    # The package, not only its core: importing it picks the installed Pillow's pass order.
    import sglang_mm_ray
    from sglang_mm_ray import _core

    peer = load_peer(options.peer) if options.peer else None
    rows = []
    for name, kinds, data, size in cases(options.quick):
        rgb = reference.decode_rgb(data)
        works = {"pillow": reference_works(data, rgb, size), "core": core_works(_core, data, rgb, size)}
        if peer is not None:
            works["peer"] = core_works(peer, data, rgb, size)
        for kind in kinds:
            contenders = {contender: made[kind] for contender, made in works.items()}
            rows.append(measure(f"{kind} {name}", contenders, options.seconds))
    exact = all(row.differing_values["core"] == 0 for row in rows)
    about = {
        "pillow": PIL.__version__,
        "numpy": np.__version__,
        "package": getattr(sglang_mm_ray, "__version__", _core.__version__),
        "build": _core.build_info(),
        "exact": exact,
    }
    if options.json:
        print(json.dumps({**about, "rows": [asdict(row) for row in rows]}))
    else:
        show(rows)
        print(f"\nPillow {PIL.__version__}, numpy {np.__version__}, core {_core.build_info()}")
        print("every value equals Pillow's and numpy's" if exact else "the core DIFFERS from the reference")
    return 0 if exact else 1


if __name__ == "__main__":
    sys.exit(main())
