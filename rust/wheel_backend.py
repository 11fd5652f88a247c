"""Builds the package as maturin does, and wheels for any Linux of glibc 2.28 or newer.

The C compiler and linker of such a wheel are zig's, which know the symbols of each glibc. What is built for
use in place (`pip install -e .`) takes those of this machine. Build arguments of the caller replace all of it
(`-C build-args=...` or MATURIN_PEP517_ARGS).
"""

from __future__ import annotations

import os
import platform
import sys
from collections.abc import Mapping
from typing import Any

import maturin
from maturin import (
    build_editable,
    build_sdist,
    get_requires_for_build_editable,
    get_requires_for_build_sdist,
    prepare_metadata_for_build_editable,
    prepare_metadata_for_build_wheel,
)

__all__ = [
    "build_editable",
    "build_sdist",
    "build_wheel",
    "get_requires_for_build_editable",
    "get_requires_for_build_sdist",
    "get_requires_for_build_wheel",
    "prepare_metadata_for_build_editable",
    "prepare_metadata_for_build_wheel",
]

# maturin checks the finished wheel against this policy, as `auditwheel` does.
_ARGUMENTS = ["--zig", "--compatibility", "manylinux_2_28"]
_ZIG = "ziglang>=0.13"

Settings = Mapping[str, Any] | None


def _is_portable(settings: Settings) -> bool:
    known = sys.platform == "linux" and platform.machine() in {"x86_64", "aarch64"}
    return known and not maturin.get_maturin_pep517_args(settings)


def get_requires_for_build_wheel(config_settings: Settings = None) -> list[str]:
    """What maturin needs, and zig."""
    required: list[str] = maturin.get_requires_for_build_wheel(config_settings)
    return [*required, _ZIG] if _is_portable(config_settings) else required


def build_wheel(
    wheel_directory: str, config_settings: Settings = None, metadata_directory: str | None = None
) -> str:
    """Writes the wheel; returns its file name."""
    if _is_portable(config_settings):
        config_settings = {**(config_settings or {}), "build-args": _ARGUMENTS}
        # zig is in the environment of this interpreter, which need not be the `python3` of the path.
        os.environ.setdefault("CARGO_ZIGBUILD_PYTHON_PATH", sys.executable)
    name: str = maturin.build_wheel(wheel_directory, config_settings, metadata_directory)
    return name
