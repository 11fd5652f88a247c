"""The generated images are what the other tests believe them to be."""

from __future__ import annotations

import collections
import hashlib
from pathlib import Path

import images
import pytest
import reference


def test_every_common_format_and_mode_is_there() -> None:
    modes = collections.defaultdict(set)
    for sample in images.every_sample():
        modes[sample.format].add(sample.mode)
    assert {"1", "L", "RGB", "CMYK", "YCbCr"} <= modes["JPEG"]
    assert {"1", "L", "LA", "P", "RGB", "RGBA", "I;16"} <= modes["PNG"]
    assert {"1", "L", "P", "RGB", "RGBA"} <= modes["BMP"] & modes["GIF"] & modes["WEBP"]
    assert {"TIFF", "PPM", "TGA", "ICO", "JPEG2000"} <= set(modes)


def test_samples_are_the_same_each_time() -> None:
    first = hashlib.sha256(b"".join(sample.data for sample in images.web_samples())).digest()
    images.web_samples.cache_clear()
    assert hashlib.sha256(b"".join(sample.data for sample in images.web_samples())).digest() == first
    assert len({sample.name for sample in images.web_samples()}) == len(images.web_samples())


@pytest.mark.parametrize("sample", images.web_samples(), ids=str)
def test_pillow_reads_what_it_wrote(sample: images.Sample) -> None:
    assert reference.decode_rgb(sample.data).shape[2] == 3


def test_photos_are_small_and_each_has_its_row(photos: list[Path], root: Path) -> None:
    page = (root / "tests/data/photos/README.md").read_text(encoding="utf-8")
    for path in photos:
        height, width, _ = reference.decode_rgb(path.read_bytes()).shape
        assert path.stat().st_size < 200_000, path.name
        assert f"`{path.name}` | {width} x {height} |" in page, path.name
