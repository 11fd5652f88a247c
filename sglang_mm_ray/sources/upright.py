"""How SGLang loads images of GLM's models: turned as EXIF says, transparency on a grey that contrasts.

By Pillow, and only where that differs from `convert("RGB")`: all other files are the core's.
"""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, Any

import numpy as np

from .decode_fallback import NATIVE_FORMATS, check_pixels, quiet, translated
from .policy import SourcePolicy

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from PIL import Image

__all__ = ["upright_rgb"]

_ORIENTATION = 0x0112
# What a PNG with an orientation holds; without them Pillow need not read it to its end to know.
_PNG_MARKS = (b"eXIf", b"Raw profile type exif", b"XML:com.adobe.xmp")
_OPAQUE_FROM = 129
_STEPS = 20


def upright_rgb(data: Any, policy: SourcePolicy) -> tuple[NDArray[np.uint8], str] | None:
    """The pixels of a file with an orientation or transparency, uint8 `[height, width, 3]`, and its decoder.

    None where neither is there, or where Pillow does not open the file: then the core decides.

    Raises:
        DecodeError: the file is broken.
        LimitExceeded: the size in the header is over a limit of the policy.
    """
    from PIL import Image, ImageOps

    Image.init()
    formats = [*NATIVE_FORMATS, *(name.upper() for name in policy.pillow_formats)]
    with quiet():
        try:
            image = Image.open(io.BytesIO(data), formats=[name for name in Image.ID if name in formats])
        except Exception:  # the core says what is wrong with it
            return None
        with image:
            name = f"pillow:{image.format}"
            check_pixels(image.size, policy)
            try:
                if not _is_turned(image, bytes(data)) and not _is_transparent(image):
                    return None
                turned = ImageOps.exif_transpose(image)
                return np.asarray(_on_background(turned)), name
            except Exception as error:  # Pillow's plugins raise whatever they stumble over
                raise translated(image.format or "unknown", error) from None


def _is_transparent(image: Image.Image) -> bool:
    return image.mode in ("RGBA", "LA") or "transparency" in image.info


def _is_turned(image: Image.Image, data: bytes) -> bool:
    if image.format == "PNG" and not any(mark in data for mark in _PNG_MARKS):
        return False
    return bool(image.getexif().get(_ORIENTATION, 1) != 1)


def _on_background(image: Image.Image) -> Image.Image:
    from PIL import Image

    if not _is_transparent(image):
        return image.convert("RGB")
    image = image.convert("RGBA")
    canvas = Image.new("RGB", image.size, (_background(np.asarray(image)),) * 3)
    canvas.paste(image, mask=image.getchannel("A"))
    return canvas


def _background(pixels: NDArray[np.uint8]) -> int:
    """The grey that contrasts with the opaque pixels of the edge; white if it has none."""
    height, width = pixels.shape[:2]
    columns, rows = pixels[:, :: max(1, width // _STEPS)], pixels[:: max(1, height // _STEPS)]
    edge = np.concatenate([columns[0], columns[-1], rows[:, 0], rows[:, -1]])
    opaque = edge[edge[:, 3] >= _OPAQUE_FROM, :3]
    if not len(opaque):
        return 255
    return 32 if int(opaque.sum(dtype=np.int64)) / (len(opaque) * 3) > 128 else 240
