"""The tile of a TIFF, which may be far larger than the picture: libtiff takes memory for a whole one.

Read from the file itself, since of repeated entries libtiff believes the first and Pillow another one.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Any

__all__ = ["tile_sides"]

_TILE_WIDTH, _TILE_LENGTH = 322, 323
# Integer types of TIFF 6.0 and BigTIFF, as `struct` has them.
_INTEGERS = {1: "B", 3: "H", 4: "I", 6: "b", 8: "h", 9: "i", 16: "Q", 17: "q"}


def tile_sides(data: Any) -> tuple[int, int]:
    """Largest width and length in pixels that the first directory gives for tiles; 0 where it gives none."""
    sides = {_TILE_WIDTH: 0, _TILE_LENGTH: 0}
    try:
        for tag, value in _single_integers(data):
            if tag in sides:
                sides[tag] = max(sides[tag], value)
    except struct.error:  # The file ends before the directory does; what is decoded of it was seen.
        pass
    return sides[_TILE_WIDTH], sides[_TILE_LENGTH]


def _single_integers(data: Any) -> Iterator[tuple[int, int]]:
    order = "<" if bytes(data[:2]) == b"II" else ">"

    def read(code: str, at: int) -> int:
        (value,) = struct.unpack_from(order + code, data, at)
        return int(value)

    big = 43 in (data[2], data[3])
    word, word_bytes = ("Q", 8) if big else ("I", 4)
    directory = read(word, 8 if big else 4)
    entries = read("Q" if big else "H", directory)
    first = directory + (8 if big else 2)
    entry_bytes = 4 + 2 * word_bytes
    for at in range(first, first + min(entries, 1 << 16) * entry_bytes, entry_bytes):
        code = _INTEGERS.get(read("H", at + 2))
        if code is None or read(word, at + 4) != 1:
            continue
        value_at = at + 4 + word_bytes
        inline = struct.calcsize(order + code) <= word_bytes
        yield read("H", at), read(code, value_at if inline else read(word, value_at))
