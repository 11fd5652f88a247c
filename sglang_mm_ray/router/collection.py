"""A request whose images are all known: an outcome for each, in order. Belongs to the router's loop."""

from __future__ import annotations

import asyncio
import time
from typing import Any

from ..errors import DeadlineExceeded, PoolOverloaded, PreprocessError
from ..routing.admission import Amount
from ..routing.batching import Cost
from ..sources.source import Source
from .reception import INTAKE_IMAGES, Reception
from .requests import ImageOutcome, Request

__all__ = ["Collection"]


class Collection:
    """Admits the images, promises their results' bytes, sends them on their way and waits for all."""

    def __init__(self, reception: Reception, sources: list[Any], timeout_s: float | None) -> None:
        self._reception = reception
        self._sources = sources
        self._timeout_s = timeout_s
        self._outcomes: list[ImageOutcome | None] = [None] * len(sources)
        self._left = len(sources)
        self._promised: set[int] = set()
        self._finished: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def _settled(self, index: int, cost: Cost, outcome: ImageOutcome) -> None:
        self._outcomes[index] = outcome
        self._left -= 1
        self._reception.waiting.leave(Amount(1, cost.input_bytes))
        if index in self._promised:
            self._promised.discard(index)
            self._reception.ledger.withdraw(cost.output_bytes)
        if self._left == 0 and not self._finished.done():
            self._finished.set_result(None)

    async def run(
        self,
        costs: list[Cost] | None,
        classified: list[Source | PreprocessError] | None,
        refuse_whole: bool,
    ) -> list[Any]:
        """An image or an error for each source; what the caller has found out already need not be again.

        Raises:
            PoolOverloaded: with `refuse_whole`, where the queue has no room for all.
            PreprocessError: of the request as a whole.
        """
        reception = self._reception
        reception.check_open()
        if costs is None:
            costs = await reception.off_loop(reception.intake.estimate_all, self._sources)
            reception.check_open()
        # Held by nothing that it holds itself: results in a circle would stay in the store for longer.
        request = Request(self._settled)
        admitted = self._admit(request, costs, refuse_whole)
        expiry = None
        loop = asyncio.get_running_loop()
        if self._timeout_s is not None:
            expiry = loop.call_later(self._timeout_s, self._expire, request)
        feeding = loop.create_task(self._feed(request, self._sources[:admitted], costs, classified))
        try:
            if self._left == 0 and not self._finished.done():
                self._finished.set_result(None)
            await asyncio.wait({feeding, self._finished}, return_when=asyncio.FIRST_COMPLETED)
            if not self._finished.done():
                feeding.result()  # An error of the request as a whole ends it here.
            await self._finished
        finally:
            if expiry is not None:
                expiry.cancel()
            feeding.cancel()
            reception.end(request, lambda: DeadlineExceeded("the request was cancelled"))
        reception.metrics.observe("router_request_seconds", time.perf_counter() - request.started)
        return self._outcomes

    def _admit(self, request: Request, costs: list[Cost], refuse_whole: bool) -> int:
        reception, waiting = self._reception, self._reception.waiting
        count = len(self._sources)
        admitted = count if refuse_whole else min(count, waiting.room_images())
        try:
            waiting.enter(Amount(admitted, sum(cost.input_bytes for cost in costs[:admitted])))
        except PoolOverloaded as error:
            reception.refused(error, admitted)
            raise
        reception.begin(request)
        for index in range(admitted):
            request.expect(index, costs[index])
        for index in range(admitted, count):
            refusal = PoolOverloaded(
                f"{waiting.images} images are under way, the bound is {waiting.bounds.max_images} "
                "(max_queued_images); try again later"
            )
            self._outcomes[index] = refusal
            reception.refused(refusal, 1)
            self._left -= 1
        return admitted

    async def _feed(
        self,
        request: Request,
        sources: list[Any],
        costs: list[Cost],
        classified: list[Source | PreprocessError] | None,
    ) -> None:
        reception = self._reception
        output_bytes = sum(cost.output_bytes for cost in costs[: len(sources)])
        await reception.ledger.promise(output_bytes, len(sources))
        self._promised.update(range(len(sources)))
        for index in range(len(sources)):
            if not request.is_open(index):
                self._promised.discard(index)
                reception.ledger.withdraw(costs[index].output_bytes)
        for start in range(0, len(sources), INTAKE_IMAGES):
            group = sources[start : start + INTAKE_IMAGES]
            # Hashed off the loop, a few at a time: the first are under way while the next are hashed.
            found = classified or await reception.off_loop(reception.intake.classify_all, group)
            for place in range(len(group)):
                reception.add(request, start + place, found[place], costs[start + place], group[place])

    def _expire(self, request: Request) -> None:
        self._reception.drop(
            request,
            lambda: DeadlineExceeded(
                f"the request did not finish within {self._timeout_s:g} s; its rest was dropped"
            ),
        )
