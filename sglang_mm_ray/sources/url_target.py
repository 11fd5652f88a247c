"""Reading an `http(s)` URL strictly: what it names, and what of it may be printed."""

from __future__ import annotations

import dataclasses
import re
from urllib.parse import quote, urljoin, urlsplit

from ..errors import InvalidArgument, SourceRefused
from .policy import SourcePolicy

DEFAULT_PORTS = {"http": 80, "https": 443}

_LABEL_MAX_CHARS = 120
# What parsers disagree about: one reads the host before it, another the host after it.
_AMBIGUOUS = re.compile(r"[\x00-\x20\x7f\\]")
# Already legal in a path or query; `%` too, since what is encoded stays as it is.
_LEGAL = "/?:@!$&'()*+,;=-._~%[]"


@dataclasses.dataclass(frozen=True, slots=True)
class Target:
    """Where one request goes."""

    scheme: str
    host: str
    """In ASCII, lower case; an IPv6 address without brackets."""
    port: int
    resource: str
    """Path and query, as the request line carries them."""

    @property
    def origin(self) -> tuple[str, str, int]:
        """What connections are shared by."""
        return self.scheme, self.host, self.port

    def join(self, location: str) -> str:
        """The URL that a `Location` header of this target's answer names."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return urljoin(f"{self.scheme}://{host}:{self.port}{self.resource}", location)


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


def parse_target(url: str, policy: SourcePolicy) -> Target:
    """Reads a URL and holds it to the policy's schemes, ports and host names; addresses come later.

    Raises:
        InvalidArgument: not a URL that everyone reads alike.
        SourceRefused: the policy does not allow its scheme, port or host, or it carries credentials.
    """
    if _AMBIGUOUS.search(url):
        raise InvalidArgument("a URL holds no spaces, control characters or backslashes; percent-encode them")
    try:
        url.encode()
        parts = urlsplit(url)
        name, port = parts.hostname, parts.port
    except ValueError:  # of which the error of a lone surrogate is one
        raise InvalidArgument("the URL is malformed") from None
    scheme = parts.scheme.lower()
    if scheme not in policy.allowed_schemes:
        raise SourceRefused(f"URLs of scheme {scheme!r} are not fetched; see SourcePolicy.allowed_schemes")
    if "@" in parts.netloc:
        raise SourceRefused("URLs with credentials are not fetched")
    if not name:
        raise InvalidArgument("the URL has no host")
    try:
        host = name.encode("idna").decode().lower() if not name.isascii() else name.lower()
    except UnicodeError:
        raise InvalidArgument("the URL's host name is malformed") from None
    host = host.removesuffix(".")
    if port is None:
        port = DEFAULT_PORTS[scheme]
    if port not in policy.allowed_ports:
        raise SourceRefused(f"port {port} is not contacted; see SourcePolicy.allowed_ports")
    if policy.allowed_hosts and not any(_matches(host, pattern) for pattern in policy.allowed_hosts):
        raise SourceRefused("the host is not contacted; see SourcePolicy.allowed_hosts")
    resource = quote(parts.path or "/", safe=_LEGAL)
    if parts.query:
        resource += "?" + quote(parts.query, safe=_LEGAL)
    return Target(scheme, host, port, resource)


def _matches(host: str, pattern: str) -> bool:
    pattern = pattern.lower()
    if pattern.startswith("*."):
        return host.endswith(pattern[1:])
    return host == pattern
