"""What the checks of the tree share: which files there are, and how a tool is run."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import sglang_mm_ray

ROOT = Path(__file__).resolve().parents[2]
GENERATED_FOLDERS = {"target", "__pycache__", "dist", "node_modules"}


def files(*suffixes: str) -> list[Path]:
    """Files of the tree that git tracks or would track, with one of the suffixes if any are given."""
    if (ROOT / ".git").exists():
        command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
        listed = (
            subprocess.run(command, cwd=ROOT, capture_output=True, check=True).stdout.decode().split("\0")
        )
        found = [ROOT / name for name in listed if name]
    else:
        found = [
            path
            for path in ROOT.rglob("*")
            if not any(
                part in GENERATED_FOLDERS or part.startswith(".") for part in path.relative_to(ROOT).parts
            )
        ]
    return sorted(path for path in found if path.is_file() and (not suffixes or path.suffix in suffixes))


def environment() -> dict[str, str]:
    """The environment with this interpreter's scripts first: cmake and python3 live there."""
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
    cargo_home = os.environ.get("CARGO_HOME", str(Path.home() / ".cargo"))
    # Scripts run outside the tree's root still find the package under test, wherever it was imported from.
    package = str(Path(sglang_mm_ray.__file__).parents[1])
    python_path = os.pathsep.join(filter(None, [package, os.environ.get("PYTHONPATH")]))
    path = os.pathsep.join([path, str(Path(cargo_home) / "bin")])
    return {**os.environ, "PATH": path, "PYTHONPATH": python_path}


def tool(name: str, advice: str) -> str:
    """Path of a program. Fails the test, never skips it, if there is none."""
    found = shutil.which(name, path=environment()["PATH"])
    if found is None:
        pytest.fail(f"{name} is missing: {advice}")
    return found


def run(*command: str, cwd: Path = ROOT) -> str:
    """Runs a program and returns what it printed. Fails the test with its output if it fails."""
    done = subprocess.run(
        command,
        cwd=cwd,
        env=environment(),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        pytest.fail(
            f"{' '.join(command)} ended with {done.returncode}:\n{done.stdout[-8000:]}", pytrace=False
        )
    return done.stdout
