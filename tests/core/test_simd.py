"""Which SIMD level runs: forced by the environment or a call, and never one that the CPU lacks."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from sglang_mm_ray import _core
from sglang_mm_ray.errors import InvalidArgument

ALL_LEVELS = {"scalar", "avx2", "avx512", "neon"}
INFO = _core.build_info()


def started_with(level: str) -> subprocess.CompletedProcess[str]:
    script = "from sglang_mm_ray import _core; print(_core.build_info()['simd'])"
    environment = {**os.environ, "SGL_MM_RS_SIMD": level}
    return subprocess.run(
        [sys.executable, "-c", script], env=environment, capture_output=True, text=True, check=False
    )


def test_build_info_tells_what_runs() -> None:
    assert INFO["simd_available"][0] == "scalar"
    assert INFO["simd_detected"] == INFO["simd_available"][-1]
    flags = set(Path("/proc/cpuinfo").read_text().split())
    assert set(INFO["cpu_features"]) & {"avx2", "avx512vbmi"} == flags & {"avx2", "avx512vbmi"}
    if "avx2" in flags and "fma" in flags:
        assert "avx2" in INFO["simd_available"]


@pytest.mark.parametrize("level", sorted(ALL_LEVELS))
def test_the_variable_forces_a_level_or_is_refused(level: str) -> None:
    process = started_with(level)
    if level in INFO["simd_available"]:
        assert process.stdout.strip() == level, process.stderr
    else:
        assert process.returncode != 0
        assert (
            f"InvalidArgument: invalid argument: SGL_MM_RS_SIMD: this CPU lacks the SIMD level {level}"
            in (process.stderr)
        )


def test_an_unknown_level_is_refused() -> None:
    assert "choose scalar, avx2, avx512 or neon" in started_with("fastest").stderr
    with pytest.raises(InvalidArgument, match="choose scalar"):
        _core.set_simd_level("fastest")


def test_a_call_forces_a_level_and_ends() -> None:
    before = _core.build_info()["simd"]
    for level in INFO["simd_available"]:
        _core.set_simd_level(level)
        assert _core.build_info()["simd"] == level
    for level in ALL_LEVELS - set(INFO["simd_available"]):
        with pytest.raises(InvalidArgument, match=f"lacks the SIMD level {level}"):
            _core.set_simd_level(level)
    _core.set_simd_level(None)
    assert _core.build_info()["simd"] == before
