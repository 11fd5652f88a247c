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
from PIL import Image

from . import pages, tree

GUIDE = "Adding a new model"

DRIVER = """
import sys
from pathlib import Path
import numpy as np
data = Path(sys.argv[1]).read_bytes()
exec(compile(sys.argv[2], "README.md", "exec"))
assert "my_model" in _core.processor_names()
np.savez(sys.argv[3], tiles=tiles, tile_grid=tile_grid)
print(image.num_tokens, *image.grid)
"""


def block(language: str, step: str) -> str:
    """The code block of a step of the guide."""
    found = re.search(rf"\*\*{re.escape(step)}.*?```{language}\n(.*?)```", pages.page(GUIDE), re.DOTALL)
    assert found, f"the guide has no {language} code at {step!r}"
    return found[1]


def insert_after(path: Path, anchor: str, text: str) -> None:
    before = path.read_text()
    assert before.count(anchor) == 1, f"{path.name} has not one {anchor!r}"
    path.write_text(before.replace(anchor, f"{anchor}\n{text}"))


@pytest.mark.ground
@pytest.mark.timeout(1200)
def test_a_family_added_as_the_guide_says(tmp_path: Path, photos: list[Path]) -> None:
    # Always the same place: cargo then builds only what changed since the last time.
    rust = tree.ROOT / "rust/target/guide"
    shutil.rmtree(rust, ignore_errors=True)
    shutil.copytree(tree.ROOT / "rust", rust, ignore=shutil.ignore_patterns("target"))
    family = block("rust", "1. The family")
    assert len(family.splitlines()) < 60
    (rust / "src/families/my_model.rs").write_text(family)
    families = rust / "src/families/mod.rs"
    insert_after(families, "pub mod inkling;", block("rust", "2. Its module"))
    insert_after(families, "inkling::SPEC,", block("rust", "3. Its entry"))

    cargo = tree.tool("cargo", "install Rust 1.89 or newer with rustup")
    # Where entries break over lines is not for the guide to say.
    tree.run(cargo, "fmt", "--", "src/families/mod.rs", cwd=rust)
    assert (rust / "src/families/my_model.rs").read_text() == family
    # The dependencies come from the tree's own target folder; only the copied crate is compiled anew.
    target = str(tree.ROOT / "rust/target")
    common = ("--locked", "--quiet", "--features", "python", "--target-dir", target)
    tree.run(cargo, "clippy", *common, "--", "-D", "warnings", cwd=rust)
    messages = tree.run(cargo, "build", *common, "--lib", "--message-format", "short", cwd=rust)
    built = Path(target) / "debug/libsglang_mm_ray.so"
    assert built.is_file(), messages

    package = tmp_path / "site/sglang_mm_ray"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text('"""Only the core."""\n')
    shutil.copy(built, package / "_core.abi3.so")
    photo, out = photos[0], tmp_path / "tensors.npz"
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
    rows, columns = -(-height // 96), -(-width // 96)
    padded = np.full((rows * 96, columns * 96, 3), 127, np.uint8)
    padded[:height, :width] = pixels
    tiles = padded.reshape(rows, 96, columns, 96, 3).swapaxes(1, 2).reshape(-1, 96, 96, 3)
    thumbnail = np.asarray(Image.fromarray(pixels).resize((96, 96), Image.Resampling.BICUBIC))
    scaled = np.concatenate([tiles, thumbnail[None]]).astype(np.float32) / np.float32(255)
    expected = ((scaled - np.float32(0.5)) / np.float32(0.5)).transpose(0, 3, 1, 2)
    found = np.load(out)
    assert found["tiles"].dtype == expected.dtype
    assert np.array_equal(found["tiles"], expected)
    assert found["tile_grid"].dtype == np.int64 and found["tile_grid"].tolist() == [rows, columns]
    count = rows * columns + 1
    assert done.stdout.split() == [str(number) for number in (256 * count, count, 1, 1)]
