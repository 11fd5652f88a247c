"""JPEGs that no encoder writes against Pillow: any sampling, codes, restarts and ends."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest
from decoding import AS_PILLOWS_SIMD, assert_as_pillow, assert_bands_as_pillow
from jpegs import Factors, Made, in_order

SAMPLINGS: list[tuple[Factors, ...]] = [
    ((1, 1),),
    ((2, 2),),
    ((3, 1),),
    ((1, 1),) * 3,
    ((2, 1),) * 3,
    ((2, 2), (1, 1), (1, 1)),
    ((1, 2), (1, 1), (1, 1)),
    ((4, 1), (1, 1), (1, 1)),
    ((1, 4), (1, 1), (1, 1)),
    ((4, 2), (1, 1), (1, 1)),
    ((3, 2), (1, 1), (1, 1)),
    ((1, 1), (2, 2), (1, 1)),
    ((1, 1), (1, 1), (4, 1)),
    ((2, 2), (2, 1), (1, 2)),
    ((1, 1),) * 4,
    ((2, 2), (1, 1), (1, 1), (2, 2)),
]


def made(factors: tuple[Factors, ...], chance: random.Random, **fields: object) -> Made:
    width_px, height_px = chance.choice(((1, 1), (8, 8), (17, 9), (40, 24), (33, 65)))
    given = {"width_px": width_px, "height_px": height_px, "factors": factors}
    return Made(**(given | {"padding": chance.choice("01")} | fields))  # type: ignore[arg-type]


@AS_PILLOWS_SIMD
@pytest.mark.parametrize("factors", SAMPLINGS, ids=str)
def test_samplings_codes_and_restarts(factors: tuple[Factors, ...]) -> None:
    chance = random.Random(str(factors))
    intervals = (0, 0, 1, 2, 3, 7, 500)
    files = []
    for number in range(25):
        picture = made(factors, chance, restart_interval=chance.choice(intervals))
        files.append((f"{number}: {picture}", picture.file(chance)))
    assert assert_as_pillow(files)["load"] == 25
    assert_bands_as_pillow(files)


@AS_PILLOWS_SIMD
@pytest.mark.parametrize("factors", [SAMPLINGS[0], SAMPLINGS[5], SAMPLINGS[-1]], ids=str)
def test_restarts_that_are_not_where_or_what_they_should_be(factors: tuple[Factors, ...]) -> None:
    changes: list[Callable[[bytes], bytes]] = [
        lambda marker: b"",
        lambda marker: marker * 2,
        lambda marker: b"\xff" + marker,
        lambda marker: b"\0" + marker,
        lambda marker: b"\xff\0" + marker,
        lambda marker: b"\x55" * 40 + marker,
        lambda marker: marker + b"\xff",
        lambda marker: marker + b"\xff\xfe\0\4ab",
        lambda marker: b"\xff\xfe\0\4ab" + marker,
        lambda marker: b"\xff\xdd\0\4\0\0" + marker,
        lambda marker: b"\xff\xdc\0\4\0\x08" + marker,
        lambda marker: b"\xff\xd9",
        lambda marker: b"\xff\xda" + marker,
        *(lambda marker, by=by: bytes((0xFF, 0xD0 | marker[1] + by & 7)) for by in (1, 2, 4, 7)),
    ]
    chance = random.Random(5)
    files = []
    for number, change in enumerate(changes):
        for wrong in (0, 3, 8):

            def restart(at: int, wrong: int = wrong, change: Callable[[bytes], bytes] = change) -> bytes:
                return change(in_order(at)) if at == wrong else in_order(at)

            picture = made(
                factors, chance, width_px=81, height_px=70, restart_interval=1 + wrong % 2, restart=restart
            )
            files.append((f"change {number} of {wrong}", picture.file(chance)))
    assert assert_as_pillow(files)["load"] > 25
    assert_bands_as_pillow(files)


@AS_PILLOWS_SIMD
def test_what_may_stand_behind_the_last_unit() -> None:
    ends = [
        *(b"", b"\xff", b"\xff\xff", b"\xff\0", b"ab", b"\xff\xd0", b"\xff\xda", b"\xff\xfe\xff\xff"),
        *(
            before + b"\xff\xd9"
            for before in (b"\0", b"ab", b"\xff\0", b"\xff\xff", b"\xff\xff\0", b"\xff\x01")
        ),
        *(before + b"\xff\xd9" for before in (b"\xff\xd0", b"\xff\xd7\xff\xd7", b"\xff\xdc\0\4\0\x18")),
        *(before + b"\xff\xd9" for before in (b"\xff\xfe\0\6abcd", b"\xff\xe1\0\1", b"\xff\xe1\xff\xffab")),
        *(
            before + b"\xff\xd9"
            for before in (b"\xff\xd8", b"\xff\xf0\0\2", b"\xff\xc4\0\3\0", b"\xff\xdb\0\2")
        ),
        *(
            before + b"\xff\xd9"
            for before in (b"\xff\xda\0\x08\1\0\0\0\x3f\0", b"\0" * 20_000, b"\xff\0" * 20_000)
        ),
        b"\xff\xd9" + b"\xff\xd8" * 20,
    ]
    chance = random.Random(6)
    files = []
    for factors in (SAMPLINGS[0], SAMPLINGS[3], SAMPLINGS[5]):
        for interval in (0, 1, 4):
            files += [
                (f"{factors} {interval} {end[:12]!r}", picture.file(chance))
                for end in ends
                for picture in [made(factors, chance, restart_interval=interval, end=end)]
            ]
            for surplus in (-1, 1, 5):
                picture = made(factors, chance, width_px=70, restart_interval=interval, surplus_units=surplus)
                files.append((f"{factors} {interval} {surplus}", picture.file(chance)))
    verdicts = assert_as_pillow(files)
    assert verdicts["load"] > 100 and verdicts["refused"] > 50
    assert_bands_as_pillow(files)
