"""The formats that Pillow itself decodes inside the worker, because no native decoder reads them.

A format is decoded by exactly one decoder in a whole pool: natively, or by Pillow if the policy lists it.
There is no other fallback, and every result names its decoder (`"pillow:TIFF"`).
"""

from __future__ import annotations

import contextlib
import io
import threading
import warnings
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from .._core import common
from ..errors import DecodeError, LimitExceeded, UnsupportedFormat, decode_error, limit_exceeded
from .icons import largest_png_px
from .policy import SourcePolicy
from .tiff_tiles import tile_sides

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from PIL import Image

# Decoded natively; Pillow never gets them here, lest one content have two decoders.
NATIVE_FORMATS = frozenset({"JPEG", "MPO", "PNG", "WEBP", "GIF", "BMP", "DIB"})
_HEIC_BRANDS = frozenset({b"heic", b"heix", b"heim", b"heis", b"hevc", b"hevx", b"mif1", b"msf1"})
_REASON_MAX_CHARS = 120
# Tiles of usual sizes may be larger than a small picture.
_USUAL_TILE_PX = 1 << 20


def decode_rgb(data: Any, policy: SourcePolicy) -> tuple[NDArray[np.uint8], str]:
    """Decodes encoded bytes to uint8 `[height, width, 3]`; also says which decoder ran.

    Native first; where the core has no decoder, Pillow, if the policy lists the format.

    Raises:
        DecodeError: Pillow refuses the file too. Its subclass UnsupportedFormat: the policy does not list it.
        LimitExceeded: the size in the header is over a limit of the policy.
    """
    try:
        height, width, flat, decoder = common.decode_rgb(data, policy.core_limits())
    except UnsupportedFormat as error:
        return decode_with_pillow(data, policy, error)
    return flat.reshape(height, width, 3), decoder


def decode_with_pillow(
    data: Any, policy: SourcePolicy, refusal: UnsupportedFormat
) -> tuple[NDArray[np.uint8], str]:
    """Decodes what the core refused with `refusal`; results and errors as `decode_rgb`."""
    from PIL import Image, UnidentifiedImageError

    if refusal.format in NATIVE_FORMATS:
        raise refusal
    Image.init()
    listed = {name.upper() for name in policy.pillow_formats} - NATIVE_FORMATS
    # Pillow's own order, since some formats have no signature and the first plugin that accepts wins.
    formats = [name for name in Image.ID if name in listed]
    name = refusal.format
    # Of these Pillow decodes the picture while it opens the file.
    if listed & {"ICO", "ICNS"} and (inner_px := largest_png_px(data)) > policy.max_pixels:
        raise limit_exceeded("image size in pixels", inner_px, policy.max_pixels)
    with quiet():
        try:
            with Image.open(io.BytesIO(data), formats=formats) as image:
                name = image.format or name
                check_pixels(image.size, policy)
                if name == "TIFF":
                    _check_tile(tile_sides(data), policy)
                moved = _check_frames(image, policy)
                if not moved:
                    return _rgb(image, policy), f"pillow:{name}"
            # Counting frames moved the decoder; a fresh one sees the file as a plain open does.
            with Image.open(io.BytesIO(data), formats=[name]) as image:
                return _rgb(image, policy), f"pillow:{name}"
        except LimitExceeded:
            raise
        except UnidentifiedImageError:
            raise _unidentified(bytes(data[:16]).ljust(16, b"\0"), listed) from None
        except Exception as error:  # Pillow's plugins raise whatever they stumble over
            raise translated(name, error) from None


def pixels_of_image(image: Image.Image) -> NDArray[np.uint8]:
    """The pixels of a PIL image as `convert("RGB")` gives them: uint8 `[height, width, 3]`.

    Raises:
        DecodeError: the image was opened lazily and its file is broken.
        LimitExceeded: Pillow takes it for a decompression bomb.
    """
    with quiet():
        try:
            pixels = np.asarray(image.convert("RGB"))
        except Exception as error:
            raise translated(image.format or "unknown", error) from None
    if 0 in pixels.shape:
        raise decode_error(image.format or "unknown", "it has no pixels")
    return pixels


def _unidentified(prefix: bytes, listed: set[str]) -> DecodeError:
    from PIL import Image

    name = "HEIC" if prefix[4:8] == b"ftyp" and prefix[8:12] in _HEIC_BRANDS else None
    for candidate in Image.ID:
        accept = Image.OPEN[candidate][1]
        # A text instead of True says why this build of Pillow cannot read it.
        if name is None and accept is not None and accept(prefix):
            name = candidate
    if name is None:
        return decode_error("unknown", "not a supported image")
    if name in listed:
        return decode_error(name, "broken header")
    error = UnsupportedFormat(f"{name} images are not supported; convert the image to PNG, JPEG or WebP")
    error.format = name
    return error


def _rgb(image: Image.Image, policy: SourcePolicy) -> NDArray[np.uint8]:
    image.load()
    # An icon may hold a picture of another size than its directory says.
    check_pixels(image.size, policy)
    return np.asarray(image.convert("RGB"))


def _check_frames(image: Image.Image, policy: SourcePolicy) -> bool:
    # What the plugin counted at open. Asking for `n_frames` may parse more of the file than a plain open
    # does, and fail where that does not.
    frames = vars(image).get("n_frames", 1)
    if isinstance(frames, int) and frames > policy.max_frames:
        raise limit_exceeded("number of frames", frames, policy.max_frames)
    if image.format != "TIFF" or not vars(image).get("is_animated", False):
        return False
    # A TIFF chains its frames to any length; this stops at the limit.
    try:
        image.seek(policy.max_frames)
    except Exception:  # fewer frames, or a broken later one, which a plain open never sees
        return True
    raise limit_exceeded("number of frames", policy.max_frames + 1, policy.max_frames)


def check_pixels(size: tuple[int, int], policy: SourcePolicy) -> None:
    width, height = size
    if width * height > policy.max_pixels:
        raise limit_exceeded("image size in pixels", width * height, policy.max_pixels)


def _check_tile(sides: tuple[int, int], policy: SourcePolicy) -> None:
    pixels, limit = sides[0] * sides[1], max(policy.max_pixels, _USUAL_TILE_PX)
    if pixels > limit:
        raise limit_exceeded("tile size in pixels", pixels, limit)


def translated(format_name: str, error: Exception) -> DecodeError | LimitExceeded:
    from PIL import Image

    if isinstance(error, Image.DecompressionBombError):
        limit = 2 * (Image.MAX_IMAGE_PIXELS or 0)
        found = next(
            (int(word) for word in str(error).replace("(", " ").split() if word.isdigit()), limit + 1
        )
        return limit_exceeded("image size in pixels", found, limit)
    reason = str(error)
    # Some texts of Pillow quote bytes of the file.
    quotes = any(mark in reason for mark in "'\"<>") or not reason.isascii() or not reason.isprintable()
    if not reason or quotes or len(reason) > _REASON_MAX_CHARS:
        reason = "broken data"
    return decode_error(format_name, f"{reason} ({type(error).__name__})")


class _Quiet:
    """Silences Pillow's warnings while any thread decodes.

    `warnings.catch_warnings` swaps global state, so threads that overlap would restore each other's: the
    first one in saves and the last one out restores.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._depth = 0
        self._saved: warnings.catch_warnings[None] | None = None

    def enter(self) -> None:
        with self._lock:
            if self._depth == 0:
                self._saved = warnings.catch_warnings()
                self._saved.__enter__()
                # By no module: Pillow attributes some of its warnings to its callers.
                warnings.simplefilter("ignore")
            self._depth += 1

    def leave(self) -> None:
        with self._lock:
            self._depth -= 1
            if self._depth == 0 and self._saved is not None:
                self._saved.__exit__(None, None, None)
                self._saved = None


_QUIET = _Quiet()


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    _QUIET.enter()
    try:
        yield
    finally:
        _QUIET.leave()
