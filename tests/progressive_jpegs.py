"""Progressive JPEGs of random symbols in random codes, in scans that follow each other as encoders' do."""

from __future__ import annotations

import random
import struct
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from jpegs import Code, Factors, coded, in_order, segment

# First and last coefficient, and bits that are missing before (0: nothing is known) and after.
Pass = tuple[int, int, int, int]


def in_turn(groups: list[list[list[int] | Pass]], chance: random.Random) -> list[tuple[list[int], Pass]]:
    """The passes of all groups (`[components, pass, pass, ...]`) in any order that keeps a group's own."""
    scans = []
    while groups:
        group = chance.choice(groups)
        scans.append((group[0], group.pop(1)))
        groups = [group for group in groups if len(group) > 1]
    return scans  # type: ignore[return-value]


def script(count: int, chance: random.Random) -> list[tuple[list[int], Pass]]:
    """Scans that come to all coefficients of `count` components."""

    def passes(first: int, last: int) -> list[Pass]:
        most = chance.choice((0, 0, 1, 2, 3, 5))
        return [(first, last, 0, most), *((first, last, low + 1, low) for low in reversed(range(most)))]

    everything = list(range(count))
    together = [everything] if chance.random() < 0.6 else [[i] for i in everything]
    groups: list[list[list[int] | Pass]] = [[members, *passes(0, 0)] for members in together]
    for i in everything:
        cuts = sorted({1, 64, *(chance.randrange(2, 64) for _ in range(chance.choice((0, 0, 1, 1, 2, 6))))})
        groups += [[[i], *passes(first, end - 1)] for first, end in pairwise(cuts)]
    return in_turn(groups, chance)


@dataclass
class MadeProgressive:
    """What a file consists of."""

    width_px: int
    height_px: int
    factors: Sequence[Factors]
    restart_intervals: Sequence[int] = (0,)
    scans: list[tuple[list[int], Pass]] | None = None
    end: bytes = b"\xff\xd9"
    # For each component and block, which coefficients are not 0.
    _present: dict[tuple[int, int, int], set[int]] = field(default_factory=dict, repr=False)

    def _blocks(self, i: int) -> tuple[int, int]:
        most = [max(pair[axis] for pair in self.factors) for axis in (0, 1)]
        sizes = (self.width_px, self.height_px)
        across, down = (-(-sizes[axis] * self.factors[i][axis] // (8 * most[axis])) for axis in (0, 1))
        return across, down

    def _units(self, members: list[int]) -> list[list[tuple[int, int, int]]]:
        if len(members) == 1:
            across, down = self._blocks(members[0])
            return [[(members[0], row, column)] for row in range(down) for column in range(across)]
        most = [max(pair[axis] for pair in self.factors) for axis in (0, 1)]
        across, down = -(-self.width_px // (8 * most[0])), -(-self.height_px // (8 * most[1]))
        return [
            [
                (i, row * self.factors[i][1] + y, column * self.factors[i][0] + x)
                for i in members
                for y in range(self.factors[i][1])
                for x in range(self.factors[i][0])
            ]
            for row in range(down)
            for column in range(across)
        ]

    def file(self, chance: random.Random) -> bytes:
        """The whole file."""
        frame = struct.pack(">BHHB", 8, self.height_px, self.width_px, len(self.factors))
        frame += b"".join(bytes((i + 1, h << 4 | v, 0)) for i, (h, v) in enumerate(self.factors))
        table = bytes(chance.randrange(1, chance.choice((3, 20))) for _ in range(64))
        parts = [b"\xff\xd8", segment(0xDB, b"\0" + table), segment(0xC2, frame)]
        for members, steps in self.scans or script(len(self.factors), chance):
            parts.append(self._scan(members, steps, chance))
        return b"".join([*parts, self.end])

    def _scan(self, members: list[int], steps: Pass, chance: random.Random) -> bytes:
        first, last, high, low = steps
        number, interval = chance.randrange(4), chance.choice(self.restart_intervals)
        most_bits = chance.choice((1, 2, 4, 6, 15))
        if first == 0:
            symbols = list(range(most_bits + 1))
        else:
            values = range(2) if high else range(most_bits + 1)
            most_run = chance.choice((0, 1, 3, 14))
            symbols = [
                zeros << 4 | bits for zeros in range(16) for bits in values if bits or zeros <= most_run
            ]
            symbols = [0, *chance.sample(symbols, min(len(symbols), chance.randrange(1, 120))), 1, 0xF0]
            symbols = list(dict.fromkeys(symbols))
        code = Code(symbols, chance)
        head = b"".join(bytes((i + 1, number << 4 | number)) for i in members)
        parts = [
            segment(0xC4, bytes((number | (16 if first else 0),)) + code.definition),
            segment(0xDD, struct.pack(">H", interval)),
            segment(0xDA, bytes((len(members),)) + head + bytes((first, last, high << 4 | low))),
        ]
        bits, ended = "", 0
        for unit, blocks in enumerate(self._units(members)):
            if interval and unit and unit % interval == 0:
                parts += [coded(bits, "1"), in_order(unit // interval - 1)]
                bits, ended = "", 0
            for place in blocks:
                if first == 0:
                    bits += chance.choice("01") if high else code.draw(chance)[1]
                elif ended:
                    bits += self._corrections(place, range(first, last + 1), chance) if high else ""
                    ended -= 1
                else:
                    more, ended = self._block(place, steps, code, chance)
                    bits += more
        return b"".join([*parts, coded(bits, "1")])

    def _corrections(self, place: tuple[int, int, int], band: range, chance: random.Random) -> str:
        present = self._present.get(place, set())
        return "".join(chance.choice("01") for at in band if at in present)

    def _block(
        self, place: tuple[int, int, int], steps: Pass, code: Code, chance: random.Random
    ) -> tuple[str, int]:
        first, last, high, _ = steps
        present = self._present.setdefault(place, set())
        before = frozenset(present) if high else frozenset()
        bits, at = "", first
        while at <= last:
            symbol, more = code.draw(chance)
            free = [index for index in range(at, last + 1) if index not in before]
            zeros = symbol >> 4
            if symbol & 15 == 0 and symbol != 0xF0:
                extra = "".join(chance.choice("01") for _ in range(zeros))
                bits += more + extra + self._corrections_of(before, range(at, last + 1), chance)
                return bits, (1 << zeros) + int(extra or "0", 2) - 1
            if zeros >= len(free):
                continue  # It would lead out of the band: draw again.
            to = free[zeros]
            bits += more + self._corrections_of(before, range(at, to), chance)
            if symbol & 15:
                present.add(to)
            at = to + 1
        return bits, 0

    @staticmethod
    def _corrections_of(before: frozenset[int], band: range, chance: random.Random) -> str:
        return "".join(chance.choice("01") for at in band if at in before)
