"""Fetching `http(s)://` sources on the worker."""

from __future__ import annotations

from urllib.parse import urlsplit

from .errors import SourceRefused
from .policy import SourcePolicy

_LABEL_MAX_CHARS = 120


def url_label(url: str) -> str:
    """Scheme, host, port and path of a URL: what may be printed. No credentials, no query, no fragment."""
    try:
        parts = urlsplit(url)
        host, port = parts.hostname or "", parts.port
    except ValueError:
        return "a malformed URL"
    text = f"{parts.scheme}://{host}" + (f":{port}" if port else "") + parts.path
    text = text.encode("ascii", "backslashreplace").decode()
    return text if len(text) <= _LABEL_MAX_CHARS else text[:_LABEL_MAX_CHARS] + "..."


class Fetcher:
    """Fetches URLs under one policy."""

    def __init__(self, policy: SourcePolicy) -> None:
        self.policy = policy

    def fetch(self, url: str) -> bytes:
        """The body behind `url`."""
        raise SourceRefused("URLs are not fetched yet; pass the bytes")


def shared_fetcher(policy: SourcePolicy) -> Fetcher:
    """The process's fetcher for `policy`."""
    return Fetcher(policy)
