"""Images of every mode and format that Pillow writes, made at test time from formulas: no files, no chance.

`every_sample()` is the whole matrix of formats and modes, at one odd size. `web_samples()` are the formats
that the core decodes natively, with the options that change how the file is built.
"""

from __future__ import annotations

import functools
import io
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

ODD_WIDTH_PX, ODD_HEIGHT_PX = 37, 29
MODES = (
    "1",
    "L",
    "LA",
    "P",
    "PA",
    "RGB",
    "RGBA",
    "RGBX",
    "CMYK",
    "YCbCr",
    "LAB",
    "HSV",
    "I",
    "F",
    "La",
    "RGBa",
)
DEEP_MODES = ("I;16", "I;16B", "I;16L")
# Written, but only readable with programs outside Pillow, or of no pixels.
NOT_READ_BACK = {"EPS", "PDF", "WMF", "BUFR", "GRIB", "HDF5", "PALM"}


@dataclass(frozen=True)
class Sample:
    """An encoded image: its name, Pillow's name of its format, the mode it was saved from, and its bytes."""

    name: str
    format: str
    mode: str
    data: bytes

    def __str__(self) -> str:
        return self.name


def scene(width_px: int, height_px: int, seed: int = 0) -> NDArray[np.uint8]:
    """`[h, w, 3]` uint8: gradients, hard edges and fine noise, so that every decoder step has work to do."""
    y, x = np.mgrid[0:height_px, 0:width_px].astype(np.uint32)
    start = np.uint32(seed * 2246822519 % 2**32)
    noise = ((x * 374761393 + y * 668265263 + start) ^ (x * y + 12345)) * np.uint32(2654435761)
    planes = [
        (x * 255 // max(1, width_px - 1) + (noise >> 29)) % 256,
        ((y * 255 // max(1, height_px - 1)) * 3 // 4 + (noise >> 26)) % 256,
        np.where((x // 5 + y // 3) % 2 == 0, 230, 25) - (noise >> 28) % 16 * (x % 2),
    ]
    return np.stack(planes, axis=-1).astype(np.uint8)


def alpha(width_px: int, height_px: int) -> NDArray[np.uint8]:
    """`[h, w]` uint8 with full, none and partial opacity."""
    y, x = np.mgrid[0:height_px, 0:width_px]
    return (((x + y) % 5) * 63).astype(np.uint8)


def picture(
    mode: str, width_px: int = ODD_WIDTH_PX, height_px: int = ODD_HEIGHT_PX, seed: int = 0
) -> Image.Image:
    """The scene in a mode of Pillow."""
    rgb = Image.fromarray(scene(width_px, height_px, seed))
    opacity = Image.fromarray(alpha(width_px, height_px))
    if mode == "RGB":
        return rgb
    if mode in ("RGBA", "RGBa"):
        rgba = rgb.copy()
        rgba.putalpha(opacity)
        return rgba if mode == "RGBA" else rgba.convert("RGBa")
    if mode in ("LA", "La"):
        grey = rgb.convert("L")
        grey.putalpha(opacity)
        return grey if mode == "LA" else grey.convert("La")
    if mode in ("P", "PA"):
        palette = rgb.quantize(41, method=Image.Quantize.MEDIANCUT, dither=Image.Dither.NONE)
        if mode == "P":
            return palette
        palette.putalpha(opacity)
        return palette
    if mode in DEEP_MODES:
        deep = np.asarray(rgb.convert("L")).astype(np.uint16) * 257 + 3
        kind = ">u2" if mode == "I;16B" else "<u2"
        return Image.frombytes(mode, (width_px, height_px), deep.astype(kind).tobytes())
    if mode == "LAB":
        return Image.frombytes("LAB", (width_px, height_px), scene(width_px, height_px, seed).tobytes())
    return rgb.convert(mode)


def encode(image: Image.Image, format_name: str, **options: Any) -> bytes:
    """The bytes of `image` in a format. Raises what Pillow raises if the format cannot hold the mode."""
    buffer = io.BytesIO()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        image.save(buffer, format=format_name, **options)
    return buffer.getvalue()


def opens_as_rgb(data: bytes) -> bool:
    """Whether Pillow opens the bytes and converts them to RGB."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            with Image.open(io.BytesIO(data)) as image:
                image.convert("RGB")
        except Exception:
            return False
    return True


@functools.cache
def every_sample() -> tuple[Sample, ...]:
    """Each pair of format and mode that the installed Pillow both writes and reads."""
    Image.init()
    samples = []
    for format_name in sorted(set(Image.SAVE) - NOT_READ_BACK):
        for mode in MODES + DEEP_MODES:
            image = picture(mode)
            try:
                data = encode(image, format_name)
            except (OSError, ValueError, KeyError, TypeError, AttributeError):
                continue
            if opens_as_rgb(data):
                samples.append(Sample(f"{format_name}-{mode}".replace(";", ""), format_name, mode, data))
    return tuple(samples)


def _jpegs() -> Iterator[tuple[str, str, dict[str, Any]]]:
    for quality in (5, 50, 75, 95, 100):
        yield f"q{quality}", "RGB", {"quality": quality}
    for sampling in ("4:4:4", "4:2:2", "4:2:0", "4:1:1"):
        yield f"baseline-{sampling.replace(':', '')}", "RGB", {"quality": 90, "subsampling": sampling}
        yield (
            f"progressive-{sampling.replace(':', '')}",
            "RGB",
            {"subsampling": sampling, "progressive": True},
        )
    yield "optimised", "RGB", {"optimize": True}
    yield "restart-blocks", "RGB", {"restart_marker_blocks": 1}
    yield "restart-rows", "RGB", {"restart_marker_rows": 1, "progressive": True}
    yield "stored-as-rgb", "RGB", {"keep_rgb": True}
    yield "comment", "RGB", {"comment": b"a comment"}
    yield "icc-junk", "RGB", {"icc_profile": b"not a profile"}
    yield "grey", "L", {"quality": 80}
    yield "grey-progressive", "L", {"progressive": True}
    yield "cmyk", "CMYK", {"quality": 90}
    yield "cmyk-progressive", "CMYK", {"progressive": True}
    yield "ycbcr", "YCbCr", {"quality": 90}
    rotated = Image.Exif()
    rotated[0x0112] = 6
    yield "exif-orientation-6", "RGB", {"exif": rotated}


def _pngs() -> Iterator[tuple[str, str, dict[str, Any]]]:
    for mode in ("1", "L", "LA", "P", "RGB", "RGBA", "I;16"):
        yield mode.replace(";", ""), mode, {}
    for level in (0, 1, 9):
        yield f"level-{level}", "RGB", {"compress_level": level}
    yield "optimised", "RGBA", {"optimize": True}
    yield "palette-transparency", "P", {"transparency": bytes(range(41))}
    yield "palette-key", "P", {"transparency": 3}
    yield "rgb-key", "RGB", {"transparency": (1, 2, 3)}
    yield "grey-key", "L", {"transparency": 7}
    for bits in (1, 2, 4):
        yield f"palette-{bits}-bit", "P", {"bits": bits}


def _gifs() -> Iterator[tuple[str, str, dict[str, Any]]]:
    yield "interlaced", "P", {"interlace": 1}
    yield "plain", "P", {"interlace": 0}
    yield "grey", "L", {}
    yield "one-bit", "1", {}
    yield "true-colour", "RGB", {}
    yield "transparent", "RGBA", {}
    yield "key", "P", {"transparency": 2}
    animation = {"save_all": True, "append_images": [picture("P", seed=1), picture("P", seed=2)]}
    yield "animated", "P", animation


def _webps() -> Iterator[tuple[str, str, dict[str, Any]]]:
    for quality in (10, 80, 100):
        yield f"lossy-{quality}", "RGB", {"quality": quality}
    yield "lossy-alpha", "RGBA", {"quality": 80}
    yield "lossless", "RGB", {"lossless": True}
    yield "lossless-alpha", "RGBA", {"lossless": True}
    yield "lossless-exact", "RGBA", {"lossless": True, "exact": True}
    yield "grey", "L", {"lossless": True}
    animation = {"save_all": True, "append_images": [picture("RGBA", seed=1)], "lossless": True}
    yield "animated", "RGBA", animation


def _bmps() -> Iterator[tuple[str, str, dict[str, Any]]]:
    for mode in ("1", "L", "P", "RGB", "RGBA"):
        yield mode, mode, {}


@functools.cache
def web_samples() -> tuple[Sample, ...]:
    """JPEG, PNG, GIF, WebP and BMP with the options that change how the file is built."""
    tables = {"JPEG": _jpegs, "PNG": _pngs, "GIF": _gifs, "WEBP": _webps, "BMP": _bmps}
    samples = []
    for format_name, table in tables.items():
        for name, mode, options in table():
            image = picture(mode)
            if format_name == "PNG" and "bits" in options:
                image = picture("RGB").quantize(1 << options["bits"], dither=Image.Dither.NONE)
            samples.append(
                Sample(f"{format_name}-{name}", format_name, mode, encode(image, format_name, **options))
            )
        for width_px, height_px in ((1, 1), (1, 200), (200, 1), (8, 8), (16, 17), (33, 15)):
            mode = "P" if format_name == "GIF" else "RGB"
            data = encode(picture(mode, width_px, height_px), format_name)
            samples.append(Sample(f"{format_name}-{width_px}x{height_px}", format_name, mode, data))
    return tuple(samples)
