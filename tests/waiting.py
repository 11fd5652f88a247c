"""For tests that wait: until something is so, with no pause that has to be long enough on every machine."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from pathlib import Path

# Only what never happens takes so long: a machine that is slower by ten, or busy, must not fail a test.
PATIENCE_S = 240.0


def until(condition: Callable[[], object], timeout_s: float = PATIENCE_S, pause_s: float = 0.02) -> None:
    """Returns once the condition holds; fails if it does not within `timeout_s`."""
    end = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < end, f"it did not happen within {timeout_s:g} s"
        time.sleep(pause_s)


async def until_async(
    condition: Callable[[], object], timeout_s: float = PATIENCE_S, pause_s: float = 0.005
) -> None:
    """As `until`, in a loop that goes on meanwhile."""
    end = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < end, f"it did not happen within {timeout_s:g} s"
        await asyncio.sleep(pause_s)


def is_alive(pid: int) -> bool:
    """Whether the process exists and has not ended."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False
