"""Pools: start, find, scale and stop them; the controller that keeps their workers."""
