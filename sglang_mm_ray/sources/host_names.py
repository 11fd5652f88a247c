"""Host names in the one form in which they are compared, checked and contacted."""

from __future__ import annotations

import ipaddress
import re
import socket

from ..errors import InvalidArgument

__all__ = ["ascii_host", "ascii_pattern"]

_NAME_MAX_CHARS = 253
_NAME = re.compile(r"(?:[a-z0-9_-]{1,63}\.)*[a-z0-9_-]{1,63}")
# A last label that is a number makes an IPv4 address, in every spelling that browsers and inet_aton know.
_NUMERIC = re.compile(r"(?:.*\.)?(?:[0-9]+|0x[0-9a-f]*)")
# inet_aton also takes what has a blank and anything behind it.
_IPV4 = re.compile(r"[0-9a-fx.]+")


def ascii_host(name: str) -> str:
    """A host as it is looked up: lower case, without the trailing dot, an address in its usual spelling.

    Names in Unicode are mapped by UTS 46, non-transitional, and held to IDNA 2008, as browsers and `requests`
    do. IDNA 2003 (Python's own codec) would look up another name where one holds a sharp s, a final sigma or
    a joiner.

    Raises:
        InvalidArgument: no host can have this name.
    """
    if len(name) > _NAME_MAX_CHARS + 1:
        raise InvalidArgument(f"a host name has at most {_NAME_MAX_CHARS} characters")
    if ":" in name:
        return _ipv6(name)
    host = (name.lower() if name.isascii() else _to_ascii(name)).removesuffix(".")
    if _NUMERIC.fullmatch(host):
        return _ipv4(host)
    if not _NAME.fullmatch(host) or len(host) > _NAME_MAX_CHARS:
        raise InvalidArgument("the host name is malformed")
    return host


def ascii_pattern(pattern: str) -> str:
    """An entry of `SourcePolicy.allowed_hosts`, in the form in which `ascii_host` gives names.

    Raises:
        InvalidArgument: it can match no host.
    """
    below = pattern.startswith("*.")
    name = pattern[2:] if below else pattern
    if ":" in name and name.startswith("[") and name.endswith("]"):
        name = name[1:-1]
    try:
        host = ascii_host(name)
        if below and (":" in host or _NUMERIC.fullmatch(host)):
            raise InvalidArgument("an address has nothing below it")
    except InvalidArgument as error:
        raise InvalidArgument(
            f"allowed_hosts: {pattern!r} matches no host ({error}); write example.org for that host alone,"
            " *.example.org for what lies below it, and nothing at all for any host"
        ) from None
    return "*." + host if below else host


def _to_ascii(name: str) -> str:
    import idna

    try:
        return idna.encode(name, uts46=True).decode()
    except UnicodeError:  # of which idna.IDNAError is one
        raise InvalidArgument(
            "the host name is not valid in IDNA 2008; if the host exists, write its ASCII form (xn--...)"
        ) from None


def _ipv4(host: str) -> str:
    try:
        if not _IPV4.fullmatch(host):
            raise OSError
        return socket.inet_ntoa(socket.inet_aton(host))
    except OSError:
        raise InvalidArgument("a host that ends in a number must be an IPv4 address") from None


def _ipv6(name: str) -> str:
    try:
        return ipaddress.IPv6Address(name).compressed
    except ValueError:
        raise InvalidArgument("the host is not an IPv6 address") from None
