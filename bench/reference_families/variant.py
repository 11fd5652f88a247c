"""What a reference is asked, and what it answers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .inputs import Input

Config = dict[str, Any]

OPENAI_CLIP = {
    "image_mean": [0.48145466, 0.4578275, 0.40821073],
    "image_std": [0.26862954, 0.26130258, 0.27577711],
}
HALF = {"image_mean": [0.5, 0.5, 0.5], "image_std": [0.5, 0.5, 0.5]}
IMAGENET = {"image_mean": [0.485, 0.456, 0.406], "image_std": [0.229, 0.224, 0.225]}


@dataclass(frozen=True)
class Tensor:
    """A value of a result. bfloat16 comes as its bits in uint16."""

    dtype: str
    array: NDArray[Any]


@dataclass(frozen=True)
class Result:
    """What a family makes of one image: tensors by name, shaped as a batch of one, and placeholder tokens."""

    tensors: dict[str, Tensor]
    num_tokens: int


@dataclass(frozen=True)
class Variant:
    """A family with parameters as a checkpoint has them, and the reference that runs on an encoded image.

    `parameters` is what the core is given, `run` never sees it through the core. `request` says what else is
    known of the request, for families whose plan depends on it. A reference that refuses an image raises
    ValueError.
    """

    name: str
    parameters: Config
    run: Callable[[bytes], Result]
    inputs: tuple[Input, ...]
    request: Config = field(default_factory=dict)
    versions: str = ""


def tensor(value: Any) -> Tensor:
    """A torch tensor, numpy array or list of integers as `Tensor`."""
    if type(value).__module__.startswith("torch"):
        if str(value.dtype) == "torch.bfloat16":
            import torch

            return Tensor("bfloat16", value.contiguous().view(torch.uint16).numpy())
        value = value.numpy()
    array = np.asarray(value)
    return Tensor(str(array.dtype), np.ascontiguousarray(array))


def tensors(**values: Any) -> dict[str, Tensor]:
    """`Tensor`s by name."""
    return {name: tensor(value) for name, value in values.items()}
