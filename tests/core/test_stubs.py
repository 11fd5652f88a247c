"""The stubs of `_core` tell what the compiled module has: every name, and every argument with its default."""

from __future__ import annotations

import ast
import inspect
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from sglang_mm_ray import _core

STUBS = sorted(Path(_core.__file__).with_name("_core").glob("*.pyi"))


def module_of(stub: Path) -> ModuleType:
    return _core if stub.stem == "__init__" else sys.modules[f"{_core.__name__}.{stub.stem}"]


def public(names: Any) -> set[str]:
    return {name for name in names if not name.startswith("_")}


def stub_signature(function: ast.FunctionDef) -> str:
    """The signature as `inspect` prints it, without annotations."""
    arguments = function.args
    for argument in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs):
        argument.annotation = None
    return f"({ast.unparse(arguments)})"


def live_signature(function: Any) -> str:
    return str(inspect.signature(function)).replace("=Ellipsis", "=...").replace(", /", "").replace("/, ", "")


def test_every_submodule_has_a_stub() -> None:
    modules = {
        name for name, value in vars(_core).items() if isinstance(value, ModuleType) and name in _core.__all__
    }
    assert modules == {stub.stem for stub in STUBS} - {"__init__"}
    assert modules >= {"common", "inkling", "transforms"}


@pytest.mark.parametrize("stub", STUBS, ids=lambda stub: stub.stem)
def test_names_and_signatures(stub: Path) -> None:
    module, tree = module_of(stub), ast.parse(stub.read_text())
    declared: dict[str, ast.stmt] = {
        node.name: node for node in tree.body if isinstance(node, ast.FunctionDef | ast.ClassDef)
    }
    modules = {name for name, value in vars(module).items() if isinstance(value, ModuleType)}
    assert set(declared) == public(vars(module)) - modules
    for name, node in declared.items():
        live = getattr(module, name)
        if isinstance(node, ast.FunctionDef):
            assert live_signature(live) == stub_signature(node), name
            assert ast.get_docstring(node) and live.__doc__, f"{name} has no docstring"
            continue
        assert isinstance(node, ast.ClassDef)
        for member in node.body:
            if not isinstance(member, ast.FunctionDef):
                continue
            is_property = any(ast.unparse(d) == "property" for d in member.decorator_list)
            attribute = inspect.getattr_static(live, member.name)
            if is_property:
                assert inspect.isdatadescriptor(attribute), f"{name}.{member.name}"
            elif member.name != "__new__":
                assert live_signature(attribute) == stub_signature(member), f"{name}.{member.name}"
        if not issubclass(live, Exception):
            members = {member.name for member in node.body if isinstance(member, ast.FunctionDef)}
            assert public(members) == public(vars(live)), name


@pytest.mark.parametrize("stub", STUBS, ids=lambda stub: stub.stem)
def test_all_is_the_same_in_stub_and_module(stub: Path) -> None:
    values = [
        ast.literal_eval(node.value)
        for node in ast.parse(stub.read_text()).body
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__"
    ]
    assert values and sorted(values[0]) == sorted(module_of(stub).__all__)
