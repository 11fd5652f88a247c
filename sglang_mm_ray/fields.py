"""Holds the values of a configuration to the types that its fields declare."""

from __future__ import annotations

import math
import types
from collections.abc import Mapping
from numbers import Real
from typing import Any, Union, get_args, get_origin, get_type_hints

from .errors import InvalidArgument

__all__ = ["check_seconds", "check_types"]


def check_types(config: Any) -> None:
    """Refuses a dataclass with a value of another type than its field's; a bool is no number.

    A wrong one would otherwise be found where it is used: in another process, or never.

    Raises:
        InvalidArgument: it names the field, and the type that was found.
    """
    for name, declared in get_type_hints(type(config)).items():
        value = getattr(config, name)
        if not _is(value, declared):
            raise InvalidArgument(f"{name} must be {_spelled(declared)}, not {type(value).__name__}")


def check_seconds(name: str, value: object) -> float | None:
    """A time that a caller allows, as a float; None is no limit.

    A NaN in a heap of timers puts those of everybody else out of order.

    Raises:
        InvalidArgument: not a number, not finite, or negative.
    """
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, Real):
        raise InvalidArgument(f"{name} must be a number of seconds or None, not {type(value).__name__}")
    seconds = float(value)
    if not (math.isfinite(seconds) and seconds >= 0):
        raise InvalidArgument(f"{name} must be finite and not negative, not {seconds:g}; None is no limit")
    return seconds


def _is(value: object, declared: Any) -> bool:
    origin = get_origin(declared)
    if origin in (Union, types.UnionType):
        return any(_is(value, member) for member in get_args(declared))
    if origin is tuple:
        return isinstance(value, tuple) and all(_is(item, get_args(declared)[0]) for item in value)
    if origin is Mapping:
        key, item = get_args(declared)
        return isinstance(value, Mapping) and all(_is(k, key) and _is(v, item) for k, v in value.items())
    if declared is Any:
        return True
    if declared is float:
        declared = (int, float)
    return isinstance(value, declared) and (declared is bool or not isinstance(value, bool))


def _spelled(declared: Any) -> str:
    origin, members = get_origin(declared), get_args(declared)
    if origin in (Union, types.UnionType):
        return " or ".join(_spelled(member) for member in members)
    if origin is tuple:
        return f"a tuple of {_spelled(members[0])}"
    if origin is Mapping:
        return f"a mapping of {_spelled(members[0])}"
    return "None" if declared is type(None) else str(declared.__name__)
