"""For tests of how much memory a call takes: only where the kernel lets its high-water mark be set back."""

from __future__ import annotations

from pathlib import Path

import pytest


def _can_be_set_back() -> bool:
    try:
        Path("/proc/self/clear_refs").write_text("5")
    except OSError:
        return False
    return True


NEEDS_PEAK = pytest.mark.skipif(not _can_be_set_back(), reason="/proc/self/clear_refs cannot be written here")
