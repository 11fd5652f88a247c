"""Images of one request share objects of the store: who owns them, what is counted, when they go."""

from __future__ import annotations

import asyncio
import gc
import threading
import time
from typing import Any

import numpy as np
import pytest
import ray
from pooling import PATCH, patches, photo, png

import sglang_mm_ray as smr

PATCH_BYTES = PATCH * PATCH * 3 * 2
ONE: dict[str, Any] = {"num_workers": 1, "threads_per_worker": 1, "warm_bytes": 0, "metrics": False}


def _objects(images: list[Any]) -> list[Any]:
    return list(dict.fromkeys(image.stored.at[0] for image in images))


def test_neighbours_of_one_request_share_objects_and_are_counted_as_a_whole(local_ray: None) -> None:
    files = [png(photo(seed, 60, 50)) for seed in range(12)]
    with smr.PreprocessPool(**ONE, router_cache_bytes=0) as pool:
        images = pool.preprocess(files)
        objects = _objects(images)
        assert len(objects) < len(images)
        assert sum(each.nbytes for each in objects) == sum(image.nbytes for image in images)
        assert pool._live().status()["store_held_bytes"] == sum(image.nbytes for image in images)
        for image, data in zip(images, files, strict=True):
            np.testing.assert_array_equal(image.array(), patches(data))
        # The last image of an object holds the memory of all.
        largest = max(objects, key=lambda each: each.nbytes)
        kept = next(image for image in images if image.stored.at[0] is largest)
        assert largest.nbytes > kept.nbytes
        size_bytes = largest.nbytes
        del images, objects, largest, image
        _wait_for_held(pool, size_bytes)
        # Asked for a reference of its own, it lets go of the others.
        np.testing.assert_array_equal(ray.get(kept.feature), kept.array())
        assert kept.feature == kept.feature
        _wait_for_held(pool, kept.nbytes)
        del kept
        _wait_for_held(pool, 0)


def test_an_image_leaves_its_object_only_within_the_budget(local_ray: None) -> None:
    files = [png(photo(seed, 60, 50)) for seed in range(32)]
    (size_bytes,) = {len(patches(data)) * PATCH_BYTES for data in files}
    budget_bytes = 32 * size_bytes
    # A batch of two is as much as may share an object in so small a store.
    small: dict[str, Any] = {"object_store_budget_bytes": budget_bytes, "chunk_max_images": 2}
    with smr.PreprocessPool(**ONE, **small, router_cache_bytes=0, store_wait_s=0.5) as pool:
        images = pool.preprocess(files)
        shared = [image for image in images if image.stored.at[1] is not None]
        held_bytes = pool._live().status()["store_held_bytes"]
        assert held_bytes == budget_bytes and shared
        with pytest.raises(smr.PoolOverloaded, match="object_store_budget_bytes"):
            _ = shared[0].feature
        assert pool._live().status()["store_held_bytes"] == budget_bytes
        kept, wanted = shared[0], patches(files[images.index(shared[0])])
        # Who is waiting gets the bytes that others let go of.
        threading.Timer(0.2, lambda: (images.clear(), shared.clear())).start()
        np.testing.assert_array_equal(ray.get(kept.feature), wanted)
        _wait_for_held(pool, size_bytes)


def test_requests_of_one_image_share_nothing(local_ray: None) -> None:
    with smr.PreprocessPool(**ONE, router_cache_bytes=0) as pool:
        images = [pool.preprocess([png(photo(seed, 60, 50))])[0] for seed in range(3)]
        assert len(_objects(images)) == 3
        assert [image.stored.at[1] for image in images] == [None] * 3


def test_a_failure_beside_them_leaves_its_neighbours_in_place(local_ray: None) -> None:
    files = [png(photo(seed, 60, 50)) for seed in range(8)]
    broken = files[3][: len(files[3]) // 2]
    with smr.PreprocessPool(**ONE) as pool:
        outcomes = pool.preprocess([*files[:3], broken, *files[4:]], on_error="return")
        assert isinstance(outcomes[3], smr.DecodeError)
        for number in (0, 1, 2, 4, 5, 6, 7):
            np.testing.assert_array_equal(outcomes[number].array(), patches(files[number]))


def test_a_shared_image_travels_to_other_processes(local_ray: None) -> None:
    files = [png(photo(seed, 60, 50)) for seed in range(6)]
    with smr.PreprocessPool(**ONE) as pool:
        images = pool.preprocess(files)

        @ray.remote(num_cpus=0)
        def total(image: Any) -> int:
            return int(image.array().astype(np.int64).sum())

        sums = ray.get([total.remote(image) for image in images])
        assert sums == [int(patches(data).astype(np.int64).sum()) for data in files]


@pytest.mark.parametrize("images", [7, 16])
def test_a_stream_through_a_small_budget_goes_on_while_its_consumer_keeps_an_image(
    local_ray: None, images: int
) -> None:
    files = [png(photo(seed, 60, 50)) for seed in range(50)]
    (size_bytes,) = {len(patches(data)) * PATCH_BYTES for data in files}

    async def consume(pool: smr.PreprocessPool) -> list[int]:
        seen = []
        kept = None
        async for index, image in pool.stream(files):
            seen.append(index)
            # The one in hand and one more, each perhaps of an object that nobody else needs any more.
            kept = image if len(seen) % 5 == 1 else kept
        del kept
        return seen

    budget_bytes = size_bytes * (images + 1)
    with smr.PreprocessPool(**ONE, object_store_budget_bytes=budget_bytes, store_wait_s=1.0) as pool:
        assert sorted(asyncio.run(consume(pool))) == list(range(50))


def _wait_for_held(pool: smr.PreprocessPool, size_bytes: int) -> None:
    gc.collect()
    end = time.monotonic() + 10
    while pool._live().status()["store_held_bytes"] != size_bytes:
        assert time.monotonic() < end, (pool._live().status()["store_held_bytes"], size_bytes)
        time.sleep(0.05)
