"""The worker's engine without Ray: turns, single flight, cache, cancelling, bounds, heartbeat."""

from __future__ import annotations

import base64
import dataclasses
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from misbehaving_server import MisbehavingServer
from pooling import patches, photo, png
from waiting import PATIENCE_S, until

from sglang_mm_ray.config import PoolConfig
from sglang_mm_ray.errors import (
    DecodeError,
    FetchError,
    InternalError,
    InvalidArgument,
    PoolOverloaded,
    SourceRefused,
)
from sglang_mm_ray.messages import BatchReply, BatchRequest, Failure, ImageFacts
from sglang_mm_ray.sources.policy import SourcePolicy
from sglang_mm_ray.sources.source import Resolved, Source, classify
from sglang_mm_ray.worker.engine import Engine
from sglang_mm_ray.worker.process import Outcome


class Gate:
    """Stands in for the core: notes every image it is given, and holds it until the gate opens."""

    def __init__(self, engine: Engine) -> None:
        self._processor = engine._processor
        self._real: Callable[[Resolved], Outcome] = self._processor.process
        self.open = threading.Event()
        self.seen: list[bytes] = []
        self.failures: dict[bytes, list[BaseException]] = {}
        self._processor.process = self.process  # type: ignore[method-assign]

    def process(self, resolved: Resolved) -> Outcome:
        self.seen.append(resolved.digest)
        assert self.open.wait(PATIENCE_S)
        failures = self.failures.get(resolved.digest)
        if failures:
            raise failures.pop()
        return self._real(resolved)


@pytest.fixture
def make() -> Iterator[Callable[..., Engine]]:
    engines: list[Engine] = []

    def build(threads: int = 1, **fields: Any) -> Engine:
        engines.append(Engine(PoolConfig(**fields), threads))
        return engines[-1]

    yield build
    for engine in engines:
        engine.close()


def batch(call_id: str, sources: list[Any], size_bytes: int = 1000, work_px: float = 1000.0) -> BatchRequest:
    return BatchRequest(call_id, tuple(classify(source) for source in sources), size_bytes, work_px)


class Running:
    """A call on a thread of its own."""

    def __init__(self, engine: Engine, request: BatchRequest) -> None:
        self.answer: tuple[BatchReply, list[Any]] | None = None
        self._thread = threading.Thread(target=self._run, args=(engine, request), daemon=True)
        self._thread.start()

    def _run(self, engine: Engine, request: BatchRequest) -> None:
        self.answer = engine.run(request)

    def wait(self) -> tuple[BatchReply, list[Any]]:
        self._thread.join(PATIENCE_S)
        assert self.answer is not None, "the call did not end"
        return self.answer


FILES = [png(photo(seed, 40, 30)) for seed in range(12)]


def test_a_batch_gives_facts_and_values_in_order(make: Callable[..., Engine]) -> None:
    engine = make(2)
    reply, values = engine.run(batch("a", [FILES[0], b"broken", FILES[1], photo(2, 40, 30)]))
    kinds = [type(outcome) for outcome in reply.outcomes]
    assert kinds == [ImageFacts, Failure, ImageFacts, ImageFacts]
    assert isinstance(reply.outcomes[1].error, DecodeError) and values[1] is None  # type: ignore[union-attr]
    for data, value in zip([FILES[0], FILES[1], FILES[2]], [values[0], values[2], values[3]], strict=True):
        np.testing.assert_array_equal(value, patches(data))
    facts = reply.outcomes[0]
    assert isinstance(facts, ImageFacts)
    assert {"queue", "resolve", "decode"} <= set(facts.times_s) and facts.origin == "computed"
    assert reply.busy_s > 0 and engine.backlog_px == 0
    assert engine.completed_images == 3 and engine.failed_images == 1


def test_repeats_come_from_the_cache_without_any_work(make: Callable[..., Engine]) -> None:
    engine = make()
    gate = Gate(engine)
    gate.open.set()
    _, (first,) = engine.run(batch("a", [FILES[0]]))
    reply, (again,) = engine.run(batch("b", [FILES[0]]))
    assert again is first and len(gate.seen) == 1
    facts = reply.outcomes[0]
    assert isinstance(facts, ImageFacts) and facts.origin == "worker_cache" and facts.times_s == {}
    assert engine.cache_counters()["hits"] == 1


def test_a_failure_is_not_cached(make: Callable[..., Engine]) -> None:
    engine = make()
    gate = Gate(engine)
    gate.open.set()
    for _ in range(2):
        engine.run(batch("a", [b"broken"]))
    assert len(gate.seen) == 2 and engine.cache_counters()["images"] == 0


def test_one_content_in_flight_is_computed_once(make: Callable[..., Engine]) -> None:
    engine = make(4)
    gate = Gate(engine)
    calls = [Running(engine, batch(str(n), [FILES[0], FILES[1], FILES[0]])) for n in range(5)]
    until(lambda: len(gate.seen) == 2 and engine.waiting_images() == 13)
    gate.open.set()
    answers = [call.wait() for call in calls]
    assert len(gate.seen) == 2
    origins = [
        facts.origin for reply, _ in answers for facts in reply.outcomes if isinstance(facts, ImageFacts)
    ]
    assert sorted(origins) == ["computed"] * 2 + ["joined"] * 13
    for _, values in answers:
        np.testing.assert_array_equal(values[2], patches(FILES[0]))


@pytest.mark.parametrize("count", [1, 3])
def test_a_buffer_that_its_caller_reuses_poisons_no_cache(make: Callable[..., Engine], count: int) -> None:
    """A call may end, by its deadline or cancelled, before its images are sent for others who joined them."""
    engine = make()
    pixels = photo(70)
    before = pixels.copy()
    buffer = bytearray(FILES[0])
    requests = [batch("buffer", [buffer] * count), batch("pixels", [pixels] * count)]
    buffer[:] = FILES[1]
    pixels[:] = photo(71)
    for request in requests:
        for outcome in engine.run(request)[0].outcomes:
            assert isinstance(outcome, Failure) and isinstance(outcome.error, InvalidArgument)
    _, values = engine.run(batch("honest", [FILES[0], before, FILES[1], pixels]))
    for value, data in zip(values, (FILES[0], png(before), FILES[1], png(pixels)), strict=True):
        np.testing.assert_array_equal(value, patches(data))


def test_a_leader_that_fails_by_its_own_fault_does_not_fail_its_followers(
    make: Callable[..., Engine],
) -> None:
    engine = make()
    gate = Gate(engine)
    digest = classify(FILES[0]).key
    gate.failures[digest] = [MemoryError("no memory")]
    leader = Running(engine, batch("leader", [FILES[0]]))
    until(lambda: len(gate.seen) == 1)
    follower = Running(engine, batch("follower", [FILES[0]]))
    until(lambda: engine.waiting_images() == 1)
    gate.open.set()
    failed = leader.wait()[0].outcomes[0]
    assert isinstance(failed, Failure) and isinstance(failed.error, InternalError)
    np.testing.assert_array_equal(follower.wait()[1][0], patches(FILES[0]))


def test_a_single_image_waits_for_one_image_not_for_a_batch(make: Callable[..., Engine]) -> None:
    engine = make()
    gate = Gate(engine)
    long = Running(engine, batch("long", FILES[:10]))
    until(lambda: len(gate.seen) == 1)
    single = Running(engine, batch("single", [FILES[11]]))
    until(lambda: engine.waiting_images() == 10)
    gate.open.set()
    single.wait(), long.wait()
    assert gate.seen.index(classify(FILES[11]).key) == 1


def test_long_calls_end_one_after_the_other_and_short_ones_in_between(make: Callable[..., Engine]) -> None:
    engine = make()
    gate = Gate(engine)
    first = Running(engine, batch("first", FILES[:4]))
    until(lambda: len(gate.seen) == 1)
    second = Running(engine, batch("second", FILES[4:8]))
    until(lambda: engine.waiting_images() == 7)
    shorts = [Running(engine, batch("a", [FILES[8]])), Running(engine, batch("b", [FILES[9]]))]
    until(lambda: engine.waiting_images() == 9)
    gate.open.set()
    for call in (*shorts, first, second):
        call.wait()
    order = [[classify(data).key for data in FILES].index(digest) for digest in gate.seen]
    assert [number for number in order if number < 8] == list(range(8))
    assert sorted(order.index(number) for number in (8, 9)) == [1, 3]


def test_short_requests_that_share_a_call_stay_short(make: Callable[..., Engine]) -> None:
    """Many single images that come at a time travel together; none waits behind all of a long request."""
    engine = make()
    gate = Gate(engine)
    first = Running(engine, batch("first", FILES[:6]))
    until(lambda: len(gate.seen) == 1)
    singles = Running(engine, dataclasses.replace(batch("singles", FILES[6:10]), requests=4))
    until(lambda: engine.waiting_images() == 9)
    gate.open.set()
    singles.wait(), first.wait()
    order = [[classify(data).key for data in FILES].index(digest) for digest in gate.seen]
    assert [number for number in order if number < 6] == list(range(6))
    assert [order.index(number) for number in (6, 7, 8, 9)] == [1, 3, 5, 7]


def test_cancelling_drops_what_has_not_started(make: Callable[..., Engine]) -> None:
    engine = make()
    gate = Gate(engine)
    call = Running(engine, batch("a", FILES[:8]))
    until(lambda: len(gate.seen) == 1)
    assert engine.cancel("a") and not engine.cancel("unknown")
    gate.open.set()
    reply, values = call.wait()
    assert len(gate.seen) == 1
    assert [value is None for value in values] == [False] + [True] * 7
    assert all(isinstance(outcome, Failure) for outcome in reply.outcomes[1:])
    # The slot is free again, and what did run is kept.
    assert engine.backlog_px == 0 and engine.waiting_images() == 0
    assert engine.run(batch("b", [FILES[0]]))[0].outcomes[0].origin == "worker_cache"  # type: ignore[union-attr]


def test_a_cancelled_leader_still_computes_for_its_followers(make: Callable[..., Engine]) -> None:
    engine = make()
    gate = Gate(engine)
    leader = Running(engine, batch("leader", [FILES[0], FILES[1]]))
    until(lambda: len(gate.seen) == 1)
    follower = Running(engine, batch("follower", [FILES[1]]))
    until(lambda: engine.waiting_images() == 2)
    engine.cancel("leader")
    gate.open.set()
    leader.wait()
    np.testing.assert_array_equal(follower.wait()[1][0], patches(FILES[1]))


@pytest.mark.parametrize("bound", [{"max_worker_bytes": 1500}, {"max_worker_pixels": 1500}])
def test_a_full_worker_says_busy_at_once_but_never_refuses_when_idle(
    make: Callable[..., Engine], bound: dict[str, int]
) -> None:
    engine = make(**bound)
    gate = Gate(engine)
    # The first is over the bound by itself, and an idle worker takes it all the same.
    first = Running(engine, batch("a", [FILES[0]], 5000, 5000.0))
    until(lambda: len(gate.seen) == 1)
    reply, values = engine.run(batch("b", [FILES[1], FILES[2]]))
    assert values == [None, None]
    for outcome in reply.outcomes:
        assert isinstance(outcome, Failure) and outcome.busy and isinstance(outcome.error, PoolOverloaded)
    gate.open.set()
    first.wait()
    assert isinstance(engine.run(batch("c", [FILES[1]]))[0].outcomes[0], ImageFacts)


def test_the_heartbeat_shows_what_runs_and_for_how_long(make: Callable[..., Engine]) -> None:
    engine = make(2)
    gate = Gate(engine)
    assert engine.oldest_running() == (0, 0.0, None)
    call = Running(engine, batch("a", FILES[:3]))
    since = time.monotonic()
    until(lambda: len(gate.seen) == 2)
    seen = time.monotonic()
    until(lambda: time.monotonic() > seen + 0.05)
    running, age_s, digest = engine.oldest_running()
    assert running == 2 and digest == classify(FILES[0]).key
    assert 0.05 < age_s < time.monotonic() - since
    gate.open.set()
    call.wait()
    until(lambda: engine.oldest_running()[0] == 0)


def test_reading_does_not_take_the_computing_threads(make: Callable[..., Engine]) -> None:
    engine = make()
    release = threading.Event()
    engine._get = lambda ref: release.wait(PATIENCE_S) and FILES[1]
    slow = Source("ref", "a reference", b"k" * 32, False, 0, "an ObjectRef")
    call = Running(engine, BatchRequest("slow", (slow,), 0, 0.0))
    until(lambda: engine.oldest_running()[0] == 1)
    assert isinstance(engine.run(batch("fast", [FILES[0]]))[0].outcomes[0], ImageFacts)
    release.set()
    np.testing.assert_array_equal(call.wait()[1][0], patches(FILES[1]))


def test_many_threads_few_keys_and_a_small_cache(make: Callable[..., Engine]) -> None:
    size = patches(FILES[0]).nbytes
    engine = make(4, worker_cache_bytes=4 * (size + 2048))
    wrong: list[str] = []
    wanted = [patches(data) for data in FILES[:8]]

    def work(worker: int) -> None:
        for step in range(6):
            at = (worker * 5 + step * 3) % 8
            _, (value,) = engine.run(batch(f"{worker}.{step}", [FILES[at]]))
            if not np.array_equal(value, wanted[at]):
                wrong.append(f"{worker}.{step}")

    threads = [threading.Thread(target=work, args=(n,)) for n in range(32)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE_S)
    assert not wrong
    counters = engine.cache_counters()
    assert counters["images"] <= 4 and counters["bytes"] <= counters["capacity_bytes"]
    assert counters["evictions"] > 0


class TestUrls:
    @pytest.fixture
    def server(self) -> Iterator[MisbehavingServer]:
        server = MisbehavingServer()
        yield server
        server.close()

    def policy(self, server: MisbehavingServer, **fields: Any) -> SourcePolicy:
        network = {"allowed_ports": (server.port,), "allowed_private_networks": ("127.0.0.0/8",)}
        return SourcePolicy(**{**network, **fields})

    def test_slow_servers_hold_up_no_other_source(
        self, make: Callable[..., Engine], server: MisbehavingServer
    ) -> None:
        engine = make(fetch_threads=2, policy=self.policy(server))
        slow = Running(engine, batch("slow", [server.url(f"hang/{index}") for index in range(64)]))
        until(lambda: server.requests)
        reply, _ = engine.run(batch("text", [base64.b64encode(png(photo(1))).decode()]))
        # Done while the servers keep the others waiting, which then end without them.
        assert isinstance(reply.outcomes[0], ImageFacts) and slow.answer is None
        engine.cancel("slow")
        outcomes = slow.wait()[0].outcomes
        assert all(isinstance(outcome, Failure) for outcome in outcomes)

    def test_a_refused_or_failed_url_is_a_failure_of_its_own(
        self, make: Callable[..., Engine], server: MisbehavingServer
    ) -> None:
        engine = make(policy=self.policy(server))
        urls = [server.url("status/404") + "?sig=SECRET", "http://10.0.0.1/", server.url("ok")]
        reply, _ = engine.run(batch("urls", urls))
        errors = [outcome.error for outcome in reply.outcomes if isinstance(outcome, Failure)]
        # What the third one fetches is no image.
        assert [type(error) for error in errors] == [FetchError, SourceRefused, DecodeError]
        assert "SECRET" not in f"{errors[0]} {vars(errors[0])}"
