"""Switches: a bridge of the kernel in each hop (ip-link(8), type bridge)."""

from __future__ import annotations

from collections.abc import Sequence

from harness.hosts import Host
from harness.network.paths.chain import FAR, NEAR

MODULES = ("bridge",)
BRIDGE = "switch"


def start(hops: Sequence[Host], mtu_bytes: int) -> None:
    """Make each hop forward frames. Without STP, which would keep its ports silent for half a minute."""
    for hop in hops:
        hop.run(
            ["ip", "-batch", "-"],
            input=f"link add {BRIDGE} mtu {mtu_bytes} type bridge stp_state 0 mcast_snooping 0\n"
            f"link set dev {NEAR} master {BRIDGE}\nlink set dev {FAR} master {BRIDGE}\n"
            f"link set dev {BRIDGE} up\n",
        )
