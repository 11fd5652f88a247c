"""Writes a seed corpus for each fuzz target: small images of every mode that Pillow writes, made by formula.

python rust/fuzz/seeds.py
"""

from __future__ import annotations

import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parents[1] / "tests"))

TARGETS = {
    "JPEG": "jpeg",
    "MPO": "jpeg",
    "WEBP": "webp",
    "PNG": "png",
    "GIF": "gif",
    "BMP": "bmp",
    "DIB": "bmp",
}


def main() -> None:
    from images import web_samples

    for index, sample in enumerate(web_samples()):
        folders = ["decode_any", "preprocess"]
        if sample.format in TARGETS:
            folders.append(f"decode_{TARGETS[sample.format]}")
        for folder in folders:
            path = HERE / "corpus" / folder / f"{index:04}.bin"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(sample.data)


if __name__ == "__main__":
    main()
