"""Plain text for terminals: tables, units, and a progress line."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from typing import TextIO


def render(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table: the first column and those with text to the left, those of numbers to the right."""
    columns = range(len(header))
    widths = [max(len(row[column]) for row in (header, *rows)) for column in columns]
    numeric = [column > 0 and all(row[column][:1] in "0123456789-" for row in rows) for column in columns]

    def line(row: Sequence[str]) -> str:
        cells = [
            row[column].rjust(widths[column]) if numeric[column] else row[column].ljust(widths[column])
            for column in columns
        ]
        return "  ".join(cells).rstrip()

    return "\n".join([line(header), line(["-" * width for width in widths]), *(line(row) for row in rows)])


def bytes_text(count: float) -> str:
    """`1536` as `1.5 KiB`."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if count < 1024:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1024
    return f"{count:.1f} TiB"


def count_text(count: int) -> str:
    """`1234567` as `1,234,567`."""
    return f"{count:,}"


def duration_text(seconds: float) -> str:
    """`3725` as `1:02:05`, `65` as `1:05`."""
    minutes, rest_s = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest_s:02d}" if hours else f"{minutes}:{rest_s:02d}"


def printable(text: str) -> str:
    """A file name without what could move the cursor of a terminal."""
    return text.encode("utf-8", "backslashreplace").decode().translate(_CONTROLS)


_CONTROLS = {code: f"\\x{code:02x}" for code in (*range(32), *range(127, 160))}


class Progress:
    """One line on a terminal that is redrawn as work goes on; silent where the stream is no terminal."""

    _EVERY_S = 0.1
    _BAR_CHARS = 24

    def __init__(self, total: int, unit: str, stream: TextIO | None = None, *, shown: bool = True) -> None:
        self._total, self._unit, self._done, self._failed = total, unit, 0, 0
        self._stream = stream or sys.stderr
        self._shown = shown and self._stream.isatty()
        self._start = time.monotonic()
        self._drawn = 0.0

    def step(self, failed: bool = False) -> None:
        """One more is done."""
        self._done += 1
        self._failed += failed
        now = time.monotonic()
        if self._shown and (now - self._drawn >= self._EVERY_S or self._done == self._total):
            self._drawn = now
            self._stream.write("\r\x1b[2K" + self.line(now - self._start))
            self._stream.flush()

    def line(self, elapsed_s: float) -> str:
        """What the line says after `elapsed_s`."""
        share = self._done / self._total if self._total else 1.0
        filled = int(share * self._BAR_CHARS)
        bar = "#" * filled + "." * (self._BAR_CHARS - filled)
        rate = self._done / elapsed_s if elapsed_s > 0 else 0.0
        text = f"[{bar}] {self._done}/{self._total} {self._unit}  {rate:.1f}/s"
        if rate > 0 and self._done < self._total:
            text += f"  {duration_text((self._total - self._done) / rate)} left"
        return text + (f"  {self._failed} failed" if self._failed else "")

    def close(self) -> None:
        """Removes the line."""
        if self._shown:
            self._stream.write("\r\x1b[2K")
            self._stream.flush()
