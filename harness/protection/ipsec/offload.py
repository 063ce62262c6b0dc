"""Segmentation offload of ESP in software: the kernel's module ``esp4_offload`` (net/ipv4/esp4_offload.c).

Without it each packet passes TCP, IP and xfrm by itself. With it TCP hands down super-packets of up to 64 KB,
which are cut and encrypted just before the interface, and packets that come in are decrypted before GRO joins
them again. The frames on the link are the same. Few systems load the module: it is loaded if a NIC with ESP
of its own is asked for it, or by hand.
"""

from __future__ import annotations

from collections.abc import Iterable

from harness.model import Proposal
from harness.network import links
from harness.network.links import LinkPath

MODULES = ("esp4_offload",)
IPV6_MODULES = ("esp6_offload",)


def is_wanted(proposals: Iterable[Proposal]) -> bool:
    """Whether a run needs the module."""
    return any(proposal.segmentation_offload for proposal in proposals)


def settle(path: LinkPath, *, wanted: bool) -> None:
    """Prepare the ends of a path of the lab for ESP with or without it.

    The module serves every security association of the kernel that is made while it is loaded. So the other
    columns of the run get no super-packets from TCP, which is how ESP is without the module.

    Two ends of a veth pair pass super-packets as they are, as no wire does. GRO joins nothing there until the
    sender cuts them (veth_skb_is_eligible_for_gro in drivers/net/veth.c).
    """
    for _, host, iface, _, _ in links.ends(path):
        if wanted:
            host.run(["ethtool", "-K", iface, "gro", "on", "tso", "off"])
        else:
            host.run(["ip", "link", "set", "dev", iface, "gso_max_segs", "1"])
