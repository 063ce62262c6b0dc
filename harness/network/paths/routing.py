"""Forwarding of IP by hops that are routers, and the static routes to both ends."""

from __future__ import annotations

from harness.hosts import Host
from harness.model import IPV4, IPV6, Family, addresses
from harness.network import links
from harness.network.links import LinkPath
from harness.network.paths.chain import address, network

FORWARD: dict[Family, str] = {
    IPV4: "echo 1 > /proc/sys/net/ipv4/ip_forward",
    IPV6: "echo 1 > /proc/sys/net/ipv6/conf/all/forwarding",
}


def add_address(hop: Host, iface: str, own: str) -> None:
    bits = addresses.PAIR_BITS[addresses.family_of(own)]
    hop.run(["ip", *links.adding(own, bits, iface).split()])


def forward(hop: Host, family: Family = IPV4) -> None:
    hop.run(["sh", "-c", FORWARD[family]])


def connect(path: LinkPath) -> None:
    """Routes from each hop and each end to everything that is not directly connected."""
    index, last, family = path.index, len(path.hops), path.ip
    for number, hop in enumerate(path.hops):
        if number > 0:
            _route(hop, network(index, 0, family), address(index, number, 1, family))
        if number + 1 < last:
            _route(hop, network(index, last, family), address(index, number + 1, 2, family))
    # Routes to the whole path, because its routers must be able to report that a packet is too large.
    whole = addresses.network(family, index)
    _route(path.initiator, whole, address(index, 0, 2, family))
    _route(path.target, whole, address(index, last, 1, family))


def _route(host: Host, to: str, via: str) -> None:
    host.run(["ip", "route", "add", to, "via", via])
