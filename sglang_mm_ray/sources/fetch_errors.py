"""What can go wrong with a fetch, as `FetchError`s: what passes by itself is `retriable`.

A time-out, a lost connection, a name server that cannot tell just now and the statuses 408, 425, 429 and 5xx
pass; a refused connection, an unknown name, a bad certificate and any other status are taken at their word.
"""

from __future__ import annotations

import datetime
import email.utils
import errno
import re
import socket

import aiohttp

from ..errors import FetchError, InternalError, PreprocessError
from .policy import SourcePolicy

__all__ = ["answered", "retry_after_s", "timed_out", "translated"]

_TRANSIENT = frozenset({408, 425, 429})
# Where Retry-After means the same request (RFC 9110, 10.2.3; RFC 6585, 4).
_PAUSES = frozenset({429, 503})
_LEAST_PAUSE_S = 1.0
_LOST = frozenset({errno.ECONNRESET, errno.ECONNABORTED, errno.EPIPE})
_NAMES_LATER = frozenset({socket.EAI_AGAIN, socket.EAI_MEMORY, socket.EAI_SYSTEM})


def answered(status: int, pause_s: float | None) -> FetchError:
    """The error of an answer that is not the image; `pause_s` is the Retry-After of the server, if any."""
    pause = f" and asks for a pause of {pause_s:.0f} s" if pause_s is not None else ""
    return FetchError(
        f"the server answered {status}{pause}",
        status=status,
        retriable=status in _TRANSIENT or 500 <= status < 600,
    )


def retry_after_s(status: int, value: str | None) -> float | None:
    """The pause that an answer asks for before the same request, at least a second; None if it asks for none.

    `value` is its Retry-After: seconds or a date.
    """
    if value is None or status not in _PAUSES:
        return None
    if re.fullmatch(r"[0-9]{1,9}", value.strip()):
        return max(_LEAST_PAUSE_S, float(value))
    try:
        until = email.utils.parsedate_to_datetime(value)
        if until.tzinfo is None:
            until = until.replace(tzinfo=datetime.timezone.utc)
        left = until - datetime.datetime.now(datetime.timezone.utc)
    except (ValueError, TypeError, OverflowError):
        return None
    return max(_LEAST_PAUSE_S, left.total_seconds())


def timed_out(limit_s: float) -> FetchError:
    """The error of a fetch whose time ran out."""
    return FetchError(f"no complete answer within {limit_s:g} s (fetch_timeout_s)", retriable=True)


def translated(error: Exception, policy: SourcePolicy) -> Exception:
    """An error of lower layers as one of ours.

    Their texts may quote the URL or an address; the type says enough.
    """
    if isinstance(error, PreprocessError):
        return error
    if isinstance(error, aiohttp.ConnectionTimeoutError):
        text = f"no connection within {policy.connect_timeout_s:g} s (connect_timeout_s)"
        return FetchError(text, retriable=True)
    if isinstance(error, socket.gaierror):
        later = error.errno in _NAMES_LATER
        return FetchError(
            "the host name does not resolve" + (" at the moment" if later else ""), retriable=later
        )
    if isinstance(error, UnicodeError):
        return FetchError("the host name does not resolve")
    if isinstance(error, aiohttp.ClientConnectorCertificateError):
        return FetchError("the server's certificate is not valid for its name")
    if isinstance(error, aiohttp.ClientPayloadError):
        return FetchError("the answer broke off before its end", retriable=True)
    if isinstance(error, aiohttp.ClientResponseError):
        return FetchError("the answer is no valid HTTP, or its headers are too long")
    cause = error.os_error if isinstance(error, aiohttp.ClientConnectorError) else error
    if isinstance(cause, (OSError, aiohttp.ClientError)):
        return FetchError(f"the connection failed ({type(cause).__name__})", retriable=_lost(cause))
    return InternalError(f"fetching failed ({type(error).__name__})")


def _lost(error: Exception) -> bool:
    if isinstance(error, (ConnectionResetError, aiohttp.ServerDisconnectedError, TimeoutError)):
        return True
    return isinstance(error, OSError) and error.errno in _LOST
