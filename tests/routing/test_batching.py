"""The fair queue: turns between requests, bounds of a batch, cancelling."""

from __future__ import annotations

from dataclasses import dataclass, field

from sglang_mm_ray.routing.batching import BatchLimits, Cost, FairQueue


@dataclass(eq=False)
class Image:
    request_id: int
    name: str
    cost: Cost = field(default_factory=lambda: Cost(10, 10, 100.0))


def queue(*lengths: int) -> tuple[FairQueue[Image], list[list[Image]]]:
    fair: FairQueue[Image] = FairQueue()
    requests = [[Image(r, f"{r}.{i}") for i in range(length)] for r, length in enumerate(lengths)]
    for request in requests:
        for image in request:
            fair.push(image)
    return fair, requests


def names(batch: list[Image]) -> list[str]:
    return [image.name for image in batch]


WIDE = BatchLimits(4, 10_000, 1e9)


def test_long_requests_take_turns_a_batch_each() -> None:
    fair, _ = queue(9, 6)
    batches = [names(fair.take(WIDE)) for _ in range(5)]
    assert batches == [
        ["0.0", "0.1", "0.2", "0.3"],
        ["1.0", "1.1", "1.2", "1.3"],
        ["0.4", "0.5", "0.6", "0.7"],
        ["1.4", "1.5"],
        ["0.8"],
    ]
    assert fair.take(WIDE) == [] and len(fair) == 0 and fair.work_px == 0


def test_one_image_passes_a_request_of_512_and_travels_alone() -> None:
    fair, _ = queue(512)
    fair.take(WIDE)
    single = Image(99, "single")
    assert not fair.has_short
    fair.push(single)
    assert fair.has_short
    assert fair.take(WIDE) == [single]
    assert names(fair.take(WIDE)) == ["0.4", "0.5", "0.6", "0.7"]


def test_short_requests_travel_together_and_alternate_with_long_ones() -> None:
    fair, _ = queue(1, 2, 1, 5, 1)
    assert names(fair.take(WIDE)) == ["0.0", "1.0", "1.1", "2.0"]
    assert names(fair.take(WIDE)) == ["3.0", "3.1", "3.2", "3.3"]
    assert names(fair.take(WIDE)) == ["4.0"]
    assert names(fair.take(WIDE)) == ["3.4"]


def test_a_long_request_is_not_starved_by_short_ones() -> None:
    fair, _ = queue(20)
    seen = []
    for number in range(40):
        fair.push(Image(1000 + number, "short"))
        seen.append(fair.take(WIDE)[0].request_id)
    assert seen.count(0) == 5


def test_only_short_ones_can_be_asked_for() -> None:
    fair, _ = queue(7, 1)
    assert names(fair.take_short(WIDE)) == ["1.0"]
    assert fair.take_short(WIDE) == [] and len(fair) == 7


def test_a_batch_stays_within_bytes_and_work_but_holds_one_image_at_least() -> None:
    fair: FairQueue[Image] = FairQueue()
    for number in range(3):
        fair.push(Image(0, str(number), Cost(600, 0, 10.0)))
    assert names(fair.take(BatchLimits(10, 1200, 1e9))) == ["0", "1"]
    assert names(fair.take(BatchLimits(10, 5, 1e9))) == ["2"]
    for number in range(3):
        fair.push(Image(0, str(number), Cost(0, 0, 70.0)))
    assert names(fair.take(BatchLimits(10, 100, 140.0))) == ["0", "1"]


def test_a_cancelled_image_is_gone_and_its_work_too() -> None:
    fair, (request,) = queue(3)
    assert fair.remove(request[1])
    assert not fair.remove(request[1])
    assert fair.work_px == 200.0
    assert names(fair.take(WIDE)) == ["0.0", "0.2"]
    assert not fair.remove(request[0])


def test_draining_empties_it() -> None:
    fair, requests = queue(2, 3)
    assert set(fair.drain()) == {image for request in requests for image in request}
    assert len(fair) == 0 and fair.take(WIDE) == []
