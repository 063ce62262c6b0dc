"""Routers: the kernel's IPv4 forwarding in each hop, with static routes."""

from __future__ import annotations

from harness.hosts import Host
from harness.network.links import NETWORK, LinkPath
from harness.network.paths.chain import FAR, NEAR, address, network

FORWARD = "echo 1 > /proc/sys/net/ipv4/ip_forward"


def start(path: LinkPath) -> None:
    """Give all hops their addresses, make them forward, and give every host the routes to both ends."""
    for number, hop in enumerate(path.hops):
        add_address(hop, NEAR, address(path.index, number, 2))
        add_address(hop, FAR, address(path.index, number + 1, 1))
        forward(hop)
    connect(path)


def add_address(hop: Host, iface: str, own: str) -> None:
    hop.run(["ip", "address", "add", f"{own}/30", "dev", iface])


def forward(hop: Host) -> None:
    hop.run(["sh", "-c", FORWARD])


def connect(path: LinkPath) -> None:
    """Routes from each hop and each end to all that is not directly connected."""
    index, last = path.index, len(path.hops)
    for number, hop in enumerate(path.hops):
        if number > 0:
            _route(hop, network(index, 0), address(index, number, 1))
        if number + 1 < last:
            _route(hop, network(index, last), address(index, number + 1, 2))
    # Routes to the whole path, because its routers must be able to report that a packet is too large.
    whole = f"{NETWORK}.{index}.0/24"
    _route(path.initiator, whole, address(index, 0, 2))
    _route(path.target, whole, address(index, last, 1))


def _route(host: Host, to: str, via: str) -> None:
    host.run(["ip", "route", "add", to, "via", via])
