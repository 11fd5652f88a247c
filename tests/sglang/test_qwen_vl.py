"""Our Qwen-VL processor against SGLang's own: ids, offsets, grids, positions, features and errors."""

from __future__ import annotations

import asyncio
import base64
import hashlib
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from .conftest import NEEDS_SGLANG

pytestmark = [NEEDS_SGLANG, pytest.mark.filterwarnings("default")]

PHOTOS = sorted((Path(__file__).parents[1] / "data" / "photos").glob("*.[jpw][pne][gb]*"))
START, END, IMAGE, VIDEO = 151652, 151653, 151655, 151656


class _Tokenizer:
    def encode(self, text: str) -> list[int]:
        return [ord(character) for character in text]

    def convert_ids_to_tokens(self, ids: list[int]) -> list[str]:
        return [f"<{token}>" for token in ids]


class _Processor:
    def __init__(self) -> None:
        from transformers import Qwen2VLImageProcessor

        # Qwen3-VL's patch and merge sizes; a small budget, so that photos shrink.
        self.image_processor = Qwen2VLImageProcessor(
            patch_size=16,
            image_mean=[0.5, 0.5, 0.5],
            image_std=[0.5, 0.5, 0.5],
            size={"shortest_edge": 65536, "longest_edge": 262144},
        )
        self.tokenizer = _Tokenizer()


class _Config(SimpleNamespace):
    def to_dict(self) -> dict[str, Any]:
        return {"model_type": self.model_type}


@pytest.fixture(scope="module")
def config() -> _Config:
    return _Config(
        model_type="qwen3_vl",
        architectures=["Qwen3VLForConditionalGeneration"],
        vision_start_token_id=START,
        vision_end_token_id=END,
        image_token_id=IMAGE,
        video_token_id=VIDEO,
        vision_config=SimpleNamespace(spatial_merge_size=2),
        dtype="float32",
    )


@pytest.fixture(scope="module")
def reference(server_args: Any, config: Any) -> Iterator[Any]:
    from sglang.srt.multimodal.processors.qwen_vl import QwenVLImageProcessor

    processor = QwenVLImageProcessor(config, server_args, _Processor(), "default", skip_mm_pool=True)
    yield processor
    processor.shutdown()


@pytest.fixture(scope="module", params=["", "bf16"])
def transport(request: pytest.FixtureRequest) -> str:
    """None said, and one that the model does not compute in."""
    name: str = request.param
    return name


@pytest.fixture(scope="module")
def ours(transport: str, server_args: Any, config: Any, monkeypatch_module: Any) -> Iterator[Any]:
    from sglang_mm_ray.sglang.qwen_vl import QwenVLPoolProcessor

    monkeypatch_module.setenv("SGLANG_MM_RAY_POOL", "nobody-started-this")
    monkeypatch_module.setenv("SGLANG_MM_RAY_ADDRESS", "127.0.0.1:1")
    monkeypatch_module.setenv("SGLANG_MM_RAY_ON_UNREACHABLE", "local")
    monkeypatch_module.setenv("SGLANG_MM_RAY_TRANSPORT", transport)
    processor = QwenVLPoolProcessor(config, server_args, _Processor(), "default", skip_mm_pool=True)
    yield processor
    processor.shutdown()


def _run(processor: Any, images: list[Any], prompt: list[int], **fields: Any) -> Any:
    request = SimpleNamespace(video_data=None, audio_data=None, rid="r", **fields)
    return asyncio.run(processor.process_mm_data_async(images, prompt, request))


def _prompt(images: int) -> list[int]:
    return [7, 8, *(token for index in range(images) for token in (START, IMAGE, END, 50 + index))]


def test_photos_become_the_same_request(reference: Any, ours: Any, transport: str) -> None:
    import torch

    images = [path.read_bytes() for path in PHOTOS]
    assert len(images) >= 8
    expected, found = (_run(processor, images, _prompt(len(images))) for processor in (reference, ours))
    assert found.input_ids == expected.input_ids
    assert torch.equal(found.mrope_positions, expected.mrope_positions)
    assert torch.equal(found.mrope_position_delta, expected.mrope_position_delta)
    assert len(found.mm_items) == len(expected.mm_items) == len(images)
    hashes = set()
    for our_item, their_item in zip(found.mm_items, expected.mm_items, strict=True):
        assert our_item.offsets == their_item.offsets
        assert torch.equal(our_item.image_grid_thw, their_item.image_grid_thw)
        assert our_item.feature.shape == their_item.feature.shape
        assert our_item.feature.dtype == {"": torch.float32, "bf16": torch.bfloat16}[transport]
        assert torch.equal(our_item.feature, their_item.feature.to(our_item.feature.dtype))
        hashes.add(our_item.hash)
    assert len(hashes) == len(images)
    # The scheduler's radix key: each image's span is padded with sentinels of its own hash.
    for item in found.mm_items:
        [(start, end)] = item.offsets
        assert found.padded_input_ids[start : end + 1] == item.padding_sequence(end + 1 - start)


def test_a_url_and_its_bytes_are_one_identity(ours: Any) -> None:
    data = PHOTOS[0].read_bytes()
    url = "data:image/png;base64," + base64.b64encode(data).decode()
    first, second = _run(ours, [data, {"url": url}], _prompt(2)).mm_items
    assert first.hash == second.hash


def test_claimed_content_hashes_are_checked(ours: Any) -> None:
    data = PHOTOS[0].read_bytes()
    right = "sha256:" + hashlib.sha256(data).hexdigest()
    assert _run(ours, [data], _prompt(1), mm_content_hashes=[right]).mm_items
    for wrong in (["sha256:" + "0" * 64], [right, right]):
        with pytest.raises(ValueError, match="mm_content_hashes"):
            _run(ours, [data], _prompt(1), mm_content_hashes=wrong)


def test_images_without_a_placeholder_are_left_out_as_sglang_does(reference: Any, ours: Any) -> None:
    images = [path.read_bytes() for path in PHOTOS[:3]]
    for placeholders in (2, 1):
        prompt = _prompt(placeholders)
        expected, found = _run(reference, images[:placeholders], prompt), _run(ours, images, prompt)
        assert list(found.input_ids) == list(expected.input_ids)
        assert [item.offsets for item in found.mm_items] == [item.offsets for item in expected.mm_items]


@pytest.mark.parametrize("prompt", [_prompt(2), [7, START, *[IMAGE] * 64, END, 8]])
def test_placeholders_without_an_image_are_the_callers_fault(ours: Any, prompt: list[int]) -> None:
    # SGLang itself never answers these: its StopIteration cannot leave a future.
    with pytest.raises(ValueError, match="placeholders for 1 images"):
        _run(ours, [PHOTOS[0].read_bytes()], prompt)


def test_the_class_says_which_backend_is_meant() -> None:
    from transformers import Qwen2VLImageProcessor, Qwen2VLImageProcessorPil

    from sglang_mm_ray.sglang.qwen_vl import checkpoint_parameters

    assert checkpoint_parameters(Qwen2VLImageProcessor())["backend"] == "torchvision"
    assert checkpoint_parameters(Qwen2VLImageProcessorPil())["backend"] == "pil"


def test_pad_sentinels_are_sglangs() -> None:
    from sglang.srt.managers.schedule_batch import Modality, MultimodalDataItem

    from sglang_mm_ray.sglang.processor_output import pad_values

    for content_hash in (0, 1, 0xBA7816BF8F01CFEA, 2**64 - 1):
        item = MultimodalDataItem(modality=Modality.IMAGE)
        item.set_hash(content_hash)
        assert pad_values(content_hash) == item.pad_values


@pytest.mark.parametrize("count", [1, 3])
def test_processor_output_dicts_give_the_same_request_as_raw_images(reference: Any, count: int) -> None:
    import torch

    import sglang_mm_ray as smr
    from sglang_mm_ray.sglang.processor_output import pad_values, qwen_vl_processor_output
    from sglang_mm_ray.sglang.qwen_vl import checkpoint_parameters

    files = [path.read_bytes() for path in PHOTOS[:count]]
    prompt = _prompt(count)
    parameters = checkpoint_parameters(_Processor().image_processor)
    with smr.PreprocessPool(model="qwen_vl", parameters=parameters, transport="float32") as pool:
        images = pool.preprocess(files)
        ids, entry = qwen_vl_processor_output(images, prompt, image_token_id=IMAGE)
        expected, found = _run(reference, files, prompt), _run(reference, [entry], ids)
        hashes = [image.content_hash for image in images]
        assert found.input_ids == expected.input_ids == ids
        assert torch.equal(found.mrope_positions, expected.mrope_positions)
        assert torch.equal(found.mrope_position_delta, expected.mrope_position_delta)
        assert [item.offsets for item in found.mm_items] == [item.offsets for item in expected.mm_items]
        for ours, theirs in zip(found.mm_items, expected.mm_items, strict=True):
            assert torch.equal(ours.feature, theirs.feature)
            assert torch.equal(ours.image_grid_thw.reshape(-1), theirs.image_grid_thw.reshape(-1))
        # Every image has sentinels of its own, those of its content hash.
        for content_hash, item in zip(hashes, found.mm_items, strict=True):
            [(start, end)] = item.offsets
            expected_span = [pad_values(content_hash)[at % 4] for at in range(end + 1 - start)]
            assert found.padded_input_ids[start : end + 1] == expected_span
        del images
