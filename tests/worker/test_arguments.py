"""Requests that travel inside the call: cut, joined, and left alone where Ray must see what is in them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from pooling import photo, png

from sglang_mm_ray.arguments import PIECE_BYTES, from_arguments, to_arguments
from sglang_mm_ray.messages import BatchRequest
from sglang_mm_ray.sources.source import Source, classify

NOISE = np.random.default_rng(1).integers(0, 256, 3 << 20, np.uint8).tobytes()


def _request(sources: list[Any]) -> BatchRequest:
    return BatchRequest("call", tuple(classify(source) for source in sources), 1000, 1e6, together=True)


@pytest.mark.parametrize(
    "sources",
    [
        [png(photo(1))],
        [NOISE[: 512 << 10]],
        [memoryview(NOISE)[1000 : 200 << 10], bytearray(NOISE[:70_000]), NOISE[: PIECE_BYTES - 1]],
        ["https://example.com/a.png", "./a/b.jpg"],
        [photo(3, 400, 300)],
    ],
)
def test_what_is_cut_is_whole_again(sources: list[Any]) -> None:
    request = _request(sources)
    arguments = to_arguments(request)
    assert all(isinstance(piece, bytes) and len(piece) <= PIECE_BYTES for piece in arguments)
    again = from_arguments(arguments)
    assert again.call_id == "call" and again.together and again.work_px == 1e6
    for before, after in zip(request.sources, again.sources, strict=True):
        assert (after.kind, after.key, after.label) == (before.kind, before.key, before.label)
        if isinstance(before.payload, str):
            assert after.payload == before.payload
        else:
            np.testing.assert_array_equal(
                np.asarray(memoryview(after.payload)), np.asarray(memoryview(before.payload))
            )


def test_what_is_large_or_holds_a_reference_goes_by_the_store() -> None:
    large = _request([NOISE[: 256 << 10], NOISE[: (256 << 10) + 1]])
    assert to_arguments(large) == (large,) and from_arguments((large,)) is large
    source = Source("ref", object(), bytes(32), False, 0, "an ObjectRef")
    held = BatchRequest("call", (source,), 0, 0.0)
    assert to_arguments(held) == (held,)
