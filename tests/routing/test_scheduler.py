"""The scheduler: what is sent when, stealing, deaths, suspects, cancelling. No Ray, no clock."""

from __future__ import annotations

import random

import pytest

from sglang_mm_ray.routing.batching import BatchLimits, Cost
from sglang_mm_ray.routing.placement import route_key
from sglang_mm_ray.routing.scheduler import Batch, Flight, Scheduler, SchedulerLimits

LIMITS = SchedulerLimits(BatchLimits(4, 10**9, 1e9), window_px=800.0, max_worker_bytes=10**9)


def flight(number: int, request_id: int = 1, work_px: float = 100.0) -> Flight:
    return Flight(route_key(number.to_bytes(8, "big")), request_id, Cost(10, 10, work_px), number)


def scheduler(workers: int, limits: SchedulerLimits = LIMITS) -> Scheduler:
    made = Scheduler(limits)
    for number in range(workers):
        made.join(f"w{number}", 1.0)
    return made


def submit(made: Scheduler, flights: list[Flight]) -> None:
    for one in flights:
        made.submit(one)


def run_out(made: Scheduler, batches: list[Batch]) -> list[Flight]:
    """Finishes everything; returns the flights in the order in which they ended."""
    ended: list[Flight] = []
    pending = list(batches)
    while pending:
        batch = pending.pop(0)
        ended.extend(batch.flights)
        made.finish(batch)
        pending.extend(made.next_batches())
    assert made.queued_images == 0 and made.running_images == 0
    return ended


def test_an_idle_worker_is_sent_to_at_once() -> None:
    made = scheduler(1)
    submit(made, [flight(1)])
    (batch,) = made.next_batches()
    assert [f.payload for f in batch.flights] == [1]
    assert made.next_batches() == []


def test_everything_runs_once_and_windows_hold() -> None:
    made = scheduler(3)
    flights = [flight(number) for number in range(200)]
    submit(made, flights)
    batches = made.next_batches()
    for worker in made.worker_ids:
        running = made.running_on(worker)
        assert 0 < sum(batch.work_px for batch in running) <= 800.0
        assert all(len(batch.flights) <= 4 for batch in running)
    assert sorted(f.payload for f in run_out(made, batches)) == list(range(200))
    assert all(f.attempts == 1 for f in flights)


def test_an_image_larger_than_the_window_still_runs() -> None:
    made = scheduler(1)
    submit(made, [flight(number, work_px=1e9) for number in range(4)])
    (batch,) = made.next_batches()
    assert len(batch.flights) == 1
    assert len(run_out(made, [batch])) == 4


def test_an_idle_worker_takes_from_the_longest_queue() -> None:
    made = scheduler(2)
    submit(made, [flight(number) for number in range(100)])
    first = made.next_batches()
    fast = [batch for batch in first if batch.worker_id == "w1"]
    done = 0
    while fast:  # w0 never answers, w1 does all that is not yet on w0.
        batch = fast.pop()
        done += len(batch.flights)
        made.finish(batch)
        new = made.next_batches()
        assert all(other.worker_id == "w1" for other in new)
        fast.extend(new)
    assert done == 100 - sum(len(batch.flights) for batch in made.running_on("w0"))


def test_images_wait_for_the_first_worker() -> None:
    made = scheduler(0)
    submit(made, [flight(number) for number in range(5)])
    assert made.next_batches() == [] and made.queued_images == 5
    made.join("late", 2.0)
    assert len(run_out(made, made.next_batches())) == 5


def test_a_draining_worker_ends_what_it_has_and_gets_nothing_new() -> None:
    made = scheduler(2)
    submit(made, [flight(number) for number in range(50)])
    batches = made.next_batches()
    made.drain("w0")
    assert made.worker_ids == ["w1"]
    assert all(batch.worker_id == "w1" for batch in made.next_batches())
    assert len(run_out(made, batches)) == 50


@pytest.mark.parametrize("seed", range(20))
def test_nothing_is_lost_or_done_twice_whatever_dies(seed: int) -> None:
    chance = random.Random(seed)
    made = scheduler(4)
    flights = [flight(number, request_id=number % 7) for number in range(300)]
    submit(made, flights)
    ended: list[int] = []
    cancelled: set[int] = set()
    pending = made.next_batches()
    born = 4
    while pending or made.queued_images:
        event = chance.random()
        alive = made.worker_ids
        if event < 0.1 and alive:
            victim = chance.choice(alive)
            pending = [batch for batch in pending if batch.worker_id != victim]
            for lone in made.lose(victim):
                made.retry(lone)
        elif event < 0.15 or not alive:
            made.join(f"w{born}", chance.choice([1.0, 2.0]))
            born += 1
        elif event < 0.2:
            one = chance.choice(flights)
            if made.cancel(one):
                cancelled.add(one.payload)
        elif pending:
            batch = pending.pop(chance.randrange(len(pending)))
            ended.extend(f.payload for f in batch.flights)
            made.finish(batch)
        pending.extend(made.next_batches())
    assert len(ended) == len(set(ended))
    assert set(ended) | cancelled == set(range(300)) and not set(ended) & cancelled
    assert made.queued_images == 0 and made.running_images == 0


def crash_until_found(bystanders: int, limits: SchedulerLimits) -> tuple[int, int]:
    """One image kills every worker that holds it; returns its crashes until condemned, and the survivors."""
    made = scheduler(2, limits)
    poison = flight(7_000_000)
    submit(made, [*(flight(number) for number in range(bystanders)), poison])
    crashes, born, ended = 0, 2, []
    pending = made.next_batches()
    while pending:
        batch = pending.pop(0)
        if poison not in batch.flights:
            ended.extend(batch.flights)
            made.finish(batch)
        else:
            crashes += 1
            pending = [other for other in pending if other.worker_id != batch.worker_id]
            lone = made.lose(batch.worker_id)
            made.join(f"w{born}", 1.0)
            born += 1
            if poison in lone and poison.lone_crashes < 2:
                made.retry(poison)
        pending.extend(made.next_batches())
    assert made.queued_images == 0
    assert all(f.lone_crashes == 0 for f in ended), "a bystander was condemned"
    return crashes, len({f.payload for f in ended})


@pytest.mark.parametrize("chunk", [1, 4, 16, 64])
def test_a_poisonous_image_is_found_by_bisection_and_harms_nobody_else(chunk: int) -> None:
    limits = SchedulerLimits(
        BatchLimits(chunk, 10**9, 1e9), window_px=100.0 * chunk * 2, max_worker_bytes=10**9
    )
    crashes, survivors = crash_until_found(150, limits)
    assert survivors == 150
    # Once in its batch, once for each halving down to single images, twice alone.
    assert crashes <= 1 + max(0, chunk.bit_length() - 1) + 2


def test_suspects_share_the_worker_with_nobody() -> None:
    made = scheduler(1)
    submit(made, [flight(number) for number in range(40)])
    made.next_batches()
    made.lose("w0")
    made.join("w1", 1.0)
    batches = made.next_batches()
    assert len(batches) == 1 and batches[0].alone
    assert made.next_batches() == []
    assert len(run_out(made, batches)) == 40


def test_cancelling_what_waits_frees_it_and_what_runs_goes_on() -> None:
    made = scheduler(1)
    flights = [flight(number) for number in range(20)]
    submit(made, flights)
    batches = made.next_batches()
    running = {f for batch in batches for f in batch.flights}
    assert [made.cancel(f) for f in flights] == [f not in running for f in flights]
    assert made.queued_images == 0
    assert set(run_out(made, batches)) == running


def test_a_single_image_waits_for_one_window_at_most_behind_a_long_request() -> None:
    made = scheduler(1)
    submit(made, [flight(number, request_id=1) for number in range(512)])
    pending = made.next_batches()
    ahead = sum(len(batch.flights) for batch in pending)
    single = flight(9_999, request_id=2)
    made.submit(single)
    ended = run_out(made, pending)
    assert ended.index(single) <= ahead + LIMITS.batch.max_images


def test_short_requests_pass_a_full_window_one_batch_at_a_time() -> None:
    made = scheduler(1)
    submit(made, [flight(number, request_id=1) for number in range(512)])
    full = made.next_batches()
    assert made.next_batches() == []
    singles = [flight(9_000 + number, request_id=100 + number) for number in range(9)]
    submit(made, singles[:1])
    (express,) = made.next_batches()
    assert express.flights == (singles[0],)
    submit(made, singles[1:])
    assert made.next_batches() == []
    made.finish(express)
    (express,) = made.next_batches()
    assert set(express.flights) <= set(singles[1:])
    assert len(run_out(made, [*full, express])) == 512 + 8


def test_a_window_that_empties_image_by_image_is_not_filled_image_by_image() -> None:
    """Or batches would shrink to one image for good, since every end makes room for just that."""
    made = scheduler(1)
    submit(made, [flight(number, request_id=1) for number in range(400)])
    pending = made.next_batches()
    sizes = []
    while pending:
        batch = pending.pop(0)
        made.finish(batch)
        if batch.flights[0].request_id == 1:
            sizes.append(len(batch.flights))
            # Meanwhile a request of one image comes and goes, which leaves room of its own size.
            made.submit(flight(1_000 + len(sizes), request_id=1_000 + len(sizes)))
        pending.extend(made.next_batches())
    assert sum(sizes) == 400
    assert len(sizes) >= 3 and min(sizes[:-1]) >= 2


@pytest.mark.parametrize("work_px", [30.0, 270.0, 700.0, 1_100.0, 1_700.0, 1e9])
@pytest.mark.parametrize("max_work_px", [1e9, 480.0])
@pytest.mark.parametrize("threads", [1, 2, 4, 16])
def test_no_thread_idles_while_images_wait_however_large_they_are(
    work_px: float, max_work_px: float, threads: int
) -> None:
    """A window is counted in pixels, but threads are what idles; also at the tail, beside short requests."""
    limits = SchedulerLimits(BatchLimits(4, 10**9, max_work_px), window_px=800.0, max_worker_bytes=10**9)
    chance = random.Random(int(work_px) + threads)
    made = Scheduler(limits)
    made.join("w0", float(threads))
    submit(made, [flight(number, work_px=work_px * chance.uniform(0.7, 1.3)) for number in range(90)])
    pending = made.next_batches()
    ended = 0
    while pending:
        assert made.running_images >= min(threads, made.running_images + made.queued_images)
        batch = pending.pop(chance.randrange(len(pending)))
        ended += len(batch.flights)
        made.finish(batch)
        if ended % 5 == 0:
            made.submit(flight(1_000 + ended, request_id=1_000 + ended, work_px=1.0))
        pending.extend(made.next_batches())
    assert ended >= 90 and made.queued_images == 0
