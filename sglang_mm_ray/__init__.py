"""Exact, fast image preprocessing for multi-node SGLang, spread over Ray."""

from . import pillow_order

pillow_order.adopt()
