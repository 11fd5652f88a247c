"""The pages' tables of errors, of the source policy and of the subcommands say what the code says."""

from __future__ import annotations

import dataclasses
import re

from ground import pages

from sglang_mm_ray import errors
from sglang_mm_ray.cli import build_parser
from sglang_mm_ray.sources.policy import SourcePolicy


def test_every_error_has_its_row() -> None:
    rows = {row[0].strip("`"): row for row in pages.rows("Errors", "class")}
    abstract = {"PreprocessError", "InputError"}
    classes = {name for name in errors.__all__ if isinstance(getattr(errors, name), type)}
    assert set(rows) == classes - abstract
    for name, row in rows.items():
        cls = getattr(errors, name)
        assert row[1] == f"`{cls.code}`"
        expected = "if it passes" if name == "FetchError" else "yes" if cls.retriable else "no"
        assert row[2] == expected


def test_every_field_of_the_policy_has_its_row_and_default() -> None:
    rows = {row[0].strip("`"): row[1] for row in pages.rows("Sources", "field")}
    assert list(rows) == [field.name for field in dataclasses.fields(SourcePolicy)]
    policy = SourcePolicy()
    for name, shown in rows.items():
        value = getattr(policy, name)
        if name == "pillow_formats":
            assert set(re.findall(r"[A-Z]\w+", shown)) <= set(value)
        elif isinstance(value, tuple):
            assert re.findall(r"[\w.]+", shown.replace("`", "")) == ([str(item) for item in value] or [shown])
        elif shown.endswith("MiB"):
            assert int(shown.split()[0]) << 20 == value
        else:
            assert float(shown.replace(",", "")) == value


def test_every_subcommand_is_listed() -> None:
    listed = {
        word.split()[0]
        for row in pages.rows("Command line", "command")
        for word in re.findall(r"`([^`]+)`", row[0])
    }
    choices = next(action.choices for action in build_parser()._actions if action.dest == "command")
    assert choices is not None and listed == set(choices)
