"""Our Inkling processor against SGLang's own: ids, offsets, features, hashes and errors."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from .conftest import NEEDS_SGLANG

pytestmark = [
    NEEDS_SGLANG,
    # SGLang and its dependencies warn while they are imported.
    pytest.mark.filterwarnings("default"),
]

PHOTOS = sorted((Path(__file__).parents[1] / "data" / "photos").glob("*.[jpw][pne][gb]*"))


@pytest.fixture(scope="module")
def reference(server_args: Any, inkling_config: Any) -> Iterator[Any]:
    """SGLang's processor on its Python path, which is the model's reference."""
    from sglang.srt.multimodal.inkling import InklingImageProcessor
    from sglang.srt.multimodal.processors.inkling import InklingMultimodalProcessor

    processor = InklingMultimodalProcessor(inkling_config, server_args, None, "default", skip_mm_pool=True)
    processor.inkling_processor.image_processor = InklingImageProcessor(patch_size=40)
    yield processor
    processor.shutdown()


@pytest.fixture(scope="module", params=["pool", "local"])
def ours(
    request: pytest.FixtureRequest, server_args: Any, inkling_config: Any, monkeypatch_module: Any
) -> Iterator[Any]:
    """Our processor, over a pool and over the core in the process."""
    from sglang_mm_ray.sglang.inkling import InklingPoolProcessor

    if request.param == "pool":
        import ray

        request.getfixturevalue("pool")
        monkeypatch_module.setenv("SGLANG_MM_RAY_POOL", "sglang-test")
        address = ray.get_runtime_context().gcs_address
        monkeypatch_module.setenv("SGLANG_MM_RAY_ADDRESS", address)
    else:
        monkeypatch_module.setenv("SGLANG_MM_RAY_POOL", "nobody-started-this")
        monkeypatch_module.setenv("SGLANG_MM_RAY_ADDRESS", "127.0.0.1:1")
        monkeypatch_module.setenv("SGLANG_MM_RAY_ON_UNREACHABLE", "local")
    processor = InklingPoolProcessor(inkling_config, server_args, None, "default", skip_mm_pool=True)
    yield processor
    processor.shutdown()


def _run(processor: Any, image_data: list[Any], ids: list[int]) -> Any:
    request = SimpleNamespace(input_ids=ids)
    return asyncio.run(
        processor.process_mm_data_async(image_data=image_data, input_text="", request_obj=request)
    )


def _prompt(processor: Any, images: int) -> list[int]:
    ids = [11]
    for index in range(images):
        ids += [processor.IMAGE_TOKEN_ID, 100 + index]
    return ids


def test_photos_become_the_same_request(reference: Any, ours: Any) -> None:
    import torch

    images = [path.read_bytes() for path in PHOTOS]
    assert len(images) >= 8
    ids = _prompt(reference, len(images))
    expected, found = _run(reference, images, ids), _run(ours, images, ids)
    assert list(found.input_ids) == list(expected.input_ids)
    assert (found.im_token_id, found.audio_token_id) == (expected.im_token_id, expected.audio_token_id)
    assert len(found.mm_items) == len(expected.mm_items) == len(images)
    for data, ours_item, their_item in zip(images, found.mm_items, expected.mm_items, strict=True):
        assert ours_item.offsets == their_item.offsets
        assert ours_item.modality == their_item.modality
        assert ours_item.feature.dtype == torch.bfloat16
        assert ours_item.feature.shape == their_item.feature.shape
        assert torch.equal(ours_item.feature.view(torch.int16), their_item.feature.view(torch.int16))
        # SGLang's data_hash: the first 8 bytes of SHA-256, big-endian.
        assert ours_item.hash == int.from_bytes(hashlib.sha256(data).digest()[:8], "big")


def test_every_entry_point_gives_the_same_image(reference: Any, ours: Any) -> None:
    import torch
    from PIL import Image

    data = PHOTOS[0].read_bytes()
    encoded = base64.b64encode(data).decode()
    url = f"data:image/png;base64,{encoded}"
    forms = [data, url, {"url": url}, SimpleNamespace(url=url), Image.open(PHOTOS[0])]
    ids = _prompt(reference, len(forms))
    expected = _run(reference, [data], _prompt(reference, 1)).mm_items[0].feature
    for item in _run(ours, forms, ids).mm_items:
        assert torch.equal(item.feature.view(torch.int16), expected.view(torch.int16))


def test_errors_are_sglangs(reference: Any, ours: Any) -> None:
    for images, ids in [
        ([b"no image"], _prompt(reference, 1)),
        ([PHOTOS[0].read_bytes()], _prompt(reference, 2)),
        ([PHOTOS[0].read_bytes()] * 2, _prompt(reference, 1)),
    ]:
        for processor in (reference, ours):
            with pytest.raises(ValueError, match=r"\S") as caught:
                _run(processor, images, ids)
            assert "no image" not in str(caught.value)


def test_the_event_loop_goes_on_while_images_are_processed(ours: Any) -> None:
    # An image nobody has seen, so that nothing comes from a cache.
    import io

    import numpy as np
    from PIL import Image

    rng = np.random.default_rng(time.time_ns())
    files = []
    for _ in range(8):
        buffer = io.BytesIO()
        Image.fromarray(rng.integers(0, 256, (1080, 1920, 3), np.uint8)).save(buffer, "JPEG")
        files.append(buffer.getvalue())

    async def scenario() -> tuple[float, float]:
        longest, stop = 0.0, threading.Event()

        async def watch() -> None:
            nonlocal longest
            last = time.perf_counter()
            while not stop.is_set():
                await asyncio.sleep(0.001)
                now = time.perf_counter()
                longest = max(longest, now - last)
                last = now

        watcher = asyncio.create_task(watch())
        started = time.perf_counter()
        request = SimpleNamespace(input_ids=_prompt(ours, len(files)))
        await ours.process_mm_data_async(image_data=files, input_text="", request_obj=request)
        took = time.perf_counter() - started
        stop.set()
        await watcher
        return took, longest

    took, longest = asyncio.run(scenario())
    # Were the work on the loop, the longest stall would be all of it.
    assert longest < max(0.25, took / 2), (took, longest)


def test_sglang_registers_our_class_for_the_architecture(server_args: Any) -> None:
    from sglang.srt.managers import multimodal_processor

    from sglang_mm_ray.sglang.inkling import InklingPoolProcessor

    multimodal_processor.import_processors("sglang.srt.multimodal.processors")
    multimodal_processor.import_processors("sglang_mm_ray.sglang", overwrite=True)
    registered = {
        model.__name__: processor for model, processor in multimodal_processor.PROCESSOR_MAPPING.items()
    }
    assert registered["InklingForConditionalGeneration"] is InklingPoolProcessor
