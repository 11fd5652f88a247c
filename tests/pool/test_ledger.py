"""Admission and the store budget, without Ray."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
from waiting import PATIENCE_S, until_async

from sglang_mm_ray.errors import PoolOverloaded
from sglang_mm_ray.router.ledger import Ledger
from sglang_mm_ray.routing.admission import Amount, QueueBounds, StoreBudget, Waiting


def with_ledger(
    budget_bytes: int, test: Callable[[Ledger], Coroutine[Any, Any, None]], **options: Any
) -> None:
    async def main() -> None:
        evict = options.pop("evict", lambda size_bytes: None)
        wait_s = options.pop("wait_s", 5.0)
        await test(Ledger(StoreBudget(budget_bytes), wait_s, evict, asyncio.get_running_loop()))

    asyncio.run(main())


def test_the_queue_refuses_what_would_pass_its_bounds() -> None:
    waiting = Waiting(QueueBounds(10, 1000))
    waiting.enter(Amount(8, 500))
    with pytest.raises(PoolOverloaded, match="max_queued_images"):
        waiting.enter(Amount(3, 1))
    with pytest.raises(PoolOverloaded, match="max_queued_bytes"):
        waiting.enter(Amount(1, 501))
    assert (waiting.images, waiting.input_bytes, waiting.room_images()) == (8, 500, 2)
    waiting.leave(Amount(8, 500))
    # One request larger than the bytes' bound may pass while nothing else is there.
    waiting.enter(Amount(1, 5000))
    assert waiting.room_images() == 9


def test_bytes_are_promised_held_and_released() -> None:
    async def test(ledger: Ledger) -> None:
        await ledger.promise(60, 1)
        ledger.hold(55)
        ledger.withdraw(60)
        assert (ledger.budget.held_bytes, ledger.budget.promised_bytes) == (55, 0)
        ledger.release(55)
        await asyncio.sleep(0)
        assert ledger.budget.free_bytes == 100

    with_ledger(100, test)


def test_a_request_waits_until_others_let_go() -> None:
    async def test(ledger: Ledger) -> None:
        await ledger.promise(80, 1)
        second = asyncio.ensure_future(ledger.promise(50, 1))
        await asyncio.sleep(0.01)
        assert not second.done()
        ledger.withdraw(80)
        await second
        assert ledger.budget.promised_bytes == 50

    with_ledger(100, test)


def test_two_large_requests_never_hold_half_each() -> None:
    async def test(ledger: Ledger) -> None:
        order: list[str] = []

        async def request(name: str) -> None:
            await ledger.promise(70, 7)
            order.append(name)
            await asyncio.sleep(0.01)
            ledger.withdraw(70)

        await asyncio.gather(*(request(name) for name in "abcd"))
        assert order == list("abcd") and ledger.budget.free_bytes == 100

    with_ledger(100, test)


def test_small_ones_pass_a_large_one_but_not_for_ever() -> None:
    async def test(ledger: Ledger) -> None:
        await ledger.promise(60, 1)
        large = asyncio.ensure_future(ledger.promise(90, 1))
        await asyncio.sleep(0.01)
        await ledger.promise(30, 1)
        assert not large.done()
        # Once it has waited for two seconds nobody passes it any more.
        ledger._waiting[0] = (90, asyncio.get_running_loop().time() - 3, ledger._waiting[0][2])
        small = asyncio.ensure_future(ledger.promise(5, 1))
        await asyncio.sleep(0.01)
        assert not small.done()
        ledger.withdraw(60)
        ledger.withdraw(30)
        await large
        await small

    with_ledger(100, test)


def test_a_cancelled_wait_leaves_no_promise() -> None:
    async def test(ledger: Ledger) -> None:
        await ledger.promise(80, 1)
        waiting = asyncio.ensure_future(ledger.promise(50, 1))
        await asyncio.sleep(0.01)
        waiting.cancel()
        ledger.withdraw(80)
        with pytest.raises(asyncio.CancelledError):
            await waiting
        assert ledger.budget.free_bytes == 100 and not ledger._waiting

    with_ledger(100, test)


def test_what_could_never_fit_is_refused_at_once() -> None:
    async def test(ledger: Ledger) -> None:
        with pytest.raises(PoolOverloaded, match="100 bytes"):
            await ledger.promise(101, 3)
        assert ledger.budget.free_bytes == 100

    with_ledger(100, test)


def test_cached_results_give_way() -> None:
    asked: list[int] = []

    async def test(ledger: Ledger) -> None:
        ledger.hold(90)

        def evict(size_bytes: int) -> None:
            asked.append(size_bytes)
            ledger.release(90)

        ledger._evict = evict
        await ledger.promise(50, 1)
        assert asked == [40]

    with_ledger(100, test)


def test_waiting_for_results_that_nobody_lets_go_of_ends() -> None:
    async def test(ledger: Ledger) -> None:
        ledger.hold(90)
        waiting = asyncio.ensure_future(ledger.promise(50, 1))
        await tick_until_done(ledger, waiting)
        with pytest.raises(PoolOverloaded, match="let go"):
            await waiting

    with_ledger(100, test, wait_s=0.05)


async def tick_until_done(ledger: Ledger, waiting: asyncio.Future[Any]) -> None:
    """Ticks, as the router does now and then, until the one who waits has an answer."""
    while not waiting.done():
        ledger.tick()
        await asyncio.sleep(0.01)


def _on_a_thread(ledger: Ledger, size_bytes: int, timeout_s: float = PATIENCE_S) -> asyncio.Task[int]:
    """A reader that copies a result; what was promised while it did."""

    def copy() -> int:
        with ledger.claimed(size_bytes, timeout_s):
            ledger.adopt(size_bytes)
            return ledger.budget.promised_bytes

    return asyncio.create_task(asyncio.to_thread(copy))


def test_a_readers_copy_waits_for_its_bytes_and_is_counted() -> None:
    async def test(ledger: Ledger) -> None:
        ledger.hold(90)
        copying = _on_a_thread(ledger, 40)
        await until_async(lambda: ledger._waiting)
        assert not copying.done()
        ledger.release(90)
        assert await copying == 40
        await asyncio.sleep(0.01)
        assert (ledger.budget.held_bytes, ledger.budget.promised_bytes) == (40, 0)

    with_ledger(100, test)


def test_a_readers_copy_without_a_place_is_refused() -> None:
    async def test(ledger: Ledger) -> None:
        ledger.hold(90)
        copying = _on_a_thread(ledger, 40)
        await tick_until_done(ledger, copying)
        with pytest.raises(PoolOverloaded, match="let go"):
            await copying
        with pytest.raises(PoolOverloaded, match="did not come free within"):
            await _on_a_thread(ledger, 40, timeout_s=0.02)
        await asyncio.sleep(0.01)
        assert (ledger.budget.held_bytes, ledger.budget.promised_bytes) == (90, 0)
        assert not ledger._waiting

    with_ledger(100, test, wait_s=0.05)


def test_a_copy_that_fails_leaves_no_promise() -> None:
    async def test(ledger: Ledger) -> None:
        def fail() -> None:
            with ledger.claimed(40, 1.0):
                raise MemoryError

        with pytest.raises(MemoryError):
            await asyncio.to_thread(fail)
        await asyncio.sleep(0.01)
        assert ledger.budget.free_bytes == 100

    with_ledger(100, test)


def test_once_nobody_counts_a_copy_is_made_at_once() -> None:
    ledgers: list[Ledger] = []

    async def test(ledger: Ledger) -> None:
        ledgers.append(ledger)
        ledger.hold(100)
        copying = _on_a_thread(ledger, 40)
        await until_async(lambda: ledger._waiting)
        ledger.close()
        await copying

    with_ledger(100, test)
    [ledger] = ledgers
    with ledger.claimed(40, 1.0):
        pass
