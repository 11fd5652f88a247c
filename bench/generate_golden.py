"""Writes the golden values that the core is held to: `python bench/generate_golden.py [--check]`.

They come from Pillow and numpy (`reference.py`), never from the core, which this script does not import.
Whole arrays are stored for small images and crops of the shipped photographs; whole photographs are pinned by
SHA-256 besides. `--check` compares the stored values with what the installed Pillow gives now.
"""

from __future__ import annotations

import argparse
import hashlib
import io
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import PIL
import reference
from numpy.typing import NDArray
from PIL import Image

BENCH = Path(__file__).resolve().parent
GOLDEN = BENCH / "golden"
PHOTOS = BENCH.parent / "tests/data/photos"

Arrays = dict[str, NDArray[Any]]

# Crop of each photograph: left, top, width, height in pixels; odd on purpose.
CROPS = {
    "astronaut.jpg": (170, 60, 97, 61),
    "raccoon.jpg": (520, 250, 61, 97),
    "cat.png": (40, 60, 83, 55),
}
TALL_CROP = ("raccoon_tall.jpg", (70, 40, 29, 137))
# Output sizes `(width, height)`: grow, shrink, one pass only, one pixel, and far out of proportion.
RESIZES = [(143, 92), (41, 27), (97, 33), (30, 61), (1, 1), (7, 120), (120, 7)]
TALL_RESIZES = [(23, 41), (29, 40), (11, 130), (60, 60)]
INKLING_CASES: list[tuple[int, float | None, int | None]] = [
    (40, 2.0, 2048),
    (40, None, None),
    (14, 1.5, 100),
    (16, 0.5, None),
    (1, 0.25, None),
]
DIMS_CASES: list[tuple[int, int, float | None, int | None]] = [
    (w, h, frac, cap)
    for w, h in [
        (0, 0),
        (0, 5),
        (1, 1),
        (3, 1),
        (1, 1000),
        (512, 512),
        (1920, 1080),
        (1365, 2048),
        (4000, 17),
    ]
    for frac, cap in [
        (None, None),
        (None, 10),
        (2.0, 2048),
        (2.0, None),
        (1.0, None),
        (0.5, None),
        (1.3, 700),
    ]
]


def crop(name: str, box: tuple[int, int, int, int]) -> NDArray[np.uint8]:
    left, top, width, height = box
    pixels = reference.decode_rgb((PHOTOS / name).read_bytes())
    return np.ascontiguousarray(pixels[top : top + height, left : left + width])


def encoded(rgb: NDArray[np.uint8]) -> dict[str, bytes]:
    """A crop in each web format; the files themselves are stored too, as encoders may change."""
    image = Image.fromarray(rgb)
    rgba = image.copy()
    rgba.putalpha(image.convert("L"))
    palette = image.quantize(64, dither=Image.Dither.NONE)
    kinds: dict[str, tuple[Image.Image, str, dict[str, Any]]] = {
        "jpeg_420": (image, "JPEG", {"quality": 85, "subsampling": "4:2:0"}),
        "jpeg_422": (image, "JPEG", {"quality": 70, "subsampling": "4:2:2"}),
        "jpeg_444": (image, "JPEG", {"quality": 95, "subsampling": "4:4:4"}),
        "jpeg_progressive": (image, "JPEG", {"quality": 80, "progressive": True}),
        "jpeg_grey": (image.convert("L"), "JPEG", {"quality": 80}),
        "jpeg_cmyk": (image.convert("CMYK"), "JPEG", {"quality": 90}),
        "png_rgb": (image, "PNG", {}),
        "png_rgba": (rgba, "PNG", {}),
        "png_palette": (palette, "PNG", {}),
        "png_grey_alpha": (rgba.convert("LA"), "PNG", {}),
        "webp_lossy": (image, "WEBP", {"quality": 80}),
        "webp_lossless": (rgba, "WEBP", {"lossless": True, "exact": True}),
        "gif": (palette, "GIF", {}),
        "bmp": (image, "BMP", {}),
    }
    files = {}
    for kind, (picture, format_name, options) in kinds.items():
        buffer = io.BytesIO()
        picture.save(buffer, format=format_name, **options)
        files[kind] = buffer.getvalue()
    return files


def decode_arrays(files: dict[str, bytes]) -> Arrays:
    """`<kind>.file` (the bytes) and `<kind>.rgb` (what Pillow decodes)."""
    arrays: Arrays = {}
    for kind, data in files.items():
        arrays[f"{kind}.file"] = np.frombuffer(data, np.uint8)
        arrays[f"{kind}.rgb"] = reference.decode_rgb(data)
    return arrays


def resize_arrays() -> Arrays:
    """`source.<name>` and `<name>.<filter>.<w>x<h>.<order>`, the latter also checked against Pillow."""
    installed = reference.pillow_is_vertical_first()
    arrays: Arrays = {}
    sources = {"astronaut": (crop("astronaut.jpg", CROPS["astronaut.jpg"]), RESIZES)}
    sources["raccoon_tall"] = (crop(*TALL_CROP), TALL_RESIZES)
    for name, (source, sizes) in sources.items():
        arrays[f"source.{name}"] = source
        for resample in reference.FILTERS:
            for width, height in sizes:
                both = {
                    vertical: reference.formula_resize(
                        source, width, height, resample, vertical_first_when_tall=vertical
                    )
                    for vertical in (False, True)
                }
                found = reference.pil_resize(source, width, height, resample)
                if not np.array_equal(found, both[installed]):
                    sys.exit(
                        f"Pillow {PIL.__version__} and the formula differ: {name} {resample} {width}x{height}"
                    )
                key = f"{name}.{resample}.{width}x{height}"
                arrays[f"{key}.horizontal_first"] = both[False]
                if not np.array_equal(both[False], both[True]):
                    arrays[f"{key}.vertical_first"] = both[True]
    return arrays


def inkling_arrays() -> Arrays:
    """`<name>.file`, and `<name>.<ps>.<frac>.<cap>`: the bfloat16 bits, `[n, ps, ps, 3]`."""
    arrays: Arrays = {}
    for name, box in CROPS.items():
        stem = name.split(".")[0]
        data = encoded(crop(name, box))["jpeg_420" if name.endswith("jpg") else "png_rgba"]
        arrays[f"{stem}.file"] = np.frombuffer(data, np.uint8)
        for patch_size, frac, cap in INKLING_CASES:
            bits = reference.inkling(data, patch_size, frac, cap)[2]
            arrays[f"{stem}.{patch_size}.{frac}.{cap}"] = bits
    return arrays


def facts(files: dict[str, bytes]) -> dict[str, Any]:
    """Small values as JSON: sizes, hashes, and the digests of whole photographs."""
    photos = {}
    for path in sorted(PHOTOS.iterdir()):
        if path.suffix == ".md":
            continue
        data = path.read_bytes()
        pixels = reference.decode_rgb(data)
        height, width, bits, content_hash = reference.inkling(data)
        photos[path.name] = {
            "decoded_hw": list(pixels.shape[:2]),
            "decoded_sha256": hashlib.sha256(pixels.tobytes()).hexdigest(),
            "inkling_hw": [height, width],
            "inkling_bits_sha256": hashlib.sha256(bits.astype("<u2").tobytes()).hexdigest(),
            "content_hash": content_hash,
        }
    return {
        "scaled_dims": [[*case, *reference.scaled_dims(*case)] for case in DIMS_CASES],
        "data_hash": {kind: reference.data_hash(data) for kind, data in sorted(files.items())},
        "photos": photos,
    }


def build(files: dict[str, bytes]) -> tuple[dict[str, Arrays], dict[str, Any]]:
    arrays = {"decode": decode_arrays(files), "resize": resize_arrays(), "inkling": inkling_arrays()}
    return arrays, facts(files)


def stored(folder: Path) -> tuple[dict[str, Arrays], dict[str, Any]]:
    """What is on disk. Raises FileNotFoundError if a part is missing."""
    arrays: dict[str, Arrays] = {}
    for part in ("decode", "resize", "inkling"):
        with np.load(folder / f"{part}.npz") as archive:
            arrays[part] = {name: archive[name] for name in archive.files}
    return arrays, json.loads((folder / "facts.json").read_text(encoding="utf-8"))


def differences(folder: Path) -> list[str]:
    """Names of stored values that the installed Pillow and numpy no longer give, from the stored files."""
    old_arrays, old_facts = stored(folder)
    suffix = ".file"
    files = {
        name.removesuffix(suffix): array.tobytes()
        for name, array in old_arrays["decode"].items()
        if name.endswith(suffix)
    }
    new: dict[str, Arrays] = {"decode": decode_arrays(files), "resize": resize_arrays()}
    new["inkling"] = {name: array for name, array in old_arrays["inkling"].items() if name.endswith(suffix)}
    for name in list(new["inkling"]):
        stem, data = name.removesuffix(suffix), new["inkling"][name].tobytes()
        for patch_size, frac, cap in INKLING_CASES:
            new["inkling"][f"{stem}.{patch_size}.{frac}.{cap}"] = reference.inkling(
                data, patch_size, frac, cap
            )[2]
    found = []
    for part, arrays in new.items():
        names = sorted(set(arrays) | set(old_arrays[part]))
        found += [
            f"{part}/{name}"
            for name in names
            if name not in arrays
            or name not in old_arrays[part]
            or not np.array_equal(arrays[name], old_arrays[part][name])
        ]
    new_facts = json.loads(json.dumps(facts(files)))
    return found + [f"facts/{name}" for name in new_facts if new_facts[name] != old_facts.get(name)]


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, default=GOLDEN, help="folder of the golden values")
    parser.add_argument("--check", action="store_true", help="compare and write nothing")
    options = parser.parse_args()
    if options.check:
        try:
            found = differences(options.out)
        except FileNotFoundError as error:
            print(f"{error.filename} is missing; run this script without --check", file=sys.stderr)
            return 1
        print("\n".join(f"differs: {name}" for name in found) or "all golden values hold")
        return 1 if found else 0
    options.out.mkdir(parents=True, exist_ok=True)
    arrays, small = build(encoded(crop("astronaut.jpg", CROPS["astronaut.jpg"])))
    for part, values in arrays.items():
        np.savez_compressed(options.out / f"{part}.npz", **values)  # type: ignore[arg-type]
    text = json.dumps(small, indent=1, sort_keys=True) + "\n"
    (options.out / "facts.json").write_text(text, encoding="utf-8")
    for path in sorted(options.out.iterdir()):
        print(f"{path.stat().st_size:9,d} bytes  {path.name}")
    print(f"written with Pillow {PIL.__version__} and numpy {np.__version__}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
