"""The pages tell the truth: commands, links, settings, examples; and where each published name lives."""

from __future__ import annotations

import ast
import dataclasses
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from . import pages, tree

PUBLISHED = json.loads((tree.ROOT / "tests/ground/published.json").read_text(encoding="utf-8"))


@pytest.mark.parametrize("published", PUBLISHED, ids=lambda published: published["name"])
def test_place_and_test_of_each_published_name_exist(published: dict[str, Any]) -> None:
    name = "" if "/" in published["name"] else re.split(r"\.|::", published["name"])[-1]
    assert published["where"]
    for place in published["where"]:
        assert (tree.ROOT / place).is_file(), place
    if name.isidentifier():
        texts = [(tree.ROOT / place).read_text(encoding="utf-8") for place in published["where"]]
        assert any(name in text for text in texts), f"{name} is not in {published['where']}"
    path, _, function = published["test"].partition("::")
    text = (tree.ROOT / path).read_text(encoding="utf-8")
    if path.endswith(".rs"):
        assert re.search(rf"#\[test\]\s+fn {function}\(", text), published["test"]
    else:
        names = [node.name for node in ast.walk(ast.parse(text)) if isinstance(node, ast.FunctionDef)]
        assert function in names, published["test"]
        assert function.startswith("test_"), published["test"]


def test_ci_runs_the_test_command_of_the_first_page() -> None:
    shown = pages.command("the test command")
    assert tree.run("bash", ".ci/run", "--print") == shown + "\n"
    assert "pip install -e '.[test]'" in shown


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


@pytest.mark.parametrize("path", pages.PAGES, ids=lambda path: str(path.relative_to(tree.ROOT)))
def test_links_lead_somewhere(path: Path) -> None:
    for target in re.findall(r"\]\(([^)]+)\)", pages.PAGES[path]):
        if target.startswith("https://"):
            continue
        file, _, anchor = target.partition("#")
        place = (path.parent / file).resolve() if file else path
        assert place.exists(), target
        if anchor:
            assert anchor in pages.anchors(place), target


@pytest.mark.parametrize("path", pages.PAGES, ids=lambda path: str(path.relative_to(tree.ROOT)))
def test_contents_are_complete(path: Path) -> None:
    text = pages.PAGES[path]
    listed = re.findall(r"^- \[.+\]\(#(.+)\)$", text, re.MULTILINE)
    titles = re.findall(r"^## (.+)$", text, re.MULTILINE)
    if listed:
        assert listed == [re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-") for title in titles]


def test_every_page_is_linked_from_the_first() -> None:
    first = tree.ROOT / "README.md"
    linked = {(tree.ROOT / target).resolve() for target in re.findall(r"\]\(([^)#]+)", pages.PAGES[first])}
    assert {path for path in pages.PAGES if path.parent.name != "photos"} - {first} <= linked


def test_settings_are_all_listed_and_all_real() -> None:
    listed = {word for row in pages.rows("Threads and instruction sets") for word in pages.code(row[0])}
    sources = [*tree.files(".rs"), *(path for path in tree.files(".py") if "sglang_mm_ray" in path.parts)]
    used = set(re.findall(r'"((?:SGL_MM|SMR)_[A-Z_]+)"', "\n".join(path.read_text() for path in sources)))
    assert listed == used


def test_sglangs_variables_are_all_listed_with_their_defaults() -> None:
    from sglang_mm_ray.sglang.settings import Settings

    listed = {
        pages.code(row[0])[0]: row[1] for row in pages.rows("Variables") if row[0].startswith("`SGLANG_")
    }
    fields = {f"SGLANG_MM_RAY_{field.name.upper()}": field.default for field in dataclasses.fields(Settings)}
    assert set(listed) == set(fields)
    for name, text in listed.items():
        if pages.code(text):
            assert type(fields[name])(pages.code(text)[0]) == fields[name], name


def test_models_are_all_listed() -> None:
    from sglang_mm_ray import _core

    assert (
        sorted(word for row in pages.rows("Models") for word in pages.code(row[0])) == _core.processor_names()
    )


@pytest.mark.parametrize("title", ["Python", "The published functions", "Building"])
def test_examples_run(title: str) -> None:
    examples = pages.examples(title, "python")
    assert examples
    # Not the cluster of somebody else on this machine.
    code = "\n".join(examples).replace('Pool(model="inkling")', 'Pool(model="inkling", address="local")')
    printed = tree.run(sys.executable, "-W", "error::ResourceWarning", "-c", code)
    # What the examples say in a comment is what they print.
    for expected in re.findall(r"^print\(.*\)  # (.+)$", "\n".join(examples), re.MULTILINE):
        assert f"{expected}\n" in printed
