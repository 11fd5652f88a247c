"""Where the work is done: a pool, or this process if so allowed; never silently, and never after a cancel."""

from __future__ import annotations

import asyncio
import io
import logging
import threading
from collections.abc import Iterator

import numpy as np
import pytest
from PIL import Image
from waiting import PATIENCE_S, until, until_async

from sglang_mm_ray._core import build_info
from sglang_mm_ray.errors import DeadlineExceeded, DecodeError, PoolNotFound
from sglang_mm_ray.sglang import backend
from sglang_mm_ray.sglang.backend import open_backend
from sglang_mm_ray.sglang.settings import Settings

NOBODY = Settings(pool="nobody-started-this", address="127.0.0.1:1", on_unreachable="local", timeout_s=60)


def _photo(seed: int, side_px: int = 64) -> bytes:
    pixels = np.random.default_rng(seed).integers(0, 256, (side_px, side_px, 3), np.uint8)
    buffer = io.BytesIO()
    Image.fromarray(pixels).save(buffer, "PNG")
    return buffer.getvalue()


@pytest.fixture
def unreachable(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(backend, "_backends", {})
    yield
    for opened in backend._backends.values():
        opened._sidecar.close()


@pytest.mark.usefixtures("unreachable")
def test_an_unreachable_pool_is_an_error_that_names_the_way_out() -> None:
    with pytest.raises(PoolNotFound, match="SGLANG_MM_RAY_ON_UNREACHABLE=local"):
        open_backend("inkling", {}, Settings(pool="nobody-started-this", address="127.0.0.1:1"))


@pytest.mark.usefixtures("unreachable")
def test_local_is_said_aloud_counted_and_right(caplog: pytest.LogCaptureFixture) -> None:
    import reference

    with caplog.at_level(logging.WARNING):
        local = open_backend("inkling", {}, NOBODY)
    assert "preprocesses images itself" in caplog.text
    assert open_backend("inkling", {}, NOBODY) is local, "one backend for a process"
    before = backend.local_images()
    files = [_photo(1), _photo(2)]
    features = asyncio.run(local.preprocess(files))
    assert backend.local_images() == before + 2
    for data, feature in zip(files, features, strict=True):
        expected = reference.inkling(data)[2]
        assert feature.tensors["patches"].tobytes() == np.asarray(expected, np.uint16).tobytes()
        assert feature.tickets == {}


@pytest.mark.usefixtures("unreachable")
def test_a_bad_image_is_named_by_its_place() -> None:
    local = open_backend("inkling", {}, NOBODY)
    with pytest.raises(DecodeError) as caught:
        asyncio.run(local.preprocess([_photo(1), b"\xff\xd8\xff broken"]))
    assert caught.value.index == 1


class _Gate:
    """Keeps the images of a backend's engine until it opens, and counts those that came."""

    def __init__(self, local: object) -> None:
        stand_in = local._stand_in()  # type: ignore[attr-defined]
        self.engine = stand_in._engine
        self.opened = threading.Event()
        self.images = 0
        self._process = self.engine._processor.process
        self.engine._processor.process = self.process

    def process(self, resolved: object) -> object:
        self.images += 1
        assert self.opened.wait(PATIENCE_S)
        return self._process(resolved)


@pytest.mark.usefixtures("unreachable")
def test_cancelling_drops_what_has_not_started() -> None:
    gate = _Gate(local := open_backend("inkling", {}, NOBODY))

    async def scenario() -> None:
        work = asyncio.create_task(local.preprocess([_photo(100 + number) for number in range(40)]))
        await until_async(lambda: gate.images > 0)
        work.cancel()
        with pytest.raises(asyncio.CancelledError):
            await work
        gate.opened.set()
        await until_async(lambda: gate.engine.waiting_images() == 0)

    asyncio.run(scenario())
    assert gate.images <= build_info()["threads"], "the rest was not computed"


@pytest.mark.usefixtures("unreachable")
def test_a_deadline_ends_the_call_and_the_work() -> None:
    hasty = Settings(pool="x", address="127.0.0.1:1", on_unreachable="local", timeout_s=0.05)
    gate = _Gate(local := open_backend("inkling", {}, hasty))
    with pytest.raises(DeadlineExceeded):
        asyncio.run(local.preprocess([_photo(300 + number) for number in range(40)]))
    gate.opened.set()
    until(lambda: gate.engine.waiting_images() == 0)
    assert gate.images <= build_info()["threads"]
