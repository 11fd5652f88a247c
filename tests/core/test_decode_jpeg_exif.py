"""EXIF data of every shape in a JPEG: Pillow looks for a resolution there, and may fail over it."""

from __future__ import annotations

import random
import struct
from collections.abc import Iterator

from decoding import assert_as_pillow, encoded
from images import picture

RESOLUTION_UNIT, X_RESOLUTION, ORIENTATION = 0x0128, 0x011A, 0x0112


def with_segments(*contents: bytes, jfif_unit: int | None = None) -> bytes:
    """A small JPEG with APP1 segments; without JFIF, or with one that gives a resolution in `jfif_unit`."""
    data = encoded(picture("RGB", 16, 16), "JPEG")
    head = b""
    if jfif_unit is not None:
        head = data[2:13] + bytes((jfif_unit,)) + data[14:20]
    for content in contents:
        head += b"\xff\xe1" + struct.pack(">H", len(content) + 2) + content
    return data[:2] + head + data[20:]


def exif(order: str, entries: list[tuple[int, int, int, bytes]], tail: bytes = b"") -> bytes:
    """EXIF data of `(tag, type, count, four bytes)`; offsets count from the start of the TIFF header."""
    magic = b"II*\0" if order == "<" else b"MM\0*"
    body = b"".join(struct.pack(order + "HHL", *entry[:3]) + entry[3] for entry in entries)
    return b"Exif\0\0" + magic + struct.pack(order + "LH", 8, len(entries)) + body + bytes(4) + tail


def every_kind_of_resolution() -> Iterator[tuple[str, bytes]]:
    tail = struct.pack("<LL", 72, 1) + b"72.5\0"
    for order in "<>":
        for kind in (*range(15), 16, 129):
            for count in (0, 1, 2, 3, 4, 5, 70_000):
                for value in (b"7\0\0\0", b"72\0\0", b"x\0\0\0", bytes(4), struct.pack(order + "L", 38)):
                    entries = [(X_RESOLUTION, kind, count, value), (RESOLUTION_UNIT, 3, 1, b"\0\2\2\0")]
                    yield f"{order} {kind} {count} {value!r}", exif(order, entries, tail)


def test_every_kind_of_resolution() -> None:
    files = ((name, with_segments(content)) for name, content in every_kind_of_resolution())
    verdicts = assert_as_pillow(files)
    # The refused are one fault of Pillow: a text or byte string without a second entry.
    assert verdicts["refused"] > 20 and verdicts["load"] > 1000


def test_what_decides_whether_pillow_looks_there() -> None:
    unit = (RESOLUTION_UNIT, 3, 1, b"\2\0\0\0")
    short = (X_RESOLUTION, 7, 1, b"\7\0\0\0")
    fine = (X_RESOLUTION, 3, 1, b"\7\0\0\0")
    bad = exif("<", [unit, short])
    files = [(f"JFIF unit {n}", with_segments(bad, jfif_unit=n)) for n in range(4)]
    files += [
        ("alone", with_segments(bad)),
        ("no unit", with_segments(exif("<", [short]))),
        ("first counts", with_segments(exif("<", [unit, fine, short]))),
        ("first counts, short", with_segments(exif("<", [unit, short, fine]))),
        ("empty first", with_segments(exif("<", [unit, (X_RESOLUTION, 7, 0, bytes(4)), short]))),
        ("stops before", with_segments(exif("<", [unit, (ORIENTATION, 7, 9, b"\xff\0\0\0"), short]))),
        ("too large before", with_segments(exif("<", [unit, (ORIENTATION, 7, 999, b"\xff\0\0\0"), short]))),
        ("twice the signature", with_segments(b"Exif\0\0" + bad)),
        ("in two segments", with_segments(bad[:30], b"Exif\0\0" + bad[30:])),
        ("two of them", with_segments(exif("<", [unit, fine]), bad)),
        ("other first", with_segments(b"http://ns.adobe.com/xap/1.0/\0<x/>", bad)),
    ]
    for magic in (b"MM\0+", b"II+\0", b"MM*\0", b"II\0*", b"junk", b"Exif"):
        files.append((f"magic {magic!r}", with_segments(bad[:6] + magic + bad[10:])))
    files += [(f"cut to {n}", with_segments(bad[:n])) for n in range(6, len(bad))]
    verdicts = assert_as_pillow(files)
    assert verdicts["refused"] >= 6 and verdicts["load"] >= 20


def test_random_directories() -> None:
    chance = random.Random(5)

    def entry() -> tuple[int, int, int, bytes]:
        tag = chance.choice((X_RESOLUTION, X_RESOLUTION, RESOLUTION_UNIT, ORIENTATION, 0x8769))
        count = chance.choice((0, 1, 1, 1, 2, 5, 0xFFFFFFFF))
        value = chance.choice((bytes(4), b"\2\0\0\0", b"5\0\0\0", struct.pack("<L", chance.randrange(80))))
        return tag, chance.choice((1, 2, 3, 5, 7, 10, 12)), count, value

    files = (
        (
            str(index),
            with_segments(
                exif("<", [(RESOLUTION_UNIT, 3, 1, b"\2\0\0\0"), *(entry() for _ in range(4))], bytes(9))
            ),
        )
        for index in range(1500)
    )
    verdicts = assert_as_pillow(files)
    assert min(verdicts["refused"], verdicts["load"]) > 20
