"""Qwen-VL against what transformers' two image processors gave, bit for bit, at every SIMD level."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import generate_golden_qwen as golden
import numpy as np
import pytest
import reference
import reference_qwen as qwen
from images import scene
from numpy.typing import NDArray

from sglang_mm_ray import _core


@pytest.fixture(scope="module")
def facts() -> dict[str, Any]:
    return golden.stored()[0]


@pytest.fixture(autouse=True)
def pass_order() -> Iterator[None]:
    """The order of the Pillow that made the values."""
    _core.common.set_vertical_first_when_tall(True)
    yield
    _core.common.set_vertical_first_when_tall(reference.pillow_is_vertical_first())


def processor(config: qwen.Config, backend: str, **more: Any) -> _core.Processor:
    fields = config | {"backend": backend, "expand_temporal": True} | more
    return _core.processor("qwen_vl", json.dumps(fields))


def tensor(processor: _core.Processor, rgb: NDArray[np.uint8], transport: str) -> NDArray[Any]:
    image = processor.preprocess_rgb(rgb, transport, digest=bytes(32))
    [values] = image.tensors.values()
    return values


def digests(processor: _core.Processor, rgb: NDArray[np.uint8]) -> list[Any]:
    grid = list(processor.preprocess_rgb(rgb, "uint8", digest=bytes(32)).grid)
    return [grid, *(qwen.digest(tensor(processor, rgb, name)) for name in ("float32", "bf16", "uint8"))]


def test_the_values_come_from_the_pinned_versions(facts: dict[str, Any]) -> None:
    versions = facts["versions"]
    assert versions["transformers"].split(".")[0] == "5" and versions["PIL"].startswith("13.")
    assert versions["aten_cpu_capability"] in ("AVX2", "AVX512")


@pytest.mark.parametrize("backend", qwen.BACKENDS)
@pytest.mark.parametrize("model", ["qwen2_5_vl", "qwen3_vl"])
def test_every_value_of_a_small_picture(model: str, backend: str, level: str) -> None:
    budget = {"qwen2_5_vl": {}, "qwen3_vl": {"size": {"longest_edge": 4096, "shortest_edge": 1024}}}
    found = tensor(processor(qwen.MODELS[model] | budget[model], backend), scene(61, 33, seed=2), "float32")
    expected = golden.stored()[1][f"{model}.{backend}"]
    assert found.shape == expected.shape
    wrong = np.argwhere(found.view(np.uint32) != expected.view(np.uint32))
    assert len(wrong) == 0, f"{len(wrong)} of {expected.size} values differ, first at {wrong[0].tolist()}"


@pytest.mark.parametrize("index", [0, 1], ids=qwen.BACKENDS)
def test_a_thousand_random_sizes(index: int, facts: dict[str, Any]) -> None:
    backend = qwen.BACKENDS[index]
    processors = [processor(config, backend) for config, _ in qwen.RANDOM_BUDGETS]
    assert len(facts["random"]) == golden.RANDOM_COUNT >= 1000
    wrong = []
    for number, (width, height, budget, *expected) in enumerate(facts["random"]):
        values = tensor(processors[budget], scene(width, height, number), "float32")
        if qwen.digest(values) != expected[index]:
            wrong.append((width, height, budget))
    assert wrong == []


def test_some_random_sizes_at_every_level(level: str, facts: dict[str, Any]) -> None:
    for index, backend in enumerate(qwen.BACKENDS):
        for number in range(0, golden.RANDOM_COUNT, 17):
            width, height, budget, *expected = facts["random"][number]
            made = processor(qwen.RANDOM_BUDGETS[budget][0], backend)
            values = tensor(made, scene(width, height, number), "float32")
            assert qwen.digest(values) == expected[index], (backend, width, height)


@pytest.mark.parametrize("mode", qwen.MODES | qwen.PIL_MODES)
def test_every_mode(mode: str, level: str, facts: dict[str, Any]) -> None:
    config = (qwen.MODES | qwen.PIL_MODES)[mode]
    rgb = scene(*(qwen.WHOLE_SIZE if mode == "no_resize" else qwen.MODE_SIZE), seed=5)
    for backend, expected in facts["modes"][mode].items():
        assert digests(processor(config, backend), rgb) == expected, backend


def test_every_photo_by_model_and_backend(photo: Path, facts: dict[str, Any]) -> None:
    data = photo.read_bytes()
    rgb = reference.decode_rgb(data)
    for name, expected in facts["photos"][photo.name].items():
        model, backend = name.split(".")
        made = processor(qwen.MODELS[model], backend)
        assert digests(made, rgb) == expected, name
        [image] = made.preprocess_batch([data], "bf16")
        assert isinstance(image, _core.Processed), image
        assert qwen.digest(image.tensors["pixel_values"]) == expected[2]


def test_the_resize_of_torchvision_does_not_depend_on_the_instruction_set(facts: dict[str, Any]) -> None:
    """But its bilinear filter does: without AVX2 torchvision resizes in floats. The core always gives the
    values of CPUs that have it."""
    by_set = facts["instruction_sets"]
    numbers = {"lanczos": 1, "bilinear": 2, "bicubic": 3}
    for name, resample in numbers.items():
        found = []
        for width, height, pixels in golden.RESIZES:
            budget = {"shortest_edge": pixels, "longest_edge": pixels}
            made = processor({"resample": resample, "size": budget}, "torchvision")
            found.append(qwen.digest(tensor(made, scene(width, height, 3), "uint8")))
        assert found == by_set["avx2"][name] == by_set["avx512"][name]
        assert (found == by_set["default"][name]) == (name != "bilinear")


def test_smart_resize(facts: dict[str, Any]) -> None:
    refused = 0
    for *case, expected in facts["smart_resize"]:
        if expected is None:
            refused += 1
            with pytest.raises(_core.InvalidArgument, match="over the limit of 200"):
                _core.qwen_vl.smart_resize_py(*case)
        else:
            assert list(_core.qwen_vl.smart_resize_py(*case)) == expected, case
    assert refused == 12


def test_rotary_positions(facts: dict[str, Any]) -> None:
    for model, prompt, merge, positions, delta in facts["rope"]:
        length, items = qwen.spans(prompt, merge)
        flat, found = _core.qwen_vl.mrope_image_only_py(length, items, merge)
        assert flat.dtype == np.int64
        assert flat.reshape(3, -1).tolist() == positions, (model, prompt)
        assert found == delta, (model, prompt)
