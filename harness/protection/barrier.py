"""A barrier for interfaces that protect: the portal's traffic leaves by such an interface, or not at all.

It consists of xfrm policies without any IPsec. Every kernel that supports IPsec has them, they need no
package, and the kernel counts what they stop (XfrmOutPolBlock in /proc/net/xfrm_stat). A policy may name the
interface by which a packet would leave (ip-xfrm(8), ``dev``). The kernel takes it from the route just before
it looks up the policies (``ip_route_output_flow()`` in net/ipv4/route.c). Once the interface is gone, no
packet leaves by it, and only the policy that stops all traffic is left.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import msgspec

from harness.hosts import Host
from harness.hosts.undo import Step
from harness.model import End
from harness.network.links import LinkPath
from harness.protection import ipsec

PASSAGE_PRIORITY = 19_000
"""After the policies of a path's own IPsec (``ipsec.POLICY_PRIORITY``), which may have to protect the same
traffic, and before its barrier and others' policies: a lower number comes first."""

BARRIER_PRIORITY = 19_500


class Barrier(msgspec.Struct, frozen=True):
    """Drops, at one end, what would go to the portal at ``peer`` or come from it.

    The port is the peer's for the initiator and the end's own for the target. The source is any
    address, because a connection with another route may have another one.
    """

    end: End
    peer: str
    port: int

    ACTION: ClassVar[str] = "block"
    PRIORITY: ClassVar[int] = BARRIER_PRIORITY

    @property
    def _device(self) -> tuple[str, ...]:
        return ()

    def acquire(self, host: Host) -> None:
        port = ("dport" if self.end == "initiator" else "sport", str(self.port))
        host.run(
            ["ip", "xfrm", "policy", "add", "src", "0.0.0.0/0", "dst", f"{self.peer}/32", *self._device]
            + ["proto", "tcp", *port, "dir", "out", "action", self.ACTION, "priority", str(self.PRIORITY)]
        )

    def undo(self) -> tuple[Step, ...]:
        # By its priority, because an interface that is gone has no name any more. None left is no error.
        selector = ("src", "0.0.0.0/0", "dst", f"{self.peer}/32")
        return (Step(("ip", "xfrm", "policy", "deleteall", *selector, "priority", str(self.PRIORITY))),)


class Passage(Barrier, frozen=True):
    """Lets the portal's traffic pass by ``interface``, which must exist."""

    interface: str = ""

    ACTION: ClassVar[str] = "allow"
    PRIORITY: ClassVar[int] = PASSAGE_PRIORITY

    @property
    def _device(self) -> tuple[str, ...]:
        return ("dev", self.interface)


class Entrance(Barrier, frozen=True):
    """Lets in what comes from the portal, or to it, whatever the path's barrier says of both its ends.

    The address is the end's own: a policy for both addresses would replace the barrier's
    (``ipsec.OfThePortal``).
    """

    ACTION: ClassVar[str] = "allow"
    PRIORITY: ClassVar[int] = PASSAGE_PRIORITY

    def acquire(self, host: Host) -> None:
        port = ("sport" if self.end == "initiator" else "dport", str(self.port))
        host.run(
            ["ip", "xfrm", "policy", "add", "src", "0.0.0.0/0", "dst", f"{self.peer}/32"]
            + ["proto", "tcp", *port, "dir", "in", "action", self.ACTION, "priority", str(self.PRIORITY)]
        )


def left_over(host: Host, paths: Sequence[LinkPath]) -> list[str]:
    """What a host still has of barriers and passages to the ends of these paths."""
    addresses = {address for path in paths for address in (path.initiator_address, path.target_address)}
    text = host.run(["ip", "xfrm", "policy", "list"], check=False).stdout
    return [
        f"the policy {policy.text} dir {policy.direction}"
        for policy in ipsec.parse_policies(text)
        if policy.source == "0.0.0.0/0"
        and policy.priority in (PASSAGE_PRIORITY, BARRIER_PRIORITY)
        and policy.destination.removesuffix("/32") in addresses
    ]
