"""Starting a Ray of our own, and joining another: what processes inherit, and what is said where it fails."""

from __future__ import annotations

import os
from typing import Any

import pytest
import ray

from sglang_mm_ray.cluster import join_ray, start_ray

NAME = "GLIBC_TUNABLES"


def _inherited(monkeypatch: pytest.MonkeyPatch) -> str | None:
    seen: list[str | None] = []

    def init(**_: Any) -> None:
        seen.append(os.environ.get(NAME))

    monkeypatch.setattr(ray, "is_initialized", lambda: False)
    monkeypatch.setattr(ray, "init", init)
    assert start_ray("local")
    (value,) = seen
    return value


def test_its_processes_copy_past_the_cache_and_this_one_keeps_its_environment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv(NAME, raising=False)
    value = _inherited(monkeypatch)
    assert value is not None and value.startswith("glibc.cpu.x86_non_temporal_threshold=0x")
    assert NAME not in os.environ


def test_what_the_caller_set_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(NAME, "glibc.malloc.check=0")
    assert _inherited(monkeypatch) == "glibc.malloc.check=0" == os.environ[NAME]


def test_a_cluster_that_wants_a_token_is_told_before_ray_tries_for_long(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # As ray 2.60 does where a head runs with RAY_AUTH_MODE=token and this process has none.
    from ray.exceptions import AuthenticationError

    def refuse(address: str) -> None:
        assert address == "10.0.0.1:6379"
        raise AuthenticationError("InvalidAuthToken")

    def init(**_: Any) -> None:
        raise AssertionError("Ray tries")

    monkeypatch.setattr("sglang_mm_ray.cluster._listens", lambda *_: True)
    monkeypatch.setattr("ray._raylet.GcsClient", refuse)
    monkeypatch.setattr(ray, "init", init)
    with pytest.raises(ConnectionError, match="RAY_AUTH_MODE=token"):
        join_ray("10.0.0.1:6379")


@pytest.mark.parametrize(
    ("said", "token"),
    [
        ("Failed to connect to Ray cluster at 10.0.0.1:6379", True),
        ("Could not find any running Ray instance.", False),
    ],
)
def test_a_cluster_that_lets_nobody_in_is_told_from_none(
    monkeypatch: pytest.MonkeyPatch, said: str, token: bool
) -> None:
    def init(**_: Any) -> None:
        raise ConnectionError(said)

    monkeypatch.setattr("sglang_mm_ray.cluster.is_let_in", lambda _: True)
    monkeypatch.setattr(ray, "init", init)
    with pytest.raises(ConnectionError, match=said) as caught:
        join_ray("auto")
    assert ("RAY_AUTH_MODE" in str(caught.value)) == token
