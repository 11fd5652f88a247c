"""Decoding of each native format: `python bench/bench_decode.py [--json] [--peer FILE]`.

The core against Pillow, against libjpeg-turbo alone (`simplejpeg`, JPEG only, where installed) and, with
`--peer`, against the compiled extension that SGLang ships. One thread each; best of many repeats, taken in
turns, so that a busy machine slows all alike. A ratio is the other's time through the core's: above 1 the
core is faster. The exit code is 1 if any pixel of the core differs from Pillow's.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import io
import json
import os
import sys
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import PIL
import reference
from bench_parity import PHOTOS, SIZES, Row, Work, load_peer, measure, synthetic_photo
from numpy.typing import NDArray
from PIL import Image

ENCODINGS: dict[str, tuple[str, dict[str, Any]]] = {
    "JPEG q90": ("JPEG", {"quality": 90}),
    "JPEG q75 4:2:0": ("JPEG", {"quality": 75, "subsampling": "4:2:0"}),
    "JPEG q90 4:4:4": ("JPEG", {"quality": 90, "subsampling": "4:4:4"}),
    "JPEG progressive": ("JPEG", {"quality": 90, "progressive": True}),
    "JPEG grey": ("JPEG", {"quality": 90}),
    "JPEG CMYK": ("JPEG", {"quality": 90}),
    "PNG": ("PNG", {}),
    "PNG alpha": ("PNG", {}),
    "PNG palette": ("PNG", {}),
    "WebP lossy": ("WEBP", {"quality": 80, "method": 2}),
    "WebP lossless": ("WEBP", {"lossless": True, "method": 0}),
    "WebP alpha": ("WEBP", {"quality": 80, "method": 2}),
    "GIF": ("GIF", {}),
    "BMP": ("BMP", {}),
}


def picture(pixels: NDArray[np.uint8], label: str) -> Image.Image:
    """The pixels in the mode that the label asks for."""
    image = Image.fromarray(pixels)
    match label.split()[-1]:
        case "grey":
            return image.convert("L")
        case "CMYK":
            return image.convert("CMYK")
        case "palette" | "GIF":
            return image.quantize(256)
        case "alpha":
            image.putalpha(image.getchannel(1))
    return image


def cases(sizes: tuple[tuple[int, int], ...]) -> Iterator[tuple[str, bytes]]:
    """`(name, encoded image)`."""
    for path in sorted(PHOTOS.iterdir()):
        if path.suffix != ".md":
            yield path.name, path.read_bytes()
    for width, height in sizes:
        pixels = synthetic_photo(width, height)
        for label, (format_name, options) in ENCODINGS.items():
            buffer = io.BytesIO()
            picture(pixels, label).save(buffer, format_name, **options)
            yield f"{width}x{height} {label}", buffer.getvalue()


def contenders(core: Any, peer: Any, data: bytes) -> dict[str, Work]:
    """Who decodes `data`, and how; the reference first."""
    works: dict[str, Work] = {
        "pillow": lambda: reference.decode_rgb(data),
        "core": lambda: core.common.image_decode_rgb(data)[2],
    }
    if peer is not None:
        works["peer"] = lambda: peer.common.image_decode_rgb(data)[2]
    if data.startswith(b"\xff\xd8") and importlib.util.find_spec("simplejpeg"):
        simplejpeg = importlib.import_module("simplejpeg")
        # It has no conversion from CMYK to RGB.
        if simplejpeg.decode_jpeg_header(data)[2] != "CMYK":
            works["simplejpeg"] = lambda: simplejpeg.decode_jpeg(data, "RGB")
    return works


def show(rows: list[Row]) -> None:
    others = sorted({name for row in rows for name in row.ms} - {"core"})
    width = max(len(row.work) for row in rows)
    print(f"{'file':{width}}  {'core, ms':>9}" + "".join(f"  {f'{name} / core':>17}" for name in others))
    for row in rows:
        ratios = (f"{row.ms[name] / row.ms['core']:17.2f}" if name in row.ms else " " * 17 for name in others)
        wrong = row.differing_values["core"]
        print(
            f"{row.work:{width}}  {row.ms['core']:9.2f}  "
            + "  ".join(ratios)
            + (f"  {wrong:,} WRONG" if wrong else "")
        )


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object and no table")
    parser.add_argument("--quick", action="store_true", help="small images only")
    parser.add_argument("--seconds", type=float, default=1.0, help="time for each row")
    parser.add_argument("--only", default="", help="rows whose name contains this")
    parser.add_argument("--peer", type=Path, help="the extension of SGLang to compare with as well")
    options = parser.parse_args()
    os.environ["SGL_MM_RS_THREADS"] = "1"  # read when the core is first used
    from sglang_mm_ray import _core

    peer = load_peer(options.peer) if options.peer else None
    sizes = SIZES[:1] if options.quick else SIZES
    rows = [
        measure(name, contenders(_core, peer, data), options.seconds)
        for name, data in cases(sizes)
        if options.only in name
    ]
    exact = all(row.differing_values["core"] == 0 for row in rows)
    if options.json:
        about = {"pillow": PIL.__version__, "build": _core.build_info(), "exact": exact}
        print(json.dumps({**about, "rows": [asdict(row) for row in rows]}))
    else:
        show(rows)
        print(f"\nPillow {PIL.__version__}, core {_core.build_info()}")
        print("every pixel equals Pillow's" if exact else "the core DIFFERS from Pillow")
    return 0 if exact else 1


if __name__ == "__main__":
    sys.exit(main())
