"""What an operator sets: environment variables of the SGLang process."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping
from typing import Literal, TypeAlias, cast

from ..errors import InvalidArgument

__all__ = ["Settings"]

OnUnreachable: TypeAlias = Literal["error", "local"]
Features: TypeAlias = Literal["value", "reference"]
Transport: TypeAlias = Literal["bf16", "float32"]

_PREFIX = "SGLANG_MM_RAY_"


@dataclasses.dataclass(frozen=True, slots=True)
class Settings:
    """How SGLang's process reaches the pool. Each field is the variable `SGLANG_MM_RAY_<FIELD>`."""

    pool: str = "default"
    """Name of the pool that `sglang-mm-ray start` left running."""
    address: str = "auto"
    """Ray address of its cluster."""
    on_unreachable: OnUnreachable = "error"
    """`error`, or `local`: the same core inside this process, with a warning and a metric."""
    transport: Transport | Literal[""] = ""
    """Dtype of features made in this process, by default the model's; a pool has its own."""
    timeout_s: float = 60.0
    """Longest time for the images of one request."""
    features: Features = "value"
    """`value` hands SGLang plain tensors; `reference` lets a Ray reference travel between nodes instead."""
    readers: int = 0
    """Scheduler processes that read each feature by reference; 0 takes it from SGLang's own settings."""
    lease_s: float = 300.0
    """How long a feature that not all readers fetched is kept."""

    def __post_init__(self) -> None:
        for name, allowed in (
            ("on_unreachable", ("error", "local")),
            ("transport", ("", "bf16", "float32")),
            ("features", ("value", "reference")),
        ):
            if getattr(self, name) not in allowed:
                choice = " or ".join(filter(None, allowed))
                raise InvalidArgument(f"{_PREFIX}{name.upper()} is {getattr(self, name)!r}; choose {choice}")
        for name in ("timeout_s", "lease_s"):
            if not getattr(self, name) > 0:
                raise InvalidArgument(f"{_PREFIX}{name.upper()} must be positive")
        if self.readers < 0:
            raise InvalidArgument(f"{_PREFIX}READERS must not be negative")

    @classmethod
    def from_environment(cls, environment: Mapping[str, str] | None = None) -> Settings:
        """Reads the variables; what is missing keeps its default.

        Raises:
            InvalidArgument: a value that cannot work; names the variable.
        """
        environment = os.environ if environment is None else environment

        def number(name: str, default: float) -> float:
            text = environment.get(_PREFIX + name)
            try:
                return default if text is None else float(text)
            except ValueError:
                raise InvalidArgument(f"{_PREFIX}{name} is not a number") from None

        default = cls()
        return cls(
            pool=environment.get(_PREFIX + "POOL", default.pool),
            address=environment.get(_PREFIX + "ADDRESS", default.address),
            on_unreachable=cast(
                OnUnreachable, environment.get(_PREFIX + "ON_UNREACHABLE", default.on_unreachable)
            ),
            transport=cast(Transport, environment.get(_PREFIX + "TRANSPORT", default.transport)),
            timeout_s=number("TIMEOUT_S", default.timeout_s),
            features=cast(Features, environment.get(_PREFIX + "FEATURES", default.features)),
            readers=int(number("READERS", default.readers)),
            lease_s=number("LEASE_S", default.lease_s),
        )
