"""The whole path on one node: sources in, the reference's patches in the object store."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import io
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import ray
from images import web_samples
from PIL import Image
from pooling import Door, check, patches, photo, png
from reference import inkling, inkling_pixels
from waiting import until, until_async

import sglang_mm_ray as smr


@pytest.fixture(scope="module")
def pool(local_ray: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[smr.PreprocessPool]:
    root = tmp_path_factory.mktemp("readable")
    policy = smr.SourcePolicy(allowed_roots=(str(root), str(Path(__file__).parents[1] / "data")))
    with smr.PreprocessPool(
        policy=policy, num_workers=2, threads_per_worker=1, warm_bytes=64 << 20, name="tests"
    ) as started:
        started.root = root  # type: ignore[attr-defined]
        yield started


def test_many_images_come_back_in_order_and_equal_the_reference(pool: smr.PreprocessPool) -> None:
    files = [png(photo(seed, 40 + 7 * (seed % 13), 30 + 5 * (seed % 11))) for seed in range(60)]
    images = pool.preprocess(files)
    for data, image in zip(files, images, strict=True):
        height, width, bits, content_hash = inkling(data)
        assert (image.height, image.width, image.content_hash) == (height, width, content_hash)
        assert image.content_digest == f"sha256:{hashlib.sha256(data).hexdigest()}"
        assert image.dtype == "bfloat16" and image.nbytes == bits.nbytes
        assert image.num_tokens == image.grid_hw[0] * image.grid_hw[1] == len(bits)
        np.testing.assert_array_equal(image.array(), bits)


def test_every_shipped_photograph_equals_the_reference(pool: smr.PreprocessPool, photos: list[Path]) -> None:
    for path, image in zip(photos, pool.preprocess(photos), strict=True):
        np.testing.assert_array_equal(image.array(), inkling(path.read_bytes())[2])


def test_every_web_format_that_pillow_writes(pool: smr.PreprocessPool) -> None:
    samples = web_samples()
    outcomes = pool.preprocess([sample.data for sample in samples], on_error="return")
    accepted = 0
    for sample, outcome in zip(samples, outcomes, strict=True):
        if isinstance(outcome, smr.PreprocessError):
            assert isinstance(outcome, smr.InputError), (sample.name, outcome)
            continue
        accepted += 1
        np.testing.assert_array_equal(outcome.array(), inkling(sample.data)[2], err_msg=sample.name)
    assert accepted >= len(samples) // 2


def test_every_kind_of_source_of_one_content_gives_the_same(pool: smr.PreprocessPool) -> None:
    pixels = photo(5000)
    data = png(pixels)
    path = pool.root / "one.png"  # type: ignore[attr-defined]
    path.write_bytes(data)
    text = base64.b64encode(data).decode()
    encoded: list[Any] = [
        data,
        bytearray(data),
        memoryview(data),
        np.frombuffer(data, np.uint8),
        str(path),
        path,
        path.as_uri(),
        f"data:image/png;base64,{text}",
        text,
        ray.put(data),
    ]
    as_pixels: list[Any] = [pixels, Image.fromarray(pixels), ray.put(pixels), Image.open(io.BytesIO(data))]
    images = pool.preprocess(encoded + as_pixels)
    for image in images:
        np.testing.assert_array_equal(image.array(), patches(data))
    assert len({image.content_digest for image in images[: len(encoded)]}) == 1
    # Pixels have an identity of their own, with their shape in it.
    assert len({image.content_digest for image in images[len(encoded) :]}) == 1


def test_arrays_are_read_only_views_that_cost_no_copy(pool: smr.PreprocessPool) -> None:
    (image,) = pool.preprocess([png(photo(1, 300, 300))])
    array = image.array()
    assert not array.flags.writeable and array.flags.c_contiguous
    with pytest.raises(ValueError, match="read-only"):
        array[0] = 0
    assert image.array().ctypes.data == array.ctypes.data
    assert list(image.tensors()) == ["patches"]
    with pytest.raises(KeyError, match="patches"):
        image.array("nothing")


def test_a_failed_image_harms_no_other(pool: smr.PreprocessPool) -> None:
    good = [png(photo(seed)) for seed in range(100, 106)]
    sources = [good[0], b"not an image", good[1], good[2][:-30], good[3], "/etc/hostname", good[4], 17]
    outcomes = pool.preprocess(sources, on_error="return")
    kinds = [type(outcome) for outcome in outcomes]
    assert kinds[1::2] == [smr.DecodeError, smr.DecodeError, smr.SourceRefused, smr.InvalidArgument]
    for data, outcome in zip([good[0], good[1], good[3], good[4]], outcomes[::2], strict=True):
        np.testing.assert_array_equal(outcome.array(), patches(data))
    assert [outcomes[index].index for index in (1, 3, 5, 7)] == [1, 3, 5, 7]


def test_the_first_error_is_raised_after_the_rest_is_settled(pool: smr.PreprocessPool) -> None:
    with pytest.raises(smr.DecodeError) as caught:
        pool.preprocess([png(photo(1)), b"broken", 17])
    assert caught.value.index == 1  # type: ignore[attr-defined]
    assert pool.status()["router"]["under_way_images"] == 0


def test_no_images_are_no_problem(pool: smr.PreprocessPool) -> None:
    assert pool.preprocess([]) == []


def test_the_async_twin_leaves_the_loop_free(pool: smr.PreprocessPool) -> None:
    files = [png(photo(seed, 100, 80)) for seed in range(200, 216)]
    door = Door()

    async def main() -> list[Any]:
        call = asyncio.ensure_future(pool.preprocess_async([door.behind(data) for data in files]))
        await until_async(lambda: pool.status()["router"]["running_images"] > 0)
        # The loop opens it, so a call that kept the loop would never end.
        door.open()
        return await call

    check(files, asyncio.run(main()))


def test_a_stream_yields_each_image_once_and_draws_sources_lazily(pool: smr.PreprocessPool) -> None:
    files = [png(photo(seed, 50, 40)) for seed in range(300, 340)]
    files[7] = b"broken"

    async def main() -> dict[int, Any]:
        return {index: image async for index, image in pool.stream(iter(files), on_error="return")}

    seen = asyncio.run(main())
    assert sorted(seen) == list(range(40))
    assert isinstance(seen.pop(7), smr.DecodeError)
    for index, image in seen.items():
        np.testing.assert_array_equal(image.array(), patches(files[index]))


def test_a_stream_raises_what_its_sources_raise(pool: smr.PreprocessPool) -> None:
    def sources() -> Iterator[bytes]:
        yield png(photo(1))
        raise LookupError("no more")

    async def main() -> None:
        async for _ in pool.stream(sources()):
            pass

    with pytest.raises(LookupError, match="no more"):
        asyncio.run(main())


def test_a_stream_that_is_left_leaves_nothing_behind(pool: smr.PreprocessPool) -> None:
    async def main() -> None:
        stream = pool.stream(png(photo(seed, 60, 60)) for seed in range(400, 10_000))
        async for _ in stream:
            break
        await stream.aclose()  # type: ignore[attr-defined]

    asyncio.run(main())
    until(lambda: pool.status()["router"]["under_way_images"] == 0)


def test_results_travel_to_other_processes(pool: smr.PreprocessPool) -> None:
    data = png(photo(77))
    (image,) = pool.preprocess([data])

    @ray.remote(num_cpus=0)
    def read(images: list[smr.ProcessedImage]) -> Any:
        (copy,) = images
        return copy.array().copy(), copy.content_digest, copy.times_s

    array, digest, times_s = ray.get(read.remote([image]))
    np.testing.assert_array_equal(array, patches(data))
    assert digest == image.content_digest and times_s == image.times_s
    # Of the worker's threads, of the core, and of the router.
    assert {"queue", "resolve", "decode", "resize", "patchify", "router", "call"} <= set(times_s)


@pytest.mark.parametrize("transport", ["bf16", "uint8", "float32"])
def test_gather_joins_in_order_whatever_was_stored(local_ray: None, transport: str) -> None:
    files = [png(photo(seed, 90 + seed, 70 + 3 * seed)) for seed in range(5)] + [png(photo(9, 2100, 60))]
    with smr.PreprocessPool(transport=transport, threads_per_worker=1, warm_bytes=0, metrics=False) as pool:
        images = pool.preprocess(files)
        if transport == "uint8":
            for data, image in zip(files, images, strict=True):
                np.testing.assert_array_equal(image.array(), inkling_pixels(data, 2.0, 2048))
                assert image.dtype == "uint8"
        joined = smr.gather(images)
        together = np.concatenate([patches(data) for data in files])
        if transport == "float32":
            from reference import bf16_bits

            assert joined.dtype == np.float32
            np.testing.assert_array_equal(bf16_bits(joined), together)
            return
        np.testing.assert_array_equal(joined, together)
        out = np.empty_like(together)
        assert smr.gather(images, out=out) is out
        np.testing.assert_array_equal(out, together)
        for bad in (out[:-1], out.astype(np.int32), out[:, :, ::-1]):
            with pytest.raises(smr.InvalidArgument):
                smr.gather(images, out=bad)
        out.flags.writeable = False
        with pytest.raises(smr.InvalidArgument, match="read-only"):
            smr.gather(images, out=out)
        with pytest.raises(smr.InvalidArgument, match="no image"):
            smr.gather([])


def test_a_pool_of_qwen_says_its_grid(local_ray: None) -> None:
    from sglang_mm_ray import _core

    if "qwen_vl" not in _core.processor_names():
        pytest.skip("the core has no qwen_vl yet")
    pixels = photo(3, 200, 150)
    with smr.PreprocessPool("qwen_vl", threads_per_worker=1, warm_bytes=0) as pool:
        (image,) = pool.preprocess([pixels])
        alone = pool.config.processor().preprocess_rgb(pixels)
        assert image.grid_thw == alone.grid and image.num_tokens == alone.num_tokens
        for name, tensor in alone.tensors.items():
            np.testing.assert_array_equal(image.array(name), tensor)


def test_a_closed_pool_says_so(local_ray: None) -> None:
    pool = smr.PreprocessPool(threads_per_worker=1, warm_bytes=0)
    pool.close()
    pool.close()
    with pytest.raises(smr.PoolClosed):
        pool.preprocess([b""])
    with pytest.raises(smr.PoolClosed):
        pool.status()


def test_mistakes_are_named(pool: smr.PreprocessPool) -> None:
    with pytest.raises(smr.InvalidArgument, match="on_error"):
        pool.preprocess([], on_error="ignore")  # type: ignore[arg-type]
    with pytest.raises(smr.InvalidArgument, match="tests"):
        smr.PreprocessPool(name="tests")
    with pytest.raises(smr.InvalidArgument, match="slashes"):
        smr.PreprocessPool(name="a/b")
    with pytest.raises(smr.InvalidArgument, match="wrkers"):
        smr.PreprocessPool(wrkers=3)
    with pytest.raises(smr.PoolNotFound, match="tests"):
        smr.PreprocessPool.connect("missing")
    for one in ("photo.jpg", b"bytes", bytearray(b"bytes"), memoryview(b"bytes")):
        with pytest.raises(smr.InvalidArgument, match="list of sources"):
            pool.preprocess(one)  # type: ignore[arg-type]
    for count in (0, -1, 1.5, "2"):
        with pytest.raises(smr.InvalidArgument, match="num_workers"):
            pool.scale(count)  # type: ignore[arg-type]


def test_a_wrong_name_is_refused_before_ray_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    def start(*_: object) -> bool:
        raise AssertionError("it takes seconds")

    monkeypatch.setattr("sglang_mm_ray.pool.pool.start_ray", start)
    with pytest.raises(smr.InvalidArgument, match="slashes"):
        smr.PreprocessPool(name="a/b")
    with pytest.raises(smr.InvalidArgument, match="slashes"):
        smr.PreprocessPool.start("a/b")
