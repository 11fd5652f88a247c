"""Results where Ray does not run: what was lost is said so, and nothing is started to look for it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import ray

import sglang_mm_ray as smr
from sglang_mm_ray.messages import ImageFacts
from sglang_mm_ray.results.image import ProcessedImage
from sglang_mm_ray.results.stored import StoredObject, StoredResult

VALUES = np.arange(24, dtype=np.uint16).reshape(2, 2, 2, 3)


def image(value: Any) -> ProcessedImage:
    """An image whose reference is its value."""
    tensors = (("patches", "bfloat16", VALUES.shape),)
    facts = ImageFacts(bytes(32), 0, 2, 2, (1, 1, 2), 2, tensors, VALUES.nbytes, "png", {}, "computed")
    return ProcessedImage(
        StoredResult(facts, StoredObject(value, "node")), ("inkling", "{}"), origin="computed", times_s={}
    )


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch) -> None:
    """A store whose references are the values."""
    monkeypatch.setattr(ray, "is_initialized", lambda: True)
    monkeypatch.setattr(ray, "get", lambda value, timeout: value)


def test_after_the_end_of_ray_a_result_is_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    def get(*_: object, **__: object) -> None:
        raise AssertionError("ray.get starts a Ray of its own")

    monkeypatch.setattr(ray, "is_initialized", lambda: False)
    monkeypatch.setattr(ray, "get", get)
    with pytest.raises(smr.ResultLost, match="while the pool that started Ray is open"):
        image(VALUES).array()


def test_a_reference_of_another_session_is_lost(store: None, monkeypatch: pytest.MonkeyPatch) -> None:
    def get(*_: object, **__: object) -> None:
        raise ValueError("You are trying to access Ray objects whose owner is unknown")

    monkeypatch.setattr(ray, "get", get)
    with pytest.raises(smr.ResultLost, match="recompute"):
        image(VALUES).array()


def test_gather_takes_images_that_come_once(store: None) -> None:
    images = [image(VALUES), image(VALUES + 100)]
    want = np.concatenate([VALUES, VALUES + 100])
    np.testing.assert_array_equal(smr.gather(iter(images)), want)
    out = np.zeros_like(want)
    assert smr.gather((each for each in images), out) is out
    np.testing.assert_array_equal(out, want)


def test_gather_names_what_it_cannot_join(store: None) -> None:
    with pytest.raises(smr.InvalidArgument, match="on_error"):
        smr.gather([image(VALUES), smr.InvalidArgument("broken")])  # type: ignore[list-item]
    with pytest.raises(smr.InvalidArgument, match="numpy array, not list"):
        smr.gather([image(VALUES)], out=[1])  # type: ignore[arg-type]
