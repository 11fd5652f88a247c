"""One image through the core, and through Pillow where the core has no decoder. No threads, no Ray."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from .. import _core
from ..config import PoolConfig
from ..errors import InternalError, PreprocessError, UnsupportedFormat, limit_exceeded
from ..messages import Failure, ImageFacts
from ..sources.source import Resolved, Source, resolve, start_fetch
from ..sources.upright import upright_rgb

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

__all__ = ["Outcome", "Processor"]


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of an image: its facts with the value to store, or a failure with None."""

    result: ImageFacts | Failure
    value: Any
    """The only tensor, or a tuple of them in the order of the facts."""

    def marked(self, origin: str) -> Outcome:
        """The same result, reached another way: no stage took any time."""
        if isinstance(self.result, Failure):
            return self
        return replace(self, result=replace(self.result, origin=origin, times_s={}))


class Processor:
    """Turns sources into outcomes under a pool's configuration."""

    def __init__(self, config: PoolConfig) -> None:
        self._transport = config.transport
        self._policy = config.policy
        self._limits = config.policy.core_limits()
        self._core = config.processor()

    def resolved(self, source: Source) -> Resolved | PreprocessError:
        """A source that the request brought along: nothing to read, already hashed by the caller's side."""
        payload, policy = source.payload, self._policy
        if source.kind == "pixels":
            pixels = payload.shape[0] * payload.shape[1]
            if pixels > policy.max_pixels:
                return limit_exceeded("image size in pixels", pixels, policy.max_pixels)
            return Resolved(None, payload, source.key)
        if source.transfer_bytes > policy.max_input_bytes:
            return limit_exceeded("encoded size in bytes", source.transfer_bytes, policy.max_input_bytes)
        return Resolved(payload, None, source.key)

    def resolve(self, source: Source, get: Callable[[Any], object] | None) -> Resolved | PreprocessError:
        """Reads a source under the policy; blocks on disk and network."""
        try:
            return resolve(source, self._policy, get=get)
        except PreprocessError as error:
            return error
        except Exception as error:
            reason = str(error).strip().splitlines() or [""]
            return InternalError(f"reading {source.label}: {type(error).__name__}: {reason[0]}")

    def start_fetch(
        self, source: Source, done: Callable[[Resolved | PreprocessError], None]
    ) -> Callable[[], object]:
        """As `resolve` for a URL, without blocking; see `source.start_fetch`."""
        return start_fetch(source, self._policy, done)

    def process(self, resolved: Resolved) -> Outcome:
        """Decodes, resizes and patchifies one image."""
        try:
            processed, decoder, decode_s = self._process(resolved)
            finished = self._finished(processed.source_size)
        except PreprocessError as error:
            return Outcome(Failure(error), None)
        times_s = {name.removesuffix("_s"): seconds for name, seconds in processed.times.items()}
        if decode_s is not None:
            times_s["decode"] = decode_s
        values = tuple(processed.tensors.values())
        facts = ImageFacts(
            digest=resolved.digest,
            content_hash=int.from_bytes(resolved.digest[:8], "big"),
            height=processed.height,
            width=processed.width,
            grid=processed.grid,
            num_tokens=processed.num_tokens,
            tensors=tuple(
                (name, processed.dtypes[name], value.shape) for name, value in processed.tensors.items()
            ),
            nbytes=sum(value.nbytes for value in values),
            decoder=decoder,
            times_s=times_s,
            origin="computed",
            finished=finished,
            source_size=processed.source_size,
        )
        return Outcome(facts, values[0] if len(values) == 1 else values)

    def _process(self, resolved: Resolved) -> tuple[_core.Processed, str, float | None]:
        if resolved.pixels is not None:
            return self._from_pixels(resolved.pixels, resolved.digest), "pixels", None
        data: Any = resolved.data
        if self._core.load == "upright":
            started = time.perf_counter()
            turned = upright_rgb(data, self._policy)
            if turned is not None:
                pixels, decoder = turned
                decode_s = time.perf_counter() - started
                return self._from_pixels(pixels, resolved.digest), decoder, decode_s
        result = self._core.preprocess_batch([data], self._transport, self._limits, [resolved.digest])[0]
        if not isinstance(result, PreprocessError):
            return result, result.decoder, None
        if not isinstance(result, UnsupportedFormat):
            raise result
        from ..sources.decode_fallback import decode_rgb

        started = time.perf_counter()
        pixels, decoder = decode_rgb(data, self._policy)
        decode_s = time.perf_counter() - started
        return self._from_pixels(pixels, resolved.digest), decoder, decode_s

    def _from_pixels(self, pixels: NDArray[np.uint8], digest: bytes) -> _core.Processed:
        return self._core.preprocess_rgb(pixels, self._transport, self._limits, digest)

    def _finished(self, size_px: tuple[int, int]) -> tuple[tuple[str, str, tuple[int, ...]], ...]:
        """The tensors that late normalising will make: what the other transports would have stored."""
        if self._transport != "uint8":
            return ()
        tensors = self._core.plan(*size_px, "bf16")["tensors"]
        return tuple((name, dtype, tuple(shape)) for name, (dtype, shape) in tensors.items())
