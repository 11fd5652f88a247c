"""The core's own decoding of progressive JPEGs against Pillow: scans in any order, any bits, any damage."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest
from decoding import AS_PILLOWS_SIMD, assert_as_pillow, assert_bands_as_pillow, mutations, truncations
from jpegs import Factors
from progressive_jpegs import MadeProgressive, script

SAMPLINGS: list[tuple[Factors, ...]] = [
    ((1, 1),),
    ((2, 2),),
    ((1, 1),) * 3,
    ((2, 1), (1, 1), (1, 1)),
    ((2, 2), (1, 1), (1, 1)),
    ((1, 2), (1, 1), (1, 1)),
    ((1, 1), (2, 2), (1, 1)),
    ((1, 1),) * 4,
]
SIZES_PX = ((1, 1), (8, 8), (17, 9), (40, 24), (33, 65), (90, 31))


def made(factors: tuple[Factors, ...], chance: random.Random, **fields: object) -> MadeProgressive:
    width_px, height_px = chance.choice(SIZES_PX)
    given = {"width_px": width_px, "height_px": height_px, "factors": factors}
    return MadeProgressive(**(given | fields))  # type: ignore[arg-type]


def files(
    factors: tuple[Factors, ...], count: int, seed: int, **fields: object
) -> Iterator[tuple[str, bytes]]:
    chance = random.Random(f"{factors} {seed}")
    for number in range(count):
        yield f"{factors} {number} of seed {seed}", made(factors, chance, **fields).file(chance)


@AS_PILLOWS_SIMD
@pytest.mark.parametrize("factors", SAMPLINGS, ids=str)
def test_samplings_and_scripts(factors: tuple[Factors, ...]) -> None:
    named = list(files(factors, 40, 1))
    assert assert_as_pillow(named) == {"load": 40}
    assert_bands_as_pillow(named)


@AS_PILLOWS_SIMD
@pytest.mark.parametrize("factors", SAMPLINGS[:5], ids=str)
def test_restarts_that_change_from_scan_to_scan(factors: tuple[Factors, ...]) -> None:
    named = list(files(factors, 30, 2, restart_intervals=(0, 1, 2, 3, 7, 500)))
    assert assert_as_pillow(named) == {"load": 30}
    assert_bands_as_pillow(named)


@AS_PILLOWS_SIMD
@pytest.mark.parametrize("factors", SAMPLINGS[:5], ids=str)
def test_damage_and_cuts_anywhere(factors: tuple[Factors, ...]) -> None:
    sound = list(files(factors, 6, 3, width_px=40, height_px=24, restart_intervals=(0, 0, 4)))
    named = [damaged for name, data in sound for damaged in mutations(name, data, 40, seed=5)]
    named += [cut for name, data in sound[:3] for cut in truncations(name, data, max(1, len(data) // 25))]
    named += [(f"{name}, ended", data + b"\xff\xd9") for name, data in named[-60:]]
    verdicts = assert_as_pillow(named)
    assert verdicts["load"] > 60 and verdicts["refused"] > 60
    assert_bands_as_pillow(named[::7])


@AS_PILLOWS_SIMD
@pytest.mark.parametrize("factors", [SAMPLINGS[0], SAMPLINGS[4]], ids=str)
def test_scripts_that_lack_or_repeat_scans(factors: tuple[Factors, ...]) -> None:
    # Pillow loads them; libjpeg smooths what is not known to the last bit.
    chance = random.Random(str(factors))
    named = []
    for number in range(60):
        scans = script(len(factors), chance)
        for _ in range(chance.randrange(1, 3)):
            at = chance.randrange(len(scans))
            match chance.randrange(3):
                case 0 if len(scans) > 1:
                    del scans[at]
                case 1:
                    scans.insert(chance.randrange(len(scans)), scans[at])
                case _:
                    members, (first, last, high, low) = scans[at]
                    scans[at] = (members, (first, last, high, low + 1))
        picture = made(factors, chance, scans=scans)
        named.append((f"{number}: {scans}", picture.file(chance)))
    assert_as_pillow(named)
    assert_bands_as_pillow(named)


@AS_PILLOWS_SIMD
def test_what_may_stand_behind_the_last_scan() -> None:
    ends = [
        *(b"", b"\xff", b"\xff\xff", b"\xff\0", b"ab", b"\xff\xd0", b"\xff\xda", b"\xff\xfe\xff\xff"),
        *(
            before + b"\xff\xd9"
            for before in (b"\0", b"ab", b"\xff\0", b"\xff\xff", b"\xff\xff\0", b"\xff\x01", b"\xff\xd0")
        ),
        *(before + b"\xff\xd9" for before in (b"\xff\xfe\0\6abcd", b"\xff\xe1\0\1", b"\xff\xd8")),
        *(before + b"\xff\xd9" for before in (b"\xff\xc4\0\3\0", b"\xff\xdb\0\2", b"\0" * 20_000)),
        b"\xff\xd9" + b"\xff\xd8" * 20,
    ]
    chance = random.Random(6)
    named = [
        (f"{factors} {interval} {end[:12]!r}", picture.file(chance))
        for factors in (SAMPLINGS[0], SAMPLINGS[4])
        for interval in (0, 1, 4)
        for end in ends
        for picture in [made(factors, chance, restart_intervals=(interval,), end=end)]
    ]
    verdicts = assert_as_pillow(named)
    assert verdicts["load"] > 60 and verdicts["refused"] > 30
    assert_bands_as_pillow(named)
