"""The core follows the pass order of whatever Pillow is installed."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import numpy as np
import pytest
from PIL import Image

from sglang_mm_ray import _core, pillow_order
from sglang_mm_ray._core import common

LANCZOS = Image.Resampling.LANCZOS


def in_two_steps(image: Image.Image, first: tuple[int, int], size: tuple[int, int]) -> Image.Image:
    return ORIGINAL(ORIGINAL(image, first, LANCZOS), size, LANCZOS)


ORIGINAL = Image.Image.resize


def horizontal_first(self: Image.Image, size: tuple[int, int], resample: Any = None) -> Image.Image:
    return in_two_steps(self, (size[0], self.height), size)


def vertical_first(self: Image.Image, size: tuple[int, int], resample: Any = None) -> Image.Image:
    return in_two_steps(self, (self.width, size[1]), size)


@pytest.mark.parametrize(("resize", "expected"), [(horizontal_first, False), (vertical_first, True)])
def test_the_probe_tells_the_orders_apart(
    monkeypatch: pytest.MonkeyPatch, resize: Any, expected: bool
) -> None:
    rng = np.random.default_rng(0)
    tall = rng.integers(0, 2, (200, 20, 3), dtype=np.uint8) * 255
    wanted = np.asarray(resize(Image.fromarray(tall), (15, 31))).ravel()
    try:
        with monkeypatch.context() as patch:
            patch.setattr(Image.Image, "resize", resize)
            assert pillow_order.adopt() is expected
        assert _core.build_info()["resize_vertical_first_when_tall"] is expected
        assert np.array_equal(common.resize_rgb(tall, 15, 31), wanted)
    finally:
        pillow_order.adopt()


def test_a_pillow_that_is_not_exact_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    def nearest(self: Image.Image, size: tuple[int, int], resample: Any = None) -> Image.Image:
        return ORIGINAL(self, size, Image.Resampling.NEAREST)

    with monkeypatch.context() as patch:
        patch.setattr(Image.Image, "resize", nearest)
        with pytest.warns(RuntimeWarning, match="unmodified Pillow"):
            assert pillow_order.adopt() is None
    assert pillow_order.adopt() is not None


def test_importing_the_package_adopts_the_order_and_starts_no_thread() -> None:
    script = (
        "import os, numpy as np, PIL.Image as I\n"
        "before = len(os.listdir('/proc/self/task'))\n"
        "from sglang_mm_ray import _core\n"
        "assert len(os.listdir('/proc/self/task')) == before\n"
        "tall = np.random.default_rng(0).integers(0, 256, (90, 9, 3), dtype=np.uint8)\n"
        "theirs = np.asarray(I.fromarray(tall).resize((7, 20), I.Resampling.LANCZOS)).ravel()\n"
        "assert np.array_equal(_core.common.resize_rgb(tall, 7, 20), theirs)\n"
    )
    subprocess.run([sys.executable, "-c", script], check=True)
