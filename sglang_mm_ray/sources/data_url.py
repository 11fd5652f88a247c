"""`data:` URLs and bare base64 to bytes. Text in, bytes out: no disk, no network."""

from __future__ import annotations

from urllib.parse import unquote_to_bytes

from .._core import common
from ..errors import InvalidArgument, limit_exceeded

_BASE64_LIMIT = "encoded size in bytes"


def decode_base64(text: str, max_bytes: int) -> bytes:
    """Decodes standard base64 strictly.

    White space at the ends, line folds and missing padding are allowed; any other foreign character is not.

    Raises:
        InvalidArgument: the text is not base64.
        LimitExceeded: it would decode to more than `max_bytes`.
    """
    if not text.isascii():
        raise InvalidArgument("not base64: a character outside the alphabet")
    # At most two of the last four characters are padding, so this never refuses what fits.
    least = len(text) // 4 * 3 - 2
    if least > max_bytes and (least := _decoded_len(text)) > max_bytes:
        raise limit_exceeded(_BASE64_LIMIT, least, max_bytes)
    data = common.base64_decode(text)
    if len(data) > max_bytes:
        raise limit_exceeded(_BASE64_LIMIT, len(data), max_bytes)
    return data


def _decoded_len(text: str) -> int:
    folds = sum(text.count(space) for space in " \t\r\n")
    return (len(text) - folds) // 4 * 3 - 2


def decode_data_url(url: str, max_bytes: int) -> bytes:
    """Decodes a `data:` URL (RFC 2397); its media type is ignored, for content is sniffed.

    The base64 marker is the last `;` token before the first comma, in any case; other parameters may stand
    before it. Percent-encoding is undone once. Without a marker, text that is base64 all the same is read
    as base64, as SGLang does, and anything else as percent-encoded octets.

    Raises:
        InvalidArgument: no comma, or the payload is not base64.
        LimitExceeded: the payload would decode to more than `max_bytes`.
    """
    comma = url.find(",")
    if comma < 0:
        raise InvalidArgument("a data: URL needs a comma between its header and its payload")
    header, payload = url[len("data:") : comma], url[comma + 1 :]
    is_base64 = header.rpartition(";")[2].strip().lower() == "base64" and ";" in header
    if is_base64 and "%" not in payload:
        return decode_base64(payload, max_bytes)
    octets = payload.encode("utf-8", "surrogatepass")
    if "%" in payload:
        octets = unquote_to_bytes(octets)
    if is_base64:
        return decode_base64(octets.decode("latin-1"), max_bytes)
    try:
        return decode_base64(octets.decode("latin-1"), max_bytes)
    except InvalidArgument:
        pass
    if len(octets) > max_bytes:
        raise limit_exceeded(_BASE64_LIMIT, len(octets), max_bytes)
    return octets
