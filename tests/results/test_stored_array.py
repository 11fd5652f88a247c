"""Arrays written in pieces come back as they were, whether or not the pieces lie side by side."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pytest

from sglang_mm_ray.stored_array import PIECE_BYTES, in_pieces


def _through_the_store(value: Any, *, gap_bytes: int) -> Any:
    """As Ray does it: all buffers into one block, each aligned to 64 bytes (and here with gaps, if asked)."""
    buffers: list[pickle.PickleBuffer] = []
    data = pickle.dumps(in_pieces(value), protocol=5, buffer_callback=buffers.append)
    raws = [buffer.raw() for buffer in buffers]
    assert all(raw.nbytes <= PIECE_BYTES for raw in raws)
    ends = np.cumsum([0, *(-(-raw.nbytes // 64) * 64 + gap_bytes for raw in raws)])
    block = bytearray(int(ends[-1]))
    for start, raw in zip(ends, raws, strict=False):
        block[start : start + raw.nbytes] = raw
    whole = memoryview(block).toreadonly()
    views = [whole[start : start + raw.nbytes] for start, raw in zip(ends, raws, strict=False)]
    return pickle.loads(data, buffers=views)


@pytest.mark.parametrize("gap_bytes", [0, 64])
@pytest.mark.parametrize(
    ("shape", "dtype"),
    [
        ((3, 700, 700, 3), np.uint16),
        ((1_000_003,), np.float32),
        ((2 * PIECE_BYTES,), np.uint8),
        ((PIECE_BYTES + 1,), np.uint8),
    ],
)
def test_large_arrays_come_back_whole(shape: tuple[int, ...], dtype: Any, gap_bytes: int) -> None:
    rng = np.random.default_rng(1)
    array = rng.integers(0, 200, shape).astype(dtype)
    back = _through_the_store(array, gap_bytes=gap_bytes)
    assert type(back) is np.ndarray and back.dtype == array.dtype
    np.testing.assert_array_equal(back, array)
    assert back.flags.c_contiguous and not back.flags.writeable


def test_without_gaps_nothing_is_copied_and_the_memory_outlives_the_pieces() -> None:
    array = np.arange(PIECE_BYTES, dtype=np.uint32)
    buffers: list[pickle.PickleBuffer] = []
    data = pickle.dumps(in_pieces(array), protocol=5, buffer_callback=buffers.append)
    assert len(buffers) == 4
    back = pickle.loads(data, buffers=[memoryview(buffer.raw()) for buffer in buffers])
    assert np.shares_memory(back, array)


def test_what_is_small_or_no_array_stays_as_it_is() -> None:
    small = np.ones(1000, np.float32)
    turned = np.ones((2000, 2000), np.float32).T[::2]
    assert in_pieces(small) is small and in_pieces(turned) is turned and in_pieces(None) is None
    first, second = _through_the_store((np.ones((600, 600), np.float32), small), gap_bytes=0)
    assert first.shape == (600, 600) and second.shape == (1000,)
