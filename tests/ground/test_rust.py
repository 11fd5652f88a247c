"""The Rust side of the one test command: formatting, lints and unit tests of the core."""

from __future__ import annotations

import re

import pytest

from . import tree

RUST = tree.ROOT / "rust"
ADVICE = "install Rust 1.89 or newer with rustup, with its components clippy and rustfmt"

pytestmark = [pytest.mark.ground, pytest.mark.timeout(2400)]


def cargo(*arguments: str) -> str:
    return tree.run(tree.tool("cargo", ADVICE), *arguments, cwd=RUST)


def test_formatting() -> None:
    cargo("fmt", "--check")


def test_unit_tests() -> None:
    output = cargo("test", "--locked", "--quiet")
    passed = sum(int(number) for number in re.findall(r"test result: ok\. (\d+) passed", output))
    assert passed > 10, f"cargo ran only {passed} tests"


@pytest.mark.parametrize("features", [[], ["--features", "python"]], ids=["core", "with-bindings"])
def test_clippy(features: list[str]) -> None:
    cargo("clippy", "--locked", "--quiet", "--all-targets", *features, "--", "-D", "warnings")
