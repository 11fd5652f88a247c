"""What an image will cost, as far as the caller's side can tell without reading or decoding anything."""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from .._core import common
from ..config import PoolConfig
from ..errors import InvalidArgument, PreprocessError
from ..routing.batching import Cost
from ..sources.source import Source, classify

__all__ = ["Intake", "is_cheap"]

# For what cannot be seen from here (a URL, a path, base64, a format without a native decoder).
_UNKNOWN_PIXELS = 1920 * 1080
_PIXELS_PER_ENCODED_BYTE = 6


_CHEAP_BYTES = 1 << 20


def is_cheap(sources: Sequence[object]) -> bool:
    """Whether classifying takes about a millisecond in all: encoded bytes or text, a megabyte at most."""
    size = 0
    for source in sources:
        if not isinstance(source, (bytes, bytearray, str)):
            return False
        size += len(source)
    return size <= _CHEAP_BYTES


class Intake:
    """Estimates and classifies for one configuration. Safe for threads."""

    def __init__(self, config: PoolConfig) -> None:
        self._processor = config.processor()
        self._transport = config.transport
        self._plan = lru_cache(maxsize=4096)(self._plan_uncached)

    def _plan_uncached(self, width: int, height: int) -> tuple[int, float]:
        try:
            plan = self._processor.plan(width, height, self._transport)
        except PreprocessError:
            # The worker will refuse it and say why; until then it costs as much as its pixels.
            return width * height * 3, float(width * height)
        return plan["size_bytes"], float(plan["width"] * plan["height"])

    def _cost(self, width: int, height: int, input_bytes: int) -> Cost:
        output_bytes, output_px = self._plan(width, height)
        return Cost(input_bytes, output_bytes, width * height + output_px)

    def estimate(self, source: object) -> Cost:
        """The cost of a source, from its header or its shape, else from its length; reads nothing else."""
        if isinstance(source, np.ndarray) and source.ndim == 3:
            return self._cost(max(source.shape[1], 1), max(source.shape[0], 1), source.nbytes)
        if isinstance(source, (bytes, bytearray, memoryview, np.ndarray)):
            size = source.nbytes if isinstance(source, (memoryview, np.ndarray)) else len(source)
            try:
                _, width, height = common.probe(source)
            except (PreprocessError, TypeError):
                return self._unknown(size, size)
            return self._cost(max(width, 1), max(height, 1), size)
        if isinstance(source, str) and len(source) > 4096:
            return self._unknown(len(source), len(source) * 3 // 4)
        if isinstance(source, (str, os.PathLike)):
            return self._cost(1920, 1080, 0)
        sides = getattr(source, "size", None)
        if isinstance(sides, tuple) and len(sides) == 2 and all(isinstance(side, int) for side in sides):
            width, height = (max(int(side), 1) for side in sides)
            return self._cost(width, height, width * height * 3)
        return self._cost(1920, 1080, 0)

    def _unknown(self, input_bytes: int, encoded_bytes: int) -> Cost:
        pixels = min(max(encoded_bytes * _PIXELS_PER_ENCODED_BYTE, 64 * 64), 4 * _UNKNOWN_PIXELS)
        side = max(1, int(pixels**0.5))
        return self._cost(side, side, input_bytes)

    def estimate_all(self, sources: Sequence[object]) -> list[Cost]:
        """The cost of each."""
        return [self._estimate_any(source) for source in sources]

    def _estimate_any(self, source: object) -> Cost:
        try:
            return self.estimate(source)
        except Exception:
            # Whatever is wrong with it, a released buffer say, is said where it is classified.
            return self._cost(1920, 1080, 0)

    def classify_all(self, sources: Sequence[object]) -> list[Source | PreprocessError]:
        """Each source classified and hashed, or why it cannot be."""
        return [_classified(source) for source in sources]


def _classified(source: Any) -> Source | PreprocessError:
    try:
        return classify(source)
    except PreprocessError as error:
        return error
    except MemoryError:
        raise
    except Exception as error:  # Of a caller's own object: one image's fault, not that of all.
        return InvalidArgument(f"a {type(source).__name__} cannot be read: {type(error).__name__}: {error}")
