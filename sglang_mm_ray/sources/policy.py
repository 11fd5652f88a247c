"""`SourcePolicy`: what a pool may read for its callers, and how much of it."""

from __future__ import annotations

import dataclasses
import ipaddress
import json
import os
from typing import Any

from .. import _core
from ..errors import InvalidArgument
from ..fields import check_types
from .host_names import ascii_pattern

# Read by Pillow inside the worker, in its own process memory. Left out on purpose: EPS (starts Ghostscript),
# WMF and EMF (a system renderer), BUFR, GRIB and HDF5 (stubs for foreign handlers), MPEG (never decodes),
# IPTC (opens what it embeds with every plugin, EPS too), FPX and MIC (need a foreign package).
PILLOW_FORMATS = (
    "AVIF",
    "BLP",
    "CUR",
    "DCX",
    "DDS",
    "FITS",
    "FLI",
    "FTEX",
    "GBR",
    "ICNS",
    "ICO",
    "IM",
    "IMT",
    "JPEG2000",
    "MCIDAS",
    "MSP",
    "PCD",
    "PCX",
    "PIXAR",
    "PPM",
    "PSD",
    "QOI",
    "SGI",
    "SPIDER",
    "SUN",
    "TGA",
    "TIFF",
    "XBM",
    "XPM",
    "XVTHUMB",
)

_NEVER = frozenset({"EPS", "WMF", "EMF", "BUFR", "GRIB", "HDF5", "MPEG", "IPTC"})
_SCHEMES = frozenset({"http", "https"})


@dataclasses.dataclass(frozen=True, slots=True)
class SourcePolicy:
    """What a pool may read, and the limits that hold before memory is taken.

    The default reads what the caller hands over and public web addresses; no file and no private address.
    Every field is plain data: `to_json` and `from_json` are inverses.
    """

    allowed_roots: tuple[str, ...] = ()
    """Absolute folders (or files) of the worker's disk below which files may be read."""
    allowed_schemes: tuple[str, ...] = ("http", "https")
    """URL schemes that are fetched; empty turns fetching off."""
    allowed_ports: tuple[int, ...] = (80, 443)
    """Ports that are contacted, redirects included."""
    allowed_hosts: tuple[str, ...] = ()
    """Host names that are contacted (`example.org` itself, or `*.example.org` below it); empty means any.

    Names in Unicode are kept in their ASCII form.
    """
    allowed_private_networks: tuple[str, ...] = ()
    """Networks in CIDR form (`10.2.0.0/16`) that are contacted although they are not public."""
    max_redirects: int = 3
    fetch_timeout_s: float = 20.0
    """For one URL in all: resolving, connecting, TLS, headers, body and redirects."""
    connect_timeout_s: float = 5.0
    """For one connection, TLS included."""
    max_connections: int = 64
    """Fetches at a time, in one worker. Each holds a connection and what has come of its image, no thread."""
    max_connections_per_host: int = 8
    """Fetches from one host name and from one address at a time, so that slow ones cannot take all."""
    pillow_formats: tuple[str, ...] = PILLOW_FORMATS
    """Formats without a native decoder that Pillow may decode inside the worker, as Pillow names them."""
    max_input_bytes: int = 256 << 20
    """Encoded size, after base64 and content-encoding."""
    max_pixels: int = 178_956_970
    """Decoded or resized size; the default is Pillow's own error limit."""
    max_frames: int = 4096
    """Frames of a file that Pillow decodes; only the first frame is ever used."""
    max_patches: int = 1 << 20
    """Patches that one image may become."""

    def __post_init__(self) -> None:
        # Lists come from JSON; tuples make the policy hashable and keep it frozen.
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            if isinstance(value, list):
                object.__setattr__(self, field.name, tuple(value))
        if isinstance(self.allowed_roots, tuple):
            roots = (
                os.fspath(root) if isinstance(root, os.PathLike) else root for root in self.allowed_roots
            )
            object.__setattr__(self, "allowed_roots", tuple(roots))
        check_types(self)
        for root in self.allowed_roots:
            if not os.path.isabs(root):
                raise InvalidArgument(f"allowed_roots must be absolute paths, not {root!r}")
        for scheme in self.allowed_schemes:
            if scheme not in _SCHEMES:
                raise InvalidArgument(f"allowed_schemes may hold http and https, not {scheme!r}")
        for port in self.allowed_ports:
            if not 0 < port < 1 << 16:
                raise InvalidArgument(f"allowed_ports may hold 1 to 65535, not {port}")
        hosts = tuple(ascii_pattern(pattern) for pattern in self.allowed_hosts)
        object.__setattr__(self, "allowed_hosts", hosts)
        for network in self.allowed_private_networks:
            try:
                ipaddress.ip_network(network)
            except ValueError as error:
                raise InvalidArgument(f"allowed_private_networks: {error}") from None
        never = _NEVER.intersection(name.upper() for name in self.pillow_formats)
        if never:
            raise InvalidArgument(f"pillow_formats may not hold {', '.join(sorted(never))}")
        if not 0 <= self.max_redirects < 1 << 63:
            raise InvalidArgument("max_redirects must not be negative, and below 2**63")
        for name in (
            "fetch_timeout_s",
            "connect_timeout_s",
            "max_connections",
            "max_connections_per_host",
            "max_input_bytes",
            "max_pixels",
            "max_frames",
            "max_patches",
        ):
            if not 0 < getattr(self, name) < 1 << 63:
                raise InvalidArgument(f"{name} must be positive and below 2**63")

    def core_limits(self) -> _core.Limits:
        """The limits that the native core enforces."""
        return _core.Limits(
            max_input_bytes=self.max_input_bytes, max_pixels=self.max_pixels, max_patches=self.max_patches
        )

    def to_dict(self) -> dict[str, Any]:
        """All fields as plain JSON values."""
        return json.loads(json.dumps(dataclasses.asdict(self)))  # type: ignore[no-any-return]

    @classmethod
    def from_dict(cls, fields: dict[str, Any]) -> SourcePolicy:
        """The inverse of `to_dict`; missing fields take their defaults.

        Raises:
            InvalidArgument: an unknown field, or a value that cannot work.
        """
        if not isinstance(fields, dict):
            raise InvalidArgument(f"a SourcePolicy is an object of fields, not {type(fields).__name__}")
        unknown = set(fields) - {field.name for field in dataclasses.fields(cls)}
        if unknown:
            raise InvalidArgument(f"SourcePolicy has no field {', '.join(sorted(map(str, unknown)))}")
        return cls(**fields)

    def to_json(self) -> str:
        """All fields as canonical JSON."""
        return json.dumps(self.to_dict(), sort_keys=True)

    @classmethod
    def from_json(cls, text: str) -> SourcePolicy:
        """The inverse of `to_json`.

        Raises:
            InvalidArgument: no JSON, an unknown field, or a value that cannot work.
        """
        try:
            fields = json.loads(text)
        except (ValueError, TypeError, RecursionError) as error:
            raise InvalidArgument(f"a SourcePolicy in JSON is expected ({type(error).__name__})") from None
        return cls.from_dict(fields)
