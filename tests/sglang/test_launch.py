"""A server that was told to use the pool does so, or does not start."""

from __future__ import annotations

import importlib
import subprocess
import sys

import pytest

from .conftest import NEEDS_SGLANG

pytestmark = [NEEDS_SGLANG, pytest.mark.filterwarnings("default")]

# As `TokenizerManager` does at launch.
_PROGRAM = """
import sys
broken = sys.argv[1]
if broken:
    class Finder:
        def find_spec(self, name, path=None, target=None):
            if name == broken:
                raise ImportError("a library is missing")
    sys.meta_path.insert(0, Finder())
from sglang.srt.managers import multimodal_processor as m
m.import_processors("sglang_mm_ray.sglang", overwrite=True)
print(sorted(processor.__name__ for processor in m.PROCESSOR_MAPPING.values())[0])
"""


def _launch(broken: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-W", "ignore", "-c", _PROGRAM, broken]
    return subprocess.run(command, capture_output=True, text=True, timeout=500)


def test_processors_of_this_package_are_taken() -> None:
    done = _launch("")
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout.split()[-1] == "InklingPoolProcessor"


@pytest.mark.parametrize("module", ["qwen_vl", "layout"])
def test_one_that_cannot_be_imported_ends_the_launch(module: str) -> None:
    done = _launch(f"sglang_mm_ray.sglang.{module}")
    assert done.returncode == 1
    message = done.stderr.splitlines()[-1]
    assert "a library is missing" in message
    assert "SGLANG_EXTERNAL_MM_PROCESSOR_PACKAGE" in message


def test_the_hooks_of_this_sglang_are_where_they_are_looked_for() -> None:
    importlib.import_module("sglang_mm_ray.sglang.materialise").check_hooks()
