"""The Python side: style, types, stubs, and what importing the package costs."""

from __future__ import annotations

import subprocess
import sys

import pytest

from . import tree

pytestmark = pytest.mark.ground


def ruff() -> str:
    return tree.tool("ruff", "pip install -e '.[test]'")


def test_style() -> None:
    tree.run(ruff(), "check", ".")


def test_formatting() -> None:
    tree.run(ruff(), "format", "--check", ".")


def test_types() -> None:
    tree.run(sys.executable, "-m", "mypy", "--no-error-summary", "sglang_mm_ray")


def test_stubs_match_the_compiled_module() -> None:
    tree.run(sys.executable, "-m", "mypy.stubtest", "sglang_mm_ray._core")


IMPORT = """
import sys, time
started_s = time.process_time()
import numpy, PIL.Image
ours_s = time.process_time()
import sglang_mm_ray
print((time.process_time() - ours_s) / (ours_s - started_s))
heavy = {"ray", "torch", "transformers", "sglang", "pandas", "pyarrow", "asyncio"} & set(sys.modules)
sys.exit(f"imported too: {sorted(heavy)}" if heavy else 0)
"""


def test_import_is_quick_and_brings_no_ray_and_no_torch() -> None:
    ratios = []
    for _ in range(3):
        done = subprocess.run([sys.executable, "-c", IMPORT], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        ratios.append(float(done.stdout))
    # Of the CPU time that numpy and Pillow take; a tenth of it, where it was measured.
    assert min(ratios) < 0.5, ratios
