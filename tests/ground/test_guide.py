"""Follows the guide "Adding a new model" in a copy of the crate, and compares with numpy."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import reference

from . import pages, tree

GUIDE = "Adding a new model"

DRIVER = """
import sys
from pathlib import Path
import numpy as np
data = Path(sys.argv[1]).read_bytes()
exec(compile(sys.argv[2], "README.md", "exec"))
assert "my_model" in _core.processor_names()
np.save(sys.argv[3], patches)
print(image.num_tokens, *image.grid)
"""


def block(language: str, step: str) -> str:
    """The code block of a step of the guide."""
    found = re.search(rf"\*\*{re.escape(step)}.*?```{language}\n(.*?)```", pages.page(GUIDE), re.DOTALL)
    assert found, f"the guide has no {language} code at {step!r}"
    return found[1]


def insert_after(path: Path, anchor: str, line: str) -> None:
    text = path.read_text()
    found = re.search(rf"^([ \t]*){re.escape(anchor)}[^\n]*\n", text, re.MULTILINE)
    assert found, f"{path.name} has no line {anchor!r}"
    path.write_text(text[: found.end()] + found[1] + line.strip() + "\n" + text[found.end() :])


@pytest.mark.ground
@pytest.mark.timeout(1200)
def test_a_family_added_as_the_guide_says(tmp_path: Path, photos: list[Path]) -> None:
    # Always the same place: cargo then builds only what changed since the last time.
    rust = tree.ROOT / "rust/target/guide"
    shutil.rmtree(rust, ignore_errors=True)
    shutil.copytree(tree.ROOT / "rust", rust, ignore=shutil.ignore_patterns("target"))
    (rust / "src/my_model").mkdir()
    (rust / "src/my_model/mod.rs").write_text(block("rust", "1. The family"))
    insert_after(rust / "src/lib.rs", "pub mod inkling;", block("rust", "2. Its module"))
    entry = block("rust", "3. Its entry")
    insert_after(rust / "src/registry.rs", "registry.register(Box::new(crate::inkling::InklingSpec));", entry)

    cargo = tree.tool("cargo", "install Rust 1.89 or newer with rustup")
    # The dependencies come from the tree's own target folder; only the copied crate is compiled anew.
    target = str(tree.ROOT / "rust/target")
    common = ("--locked", "--quiet", "--features", "python", "--target-dir", target)
    tree.run(cargo, "fmt", "--check", cwd=rust)
    tree.run(cargo, "clippy", *common, "--", "-D", "warnings", cwd=rust)
    messages = tree.run(cargo, "build", *common, "--lib", "--message-format", "short", cwd=rust)
    built = Path(target) / "debug/libsglang_mm_ray.so"
    assert built.is_file(), messages

    package = tmp_path / "site/sglang_mm_ray"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text('"""Only the core."""\n')
    shutil.copy(built, package / "_core.abi3.so")
    photo, out = photos[0], tmp_path / "patches.npy"
    done = subprocess.run(
        [sys.executable, "-c", DRIVER, str(photo), block("python", "4. Use it"), str(out)],
        cwd=package.parent,
        env={**tree.environment(), "PYTHONPATH": str(package.parent)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr

    pixels = reference.decode_rgb(photo.read_bytes())
    height, width, _ = pixels.shape
    rows, columns = -(-height // 8), -(-width // 8)
    padded = np.zeros((rows * 8, columns * 8, 3), np.uint8)
    padded[:height, :width] = pixels
    scaled = padded.astype(np.float32) * np.float32(1 / 255)
    normalised = (scaled - np.float32(0.5)) / np.float32(0.5)
    expected = normalised.reshape(rows, 8, columns, 8, 3).swapaxes(1, 2).reshape(-1, 8, 8, 3)
    found = np.load(out)
    assert found.dtype == expected.dtype
    assert np.array_equal(found, expected)
    assert done.stdout.split() == [str(number) for number in (rows * columns, 1, rows, columns)]
