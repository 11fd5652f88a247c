"""Fixtures for all tests: the shipped photographs, and where the tree is."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

# Ray takes a node that does not answer for 10 s for dead, which on a busy machine it is not.
os.environ.setdefault("RAY_health_check_timeout_ms", "120000")

ROOT = Path(__file__).resolve().parents[1]
PHOTOS = sorted(path for path in (ROOT / "tests/data/photos").iterdir() if path.suffix != ".md")


@pytest.fixture(scope="session")
def root() -> Path:
    """Top of the repository."""
    return ROOT


@pytest.fixture(scope="session")
def photos() -> list[Path]:
    """All shipped photographs, in the order of their names."""
    assert len(PHOTOS) >= 8, "tests/data/photos is incomplete"
    return PHOTOS


@pytest.fixture(params=PHOTOS, ids=lambda path: path.name)
def photo(request: pytest.FixtureRequest) -> Path:
    """Each shipped photograph in turn."""
    return request.param
