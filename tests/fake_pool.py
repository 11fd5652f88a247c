"""A pool in this process for the tests of the command line: the core, no Ray."""

from __future__ import annotations

import types
from collections.abc import AsyncIterator, Iterable
from pathlib import Path
from typing import Any

from sglang_mm_ray.config import PoolConfig
from sglang_mm_ray.errors import PreprocessError, ResultLost, UnsupportedFormat
from sglang_mm_ray.sources.decode_fallback import decode_with_pillow
from sglang_mm_ray.sources.source import classify, resolve


class FakeImage:
    """What the command line reads of a `ProcessedImage`."""

    def __init__(self, processed: Any, *, lost: bool = False) -> None:
        self._processed = processed
        self._lost = lost
        self.content_digest = f"sha256:{processed.digest.hex()}"
        self.height, self.width = processed.height, processed.width
        self.grid_thw, self.num_tokens = processed.grid, processed.num_tokens
        self.decoder = processed.decoder
        tensors = tuple((name, tag, processed.tensors[name].shape) for name, tag in processed.dtypes.items())
        self.facts = types.SimpleNamespace(tensors=tensors)

    def tensors(self) -> dict[str, Any]:
        if self._lost:
            raise ResultLost("the node is gone")
        return dict(self._processed.tensors)


class FakePool:
    """Computes images one by one, the last one first."""

    def __init__(
        self, config: PoolConfig, *, lose: int | None = None, interrupt_at: int | None = None
    ) -> None:
        self.config = config
        self.seen: list[Any] = []
        self.recomputed = 0
        self._lose, self._interrupt_at = lose, interrupt_at

    def __enter__(self) -> FakePool:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    async def stream(self, sources: Iterable[Any], *, on_error: str) -> AsyncIterator[tuple[int, Any]]:
        assert on_error == "return"
        self.seen = list(sources)
        for index, source in sorted(enumerate(self.seen), reverse=True):
            if index == self._interrupt_at:
                raise KeyboardInterrupt
            try:
                yield index, FakeImage(self._process(source), lost=index == self._lose)
            except PreprocessError as error:
                yield index, error

    def recompute(self, image: FakeImage) -> FakeImage:
        self.recomputed += 1
        return FakeImage(image._processed)

    def _process(self, source: Any) -> Any:
        assert isinstance(source, (Path, bytes, str))
        policy, transport = self.config.policy, self.config.transport
        resolved = resolve(classify(source), policy)
        limits = policy.core_limits()
        (result,) = self.config.processor().preprocess_batch([resolved.data], transport, limits)
        if isinstance(result, UnsupportedFormat):
            pixels, _ = decode_with_pillow(resolved.data, policy, result)
            return self.config.processor().preprocess_rgb(pixels, transport, limits, resolved.digest)
        if isinstance(result, PreprocessError):
            raise result
        return result
