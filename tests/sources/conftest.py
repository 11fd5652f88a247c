"""A misbehaving server, and fetchers that may reach it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from misbehaving_server import MisbehavingServer

from sglang_mm_ray.sources import fetch
from sglang_mm_ray.sources.fetch import Fetcher
from sglang_mm_ray.sources.policy import SourcePolicy


@pytest.fixture
def server() -> Iterator[MisbehavingServer]:
    server = MisbehavingServer()
    yield server
    server.close()


@pytest.fixture
def make(server: MisbehavingServer) -> Iterator[Callable[..., Fetcher]]:
    """Makes a fetcher of a policy with these fields, by default one that may reach `server`."""
    made = []

    def build(resolver: Any = fetch.resolve_name, tls: Any = None, **fields: Any) -> Fetcher:
        defaults = {
            "allowed_ports": (server.port,),
            "allowed_private_networks": ("127.0.0.0/8",),
            "fetch_timeout_s": 5.0,
            "max_input_bytes": 1 << 20,
        }
        made.append(Fetcher(SourcePolicy(**{**defaults, **fields}), resolver=resolver, tls=tls))
        return made[-1]

    yield build
    for fetcher in made:
        fetcher.close()
