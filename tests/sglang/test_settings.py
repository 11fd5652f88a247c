"""Settings come from the environment, and what cannot work is refused by its variable's name."""

from __future__ import annotations

import pytest

from sglang_mm_ray.errors import InvalidArgument
from sglang_mm_ray.sglang.settings import Settings


def test_an_empty_environment_gives_the_defaults() -> None:
    assert Settings.from_environment({}) == Settings()


def test_every_field_has_its_variable() -> None:
    environment = {
        "SGLANG_MM_RAY_POOL": "vision",
        "SGLANG_MM_RAY_ADDRESS": "10.0.0.1:6379",
        "SGLANG_MM_RAY_ON_UNREACHABLE": "local",
        "SGLANG_MM_RAY_TRANSPORT": "float32",
        "SGLANG_MM_RAY_TIMEOUT_S": "2.5",
        "SGLANG_MM_RAY_FEATURES": "reference",
        "SGLANG_MM_RAY_READERS": "16",
        "SGLANG_MM_RAY_LEASE_S": "30",
    }
    expected = Settings("vision", "10.0.0.1:6379", "local", "float32", 2.5, "reference", 16, 30.0)
    assert Settings.from_environment(environment) == expected


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("ON_UNREACHABLE", "maybe"),
        ("FEATURES", "pigeon"),
        ("TRANSPORT", "uint8"),
        ("TIMEOUT_S", "soon"),
        ("TIMEOUT_S", "0"),
        ("LEASE_S", "-1"),
        ("READERS", "-2"),
    ],
)
def test_impossible_values_are_refused_by_name(name: str, value: str) -> None:
    with pytest.raises(InvalidArgument, match=f"SGLANG_MM_RAY_{name}"):
        Settings.from_environment({f"SGLANG_MM_RAY_{name}": value})
