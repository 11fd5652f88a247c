"""Sources that misbehave inside a worker: for tests of what a pool survives.

They do it while they are unpickled, by builtins alone, so that workers need to import nothing of the tests.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any


class Deadly:
    """Kills the process that reads it, and leaves a mark."""

    def __init__(self, marker: Path) -> None:
        self._program = (
            f"import os, signal\nopen({str(marker)!r}, 'a').write('x')\nos.kill(os.getpid(), signal.SIGKILL)"
        )

    def __reduce__(self) -> Any:
        return exec, (self._program,)


class Hanging:
    """Keeps the thread that reads it for a long time, and leaves a mark."""

    def __init__(self, marker: Path, seconds: float = 600.0) -> None:
        self._program = f"import time\nopen({str(marker)!r}, 'a').write('x')\ntime.sleep({seconds})"

    def __reduce__(self) -> Any:
        return exec, (self._program,)


def marks(marker: Path) -> int:
    """How often it was read."""
    return len(marker.read_text()) if marker.exists() else 0
