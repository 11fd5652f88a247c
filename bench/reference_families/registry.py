"""Every family with its variants."""

from __future__ import annotations

from collections.abc import Callable

from . import deepseek, encoders, gemma, glm, kimi, llama, muse, pixtral, qwen_class
from .variant import Variant

MODULES = (deepseek, encoders, gemma, glm, kimi, llama, muse, pixtral, qwen_class)
FAMILIES: dict[str, Callable[[], list[Variant]]] = {
    name: variants for module in MODULES for name, variants in module.FAMILIES.items()
}
