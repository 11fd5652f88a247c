"""Every family with its variants."""

from __future__ import annotations

from collections.abc import Callable

from . import gemma, glm, kimi
from .variant import Variant

FAMILIES: dict[str, Callable[[], list[Variant]]] = {
    name: variants for module in (kimi, gemma, glm) for name, variants in module.FAMILIES.items()
}
