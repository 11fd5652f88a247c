"""PNG files inside icons, which may be far larger than the icon says and are decoded to learn their size."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Any

__all__ = ["largest_png_px"]

_PNG_HEADER = struct.Struct(">8s8sII")
_SIGNATURE = b"\x89PNG\r\n\x1a\n"


def largest_png_px(data: Any) -> int:
    """Pixels of the largest PNG in an ICO or ICNS file, by their headers; 0 if there is none."""
    places = {b"\0\0\1\0": _ico_pictures, b"icns": _icns_pictures}.get(bytes(data[:4]))
    largest = 0
    try:
        for at in places(data) if places is not None else ():
            if at + _PNG_HEADER.size <= len(data):
                signature, _, width, height = _PNG_HEADER.unpack_from(data, at)
                if signature == _SIGNATURE:
                    largest = max(largest, width * height)
    except struct.error:  # The file ends before its directory does.
        pass
    return largest


def _ico_pictures(data: Any) -> Iterator[int]:
    (count,) = struct.unpack_from("<H", data, 4)
    for entry in range(count):
        yield struct.unpack_from("<I", data, 6 + 16 * entry + 12)[0]


def _icns_pictures(data: Any) -> Iterator[int]:
    at = 8
    while at + 8 <= len(data):
        (size_bytes,) = struct.unpack_from(">I", data, at + 4)
        yield at + 8
        at += max(size_bytes, 8)
