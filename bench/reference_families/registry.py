"""Every family with its variants."""

from __future__ import annotations

from collections.abc import Callable

from . import (
    deepseek,
    encoders,
    floats,
    gemma,
    glm,
    kimi,
    llama,
    llava,
    minicpm,
    muse,
    pixtral,
    qwen_class,
    tiles,
)
from .variant import Variant

MODULES = (
    deepseek,
    encoders,
    floats,
    gemma,
    glm,
    kimi,
    llama,
    llava,
    minicpm,
    muse,
    pixtral,
    qwen_class,
    tiles,
)
FAMILIES: dict[str, Callable[[], list[Variant]]] = {
    name: variants for module in MODULES for name, variants in module.FAMILIES.items()
}
