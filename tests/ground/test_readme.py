"""The README tells the truth: its commands, its table of published names, its links and its settings."""

from __future__ import annotations

import ast
import dataclasses
import re
import subprocess
import sys
from pathlib import Path

import pytest

from . import tree

README = (tree.ROOT / "README.md").read_text(encoding="utf-8")

# Every name of the document that this project was made from.
PUBLISHED = [
    *(
        "src/lib.rs",
        "src/registry.rs",
        "src/common/mod.rs",
        "src/common/resize.rs",
        "src/common/transforms.rs",
    ),
    *(
        "src/<model>/mod.rs",
        "ImageProcessorSpec",
        "ProcessorRegistry",
        "default_registry",
        "preprocess_batch",
    ),
    *("register", "common::pool", "common::sha256_u64", "common::decode_rescale", "common.resize_rgb"),
    *("common.scaled_dims", "common.image_decode_rgb", "common.data_hash", "common.base64_decode"),
    *("inkling.preprocess_images", "inkling.decode_patchify", "inkling.decode_patchify_batch"),
    *("inkling.patchify_rgb", "normalize_rgb_f32", "pad_to_grid", "extract_patches_hwc", "patch_grid"),
    *("SGL_MM_RS_THREADS", "bench/generate_golden.py", "bench/test_golden.py", "bench/bench_parity.py"),
    *("pip install -e .", "maturin develop --release"),
]


def section(title: str) -> str:
    found = re.search(rf"^## {re.escape(title)}\n(.*?)(?=^## |\Z)", README, re.MULTILINE | re.DOTALL)
    assert found, f"README.md has no section {title!r}"
    return found[1]


def rows(title: str) -> list[list[str]]:
    lines = [line for line in section(title).splitlines() if line.startswith("| `")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


def code(cell: str) -> list[str]:
    return re.findall(r"`([^`]+)`", cell)


TABLE = rows("Where each published name lives")


def test_every_published_name_has_a_row() -> None:
    named = [word for row in TABLE for word in code(row[0])]
    assert [name for name in PUBLISHED if name not in named] == []


@pytest.mark.parametrize("row", TABLE, ids=lambda row: row[0])
def test_place_and_test_of_each_name_exist(row: list[str]) -> None:
    _, places, tests = row
    name = re.split(r"\.|::", code(row[0])[0])[-1] if "/" not in row[0] else ""
    assert code(places)
    assert code(tests)
    for place in code(places):
        assert (tree.ROOT / place).is_file(), place
    if name.isidentifier():
        assert any(name in (tree.ROOT / place).read_text() for place in code(places)), (
            f"{name} is not in {places}"
        )
    for test in code(tests):
        path, _, function = test.partition("::")
        text = (tree.ROOT / path).read_text(encoding="utf-8")
        if path.endswith(".rs"):
            assert re.search(rf"#\[test\]\s+fn {function}\(", text), test
        else:
            names = [node.name for node in ast.walk(ast.parse(text)) if isinstance(node, ast.FunctionDef)]
            assert function in names, test
            assert function.startswith("test_"), test


def test_ci_runs_the_test_command_of_this_page() -> None:
    found = re.search(r"<!-- the test command -->\n```bash\n(.*?)\n```", README, re.DOTALL)
    assert found
    assert tree.run("bash", ".ci/run", "--print") == found[1] + "\n"
    assert "pip install -e '.[test]'" in found[1]


def test_setup_does_nothing_where_all_is_there_and_names_what_is_missing(tmp_path: Path) -> None:
    tree.tool("cargo", "install Rust with rustup")
    tree.run("bash", ".ci/setup")
    for name in ("bash", "id", "cc", "git", "python3"):
        (tmp_path / name).symlink_to(tree.tool(name, "install it"))
    nothing = {"PATH": str(tmp_path), "HOME": str(tmp_path)}
    without_rust = subprocess.run(
        ["bash", ".ci/setup"], cwd=tree.ROOT, env=nothing, capture_output=True, text=True, check=False
    )
    assert without_rust.returncode == 1
    assert "nasm. JPEG decoding will be slow" in without_rust.stderr
    assert "Missing: Rust" in without_rust.stderr
    (tmp_path / "cc").unlink()
    without_compiler = subprocess.run(
        ["bash", ".ci/setup"], cwd=tree.ROOT, env=nothing, capture_output=True, text=True, check=False
    )
    assert without_compiler.returncode == 1
    assert "build-essential" in without_compiler.stderr


def test_links_and_contents_are_complete() -> None:
    titles = re.findall(r"^## (.+)$", README, re.MULTILINE)
    anchors = {re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-"): title for title in titles}
    listed = re.findall(r"^- \[(.+)\]\(#(.+)\)$", README, re.MULTILINE)
    assert [(anchors.get(anchor), title) for title, anchor in listed] == [(title, title) for title in titles]
    for target in re.findall(r"\]\(([^)#]+)\)", README):
        assert target.startswith("https://") or (tree.ROOT / target).exists(), target
    for anchor in re.findall(r"\]\(#([^)]+)\)", README):
        assert anchor in anchors, anchor


def test_settings_are_all_listed_and_all_real() -> None:
    listed = {word for row in rows("Settings") for word in code(row[0])}
    sources = [*tree.files(".rs"), *(path for path in tree.files(".py") if "sglang_mm_ray" in path.parts)]
    used = set(re.findall(r'"((?:SGL_MM|SMR)_[A-Z_]+)"', "\n".join(path.read_text() for path in sources)))
    assert listed == used


def test_sglangs_variables_are_all_listed_with_their_defaults() -> None:
    from sglang_mm_ray.sglang.settings import Settings

    listed = {code(row[0])[0]: row[1] for row in rows("SGLang") if row[0].startswith("`SGLANG_")}
    fields = {f"SGLANG_MM_RAY_{field.name.upper()}": field.default for field in dataclasses.fields(Settings)}
    assert set(listed) == set(fields)
    for name, text in listed.items():
        if code(text):
            assert type(fields[name])(code(text)[0]) == fields[name], name


def test_models_are_all_listed() -> None:
    from sglang_mm_ray import _core

    assert sorted(word for row in rows("Models") for word in code(row[0])) == _core.processor_names()


@pytest.mark.parametrize("title", ["Python", "Building"])
def test_examples_run(title: str) -> None:
    examples = re.findall(r"```python\n(.*?)```", section(title), re.DOTALL)
    assert examples
    # Not the cluster of somebody else on this machine.
    code = "\n".join(examples).replace('Pool(model="inkling")', 'Pool(model="inkling", address="local")')
    printed = tree.run(sys.executable, "-W", "error::ResourceWarning", "-c", code)
    # What the examples say in a comment is what they print.
    for expected in re.findall(r"^print\(.*\)  # (.+)$", "\n".join(examples), re.MULTILINE):
        assert f"{expected}\n" in printed
