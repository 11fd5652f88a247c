"""Code written for `sglang.srt.multimodal._core`, unchanged, on our core."""

from __future__ import annotations

import importlib.util
import sys
from types import ModuleType

from .. import _core

__all__ = ["install_alias"]

_PUBLISHED = "sglang.srt.multimodal._core"


def install_alias(name: str = _PUBLISHED) -> ModuleType:
    """Makes `name` and its submodules import as our core; returns the core. Calling it again does nothing.

    Parents that are not installed are made up as empty packages, so this works with and without SGLang; those
    that are installed stay what they are.
    """
    parent_name, _, attribute = name.rpartition(".")
    parent = _parent(parent_name) if parent_name else None
    sys.modules[name] = _core
    for submodule in ("common", "inkling", "transforms", "qwen_vl"):
        if hasattr(_core, submodule):
            sys.modules[f"{name}.{submodule}"] = getattr(_core, submodule)
    if parent is not None:
        setattr(parent, attribute, _core)
    return _core


def _parent(name: str) -> ModuleType:
    module = sys.modules.get(name)
    if module is not None:
        return module
    grandparent_name, _, attribute = name.rpartition(".")
    grandparent = _parent(grandparent_name) if grandparent_name else None
    if importlib.util.find_spec(name) is not None:
        return importlib.import_module(name)
    module = ModuleType(name, "Stands in for a package that is not installed.")
    module.__path__ = []
    sys.modules[name] = module
    if grandparent is not None:
        setattr(grandparent, attribute, module)
    return module
