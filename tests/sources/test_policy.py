"""The source policy: closed by default, plain data, and refusing what could never be right."""

from __future__ import annotations

import dataclasses
import decimal
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from sglang_mm_ray.errors import InvalidArgument
from sglang_mm_ray.sources.policy import SourcePolicy


def test_the_default_reads_no_file_and_no_private_address() -> None:
    policy = SourcePolicy()
    assert policy.allowed_roots == () and policy.allowed_private_networks == ()


def test_the_default_pixel_limit_is_pillows_error_limit() -> None:
    assert SourcePolicy().max_pixels == 2 * Image.MAX_IMAGE_PIXELS


def test_json_round_trip_keeps_every_field() -> None:
    policy = SourcePolicy(
        allowed_roots=("/srv/photos",),
        allowed_ports=(8080,),
        allowed_hosts=("*.example.org",),
        allowed_private_networks=("10.0.0.0/8",),
        pillow_formats=("TIFF",),
        fetch_timeout_s=1.5,
        max_input_bytes=1,
        max_pixels=2,
        max_frames=3,
        max_patches=4,
    )
    assert SourcePolicy.from_json(policy.to_json()) == policy
    assert hash(SourcePolicy.from_json(policy.to_json())) == hash(policy)
    assert set(json.loads(policy.to_json())) == {field.name for field in dataclasses.fields(policy)}
    with pytest.raises(dataclasses.FrozenInstanceError):
        policy.max_pixels = 5  # type: ignore[misc]


@pytest.mark.parametrize(
    "fields",
    [
        {"allowed_roots": ("photos",)},
        {"allowed_schemes": ("ftp",)},
        {"allowed_private_networks": ("10.0.0.1/8",)},
        {"pillow_formats": ("TIFF", "EPS")},
        {"pillow_formats": ("eps",)},
        {"max_redirects": -1},
        {"fetch_timeout_s": 0.0},
        {"fetch_timeout_s": float("nan")},
        {"max_redirects": 1 << 64},
        {"allowed_ports": (0,)},
        {"allowed_ports": (-1,)},
        {"allowed_ports": (65536,)},
        {"max_input_bytes": 0},
        {"max_pixels": -1},
        {"max_pixels": 1 << 64},
        {"fetch_timeout_s": float("inf")},
        # A text would be taken apart: the pool would read below "/", and meet no host ever.
        {"allowed_roots": "/"},
        {"allowed_hosts": "example.org"},
        {"pillow_formats": "TIFF"},
        {"allowed_ports": 80},
        {"allowed_ports": ("80",)},
        {"allowed_roots": (1,)},
        {"allowed_roots": None},
        {"max_pixels": "5"},
        {"max_pixels": 1.5},
        {"no_such_field": 1},
    ],
)
def test_what_cannot_be_right_is_refused(fields: dict[str, Any]) -> None:
    with pytest.raises(InvalidArgument):
        SourcePolicy.from_dict(fields)


@pytest.mark.parametrize("field", [f for f in dataclasses.fields(SourcePolicy) if f.type in ("int", "float")])
@pytest.mark.parametrize(
    "value",
    [
        float("nan"),
        float("inf"),
        float("-inf"),
        -1,
        -0.5,
        10**400,
        "5",
        "nan",
        b"5",
        None,
        True,
        1j,
        [1],
        np.float32("nan"),
        np.float64("nan"),
        decimal.Decimal("NaN"),
    ],
    ids=repr,
)
def test_a_number_from_outside_is_a_number_that_can_work(
    field: dataclasses.Field[Any], value: object
) -> None:
    with pytest.raises(InvalidArgument, match=field.name):
        SourcePolicy(**{field.name: value})
    if isinstance(value, (float, int, str)) and not isinstance(value, np.generic):
        with pytest.raises(InvalidArgument):
            SourcePolicy.from_json(json.dumps({field.name: value}))


@pytest.mark.parametrize("text", ["", "{", "[]", "null", "5", '"x"', "[" * 100_000, b"\xff", None, 5])
def test_json_that_is_no_policy_is_refused(text: Any) -> None:
    with pytest.raises(InvalidArgument):
        SourcePolicy.from_json(text)


def test_roots_may_be_paths(tmp_path: Path) -> None:
    assert SourcePolicy(allowed_roots=(tmp_path,)).allowed_roots == (str(tmp_path),)  # type: ignore[arg-type]


def test_the_core_gets_the_limits() -> None:
    limits = SourcePolicy(max_input_bytes=11, max_pixels=22, max_patches=33).core_limits()
    assert (limits.max_input_bytes, limits.max_pixels, limits.max_patches) == (11, 22, 33)
