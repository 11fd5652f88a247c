"""Faults that users of such systems reported, each with the smallest input that shows it."""

from __future__ import annotations

import asyncio
import gc
import io
import itertools
import os
import pickle
import statistics
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import ray
from deadly import Deadly, marks
from PIL import Image
from pooling import Door, check, patches, photo, png
from ray.exceptions import OutOfMemoryError, RayActorError
from waiting import PATIENCE_S, until, until_async

import sglang_mm_ray as smr
from sglang_mm_ray.cluster import NAMESPACE, worker_names
from sglang_mm_ray.config import PoolConfig
from sglang_mm_ray.messages import BatchRequest, ImageFacts
from sglang_mm_ray.metrics import RouterMetrics
from sglang_mm_ray.results.stored import StoredObject, StoredResult, read
from sglang_mm_ray.router.dispatch import Dispatcher
from sglang_mm_ray.sources.source import classify
from sglang_mm_ray.worker.engine import Engine


@pytest.fixture(scope="module")
def pool(local_ray: None) -> Iterator[smr.PreprocessPool]:
    with smr.PreprocessPool(
        num_workers=3,
        threads_per_worker=1,
        warm_bytes=0,
        metrics=False,
        router_cache_bytes=0,
        worker_cache_bytes=400_000,
    ) as started:
        yield started


# Hash and cache


def test_an_identity_in_the_files_metadata_means_nothing(pool: smr.PreprocessPool) -> None:
    def tagged(pixels: Any) -> bytes:
        exif = Image.Exif()
        exif[0xA420] = "the-same-image-id"
        target = io.BytesIO()
        Image.fromarray(pixels).save(target, "JPEG", exif=exif)
        return target.getvalue()

    first, second = tagged(photo(1, 8, 8)), tagged(photo(2, 8, 8))
    one, other = pool.preprocess([first, second])
    assert one.content_digest != other.content_digest
    np.testing.assert_array_equal(other.array(), patches(second))


def test_equal_pixels_in_two_files_are_two_contents(pool: smr.PreprocessPool) -> None:
    # Hashing what came in, so that a repeat is known before it is decoded, has this price.
    pixels = photo(3, 3, 2)
    one, other = pool.preprocess([png(pixels, compress_level=0), png(pixels, compress_level=9)])
    assert one.content_digest != other.content_digest
    np.testing.assert_array_equal(one.array(), other.array())


def test_a_cache_smaller_than_a_request(pool: smr.PreprocessPool) -> None:
    # Each result is 155 kB: a worker keeps two. Requests of four, concurrent, over and over.
    files = [png(photo(10 + n, 70, 60)) for n in range(4)]
    wanted = [patches(data) for data in files]
    with ThreadPoolExecutor(8) as threads:
        for images in threads.map(lambda _: pool.preprocess(files), range(40)):
            for image, bits in zip(images, wanted, strict=True):
                np.testing.assert_array_equal(image.array(), bits)


def test_every_way_to_a_result_gives_its_identity(local_ray: None) -> None:
    data = png(photo(20, 50, 40))
    with smr.PreprocessPool(num_workers=1, threads_per_worker=1, warm_bytes=0, metrics=False) as pool:
        cold, joined = pool.preprocess([data, data])
        (cached,) = pool.preprocess([data])
        pool._live().forget(cold.facts.digest)
        (from_worker,) = pool.preprocess([data])
        origins = [image.origin for image in (cold, joined, cached, from_worker)]
        assert origins == ["computed", "joined", "router_cache", "worker_cache"]
        assert len({(image.content_hash, image.content_digest) for image in (cold, joined, cached)}) == 1
        assert from_worker.content_digest == cold.content_digest


def test_what_is_stored_is_held_to_its_facts(pool: smr.PreprocessPool) -> None:
    (image,) = pool.preprocess([png(photo(30))])
    stored = image.stored
    for value in (np.zeros(3, np.uint16), "text", None, image.array().astype(np.uint8)):
        with pytest.raises(smr.ResultLost, match="facts"):
            read(StoredResult(stored.facts, StoredObject(ray.put(value), stored.node_id)), 10.0)


def test_memory_stays_flat_over_distinct_images() -> None:
    engine = Engine(PoolConfig(worker_cache_bytes=16 << 20), 2)
    chance = np.random.default_rng(0)

    def some(count: int) -> None:
        for start in range(0, count, 50):
            files = [png(chance.integers(0, 256, (64, 64, 3), np.uint8)) for _ in range(50)]
            reply, _ = engine.run(BatchRequest(str(start), tuple(map(classify, files)), 0, 0.0))
            assert all(isinstance(outcome, ImageFacts) for outcome in reply.outcomes)

    def rss_bytes() -> int:
        return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")

    some(600)
    before = rss_bytes()
    some(2000)
    # 2000 results are 300 MB, and their files 25 MB.
    assert rss_bytes() - before < 12 << 20
    assert engine.cache_counters()["bytes"] <= 16 << 20
    engine.close()


# Ray


def test_a_strided_source_equals_its_copy(pool: smr.PreprocessPool) -> None:
    pixels = photo(40, 90, 60)
    flipped, copied = pool.preprocess([pixels[:, ::-1], pixels[:, ::-1].copy()])
    assert flipped.content_digest == copied.content_digest
    np.testing.assert_array_equal(flipped.array(), patches(png(pixels[:, ::-1])))
    assert flipped.array().flags.c_contiguous


def test_threads_of_all_workers_are_no_more_than_their_cpus(pool: smr.PreprocessPool) -> None:
    workers = pool.status()["workers"]
    assert [worker["core_threads"] for worker in workers] == [1] * 3
    # Each holds a CPU, so that the node never looks idle while it has a worker.
    total = ray.cluster_resources()["CPU"]
    until(lambda: total - ray.available_resources().get("CPU", 0.0) > 3.0)


def test_control_answers_while_huge_images_keep_the_thread_busy(local_ray: None) -> None:
    pixels = photo(900, 3000, 2000)
    tiny = [png(photo(60 + n, 20, 20)) for n in range(6)]
    finished = 0
    answered: list[int] = []
    small: list[int] = []

    async def main(pool: smr.PreprocessPool) -> None:
        (name,) = worker_names(pool.name)
        handle = ray.get_actor(name, namespace=NAMESPACE)
        enough = asyncio.Event()

        def endless() -> Iterator[Any]:
            for number in itertools.count():
                if enough.is_set():
                    return
                pixels[0, 0] = number % 256
                yield pixels.copy()

        async def huge() -> None:
            nonlocal finished
            async for _ in pool.stream(endless()):
                finished += 1

        running = asyncio.ensure_future(huge())
        await until_async(lambda: finished >= 1 or running.done())
        for data in tiny:
            before = finished
            await handle.status.remote()
            answered.append(finished - before)
            before = finished
            await pool.preprocess_async([data])
            small.append(finished - before)
        assert not running.done()
        enough.set()
        await running

    with smr.PreprocessPool(
        num_workers=1,
        threads_per_worker=1,
        warm_bytes=0,
        metrics=False,
        router_cache_bytes=0,
        worker_cache_bytes=0,
        max_queued_images=8,
    ) as pool:
        asyncio.run(main(pool))
    print(f"huge images that ended before the status came: {answered}, before a small image: {small}")
    # One takes longer than either, so that half of them come before it ends, or the one after it.
    assert statistics.median(answered) <= 1
    assert statistics.median(small) <= 2


def test_many_readers_of_one_result(pool: smr.PreprocessPool) -> None:
    data = png(photo(70, 200, 200))
    (image,) = pool.preprocess([data])

    @ray.remote(num_cpus=0)
    def read_and_let_go(images: list[Any]) -> bytes:
        return images.pop().array()[0].tobytes()  # type: ignore[no-any-return]

    first = ray.get(read_and_let_go.remote([image]))
    later = ray.get([read_and_let_go.remote([image]) for _ in range(2)])
    assert later == [first] * 2
    np.testing.assert_array_equal(image.array(), patches(data))


def test_nothing_is_ever_spilled_to_disk(local_ray: None) -> None:
    with smr.PreprocessPool(num_workers=1, threads_per_worker=1, warm_bytes=0, metrics=False) as pool:

        async def main() -> int:
            seen = 0
            # 900 MB of results through a store of 700 MB.
            async for _, image in pool.stream(photo(1000 + n, 500, 400) for n in range(180)):
                seen += image.nbytes
            return seen

        assert asyncio.run(main()) > 850 << 20
    session = ray._private.worker._global_node.get_session_dir_path()  # type: ignore[attr-defined]
    spilled = [path for path in Path(session).rglob("ray_spilled_objects*/*") if path.is_file()]
    assert spilled == []


def test_a_slice_that_is_kept_counts(pool: smr.PreprocessPool) -> None:
    # A view of one row keeps the whole result in the store, which a budget must not take for free.
    images = pool.preprocess([png(photo(400 + n, 90, 80)) for n in range(20)])
    size_bytes = sum(image.nbytes for image in images)
    rows = [image.array()[0, 0] for image in images[:10]]
    tensors = [image.tensors()["patches"][1:2] for image in images[10:]]
    wanted = [patches(png(photo(400 + n, 90, 80))) for n in range(20)]
    copies = [row.copy() for row in rows]
    del images
    until(lambda: held_bytes(pool) == size_bytes)
    for row, tensor, first, second in zip(rows, tensors, wanted[:10], wanted[10:], strict=True):
        np.testing.assert_array_equal(row, first[0, 0])
        np.testing.assert_array_equal(tensor, second[1:2])
        assert not row.flags.writeable and not tensor.flags.writeable
    del rows, tensors, row, tensor
    until(lambda: held_bytes(pool) == 0)
    np.testing.assert_array_equal(copies[3], wanted[3][0, 0])


def held_bytes(pool: smr.PreprocessPool) -> int:
    """What the router counts as held; it counts what is let go of a moment later."""
    gc.collect()
    return int(pool.status()["router"]["store_held_bytes"])


def test_a_result_that_does_not_arrive_is_lost_in_time(pool: smr.PreprocessPool) -> None:
    (image,) = pool.preprocess([png(photo(31))])
    door = Door()
    stored = StoredObject(door.behind(b"no image"), image.stored.node_id)
    # The door is closed, so that whoever waits for it waits for ever.
    with pytest.raises(smr.ResultLost, match=r"within 0\.3 s"):
        read(StoredResult(image.facts, stored), 0.3)
    door.open()


def test_references_that_cannot_be_read_are_failures_of_their_own(local_ray: None) -> None:
    # ray#63694: reading has an end, and says whether to try again.
    @ray.remote(num_cpus=0, max_retries=0)
    def failing() -> None:
        raise TimeoutError("SECRET")

    @ray.remote(num_cpus=0)
    class Owner:
        def put(self, data: bytes) -> list[Any]:
            return [ray.put(data)]

    owner = Owner.remote()
    (orphan,) = ray.get(owner.put.remote(png(photo(32, 700, 500))))
    ray.kill(owner)
    # The failures are there before anybody reads: the slow reference alone takes time.
    with pytest.raises(RayActorError):
        ray.get(owner.put.remote(b""), timeout=PATIENCE_S)
    failed_ref = failing.remote()
    ray.wait([failed_ref], timeout=PATIENCE_S)
    door, good = Door(), png(photo(33))
    with smr.PreprocessPool(
        num_workers=1, threads_per_worker=1, warm_bytes=0, metrics=False, read_timeout_s=4.0
    ) as pool:
        sources = [door.behind(b""), good, failed_ref, orphan]
        timed_out, image, failed, lost = pool.preprocess(sources, on_error="return")
    for error, word, retriable in (
        (timed_out, "read_timeout_s", True),
        (failed, "TimeoutError", False),
        (lost, "new ObjectRef", False),
    ):
        assert isinstance(error, smr.FetchError) and word in str(error), error
        assert error.retriable == retriable and "SECRET" not in f"{error}{vars(error)}"
    assert isinstance(image, smr.ProcessedImage)
    door.open()


def test_a_worker_killed_for_its_memory_is_a_lost_worker(
    local_ray: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Ray's memory monitor kills an actor, and its calls end with an error that is no RayActorError.
    method = Dispatcher._method

    class Told:
        def __init__(self, real: Any) -> None:
            self._real = real

        def remote(self, request: Any) -> list[Any]:
            first, *rest = self._real.remote(request)

            async def told() -> Any:
                try:
                    return await first
                except RayActorError:
                    raise OutOfMemoryError("1 worker(s) were killed: the node was low on memory") from None

            return [told(), *rest]

    monkeypatch.setattr(Dispatcher, "_method", lambda *args: Told(method(*args)))
    marker = tmp_path / "deaths"
    options: dict[str, Any] = {"threads_per_worker": 1, "warm_bytes": 0, "heartbeat_interval_s": 0.2}
    with smr.PreprocessPool(num_workers=1, metrics=False, poison_crashes=1, **options) as pool:
        greedy = ray.put(Deadly(marker))
        files = [png(photo(500 + n, 60, 50)) for n in range(12)]
        outcomes = pool.preprocess([*files[:6], greedy, *files[6:]], on_error="return")
        assert isinstance(outcomes.pop(6), smr.PoisonImage)
        check(files, outcomes)
        deaths = marks(marker)
        assert deaths >= 1
        with pytest.raises(smr.PoisonImage, match="quarantine_s"):
            pool.preprocess([greedy])
        assert marks(marker) == deaths


# Performance


def test_many_threads_need_no_retries(pool: smr.PreprocessPool) -> None:
    files = [png(photo(200 + n, 30, 20)) for n in range(50)]
    wanted = [patches(data) for data in files]
    wrong: list[int] = []

    def work(seed: int) -> None:
        for step in range(10):
            at = (seed * 11 + step * 7) % 50
            (image,) = pool.preprocess([files[at]])
            if not np.array_equal(image.array(), wanted[at]):
                wrong.append(at)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(32)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE_S)
    assert not wrong and not any(thread.is_alive() for thread in threads)
    assert pool.status()["router"]["retries"] == 0


def test_tensors_travel_flat_and_facts_are_small(pool: smr.PreprocessPool) -> None:
    (image,) = pool.preprocess([png(photo(300, 500, 400))])
    assert isinstance(ray.get(image.feature), np.ndarray)
    assert len(pickle.dumps(image.facts)) < 1500


def test_saturation_is_shown_and_told(
    local_ray: None, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    seen: dict[str, list[float]] = {}
    monkeypatch.setattr(
        RouterMetrics, "gauge", lambda _, name, value: seen.setdefault(name, []).append(value)
    )
    with smr.PreprocessPool(
        num_workers=1, threads_per_worker=1, warm_bytes=0, metrics=False, max_queued_images=8
    ) as pool:
        door = Door()
        waiting = [door.behind(b"no image")] * 8
        running = ThreadPoolExecutor(1).submit(pool.preprocess, waiting, on_error="return")
        until(lambda: max(seen.get("router_saturation_ratio", [0.0])) == 1.0)
        with pytest.raises(smr.PoolOverloaded, match="max_queued_images"):
            pool.preprocess([photo(1)])
        assert "is saturated" in caplog.text
        until(lambda: max(seen["router_running_images"]) >= 1)
        door.open()
        assert {type(outcome) for outcome in running.result()} == {smr.DecodeError}
        assert max(seen["router_saturation_ratio"]) == 1.0
