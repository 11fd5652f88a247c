"""What a result depends on beside the content: one short text that caches and pools compare."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from typing import Any

import PIL

from . import _core, pillow_order

__all__ = ["fingerprint", "ingredients"]


def ingredients(processor: _core.Processor, transport: str, pillow_formats: Iterable[str]) -> dict[str, Any]:
    """Family, its full parameters, transport, and the versions that decide what pixels a file has.

    Pillow's version counts: it decodes the formats that the core leaves to it, and the core follows the order
    of the resize passes of the installed one. Threads and instruction sets do not count, since every one
    gives the same bits; nor do limits, since a refusal is never cached.
    """
    return {
        "family": processor.name,
        "parameters": json.loads(processor.parameters_json),
        "transport": transport,
        "core": _core.__version__,
        # Without its SIMD code libjpeg-turbo makes other pixels of damaged files.
        "jpeg_simd": _core.build_info()["jpeg_simd"],
        "pillow": PIL.__version__,
        "vertical_pass_first": pillow_order.adopt(),
        "pillow_formats": sorted(pillow_formats),
    }


def fingerprint(processor: _core.Processor, transport: str, pillow_formats: Iterable[str]) -> str:
    """SHA-256 of the ingredients, as 64 hex digits."""
    found = ingredients(processor, transport, pillow_formats)
    text = json.dumps(found, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()
