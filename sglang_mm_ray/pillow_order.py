"""Which of the two passes Pillow's resize runs first: the core must follow the Pillow that is installed.

Pillow resizes along one side, rounds to bytes, and resizes along the other, so the order shows in the
pixels. Up to version 12 the horizontal pass comes first; version 13 (its change #9549) runs the vertical pass
first for tall pictures that shrink. What counts is what the installed Pillow does, so it is asked, not its
version.
"""

from __future__ import annotations

import warnings

import numpy as np
from PIL import Image

from ._core import common

__all__ = ["adopt"]

_WIDTH, _HEIGHT = 3, 40
_OUT_WIDTH, _OUT_HEIGHT = 2, 10


def adopt() -> bool | None:
    """Gives the core the pass order of the installed Pillow; takes well under a millisecond.

    Returns:
        True if tall pictures that shrink get their vertical pass first, False if the horizontal pass is
        always first, and None, with a `RuntimeWarning`, if this Pillow resizes in neither way (a build that
        is not exact, such as pillow-simd): the core then stays with the order of Pillow 13.
    """
    # Steps that make both passes overshoot and clip, where the orders differ most.
    values = np.arange(_HEIGHT * _WIDTH * 3, dtype=np.uint32)
    probe = ((values * 2654435761 >> 16) % 2 * 255).astype(np.uint8).reshape(_HEIGHT, _WIDTH, 3)
    theirs = np.asarray(
        Image.fromarray(probe).resize((_OUT_WIDTH, _OUT_HEIGHT), Image.Resampling.LANCZOS)
    ).ravel()
    for vertical_first in (False, True):
        common.set_vertical_first_when_tall(vertical_first)
        if np.array_equal(common.resize_rgb(probe, _OUT_WIDTH, _OUT_HEIGHT), theirs):
            return vertical_first
    warnings.warn(
        "the installed Pillow resizes unlike any released version, so resized pixels will differ from its "
        "own; install an unmodified Pillow",
        RuntimeWarning,
        stacklevel=2,
    )
    return None
