"""Reading an `http(s)` URL strictly: what it names, and what of it may be printed."""

from __future__ import annotations

import dataclasses
import re
from urllib.parse import quote, urljoin, urlsplit

from ..errors import FetchError, InvalidArgument, SourceRefused
from .host_names import ascii_host
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
    """As `ascii_host` gives it; an IPv6 address without brackets."""
    port: int
    resource: str
    """Path and query, as the request line carries them."""

    @property
    def origin(self) -> tuple[str, str, int]:
        """Scheme, host and port."""
        return self.scheme, self.host, self.port

    @property
    def authority(self) -> str:
        """What the Host header says: the port only where it is not the scheme's own."""
        return bracketed(self.host) + ("" if self.port == DEFAULT_PORTS[self.scheme] else f":{self.port}")

    def redirected(self, location: str, policy: SourcePolicy) -> Target:
        """What a `Location` of this target's answer names, held to the policy as `parse_target` does.

        `location` is the header's text, with octets that are not UTF-8 as surrogates. As browsers do (WHATWG
        URL), it drops blanks at the ends and tabs, and percent-encodes spaces and octets.

        Raises:
            SourceRefused: the policy does not allow it.
            FetchError: it names nothing that everyone reads alike.
        """
        octets = "".join(_escaped(character) for character in location.strip(" \t"))
        try:
            here = f"{self.scheme}://{bracketed(self.host)}:{self.port}{self.resource}"
            return parse_target(urljoin(here, octets), policy)
        except SourceRefused:
            raise
        except ValueError:  # of which an InvalidArgument is one
            raise FetchError("the server redirects to a malformed URL") from None


def bracketed(host: str) -> str:
    """A host as a URL writes it."""
    return f"[{host}]" if ":" in host else host


def _escaped(character: str) -> str:
    if character in " \t":
        return "" if character == "\t" else "%20"
    if "\udc80" <= character <= "\udcff":
        return quote(character.encode("ascii", "surrogateescape"))
    return character


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
    host = ascii_host(name)
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
    return host.endswith(pattern[1:]) if pattern.startswith("*.") else host == pattern
