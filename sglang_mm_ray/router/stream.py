"""A request without an end that is known: sources drawn as there is room. Belongs to the router's loop."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any

from ..errors import DeadlineExceeded
from ..routing.admission import Amount
from ..routing.batching import Cost
from .reception import INTAKE_IMAGES, Reception
from .requests import ImageOutcome, Request

__all__ = ["Stream"]

_WAIT_S = 0.5


class Stream:
    """Draws sources, sends them on their way, hands outcomes to `put`, and at the end None or an error."""

    def __init__(
        self,
        reception: Reception,
        put: Callable[[tuple[int, ImageOutcome] | BaseException | None], None],
        timeout_s: float | None,
    ) -> None:
        self._reception = reception
        self._put = put
        self._timeout_s = timeout_s
        self._left = 0
        self._room = asyncio.Event()
        self._expired = False
        self._request = Request(self._settled)

    def _settled(self, index: int, cost: Cost, outcome: ImageOutcome) -> None:
        self._left -= 1
        self._reception.waiting.leave(Amount(1, cost.input_bytes))
        self._reception.ledger.withdraw(cost.output_bytes)
        self._room.set()
        self._put((index, outcome))

    async def run(self, sources: Iterator[Any]) -> None:
        """Until the sources end, the time is up or somebody cancels."""
        reception, request = self._reception, self._request
        reception.begin(request)
        expiry = None
        if self._timeout_s is not None:
            expiry = asyncio.get_running_loop().call_later(self._timeout_s, self._expire)
        end: BaseException | None = None
        try:
            await self._feed(sources)
            while self._left:
                await self._wait()
        except Exception as error:
            end = error
        finally:
            if expiry is not None:
                expiry.cancel()
            reception.end(request, lambda: DeadlineExceeded("the stream was closed"))
            self._put(end)

    async def _feed(self, sources: Iterator[Any]) -> None:
        reception = self._reception
        window = max(1, reception.waiting.bounds.max_images // 8)
        start = 0
        while group := await reception.off_loop(_draw, sources):
            reception.check_open()
            costs = await reception.off_loop(reception.intake.estimate_all, group)
            classified = await reception.off_loop(reception.intake.classify_all, group)
            for place, cost in enumerate(costs):
                while self._left >= window or reception.waiting.room_images() == 0:
                    await self._wait()
                # One at a time: those before it are under way, so what they hold comes free.
                await reception.ledger.promise(cost.output_bytes, 1)
                reception.waiting.enter(Amount(1, cost.input_bytes))
                self._left += 1
                self._request.expect(start + place, cost)
                reception.add(self._request, start + place, classified[place], cost, group[place])
            self._check()
            start += len(group)

    async def _wait(self) -> None:
        self._room.clear()
        self._check()
        # With a limit, since room is also made by other requests.
        with contextlib.suppress(asyncio.TimeoutError):
            await asyncio.wait_for(self._room.wait(), _WAIT_S)
        self._check()

    def _expire(self) -> None:
        self._expired = True
        self._room.set()

    def _check(self) -> None:
        if self._expired:
            raise DeadlineExceeded(
                f"the stream did not finish within {self._timeout_s:g} s; its rest was dropped"
            )


def _draw(sources: Iterator[Any]) -> list[Any]:
    return list(islice(sources, INTAKE_IMAGES))
