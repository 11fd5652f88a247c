"""SGLang's own HTTP server over a pool, against the same server without it: answers, and what losses cost."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pooling import png

from .conftest import NEEDS_SGLANG
from .server.checkpoint import PREPROCESSOR
from .server.running import Answer, Server

pytestmark = [
    NEEDS_SGLANG,
    pytest.mark.server,
    pytest.mark.filterwarnings("default"),
    pytest.mark.timeout(1800),
]

PHOTOS = sorted((Path(__file__).parents[1] / "data" / "photos").glob("*.[jpw][pne][gb]*"))
POOL = "sglang-server-test"
RECOVERY_S = 120.0
QUEUE_IMAGES = 8


def _start_pool(**fields: Any) -> Any:
    import sglang_mm_ray as smr

    return smr.PreprocessPool.start(
        POOL,
        model="qwen_vl",
        parameters=PREPROCESSOR,
        num_workers=1,
        threads_per_worker=1,
        transport="float32",
        max_queued_images=QUEUE_IMAGES,
        **fields,
    )


@pytest.fixture(scope="module")
def pool() -> Iterator[Any]:
    import ray

    # Ray of its own, which goes on when a pool is stopped.
    ray.init(address="local", include_dashboard=False, log_to_driver=False, object_store_memory=400 << 20)
    pool = _start_pool()
    yield pool
    pool.stop()
    ray.shutdown()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("server")


@pytest.fixture(scope="module")
def plain(folder: Path) -> Iterator[Server]:
    """The server without us, started beside the other so that both come up at the same time."""
    with Server(folder, "plain") as server:
        yield server


@pytest.fixture(scope="module")
def pooled(folder: Path, pool: Any, plain: Server) -> Iterator[Server]:
    """The same server over the pool."""
    import ray

    environment = {
        "SGLANG_EXTERNAL_MM_PROCESSOR_PACKAGE": "sglang_mm_ray.sglang",
        "SGLANG_MM_RAY_POOL": POOL,
        "SGLANG_MM_RAY_ADDRESS": ray.get_runtime_context().gcs_address,
        "SGLANG_MM_RAY_TIMEOUT_S": "30",
    }
    with Server(folder, "pooled", environment) as server:
        plain.wait()
        yield server.wait()


def _photo(seed: int, width_px: int = 120, height_px: int = 90) -> bytes:
    """A picture that nobody has seen, so that nothing comes from a cache."""
    pixels = np.random.default_rng(seed).integers(0, 256, (height_px, width_px, 3), np.uint8)
    return png(pixels)


def _equal(found: Answer, expected: Answer) -> None:
    assert (found.status, expected.status) == (200, 200), (found.text, expected.text)
    assert found.body["usage"]["prompt_tokens"] == expected.body["usage"]["prompt_tokens"]
    assert found.body["choices"][0]["message"] == expected.body["choices"][0]["message"]
    assert found.logprobs == expected.logprobs


def _eventually(server: Server, images: list[bytes]) -> Answer:
    """The first answer of 200; until then only a 503 is right."""
    until = time.monotonic() + RECOVERY_S
    while True:
        answer = server.chat(images)
        if answer.status == 200 or time.monotonic() > until:
            return answer
        assert answer.status == 503, answer.text
        time.sleep(0.2)


@pytest.mark.parametrize("count", [1, 3])
def test_chat_with_images_is_answered_alike(plain: Server, pooled: Server, count: int) -> None:
    images = [path.read_bytes() for path in PHOTOS[:count]]
    _equal(pooled.chat(images), plain.chat(images))


def test_the_order_of_images_matters_to_this_model(pooled: Server) -> None:
    first, second = (path.read_bytes() for path in PHOTOS[:2])
    assert pooled.chat([first, second]).logprobs != pooled.chat([second, first]).logprobs


def test_the_log_says_once_that_the_pool_serves(pooled: Server) -> None:
    lines = [line for line in pooled.read_log().splitlines() if "preprocesses this server's images" in line]
    [line] = lines
    for word in (POOL, "qwen_vl", "float32", "by value"):
        assert word in line


def test_the_message_says_which_image_is_broken(pooled: Server) -> None:
    answer = pooled.chat([_photo(1), b"\xff\xd8\xff broken", _photo(2)])
    assert answer.status == 400
    assert "image 1" in answer.text


def test_an_overloaded_pool_is_said_at_once(plain: Server, pooled: Server) -> None:
    answer = pooled.chat([_photo(20 + number, 28, 28) for number in range(QUEUE_IMAGES + 1)])
    assert answer.status == 503
    assert str(QUEUE_IMAGES) in answer.text
    images = [_photo(40)]
    _equal(pooled.chat(images), plain.chat(images))


def test_images_without_a_placeholder_are_answered_as_sglang_does(plain: Server, pooled: Server) -> None:
    body = {
        "text": "no picture here",
        "image_data": None,
        "sampling_params": {"max_new_tokens": 4, "temperature": 0},
    }
    import base64

    url = "data:image/png;base64," + base64.b64encode(_photo(3)).decode()
    vision = "<|vision_start|><|image_pad|><|vision_end|>"
    for text, images in (("no picture", [url]), (vision, [url, url])):
        request = {**body, "text": text, "image_data": images}
        found, expected = pooled.post("/generate", request), plain.post("/generate", request)
        assert (found.status, expected.status) == (200, 200), (found.text, expected.text)
        assert found.body["output_ids"] == expected.body["output_ids"]
    found = pooled.post("/generate", {**body, "text": vision + vision, "image_data": [url]})
    assert found.status == 400
    assert "placeholders" in found.text


def test_ids_that_are_expanded_already_are_the_callers_fault(pooled: Server) -> None:
    import base64

    url = "data:image/png;base64," + base64.b64encode(_photo(4)).decode()
    image_pad = 262
    request = {"input_ids": [1, 259, *[image_pad] * 12, 260, 2], "image_data": [url]}
    answer = pooled.post("/generate", {**request, "sampling_params": {"max_new_tokens": 4}})
    assert answer.status == 400
    assert "placeholders" in answer.text


def test_a_killed_worker_costs_a_moment(plain: Server, pooled: Server, pool: Any) -> None:
    [worker] = pool.status()["workers"]
    os.kill(worker["pid"], signal.SIGKILL)
    images = [_photo(5)]
    answer = pooled.chat(images)
    print(f"answered {answer.took_s:.1f} s after its worker was killed")
    _equal(answer, plain.chat(images))


def test_a_killed_sidecar_costs_the_requests_that_it_had(plain: Server, pooled: Server) -> None:
    import psutil

    [sidecar] = [
        child
        for child in psutil.Process(pooled.pid).children(recursive=True)
        if "sglang_mm_ray.sglang.sidecar.process" in child.cmdline()
    ]
    sidecar.kill()
    images = [_photo(6)]
    started = time.monotonic()
    answer = _eventually(pooled, images)
    print(f"answered {time.monotonic() - started:.1f} s after the connection to Ray was killed")
    _equal(answer, plain.chat(images))


def test_a_pool_that_comes_back_serves_again(plain: Server, pooled: Server, pool: Any) -> None:
    pool.stop()
    answer = pooled.chat([_photo(7)])
    assert answer.status == 503, answer.text
    assert pooled.get("/health").status == 200
    again = _start_pool()
    try:
        images = [_photo(8)]
        started = time.monotonic()
        answer = _eventually(pooled, images)
        print(f"answered {time.monotonic() - started:.1f} s after the pool was started again")
        _equal(answer, plain.chat(images))
    finally:
        again.stop()
