"""Hugging Face's own image processors on the CPU, torchvision's backend and PIL's."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

from PIL import Image

from . import inputs
from .variant import Config, Result, Variant, tensor

BACKENDS = ("torchvision", "pil")


def image_processor(class_name: str, backend: str, config: Config) -> Any:
    """The processor of a class and backend with the fields of a `preprocessor_config.json`."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import transformers

        kind = getattr(transformers, class_name + ("Pil" if backend == "pil" else ""))
        return kind.from_dict(dict(config))


def processed(
    processor: Any,
    image: Image.Image,
    num_tokens: Callable[[dict[str, Any]], int],
    keep: Callable[[dict[str, Any]], dict[str, Any]] = dict,
) -> Result:
    """What the processor makes of one image."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        out = dict(processor([image], return_tensors="pt"))
    return Result({name: tensor(value) for name, value in keep(out).items()}, int(num_tokens(out)))


def variants(
    class_name: str,
    configs: dict[str, Config],
    num_tokens: Callable[[dict[str, Any]], int],
    images: dict[str, tuple[inputs.Input, ...]],
    *,
    backends: tuple[str, ...] = BACKENDS,
    load: Callable[[bytes], Image.Image] = inputs.rgb,
    keep: Callable[[dict[str, Any]], dict[str, Any]] = dict,
) -> list[Variant]:
    """One variant for each named config and backend; `images` by the config's name."""

    def runner(config: Config, backend: str) -> Callable[[bytes], Result]:
        def run(data: bytes) -> Result:
            return processed(image_processor(class_name, backend, config), load(data), num_tokens, keep)

        return run

    return [
        Variant(f"{name}.{backend}", config | {"backend": backend}, runner(config, backend), images[name])
        for name, config in configs.items()
        for backend in backends
    ]


def patches_over(merge: int) -> Callable[[dict[str, Any]], int]:
    """Tokens of grids: patches over the square of the merge."""
    return lambda out: int(out["image_grid_thw"].prod(-1).sum()) // merge**2


def constant(count: int) -> Callable[[dict[str, Any]], int]:
    """The same number of tokens for every image."""
    return lambda out: count
