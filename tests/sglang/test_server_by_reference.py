"""SGLang's own HTTP server, features by reference: a loss costs one request, never the server."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

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
POOL = "sglang-reference-test"
RECOVERY_S = 60.0


def _images(number: int) -> list[bytes]:
    return [PHOTOS[number].read_bytes(), PHOTOS[-1 - number].read_bytes()]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("server")


@pytest.fixture(scope="module")
def expected(folder: Path) -> list[Answer]:
    """What a server without us answers; it is gone before the next one starts, for its memory."""
    with Server(folder, "plain") as server:
        server.wait()
        return [server.chat(_images(number)) for number in range(3)]


@pytest.fixture(scope="module")
def server(folder: Path, expected: list[Answer]) -> Iterator[Server]:
    import ray

    import sglang_mm_ray as smr

    ray.init(address="local", include_dashboard=False, log_to_driver=False, object_store_memory=400 << 20)
    pool = smr.PreprocessPool.start(
        POOL,
        model="qwen_vl",
        parameters=PREPROCESSOR,
        num_workers=1,
        threads_per_worker=1,
        transport="float32",
    )
    environment = {
        "SGLANG_EXTERNAL_MM_PROCESSOR_PACKAGE": "sglang_mm_ray.sglang",
        "SGLANG_MM_RAY_POOL": POOL,
        "SGLANG_MM_RAY_ADDRESS": ray.get_runtime_context().gcs_address,
        "SGLANG_MM_RAY_FEATURES": "reference",
        # On one node values would be sent, were it not said who reads.
        "SGLANG_MM_RAY_READERS": "1",
    }
    with Server(folder, "referenced", environment) as server:
        yield server.wait()
    pool.stop()
    ray.shutdown()


def _equal(found: Answer, expected: Answer) -> None:
    assert (found.status, expected.status) == (200, 200), (found.text, expected.text)
    assert found.logprobs == expected.logprobs


def _kill_desks() -> int:
    import ray
    from ray.util import list_named_actors

    desks = [
        actor for actor in list_named_actors(all_namespaces=True) if actor["name"].startswith("mm-features-")
    ]
    for desk in desks:
        ray.kill(ray.get_actor(desk["name"], namespace=desk["namespace"]))
    return len(desks)


def _sidecars(server: Server) -> list[Any]:
    """That of the main process, and of the scheduler."""
    import psutil

    found = []
    for child in psutil.Process(server.pid).children(recursive=True):
        if "sglang_mm_ray.sglang.sidecar.process" in child.cmdline():
            found.append(child)
    return found


def test_features_by_reference_are_answered_alike(server: Server, expected: list[Answer]) -> None:
    _equal(server.chat(_images(0)), expected[0])
    assert "features by reference" in server.read_log()
    assert len(_sidecars(server)) == 2, "the scheduler is no process of Ray's either"


def test_a_desk_that_died_is_replaced(server: Server, expected: list[Answer]) -> None:
    assert _kill_desks() == 1
    _equal(server.chat(_images(1)), expected[1])


def test_what_the_scheduler_cannot_fetch_fails_alone(server: Server, expected: list[Answer]) -> None:
    for sidecar in _sidecars(server):
        if sidecar.ppid() != server.pid:
            sidecar.kill()
    until = time.monotonic() + RECOVERY_S
    statuses = []
    while True:
        answer = server.chat(_images(2))
        statuses.append(answer.status)
        if answer.status == 200 or time.monotonic() > until:
            break
        assert answer.status == 503, answer.text
        assert "lost on their way" in answer.text
        time.sleep(0.2)
    print("answers after the scheduler's connection to Ray was killed:", statuses)
    assert statuses[0] == 503
    _equal(answer, expected[2])
    assert server.is_running()
