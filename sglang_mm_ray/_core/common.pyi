"""What every model family shares."""

import numpy as np
from numpy.typing import NDArray

from . import Limits, _Data

__all__ = [
    "base64_decode",
    "content_digest",
    "content_hash",
    "data_hash",
    "decode_rgb",
    "fetch_bytes",
    "image_decode_rgb",
    "probe",
    "resize",
    "resize_rgb",
    "scaled_dims",
    "set_vertical_first_when_tall",
]

def resize(
    arr: NDArray[np.uint8], out_w: int, out_h: int, resample: str = "pil_lanczos"
) -> NDArray[np.uint8]:
    """Resizes an `[h, w, c]` array of 1, 3 or 4 channels as `resize_rgb` does; flat result of
    `out_h * out_w * c` values. Channels do not mix: alpha is one like any other, as in Pillow's CMYK."""

def resize_rgb(
    arr: NDArray[np.uint8], out_w: int, out_h: int, resample: str = "pil_lanczos"
) -> NDArray[np.uint8]:
    """Resizes an `[h, w, 3]` array as Pillow does; flat result of `out_h * out_w * 3` values. `resample` is
    `pil_lanczos`, `pil_bicubic`, `pil_bilinear`, `pil_box` or `pil_hamming`, or `aten_u8` for torchvision's
    antialiased bicubic on uint8."""

def scaled_dims(
    w: int, h: int, rescale_frac: float | None = None, rescale_cap: int | None = None
) -> tuple[int, int]:
    """Output size `(width, height)` in pixels of Inkling's rescale."""

def image_decode_rgb(data: _Data) -> tuple[int, int, NDArray[np.uint8]]:
    """Decodes an image to RGB: `(height, width, flat uint8 array)`. Raises `DecodeError`, `LimitExceeded`."""

def decode_rgb(data: _Data, limits: Limits | None = None) -> tuple[int, int, NDArray[np.uint8], str]:
    """`(height, width, flat uint8 array, decoder)`; `limits` hold from the header on. Raises `DecodeError`,
    `LimitExceeded`."""

def probe(data: _Data) -> tuple[str, int, int]:
    """Reads the header only: `(format, width, height)`. Raises `DecodeError`."""

def data_hash(data: _Data) -> int:
    """First 8 bytes of SHA-256, big-endian."""

def content_digest(data: _Data) -> bytes:
    """The whole SHA-256 digest, 32 bytes."""

def content_hash(data: _Data) -> int:
    """First 8 bytes of BLAKE3, big-endian: what SGLang 0.5.23 has under this name. Nothing here keys on
    it."""

def base64_decode(encoded: str) -> bytes:
    """Decodes standard base64; line folds and missing padding are allowed. Raises `InvalidArgument`."""

def fetch_bytes(source: str) -> bytes:
    """Bytes of a `data:` URL or of bare base64. Paths and other URLs are refused with `InvalidArgument`: they
    are for `PreprocessPool`, whose policy says what it may open."""

def set_vertical_first_when_tall(enabled: bool) -> None:
    """Sets the pass order of the resize: True where Pillow runs the vertical pass of tall pictures first."""
