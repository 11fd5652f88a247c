"""Which network addresses are public, decided on the address and never on its spelling.

The special ranges are those of the IANA registries for IPv4 and IPv6 (RFC 6890 and its updates).
"""

from __future__ import annotations

import ipaddress
from typing import TypeAlias

from ..errors import SourceRefused
from .policy import SourcePolicy

Address: TypeAlias = ipaddress.IPv4Address | ipaddress.IPv6Address

_NOT_PUBLIC_V4 = tuple(
    ipaddress.IPv4Network(network)
    for network in (
        "0.0.0.0/8",  # this host
        "10.0.0.0/8",
        "100.64.0.0/10",  # carrier-grade NAT
        "127.0.0.0/8",  # loopback
        "169.254.0.0/16",  # link-local, with the metadata services of clouds
        "172.16.0.0/12",
        "192.0.0.0/24",  # protocol assignments
        "192.0.2.0/24",  # documentation
        "192.88.99.0/24",  # 6to4 relays
        "192.168.0.0/16",
        "198.18.0.0/15",  # benchmarks
        "198.51.100.0/24",  # documentation
        "203.0.113.0/24",  # documentation
        "224.0.0.0/4",  # multicast
        "240.0.0.0/4",  # reserved, and broadcast
    )
)
# Whatever lies outside is loopback, link-local, unique local, multicast or unassigned.
_GLOBAL_V6 = ipaddress.IPv6Network("2000::/3")
_NOT_PUBLIC_V6 = tuple(
    ipaddress.IPv6Network(network)
    for network in (
        "2001::/23",  # protocol assignments, Teredo among them
        "2001:db8::/32",  # documentation
        "2002::/16",  # 6to4
        "3fff::/20",  # documentation
    )
)
_NAT64 = ipaddress.IPv6Network("64:ff9b::/96")


def is_public(address: Address) -> bool:
    """Whether an address is globally reachable. An address that wraps another one counts as the inner one."""
    if isinstance(address, ipaddress.IPv4Address):
        return not any(address in network for network in _NOT_PUBLIC_V4)
    inner = _unwrapped(address)
    if isinstance(inner, ipaddress.IPv4Address):
        return is_public(inner)
    return address in _GLOBAL_V6 and not any(address in network for network in _NOT_PUBLIC_V6)


def _unwrapped(address: Address) -> Address:
    if isinstance(address, ipaddress.IPv6Address):
        if address.ipv4_mapped is not None:
            return address.ipv4_mapped
        if address in _NAT64:
            return ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)
    return address


def check_addresses(addresses: list[str], policy: SourcePolicy) -> None:
    """Refuses a host if any of its addresses is neither public nor in a network that the policy names.

    A name with a public and a private address is an attack or a mistake: which of them a connection would
    meet is up to chance.

    Raises:
        SourceRefused: it does not tell which address, since that may describe a private network.
    """
    named = [ipaddress.ip_network(network) for network in policy.allowed_private_networks]
    for text in addresses:
        address = ipaddress.ip_address(text.partition("%")[0])
        inner = _unwrapped(address)
        if not is_public(address) and not any(inner in network for network in named):
            raise SourceRefused(
                "the host is at an address that is not public; see SourcePolicy.allowed_private_networks"
            )
