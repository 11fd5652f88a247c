"""Every family against what its own reference gave, every value of every tensor, for encoded images."""

from __future__ import annotations

import functools
import json
from collections.abc import Iterator
from typing import Any

import generate_golden_families as golden
import numpy as np
import pytest
import reference
from numpy.typing import NDArray
from reference_families import inputs
from reference_families.registry import FAMILIES

from sglang_mm_ray import _core
from sglang_mm_ray.sources.policy import SourcePolicy
from sglang_mm_ray.sources.upright import upright_rgb

# Families whose golden values wait for the core. It is empty in the end.
NOT_YET: set[str] = {
    "internvl_sglang",
    "kimi_k3",
    "llava",
    "llava_hf",
    "mimo_v2",
    "minicpmv",
    "minicpmv4_6",
    "minicpmv4_6_sglang",
    "phi4_multimodal",
    "step3",
    "step3p7",
}
# Golden values that have a name of their own, and the family that they are of.
SERVED_BY = {"gemma3_pan_and_scan": "gemma3"}
# Grids that an image may carry as such.
GRIDS = {"image_grid_thw", "grid_thws", "image_grid_hws"}
stored = functools.cache(golden.stored)
VARIANTS = [(family, name) for family in sorted(FAMILIES) for name in stored(family)[0]["variants"]]
HERE = [row for row in VARIANTS if row[0] not in NOT_YET]


@pytest.fixture(autouse=True)
def pass_order() -> Iterator[None]:
    """The order of the Pillow that made the values."""
    _core.common.set_vertical_first_when_tall(True)
    yield
    _core.common.set_vertical_first_when_tall(reference.pillow_is_vertical_first())


def cases(family: str, variant: str) -> list[dict[str, Any]]:
    return [case for case in stored(family)[0]["cases"] if case["variant"] == variant]


def made(family: str, variant: str) -> _core.Processor:
    fields = stored(family)[0]["variants"][variant]["parameters"]
    return _core.processor(SERVED_BY.get(family, family), json.dumps(fields))


def answer(family: str, processor: _core.Processor, case: dict[str, Any], transport: str) -> Any:
    data = inputs.encoded(inputs.parse(case["input"]))
    request = stored(family)[0]["variants"][case["variant"]]["request"]
    if processor.load == "upright" and (turned := upright_rgb(data, SourcePolicy())) is not None:
        return processor.preprocess_rgb(turned[0], transport, request=request)
    [image] = processor.preprocess_batch([data], transport, request=request)
    return image


def with_copies(found: NDArray[Any], shape: list[int]) -> NDArray[Any]:
    """Patches of one frame as the reference repeats it; anything else as it is."""
    if found.ndim == 5 and found.shape[2] == 1 and len(shape) == 2:
        copies = shape[1] * shape[0] // found.size
        return np.repeat(found, copies, axis=2).reshape(len(found), -1)
    return found


def transport_of(case: dict[str, Any]) -> str:
    """The one that leaves the reference's own type of floats as it is."""
    dtypes = {row["dtype"] for row in case.get("tensors", {}).values()}
    return "bf16" if "bfloat16" in dtypes else "float16" if "float16" in dtypes else "float32"


def tensor_fault(family: str, case: dict[str, Any], name: str, found: NDArray[Any] | None, dtype: str) -> str:
    """What is wrong with a tensor, or nothing."""
    row = case["tensors"][name]
    if found is None:
        return f"{name} is missing" if 0 not in row["shape"] else ""
    found = with_copies(found, row["shape"])
    if dtype != row["dtype"] or list(found.shape) != row["shape"]:
        return f"{name} is {dtype} {list(found.shape)}, not {row['dtype']} {row['shape']}"
    if golden.digest(found) == row["sha256"]:
        return ""
    expected = stored(family)[1][f"{case['variant']}|{case['input']}|{name}"]
    wrong = [(float(a), float(b)) for a, b in zip(golden.samples(found), expected, strict=True) if a != b]
    return f"{name} differs; of {len(expected)} samples {len(wrong)} do: {wrong[:3]} (found, expected)"


def faults(family: str, case: dict[str, Any], image: Any) -> list[str]:
    """What is wrong with an answer."""
    if "refused" in case:
        fine = isinstance(image, _core.InputError)
        return [] if fine else [f"{image!r} where the reference says: {case['refused']}"]
    if isinstance(image, Exception):
        return [repr(image)]
    found = []
    if image.num_tokens != case["num_tokens"]:
        found.append(f"{image.num_tokens} tokens, not {case['num_tokens']}")
    for name, row in case["tensors"].items():
        if name in GRIDS and name not in image.tensors:
            if list(image.grid)[-len(row["values"][0]) :] != row["values"][0]:
                found.append(f"the grid is {image.grid}, not {row['values'][0]}")
            continue
        array = image.tensors.get(name)
        found.append(tensor_fault(family, case, name, array, image.dtypes.get(name, "")))
    extra = set(image.tensors) - set(case["tensors"])
    return [fault for fault in found if fault] + ([f"more tensors: {sorted(extra)}"] if extra else [])


def test_each_family_is_registered_or_waits_by_name() -> None:
    registered = set(_core.processor_names())
    assert set(FAMILIES) - set(SERVED_BY) - registered == NOT_YET


@pytest.mark.parametrize(("family", "variant"), HERE)
def test_every_value(family: str, variant: str) -> None:
    processor = made(family, variant)
    wrong = []
    for case in cases(family, variant):
        transport = transport_of(case)
        for fault in faults(family, case, answer(family, processor, case, transport)):
            wrong.append(f"{case['input']}: {fault}")
    assert wrong == []


@pytest.mark.parametrize(("family", "variant"), HERE)
def test_every_value_as_bfloat16(family: str, variant: str) -> None:
    processor = made(family, variant)
    wrong = []
    for case in cases(family, variant):
        rounded = {name: row["bf16"] for name, row in case.get("tensors", {}).items() if "bf16" in row}
        if not rounded:
            continue
        image = answer(family, processor, case, "bf16")
        if isinstance(image, Exception):
            wrong.append(f"{case['input']}: {image!r}")
            continue
        for name, expected in rounded.items():
            found = with_copies(image.tensors[name], case["tensors"][name]["shape"])
            if image.dtypes[name] != "bfloat16" or golden.digest(found) != expected:
                wrong.append(f"{case['input']}: {name}")
    assert wrong == []


@pytest.mark.parametrize("family", sorted(FAMILIES))
def test_the_stored_values_are_of_these_images_and_parameters(family: str) -> None:
    table = stored(family)[0]
    variants = FAMILIES[family]()
    asked = {
        variant.name: {"parameters": variant.parameters, "request": variant.request} for variant in variants
    }
    assert table["variants"] == json.loads(json.dumps(asked))
    pairs = [(variant.name, str(item)) for variant in variants for item in variant.inputs]
    assert [(case["variant"], case["input"]) for case in table["cases"]] == pairs
    assert len(set(pairs)) == len(pairs)
    names = {item for _, item in pairs}
    assert {name: inputs.pixels_digest(inputs.parse(name)) for name in names} == table["inputs"]
    assert not np.isnan(
        [value for array in stored(family)[1].values() for value in array[:1].astype(float)]
    ).any()
