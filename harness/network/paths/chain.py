"""The parts of all links with hops: a row of hops, each with an interface on either side, and the segments
between."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterator, Sequence

import msgspec

from harness.model import IPV4, Family, addresses
from harness.network import links
from harness.network.links import LinkPath, LinkPlace, NetworkNamespace, VethPair

NEAR, FAR = "near", "far"
"""The interfaces of a hop: towards the initiator, and towards the target. Each hop has its own namespace."""


@contextlib.contextmanager
def build(place: LinkPlace, names: Sequence[str], *, is_routed: bool) -> Iterator[LinkPath]:
    """Segments between the initiator, a hop for each of ``names``, and the target; the ends have addresses.

    Each interface of a hop is up and sends at the profile's rate, after the delay of a hop. If ``is_routed``,
    each segment is a network of its own (``address``).
    """
    profile, journal, initiator, index = place.profile, place.journal, place.initiator, place.index
    if profile.hops is None:
        raise AssertionError(f"{profile.name} has no hops")
    if profile.rate_bit_s is not None and names:
        # Each hop would store a super-packet before it sends it on, although no frame ever has 64 KB.
        place = dataclasses.replace(place, frame_by_frame=True)
    hops = tuple(initiator.in_netns(name, f"{place.netns}-{number}") for number, name in enumerate(names, 1))
    path = dataclasses.replace(
        place.path(),
        initiator_address=address(index, 0, 1, profile.ip),
        target_address=address(index, len(hops) if is_routed else 0, 2, profile.ip),
        hops=hops,
    )
    links.refuse_used_network(initiator, index, profile.ip)
    with contextlib.ExitStack() as stack:
        for host in (path.target, *hops):
            stack.enter_context(journal.hold(initiator, NetworkNamespace(host.netns or "")))
        left = [(initiator, path.initiator_iface), *((hop, FAR) for hop in hops)]
        right = [*((hop, NEAR) for hop in hops), (path.target, path.target_iface)]
        for (host, iface), (peer, peer_iface) in zip(left, right, strict=True):
            pair = VethPair(iface, peer_iface, peer.netns or "", profile.mtu_bytes)
            stack.enter_context(journal.hold(host, pair))
        prefix_bits = addresses.PAIR_BITS[profile.ip] if is_routed else None
        stack.enter_context(links.ready(place, path, prefix_bits=prefix_bits))
        segment = msgspec.structs.replace(
            profile, delay_us=profile.hops.delay_us, jitter_us=0.0, loss_percent=0.0
        )
        parameters = links.netem(segment, frame_by_frame=place.frame_by_frame)
        for hop in hops:
            for iface in (NEAR, FAR):
                links.settle(hop, iface, profile.ip)
                hop.run(["ip", "link", "set", "dev", iface, "up"])
                if parameters is not None:
                    links.shape(hop, iface, parameters)
        yield path


def address(index: int, segment: int, end: int, family: Family = IPV4) -> str:
    """Address of the ``end`` (1: the initiator's side, 2) of a segment; a path has up to 64 segments.

    The networks are for two, and all of a path's are in that of its link (``addresses``).
    """
    return addresses.of(family, index, 4 * segment + end)


def network(index: int, segment: int, family: Family = IPV4) -> str:
    return f"{address(index, segment, 0, family)}/{addresses.PAIR_BITS[family]}"
