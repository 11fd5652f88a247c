"""What SGLang's requests carry as an image, as a source for a pool."""

from __future__ import annotations

from collections.abc import Mapping

__all__ = ["as_source"]


def as_source(item: object) -> object:
    """The image itself: the URL of an `ImageData` or of an OpenAI part, else `item` as it came."""
    if isinstance(item, Mapping):
        inner = item.get("url", item.get("image_url"))
        if isinstance(inner, Mapping):
            inner = inner.get("url")
        return item if inner is None else inner
    url = getattr(item, "url", None)
    return item if url is None else url
