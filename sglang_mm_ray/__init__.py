"""Exact, fast image preprocessing for multi-node SGLang, spread over Ray."""
