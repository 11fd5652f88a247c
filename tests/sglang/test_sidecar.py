"""What a sidecar makes of a pool's images: the model's dtype and layout, in shared memory."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sglang_mm_ray import _core
from sglang_mm_ray.sglang.layout import Layout
from sglang_mm_ray.sglang.sidecar.results import share

PHOTOS = sorted((Path(__file__).parents[1] / "data" / "photos").glob("*.jpg"))[:2]
ROWS = {"pixel_values": Layout(axis=2, copies=2, is_flat=True)}


@pytest.fixture(scope="module")
def pool() -> Iterator[Any]:
    import ray

    import sglang_mm_ray as smr

    ray.init(address="local", include_dashboard=False, log_to_driver=False, object_store_memory=200 << 20)
    with smr.PreprocessPool(
        "qwen_vl", transport="uint8", num_workers=1, threads_per_worker=1, warm_bytes=0
    ) as pool:
        yield pool
    ray.shutdown()


@pytest.mark.parametrize(("dtype", "tag"), [("float32", "float32"), ("bf16", "bfloat16")])
def test_a_pool_of_pixels_gives_the_models_dtype(pool: Any, dtype: str, tag: str) -> None:
    files = [path.read_bytes() for path in PHOTOS]
    processor = _core.processor("qwen_vl")
    expected = processor.preprocess_batch(files, transport=dtype)
    images = pool.preprocess(files)
    values, memory = share(images, pool.config.processor(), dtype, ROWS)
    memory.close()
    for value, found, wanted in zip(values, memory.arrays, expected, strict=True):
        rows = np.repeat(wanted.tensors["pixel_values"], 2, axis=2).reshape(found.shape)
        assert value.tensors == (("pixel_values", tag, rows.shape),)
        assert value.source_size == wanted.source_size
        assert found.tobytes() == rows.tobytes()
    del images
