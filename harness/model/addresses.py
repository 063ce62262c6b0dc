"""The addresses that a run makes for its own links, in either version of IP.

Links of the lab and of this machine alone have those of the blocks for benchmarks between isolated networks:
of IPv4 by RFC 2544 (appendix C.2.2), of IPv6 by RFC 5180 (section 8). On a real interface a run's own
addresses are unique local ones (RFC 4193), which no other network is likely to have.
"""

from __future__ import annotations

import hashlib
import ipaddress
import re

from harness.model import IPV4, IPV6, Family

NETWORK = "198.18"
"""First half of all IPv4 addresses of links."""

NETWORK6 = "2001:2:0"
"""First three of the eight parts of all IPv6 addresses of links."""

BLOCKS: dict[Family, str] = {IPV4: "198.18.0.0/15", IPV6: "2001:2::/48"}

LINK_BITS: dict[Family, int] = {IPV4: 24, IPV6: 64}
"""Prefix length of a link's network."""

PAIR_BITS: dict[Family, int] = {IPV4: 30, IPV6: 126}
"""Prefix length of a network for two."""

ANY: dict[Family, str] = {IPV4: "0.0.0.0/0", IPV6: "::/0"}
"""All addresses, as a network."""


def of(family: Family, index: int, number: int) -> str:
    """The address ``number`` (0 to 255) of the ``index``-th link (0 to 255)."""
    if family == IPV4:
        return f"{NETWORK}.{index}.{number}"
    return str(ipaddress.IPv6Address(f"{NETWORK6}:{index:x}::{number:x}"))


def network(family: Family, index: int) -> str:
    """The network of the ``index``-th link."""
    return f"{of(family, index, 0)}/{LINK_BITS[family]}"


UNIQUE_LOCAL = "fd48:2be7"
"""The beginning of all unique local addresses of runs; then come the run's tag, and the link's index."""


def unique_local(tag: str, index: int, number: int) -> str:
    """The IPv6 address ``number`` of the ``index``-th link of a run, on a real interface.

    RFC 4193, section 3.2: 40 bits make the prefix one that no other network is likely to have. The first 24
    are the harness's, drawn once; 16 are the run's, by which what a killed run left is found.
    """
    own = tag if re.fullmatch("[0-9a-f]{4}", tag) else hashlib.sha256(tag.encode()).hexdigest()[:4]
    return str(ipaddress.IPv6Address(f"{UNIQUE_LOCAL}:{own}:{index:x}::{number:x}"))


def family_of(address: str) -> Family:
    """The version of IP of an address, or of a network."""
    return IPV6 if ":" in address else IPV4


def alone(address: str) -> str:
    """The network that has only this address."""
    return str(ipaddress.ip_network(address))


def pair_of(address: str) -> str:
    """The network for two that an address is in."""
    return _around(address, PAIR_BITS)


def link_of(address: str) -> str:
    """The network of a link that an address is in."""
    return _around(address, LINK_BITS)


def _around(address: str, bits: dict[Family, int]) -> str:
    return str(ipaddress.ip_network(f"{address}/{bits[family_of(address)]}", strict=False))


def bracketed(address: str) -> str:
    """An address before a port, or where a colon means a port: RFC 3986, section 3.2.2."""
    return address if family_of(address) == IPV4 else f"[{address}]"


def at_port(address: str, port: int) -> str:
    return f"{bracketed(address)}:{port}"
