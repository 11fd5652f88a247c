"""Damaged copies of files, the same ones every time, to see that broken files are judged alike too."""

from __future__ import annotations

import random
import zlib
from collections.abc import Callable

_HEADER_BYTES = 256
_PNG = b"\x89PNG\r\n\x1a\n"


def damaged(data: bytes, seed: int) -> bytes:
    """A copy of `data` with one to three faults of the kinds that disks, networks and attackers make."""
    chance = random.Random(seed * 1_000_003 + len(data))
    copy = bytearray(data)
    for _ in range(chance.choice((1, 1, 2, 3))):
        if copy:
            chance.choice(_FAULTS)(copy, chance)
    # Behind a wrong checksum nothing of a PNG is looked at, so most copies get right ones.
    if copy.startswith(_PNG) and chance.random() < 0.75:
        _mend_checksums(copy)
    return bytes(copy)


def _mend_checksums(copy: bytearray) -> None:
    at = len(_PNG)
    while at + 12 <= len(copy):
        end = at + 8 + int.from_bytes(copy[at : at + 4], "big")
        if end + 4 > len(copy):
            return
        copy[end : end + 4] = zlib.crc32(copy[at + 4 : end]).to_bytes(4, "big")
        at = end + 4


def _place(copy: bytearray, chance: random.Random) -> int:
    # Half of the faults near the start, where the structure is.
    end = len(copy) if chance.random() < 0.5 else min(len(copy), _HEADER_BYTES)
    return chance.randrange(end)


def _span(copy: bytearray, chance: random.Random) -> slice:
    start = _place(copy, chance)
    return slice(start, start + chance.choice((1, 2, 4, 16, 64, 1024)))


def _flip(copy: bytearray, chance: random.Random) -> None:
    copy[_place(copy, chance)] ^= 1 << chance.randrange(8)


def _set(copy: bytearray, chance: random.Random) -> None:
    copy[_place(copy, chance)] = chance.choice((0, 1, 0x7F, 0x80, 0xFF, chance.randrange(256)))


def _cut(copy: bytearray, chance: random.Random) -> None:
    del copy[_place(copy, chance) :]


def _shorten(copy: bytearray, chance: random.Random) -> None:
    del copy[-chance.choice((1, 2, 3, 8, 12, 100)) :]


def _remove(copy: bytearray, chance: random.Random) -> None:
    del copy[_span(copy, chance)]


def _repeat(copy: bytearray, chance: random.Random) -> None:
    span = _span(copy, chance)
    copy[span.start : span.start] = copy[span]


def _insert(copy: bytearray, chance: random.Random) -> None:
    at = _place(copy, chance)
    copy[at:at] = chance.randbytes(chance.choice((1, 2, 4, 32)))


def _zero(copy: bytearray, chance: random.Random) -> None:
    span = _span(copy, chance)
    copy[span] = bytes(len(copy[span]))


def _append(copy: bytearray, chance: random.Random) -> None:
    copy += chance.randbytes(chance.choice((1, 8, 100)))


_FAULTS: tuple[Callable[[bytearray, random.Random], None], ...] = (
    _flip,
    _flip,
    _set,
    _set,
    _cut,
    _shorten,
    _remove,
    _repeat,
    _insert,
    _zero,
    _append,
)
