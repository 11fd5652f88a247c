"""Qwen-VL against the installed transformers, with other sizes than the stored values have."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import reference_qwen as qwen
from images import scene
from PIL import Image

from sglang_mm_ray import _core

pytestmark = pytest.mark.skipif(
    not qwen.available(), reason="transformers is not installed; the stored values are tested all the same"
)


def processor(config: qwen.Config, backend: str, **more: Any) -> _core.Processor:
    return _core.processor(
        "qwen_vl", json.dumps(config | {"backend": backend, "expand_temporal": True} | more)
    )


@pytest.mark.parametrize("backend", qwen.BACKENDS)
def test_random_sizes(backend: str) -> None:
    for number, (width, height, budget) in enumerate(qwen.random_sizes(60, seed=2)):
        rgb, config = scene(width, height, number), qwen.RANDOM_BUDGETS[budget][0]
        expected, grid = qwen.pixel_values(config, backend, rgb)
        image = processor(config, backend).preprocess_rgb(rgb, "float32")
        assert list(image.grid) == grid
        found = image.tensors["pixel_values"]
        assert np.array_equal(found.view(np.uint32), expected.view(np.uint32)), (width, height, budget)


@pytest.mark.parametrize("backend", qwen.BACKENDS)
@pytest.mark.parametrize("model", qwen.MODELS)
def test_a_checkpoint_file_means_the_same_to_both(model: str, backend: str) -> None:
    theirs = qwen.image_processor(qwen.MODELS[model], backend)
    ours = json.loads(processor(qwen.MODELS[model], backend).parameters_json)
    for name in (
        "do_resize",
        "do_rescale",
        "do_normalize",
        "patch_size",
        "merge_size",
        "temporal_patch_size",
    ):
        assert ours[name] == getattr(theirs, name), name
    assert ours["temporal_patch_size"] == theirs.temporal_patch_size
    assert ours["size"] == dict(theirs.size)
    assert (ours["image_mean"], ours["image_std"]) == (list(theirs.image_mean), list(theirs.image_std))
    assert (ours["resample"], ours["rescale_factor"]) == (int(theirs.resample), theirs.rescale_factor)


@pytest.mark.parametrize("backend", qwen.BACKENDS)
def test_a_nested_processor_config_is_read_as_transformers_reads_it(backend: str, tmp_path: Path) -> None:
    import transformers

    kinds = {
        "torchvision": transformers.Qwen2VLImageProcessor,
        "pil": transformers.Qwen2VLImageProcessorPil,
    }
    written = json.loads(qwen.image_processor(qwen.QWEN3_VL | {"patch_size": 12}, backend).to_json_string())
    videos = json.loads(transformers.Qwen3VLVideoProcessor().to_json_string())
    nested = {"image_processor": written, "processor_class": "Qwen3VLProcessor", "video_processor": videos}
    (tmp_path / "processor_config.json").write_text(json.dumps(nested))
    # What the nested fields have precedence over.
    (tmp_path / "preprocessor_config.json").write_text(json.dumps(qwen.QWEN2_5_VL))
    theirs = kinds[backend].from_pretrained(tmp_path)
    rgb = scene(131, 97, 3)
    expected = theirs(Image.fromarray(rgb), return_tensors="pt")["pixel_values"].numpy()
    # Which of the two wrote a file does not show in it.
    ours = processor(nested, backend)
    found = ours.preprocess_rgb(rgb, "float32").tensors["pixel_values"]
    assert found.shape[1] == 3 * 2 * 12 * 12
    assert np.array_equal(found.view(np.uint32), expected.view(np.uint32))


def test_class_defaults_are_those_of_today() -> None:
    ours = json.loads(_core.processor("qwen_vl").parameters_json)
    theirs = qwen.image_processor({}, "torchvision")
    assert ours["size"] == dict(theirs.size)
    assert (ours["image_mean"], ours["image_std"]) == (list(theirs.image_mean), list(theirs.image_std))
    assert ours["backend"] == "torchvision"
