"""SGLang's own class with prepared images, against the same class without: the seam for every family."""

from __future__ import annotations

import asyncio
import base64
import copy
import dataclasses
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from PIL import Image

from sglang_mm_ray.sglang.backend import Feature
from sglang_mm_ray.sglang.prepared_image import PreparedImage
from sglang_mm_ray.sglang.prepared_processor import joined

from .conftest import NEEDS_SGLANG

PHOTOS = sorted((Path(__file__).parents[1] / "data" / "photos").glob("*.[jpw][pne][gb]*"))
VISION = "<|vision_start|><|image_pad|><|vision_end|>"


def _feature() -> Feature:
    return Feature(bytes(32), 1, (1, 2, 2), 1, {}, {})


def _never() -> bytes:
    raise AssertionError("the file was read")


def test_an_image_that_is_only_carried_is_never_read() -> None:
    image = PreparedImage(dataclasses.replace(_feature(), source_size=(320, 200)), _never)
    assert isinstance(image, Image.Image)
    assert (image.size, image.width, image.height) == ((320, 200), 320, 200)
    assert image.mode == "RGB"
    assert copy.deepcopy([image])[0].feature is image.feature


@pytest.mark.parametrize("path", PHOTOS, ids=lambda path: path.name)
def test_who_touches_it_gets_what_pillow_decodes(path: Path) -> None:
    expected = Image.open(path).convert("RGB")
    image = PreparedImage(_feature(), path.read_bytes)
    assert (image.size, image.width, image.height) == (expected.size, *expected.size)
    assert np.array_equal(np.asarray(image), np.asarray(expected))
    small = PreparedImage(_feature(), path.read_bytes).resize((31, 17), Image.Resampling.BICUBIC)
    assert np.array_equal(np.asarray(small), np.asarray(expected.resize((31, 17), Image.Resampling.BICUBIC)))
    converted = PreparedImage(_feature(), path.read_bytes).convert("L")
    assert converted.tobytes() == expected.convert("L").tobytes()


def test_neighbours_in_memory_are_joined_without_a_copy() -> None:
    whole = np.arange(24, dtype=np.float32).reshape(6, 4)
    assert joined([whole[:2], whole[2:5], whole[5:]]).tolist() == whole.tolist()
    assert joined([whole[:2], whole[2:5]]).ctypes.data == whole.ctypes.data
    assert joined([whole[:2], whole[3:5]]).tolist() == whole[[0, 1, 3, 4]].tolist()
    assert joined([whole[2:4], whole[:2]]).tolist() == whole[[2, 3, 0, 1]].tolist()


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from .server.checkpoint import write_checkpoint

    return write_checkpoint(tmp_path_factory.mktemp("seam") / "checkpoint")


def _processor(checkpoint: Path) -> Any:
    from transformers import AutoProcessor

    return AutoProcessor.from_pretrained(checkpoint)


def _config(checkpoint: Path) -> Any:
    from transformers import AutoConfig

    return AutoConfig.from_pretrained(checkpoint)


@pytest.fixture(scope="module")
def reference(server_args: Any, checkpoint: Path) -> Iterator[Any]:
    from sglang.srt.multimodal.processors.qwen_vl import QwenVLImageProcessor

    processor = QwenVLImageProcessor(
        _config(checkpoint), server_args, _processor(checkpoint), "default", skip_mm_pool=True
    )
    yield processor
    processor.shutdown()


@pytest.fixture(scope="module")
def ours(server_args: Any, checkpoint: Path, monkeypatch_module: Any) -> Iterator[Any]:
    from sglang.srt.multimodal.processors.qwen_vl import QwenVLImageProcessor

    from sglang_mm_ray.sglang.layout import Layout
    from sglang_mm_ray.sglang.over_pool import OverPool
    from sglang_mm_ray.sglang.prepared_processor import Outputs
    from sglang_mm_ray.sglang.qwen_vl import checkpoint_parameters

    class QwenVLOverPool(OverPool, QwenVLImageProcessor):  # type: ignore[misc]
        models = QwenVLImageProcessor.models
        family = "qwen_vl"
        outputs = Outputs(("pixel_values",), "image_grid_thw")
        core_parameters = staticmethod(checkpoint_parameters)

        @classmethod
        def layouts(cls, parameters: Any) -> Any:
            return {"pixel_values": Layout(axis=2, copies=2, is_flat=True)}

    monkeypatch_module.setenv("SGLANG_MM_RAY_ADDRESS", "127.0.0.1:1")
    monkeypatch_module.setenv("SGLANG_MM_RAY_ON_UNREACHABLE", "local")
    monkeypatch_module.setenv("SGLANG_MM_RAY_TRANSPORT", "float32")
    processor = QwenVLOverPool(
        _config(checkpoint), server_args, _processor(checkpoint), "default", skip_mm_pool=True
    )
    yield processor
    processor.shutdown()


def _run(processor: Any, images: list[Any], prompt: Any) -> Any:
    request = SimpleNamespace(video_data=None, audio_data=None, rid="r")
    return asyncio.run(processor.process_mm_data_async(images, prompt, request))


@NEEDS_SGLANG
@pytest.mark.filterwarnings("default")
@pytest.mark.parametrize("count", [1, 3])
def test_the_class_makes_the_same_request_of_prepared_images(
    reference: Any, ours: Any, count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    import sglang.srt.multimodal.processors.base_processor as base
    import torch

    files = [path.read_bytes() for path in PHOTOS[:count]]
    urls = ["data:image/png;base64," + base64.b64encode(data).decode() for data in files]
    prompt = "a" + "".join(f"{VISION}{index}" for index in range(count))
    expected = _run(reference, files, prompt)

    def decodes(*_: Any) -> Any:
        raise AssertionError("SGLang's process decodes")

    monkeypatch.setattr(base, "load_image", decodes)
    found = _run(ours, urls, prompt)
    assert found.input_ids == expected.input_ids
    assert torch.equal(found.mrope_positions, expected.mrope_positions)
    assert torch.equal(found.mrope_position_delta, expected.mrope_position_delta)
    assert len(found.mm_items) == len(expected.mm_items) == count
    for our_item, their_item in zip(found.mm_items, expected.mm_items, strict=True):
        assert our_item.offsets == their_item.offsets
        assert torch.equal(our_item.image_grid_thw, their_item.image_grid_thw)
        assert torch.equal(our_item.feature, their_item.feature)
    assert len({item.hash for item in found.mm_items}) == count


@NEEDS_SGLANG
@pytest.mark.filterwarnings("default")
def test_errors_and_placeholders_are_met_before_anything_is_loaded(ours: Any) -> None:
    with pytest.raises(ValueError, match="image 1"):
        _run(ours, [PHOTOS[0].read_bytes(), b"\xff\xd8\xff broken"], VISION * 2)
    with pytest.raises(ValueError, match="placeholders"):
        _run(ours, [PHOTOS[0].read_bytes()], VISION * 2)
