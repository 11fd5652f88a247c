"""For the tests of the pool: images as callers hand them in, and what the reference makes of them."""

from __future__ import annotations

import asyncio
import io
from collections.abc import Sequence
from typing import Any

import numpy as np
from images import scene
from numpy.typing import NDArray
from PIL import Image
from reference import INKLING_DEFAULTS, inkling

FRAC, CAP, PATCH = (INKLING_DEFAULTS[name] for name in ("rescale_frac", "rescale_cap", "patch_size"))


def photo(seed: int, width_px: int = 160, height_px: int = 120) -> NDArray[np.uint8]:
    """Pixels [height, width, 3], different for each seed."""
    return scene(width_px, height_px, seed)


def png(pixels: NDArray[np.uint8], **options: Any) -> bytes:
    """The pixels as a PNG file, without loss."""
    target = io.BytesIO()
    Image.fromarray(pixels).save(target, "PNG", **options)
    return target.getvalue()


def patches(data: bytes) -> NDArray[np.uint16]:
    """What Pillow and numpy make of a file with Inkling's defaults: bfloat16 bits [n, 40, 40, 3]."""
    _, _, bits = inkling(data, PATCH, FRAC, CAP)[:3]
    return bits.reshape(-1, PATCH, PATCH, 3)


def check(files: Sequence[bytes], images: Sequence[Any]) -> None:
    """Each image holds what the reference makes of its file."""
    for data, image in zip(files, images, strict=True):
        np.testing.assert_array_equal(image.array(), patches(data))


class Door:
    """Sources that nobody can read before the door opens, so that a test says when a request goes on.

    Ray must be running. A worker holds each on a thread that reads (`fetch_threads`) while it waits.
    """

    def __init__(self) -> None:
        import ray
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        # In here, so that it travels by value: Ray's processes cannot import the tests.
        class Held:
            def __init__(self) -> None:
                self._open = asyncio.Event()

            async def open(self) -> None:
                self._open.set()

            async def through(self, content: Any) -> Any:
                await self._open.wait()
                return content

        # Here, so that it outlives whatever other node a test takes away.
        here = NodeAffinitySchedulingStrategy(ray.get_runtime_context().get_node_id(), soft=False)
        options = {"num_cpus": 0, "max_concurrency": 1000, "scheduling_strategy": here}
        self._actor: Any = ray.remote(**options)(Held).remote()
        self._wait = ray.get

    def behind(self, content: Any) -> Any:
        """The ObjectRef of what will come through."""
        return self._actor.through.remote(content)

    def open(self) -> None:
        """Lets all through, and whatever comes later."""
        self._wait(self._actor.open.remote())
