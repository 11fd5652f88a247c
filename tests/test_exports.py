"""The public names are those that are documented, load lazily, and importing the package is light."""

from __future__ import annotations

import subprocess
import sys
import types

import pytest

import sglang_mm_ray as smr


@pytest.mark.parametrize("name", sorted(smr.__all__))
def test_every_public_name_is_there_and_documented(name: str) -> None:
    value = getattr(smr, name)
    assert not isinstance(value, types.ModuleType)
    if name != "__version__":
        assert value.__doc__


def test_all_is_sorted_and_has_the_names_of_the_design() -> None:
    assert smr.__all__ == sorted(smr.__all__)
    assert {"PreprocessPool", "PoolConfig", "ProcessedImage", "SourcePolicy", "gather"} <= set(smr.__all__)
    assert set(smr.__all__) <= set(dir(smr))


def test_a_submodule_never_hides_a_public_name() -> None:

    assert callable(smr.gather)
    with pytest.raises(AttributeError, match="nothing"):
        smr.nothing  # noqa: B018


@pytest.mark.parametrize(
    "statement", ["import sglang_mm_ray", "from sglang_mm_ray import PoolConfig, gather"]
)
def test_importing_loads_neither_ray_nor_torch(statement: str) -> None:
    program = f"{statement}; import sys; print(*sorted({{'ray', 'torch', 'sglang'}} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == ""
