"""Sequential JPEGs of random coefficients in random codes: what decoders must take and no encoder writes."""

from __future__ import annotations

import random
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass

Factors = tuple[int, int]


def segment(code: int, content: bytes) -> bytes:
    """A marker with its length and content."""
    return bytes((0xFF, code)) + struct.pack(">H", len(content) + 2) + content


class Code:
    """A random Huffman code for `symbols`; it leaves the code of all ones, which is not allowed."""

    def __init__(self, symbols: Sequence[int], chance: random.Random) -> None:
        lengths = [1, 1]
        while len(lengths) <= len(symbols):
            split = chance.choice([i for i, length in enumerate(lengths) if length < 16])
            lengths[split] += 1
            lengths.append(lengths[split])
        lengths = sorted(lengths)[: len(symbols)]
        self.symbols = chance.sample(symbols, len(symbols))
        self.definition = bytes((*(lengths.count(n) for n in range(1, 17)), *self.symbols))
        self.bits: dict[int, str] = {}
        code = 0
        for number, (symbol, length) in enumerate(zip(self.symbols, lengths, strict=True)):
            code <<= length - (lengths[number - 1] if number else length)
            self.bits[symbol] = f"{code:0{length}b}"
            code += 1

    def draw(self, chance: random.Random) -> tuple[int, str]:
        """A symbol, and its code with a value behind it."""
        symbol = chance.choice(self.symbols)
        value = "".join(chance.choice("01") for _ in range(symbol & 15))
        return symbol, self.bits[symbol] + value


def block(means: Code, others: Code, chance: random.Random) -> str:
    """The bits of a block; zeros may lead past its last coefficient."""
    bits, index = means.draw(chance)[1], 1
    while index < 64:
        symbol, more = others.draw(chance)
        bits += more
        if symbol & 15 == 0 and symbol != 0xF0:
            break
        index += (symbol >> 4) + 1
    return bits


def coded(bits: str, padding: str) -> bytes:
    """Whole bytes, with a zero behind each 0xFF."""
    bits += padding * (-len(bits) % 8)
    return int("1" + bits, 2).to_bytes(len(bits) // 8 + 1, "big")[1:].replace(b"\xff", b"\xff\0")


def in_order(number: int) -> bytes:
    """The restart marker that belongs behind a segment."""
    return bytes((0xFF, 0xD0 + number % 8))


@dataclass(frozen=True)
class Made:
    """What a file consists of."""

    width_px: int
    height_px: int
    factors: Sequence[Factors]
    restart_interval: int = 0
    padding: str = "1"
    restart: Callable[[int], bytes] = in_order
    surplus_units: int = 0
    # Coefficients that come to samples of 8 bits or not much more, instead of any.
    is_gentle: bool = False
    end: bytes = b"\xff\xd9"
    # A table of 16 bits for each component, with some zeros and some large ones, instead of one of 8 for all.
    has_own_tables: bool = False

    def units(self) -> int:
        """Units of the scan: a single component has units of one block whatever its factors are."""
        most = [max(pair[i] for pair in self.factors) if len(self.factors) > 1 else 1 for i in (0, 1)]
        return -(-self.width_px // (8 * most[0])) * -(-self.height_px // (8 * most[1]))

    def quantization(self, most_factor: int, chance: random.Random) -> list[bytes]:
        """The segments that define the tables of quantization."""
        if not self.has_own_tables:
            table = bytes(chance.randrange(1, most_factor + 1) for _ in range(64))
            return [segment(0xDB, b"\0" + table)]
        segments = []
        for number in range(len(self.factors)):
            wide = [chance.randrange(1, most_factor + 1) for _ in range(64)]
            for _ in range(chance.randrange(4)):
                wide[chance.randrange(64)] = chance.choice((0, 256, 32_767, 32_768, 65_535))
            segments.append(segment(0xDB, struct.pack(">B64H", 16 + number, *wide)))
        return segments

    def file(self, chance: random.Random) -> bytes:
        """The whole file."""
        count = len(self.factors)
        most_factor, most_mean_bits, most_bits = 255, 16 if chance.random() < 0.5 else 9, 16
        if self.is_gentle:
            most_factor, most_mean_bits, most_bits = 6, 6, chance.randrange(2, 6)
        symbols = [symbol for symbol in range(256) if symbol % 16 < most_bits]
        means = [Code(range(most_mean_bits), chance) for _ in range(2)]
        others = [
            Code(chance.sample(symbols, chance.randrange(2, min(200, len(symbols)))), chance)
            for _ in range(2)
        ]
        tables = [(chance.randrange(2), chance.randrange(2)) for _ in range(count)]
        frame = struct.pack(">BHHB", 8, self.height_px, self.width_px, count)
        frame += b"".join(
            bytes((i, h << 4 | v, i if self.has_own_tables else 0)) for i, (h, v) in enumerate(self.factors)
        )
        scan = b"".join(bytes((i, tables[i][0] << 4 | tables[i][1])) for i in range(count))
        parts = [
            b"\xff\xd8",
            *self.quantization(most_factor, chance),
            segment(0xC1, frame),
            *(segment(0xC4, bytes((i,)) + code.definition) for i, code in enumerate(means)),
            *(segment(0xC4, bytes((16 + i,)) + code.definition) for i, code in enumerate(others)),
            segment(0xDD, struct.pack(">H", self.restart_interval)),
            segment(0xDA, bytes((count,)) + scan + b"\0\x3f\0"),
        ]
        blocks = [i for i, (h, v) in enumerate(self.factors) for _ in range(h * v if count > 1 else 1)]
        bits = ""
        for unit in range(self.units() + self.surplus_units):
            if self.restart_interval and unit and unit % self.restart_interval == 0:
                parts += [coded(bits, self.padding), self.restart(unit // self.restart_interval - 1)]
                bits = ""
            for i in blocks:
                bits += block(means[tables[i][0]], others[tables[i][1]], chance)
        return b"".join([*parts, coded(bits, self.padding), self.end])
