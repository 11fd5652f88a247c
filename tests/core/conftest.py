"""What several tests of the core start from."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from sglang_mm_ray import _core


@pytest.fixture(params=_core.build_info()["simd_available"])
def level(request: pytest.FixtureRequest) -> Iterator[str]:
    """Each instruction set of this CPU in turn, in force for the whole test."""
    _core.set_simd_level(request.param)
    assert _core.build_info()["simd"] == request.param
    yield request.param
    _core.set_simd_level(None)
