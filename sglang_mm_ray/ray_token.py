"""Whether a Ray cluster lets this process in, found out at once."""

from __future__ import annotations

from typing import Any

__all__ = ["is_let_in"]


def is_let_in(address: str) -> bool:
    """Whether a cluster wants no token or takes this process's; `ray.init` would try for 20 s."""
    try:
        from ray import _raylet
        from ray._private.services import canonicalize_bootstrap_address
        from ray.exceptions import AuthenticationError
    except ImportError:
        return True  # A Ray before there were tokens.
    client: Any = _raylet
    try:
        client.GcsClient(address=canonicalize_bootstrap_address(address))
    except Exception as error:  # Whatever else is wrong, `ray.init` says it.
        return not isinstance(error, AuthenticationError)
    return True
