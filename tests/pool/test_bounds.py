"""Admission, the store budget and fairness, on real workers."""

from __future__ import annotations

import asyncio
import gc
from typing import Any

import numpy as np
import pytest
import ray
from pooling import Door, check, patches, photo, png
from waiting import until, until_async

import sglang_mm_ray as smr

SMALL: dict[str, Any] = {"num_workers": 2, "threads_per_worker": 1, "warm_bytes": 0, "metrics": False}


def router_of(pool: smr.PreprocessPool) -> dict[str, Any]:
    """What the router of this process has under way."""
    return pool.status()["router"]  # type: ignore[no-any-return]


def test_a_pool_on_a_full_cluster_says_that_it_is_full(local_ray: None) -> None:
    with (
        smr.PreprocessPool(num_workers=1, warm_bytes=0, metrics=False),
        pytest.raises(smr.WorkerLost, match=r"0 of 4 CPUs free.*of pool.*threads_per_worker"),
    ):
        smr.PreprocessPool(**SMALL, start_timeout_s=2.0)


def test_ten_thousand_images_at_a_small_pool(local_ray: None) -> None:
    """The excess is refused at once, the rest is right, and the store never holds more than it was given."""
    budget = 64 << 20
    files = [png(photo(seed, 40, 30)) for seed in range(50)]
    wanted = [patches(data) for data in files]

    async def main(pool: smr.PreprocessPool) -> None:
        calls = [asyncio.ensure_future(pool.preprocess_async([files[n % 50]])) for n in range(10_000)]
        served = refused = 0
        most_held = 0
        for number, call in enumerate(calls):
            try:
                (image,) = await call
            except smr.PoolOverloaded as error:
                assert "max_queued_images" in str(error) and error.retriable
                refused += 1
            else:
                np.testing.assert_array_equal(image.array(), wanted[number % 50])
                served += 1
            calls[number] = None  # type: ignore[call-overload]
            if number % 50 == 0:
                router = router_of(pool)
                most_held = max(most_held, router["store_held_bytes"] + router["store_promised_bytes"])
                assert router["under_way_images"] <= 500
        # A quick machine may serve them all; that the bound refuses is shown below, whatever the machine.
        assert served >= 500 and served + refused == 10_000
        assert most_held <= budget

    with smr.PreprocessPool(**SMALL, max_queued_images=500, object_store_budget_bytes=budget) as pool:
        asyncio.run(main(pool))
        # With `return`, what is too much fails in its place and the rest is done.
        outcomes = pool.preprocess([files[n % 50] for n in range(800)], on_error="return")
        assert [type(outcome) for outcome in outcomes] == [smr.ProcessedImage] * 500 + [
            smr.PoolOverloaded
        ] * 300
        with pytest.raises(smr.PoolOverloaded, match="500"):
            pool.preprocess([files[0]] * 501)


def test_a_queue_full_of_sources_that_wait_refuses_the_next_at_once(local_ray: None) -> None:
    door = Door()
    files = [png(photo(seed, 40, 30)) for seed in range(20)]
    with smr.PreprocessPool(**SMALL, max_queued_images=20, router_cache_bytes=0) as pool:

        async def main() -> None:
            held = [asyncio.ensure_future(pool.preprocess_async([door.behind(data)])) for data in files]
            await until_async(lambda: router_of(pool)["under_way_images"] == 20)
            with pytest.raises(smr.PoolOverloaded, match="max_queued_images") as refusal:
                await pool.preprocess_async([files[0]])
            # Refused while the door was still closed, so it waited for nobody.
            assert refusal.value.retriable
            door.open()
            check(files, [image for (image,) in await asyncio.gather(*held)])
            assert len(await pool.preprocess_async([files[0]])) == 1

        asyncio.run(main())


def test_a_request_that_could_never_be_held_is_refused_before_it_starts(local_ray: None) -> None:
    files = [png(photo(seed, 300, 250)) for seed in range(30)]
    # Whoever waited for room would wait for an hour.
    with smr.PreprocessPool(**SMALL, object_store_budget_bytes=20 << 20, store_wait_s=3600.0) as pool:
        with pytest.raises(smr.PoolOverloaded, match=r"cannot be held at once.*object_store_budget_bytes"):
            pool.preprocess(files)

        # A stream of the same images passes through the same budget.
        async def main() -> list[int]:
            seen = []
            async for index, image in pool.stream(files):
                assert router_of(pool)["store_held_bytes"] <= 20 << 20
                seen.append(index)
                del image
            return seen

        assert sorted(asyncio.run(main())) == list(range(30))


def test_results_that_nobody_lets_go_of_are_an_overload_not_a_hang(local_ray: None) -> None:
    files = [png(photo(seed, 300, 250)) for seed in range(12)]
    with smr.PreprocessPool(**SMALL, object_store_budget_bytes=16 << 20, store_wait_s=1.0) as pool:
        kept = pool.preprocess(files[:7])
        with pytest.raises(smr.PoolOverloaded, match="let go"):
            pool.preprocess(files[7:])
        del kept[:]
        gc.collect()
        assert len(pool.preprocess(files[7:])) == 5


def test_the_store_is_given_back(local_ray: None) -> None:
    with smr.PreprocessPool(**SMALL, router_cache_bytes=0) as pool:
        before = _store_used()
        for round_ in range(6):
            images = pool.preprocess([png(photo(1000 * round_ + n, 300, 250)) for n in range(20)])
            rows = [image.array()[0, 0, 0].copy() for image in images]
            assert len(rows) == 20
            del images
        until(lambda: _store_used() <= before + (8 << 20))
        until(lambda: router_of(pool)["store_held_bytes"] == 0)


def _store_used() -> float:
    total = ray.cluster_resources().get("object_store_memory", 0.0)
    return total - ray.available_resources().get("object_store_memory", 0.0)


def test_a_repeat_costs_no_call_and_no_bytes(local_ray: None) -> None:
    with smr.PreprocessPool(**SMALL) as pool:
        files = [png(photo(n, 200, 150)) for n in range(26)]
        first = pool.preprocess(files)
        until(lambda: _completed(pool) == 26)
        again = pool.preprocess([*files, *files])
        assert [image.origin for image in again] == ["router_cache"] * 52
        assert [image.feature for image in again] == [image.feature for image in first] * 2
        # By its next heartbeats no worker has done anything.
        new = png(photo(26, 200, 150))
        pool.preprocess([new])
        until(lambda: _completed(pool) > 26)
        assert _completed(pool) == 27


def _completed(pool: smr.PreprocessPool) -> int:
    return sum(worker["completed_images"] for worker in pool.status()["workers"])


def test_identity_is_the_content_not_the_place_or_the_neighbours(local_ray: None) -> None:
    a, b = png(photo(1)), png(photo(2))
    with smr.PreprocessPool(**SMALL) as pool:
        (first,) = pool.preprocess([a])
        second = pool.preprocess([a, b])
        third = pool.preprocess([b, a])
        assert [image.origin for image in second + third] == [
            "router_cache",
            second[1].origin,
            "router_cache",
            "router_cache",
        ]
        assert {first.content_hash, second[0].content_hash, third[1].content_hash} == {first.content_hash}
        # A rejected image leaves nothing behind that a later one could trip over.
        for _ in range(2):
            with pytest.raises(smr.DecodeError):
                pool.preprocess([a[: len(a) // 2]])


def test_equal_bytes_in_another_shape_are_another_content(local_ray: None) -> None:
    pixels = photo(3, 150, 30)
    turned = pixels.reshape(150, 30, 3)
    with smr.PreprocessPool(**SMALL) as pool:
        one, other = pool.preprocess([pixels, turned])
        assert one.content_digest != other.content_digest
        assert (one.height, one.width) == (other.width, other.height)


def test_one_image_passes_a_long_request(local_ray: None) -> None:
    """Singles, one after the other, end while a long request runs: none waits for what workers hold of it."""
    long = [png(photo(n, 200, 150)) for n in range(400)]
    singles = [png(photo(10_000 + n, 200, 150)) for n in range(30)]
    passed = 0

    async def main(pool: smr.PreprocessPool) -> None:
        nonlocal passed
        running = asyncio.ensure_future(pool.preprocess_async(long))
        # The workers hold as much of it as they ever will.
        await until_async(lambda: pool.status()["router"]["running_images"] > 0 or running.done())
        for data in singles:
            await pool.preprocess_async([data])
            if running.done():
                break
            passed += 1
        await running

    with smr.PreprocessPool(**SMALL, router_cache_bytes=0, worker_cache_bytes=0) as pool:
        asyncio.run(main(pool))
    print(f"{passed} of {len(singles)} single images ended while a request of {len(long)} ran")
    # Each would wait for some 200 of the 400 images, were it to wait for what the workers hold.
    assert passed > 5
