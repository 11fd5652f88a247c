"""Slots: never more holders than allowed, in order, and nothing left of those who gave up."""

from __future__ import annotations

import asyncio
import random

from sglang_mm_ray.sources.slots import Slots


def test_never_more_than_allowed_and_in_order() -> None:
    async def main() -> None:
        slots, holding, most, order = Slots(3), 0, 0, []

        async def one(number: int) -> None:
            nonlocal holding, most
            async with slots.hold("key"):
                order.append(number)
                holding += 1
                most = max(most, holding)
                await asyncio.sleep(0)
                holding -= 1

        await asyncio.gather(*(one(number) for number in range(50)))
        assert most == 3 and order == list(range(50)) and len(slots) == 0

    asyncio.run(main())


def test_keys_are_apart() -> None:
    async def main() -> None:
        slots = Slots(1)
        async with slots.hold("a"), slots.hold("b"), slots.hold(("b", 1)):
            assert len(slots) == 3
        assert len(slots) == 0

    asyncio.run(main())


def test_who_gives_up_while_waiting_or_holding_leaves_nothing_behind() -> None:
    async def main() -> None:
        chance = random.Random(20)
        for _ in range(50):
            slots, holding = Slots(2), 0

            async def one(slots: Slots = slots) -> None:
                nonlocal holding
                async with slots.hold("key"):
                    holding += 1
                    assert holding <= 2
                    try:
                        for _ in range(chance.randrange(4)):
                            await asyncio.sleep(0)
                    finally:
                        holding -= 1

            tasks = [asyncio.create_task(one()) for _ in range(20)]
            for _ in range(chance.randrange(12)):
                await asyncio.sleep(0)
                chance.choice(tasks).cancel()
            await asyncio.wait(tasks)
            assert holding == 0 and len(slots) == 0
            async with slots.hold("key"), slots.hold("key"):
                pass

    asyncio.run(main())
