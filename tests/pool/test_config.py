"""PoolConfig: plain JSON, whole, and with a fingerprint of all that changes a result and nothing else."""

from __future__ import annotations

import dataclasses

import pytest

from sglang_mm_ray import fingerprint
from sglang_mm_ray.config import PoolConfig
from sglang_mm_ray.errors import InvalidArgument
from sglang_mm_ray.sources.policy import SourcePolicy


def test_json_goes_both_ways() -> None:
    config = PoolConfig(
        parameters={"patch_size": 16},
        transport="uint8",
        policy=SourcePolicy(allowed_roots=("/data",), max_pixels=1000),
        num_workers=3,
        node_labels={"zone": "a"},
    )
    again = PoolConfig.from_json(config.to_json())
    assert again == config and again.policy.allowed_roots == ("/data",)
    assert PoolConfig.from_json("{}") == PoolConfig()


def test_it_is_frozen() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        PoolConfig().transport = "uint8"  # type: ignore[misc]


@pytest.mark.parametrize(
    ("fields", "word"),
    [
        ({"model": "unknown"}, "unknown"),
        ({"parameters": {"patch_sise": 3}}, "patch_sise"),
        ({"transport": "int4"}, "int4"),
        ({"num_workers": 0}, "num_workers"),
        ({"heartbeat_timeout_s": -1.0}, "heartbeat_timeout_s"),
        ({"worker_cache_bytes": -1}, "worker_cache_bytes"),
        ({"lease_s": float("inf")}, "lease_s"),
        ({"max_queued_bytes": 1 << 63}, "max_queued_bytes"),
        ({"model": 5}, "model must be str, not int"),
        ({"num_workers": "3"}, "num_workers must be int or None, not str"),
        ({"num_workers": 1.5}, "num_workers"),
        ({"num_workers": True}, "num_workers"),
        ({"chunk_max_images": None}, "chunk_max_images must be int, not NoneType"),
        ({"parameters": "ab"}, "parameters must be a mapping of str, not str"),
        ({"parameters": None}, "parameters"),
        ({"node_labels": {"zone": 1}}, "node_labels"),
        ({"lease_s": "60"}, "lease_s must be float, not str"),
        ({"metrics": 1}, "metrics must be bool"),
        ({"policy": {"max_pixels": 3}}, "policy must be SourcePolicy, not dict"),
    ],
)
def test_what_cannot_work_is_named(fields: dict[str, object], word: str) -> None:
    with pytest.raises(InvalidArgument, match=word):
        PoolConfig(**fields)  # type: ignore[arg-type]


def test_unknown_fields_are_named() -> None:
    with pytest.raises(InvalidArgument, match="colour"):
        PoolConfig.from_dict({"colour": 1})
    with pytest.raises(InvalidArgument, match="not list"):
        PoolConfig.from_json("[]")


def test_whole_numbers_do_for_seconds() -> None:
    assert PoolConfig(lease_s=60).lease_s == 60


@pytest.mark.parametrize(
    "fields",
    [
        {"parameters": {"patch_size": 16}},
        {"parameters": {"rescale_frac": None, "rescale_cap": None}},
        {"transport": "uint8"},
        {"policy": SourcePolicy(pillow_formats=("TIFF",))},
    ],
    ids=str,
)
def test_the_fingerprint_changes_with_what_changes_results(fields: dict[str, object]) -> None:
    assert PoolConfig(**fields).fingerprint() != PoolConfig().fingerprint()  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "fields",
    [
        {"num_workers": 7},
        {"parameters": {"patch_size": 40}},
        {"policy": SourcePolicy(max_pixels=10)},
        {"worker_cache_bytes": 0},
    ],
    ids=str,
)
def test_and_with_nothing_else(fields: dict[str, object]) -> None:
    assert PoolConfig(**fields).fingerprint() == PoolConfig().fingerprint()  # type: ignore[arg-type]


def test_versions_are_part_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    before = PoolConfig().fingerprint()
    assert len(before) == 64
    monkeypatch.setattr(fingerprint.PIL, "__version__", "0.0.1")
    assert PoolConfig().fingerprint() != before
