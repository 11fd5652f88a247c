"""Every family with its variants."""

from __future__ import annotations

from collections.abc import Callable

from . import encoders, gemma, glm, kimi, muse, qwen_class
from .variant import Variant

MODULES = (encoders, gemma, glm, kimi, muse, qwen_class)
FAMILIES: dict[str, Callable[[], list[Variant]]] = {
    name: variants for module in MODULES for name, variants in module.FAMILIES.items()
}
