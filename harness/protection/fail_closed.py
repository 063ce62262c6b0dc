"""Fail-closed policies for protecting interfaces: the portal's traffic leaves by such an interface, or not at
all.

It consists of xfrm policies without any IPsec. Every kernel that supports IPsec has them, they need no
package, and the kernel counts what they stop (XfrmOutPolBlock in /proc/net/xfrm_stat). A policy may name the
interface by which a packet would leave (ip-xfrm(8), ``dev``). The kernel takes it from the route just before
it looks up the policies (``ip_route_output_flow()`` in net/ipv4/route.c). Once the interface is gone, no
packet leaves by it, and only the policy that stops all traffic is left. Before a fail-closed policy is taken
down, of this kind or IPsec's, the connections that it kept in are ended.

IPv6 does not take the interface from the route (``ip6_dst_lookup_flow()`` in net/ipv6/ip6_output.c), so no
policy can name it. There a route takes its place: without the interface the portal cannot be reached
(``UnreachableRoute``).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import msgspec

from harness.hosts import Host
from harness.hosts.undo import UndoStep
from harness.model import IPV4, End, addresses
from harness.network import links
from harness.network.links import LinkPath
from harness.protection import xfrm

PASSAGE_PRIORITY = 19_000
"""After the policies of a path's own IPsec (``xfrm.POLICY_PRIORITY``), which may have to protect the same
traffic, and before its fail-closed policy and others' policies: a lower number comes first."""

FAIL_CLOSED_PRIORITY = 19_500


class InterfaceFailClosed(msgspec.Struct, frozen=True):
    """Drops, at one end, what would go to the portal at ``peer`` or come from it.

    The port is the peer's for the initiator and the end's own for the target. The source is any
    address, because a connection with another route may have another one.
    """

    end: End
    peer: str
    port: int

    ACTION: ClassVar[str] = "block"
    PRIORITY: ClassVar[int] = FAIL_CLOSED_PRIORITY
    DIRECTION: ClassVar[str] = "out"

    @property
    def _device(self) -> tuple[str, ...]:
        return ()

    @property
    def _ends(self) -> tuple[str, ...]:
        return ("src", addresses.ANY[addresses.family_of(self.peer)], "dst", addresses.alone(self.peer))

    def acquire(self, host: Host) -> None:
        goes_there = (self.end == "initiator") is (self.DIRECTION == "out")
        port = ("dport" if goes_there else "sport", str(self.port))
        host.run(
            ["ip", "xfrm", "policy", "add", *self._ends, *self._device, "proto", xfrm.TCP, *port]
            + ["dir", self.DIRECTION, "action", self.ACTION, "priority", str(self.PRIORITY)]
        )

    def undo(self) -> tuple[UndoStep, ...]:
        # By its priority, because an interface that is gone has no name any more. None left is no error.
        return (UndoStep(("ip", "xfrm", "policy", "deleteall", *self._ends, "priority", str(self.PRIORITY))),)


class AllowOutbound(InterfaceFailClosed, frozen=True):
    """Lets the portal's traffic pass by ``interface``, which must exist."""

    interface: str = ""

    ACTION: ClassVar[str] = "allow"
    PRIORITY: ClassVar[int] = PASSAGE_PRIORITY

    @property
    def _device(self) -> tuple[str, ...]:
        return ("dev", self.interface) if addresses.family_of(self.peer) == IPV4 else ()

    @property
    def _ends(self) -> tuple[str, ...]:
        if addresses.family_of(self.peer) == IPV4:
            return super()._ends
        # Not the selector of the fail-closed policy itself: a selector can have only one policy.
        return ("src", addresses.link_of(self.peer), "dst", addresses.alone(self.peer))


class UnreachableRoute(msgspec.Struct, frozen=True):
    """Makes the network of an interface unreachable while that has no route into it itself.

    The interface's own route has the same prefix and a lower metric.
    """

    network: str

    METRIC: ClassVar[int] = 8192

    @property
    def _route(self) -> tuple[str, ...]:
        return ("unreachable", self.network, "metric", str(self.METRIC))

    def acquire(self, host: Host) -> None:
        host.run(["ip", "-6", "route", "add", *self._route])

    def undo(self) -> tuple[UndoStep, ...]:
        return (UndoStep(("ip", "-6", "route", "del", *self._route), absent=("No such process",)),)


class AllowInbound(InterfaceFailClosed, frozen=True):
    """Lets in what comes from the portal, or to it, whatever the path's fail-closed policy says of both its
    ends.

    The address is the end's own: a policy for both addresses would replace the fail-closed policy's
    (``xfrm.OfThePortal``).
    """

    ACTION: ClassVar[str] = "allow"
    PRIORITY: ClassVar[int] = PASSAGE_PRIORITY
    DIRECTION: ClassVar[str] = "in"


class Connections(msgspec.Struct, frozen=True):
    """Connections to the portal that one end may still have when its fail-closed policy is removed.

    A session that ends while nothing gets through leaves data that was not acknowledged, and TCP would send
    it again for minutes, then in clear. So the kernel is told to drop the connections (ss(8), ``--kill``).
    Debian's user-mode kernel cannot do that (CONFIG_INET_DIAG_DESTROY), but in the lab the ``interface`` is
    the run's own: without addresses nothing leaves by it. On an interface of the user's it is "".
    """

    end: End
    peer: str
    port: int
    interface: str = ""

    @classmethod
    def at_the_ends_of(cls, path: LinkPath) -> tuple[tuple[Host, Connections], ...]:
        return tuple(
            (host, cls(end, peer, path.port, "" if path.is_shared else iface))
            for end, host, iface, _, peer in links.ends(path)
        )

    def acquire(self, host: Host) -> None:
        """Nothing to do: the transport makes them."""

    def undo(self) -> tuple[UndoStep, ...]:
        port = "dport" if self.end == "initiator" else "sport"
        peer = addresses.bracketed(self.peer)
        end_them = UndoStep(("ss", "--tcp", "--numeric", "--kill", "dst", peer, port, "=", f":{self.port}"))
        if not self.interface:
            return (end_them,)
        flush = ("ip", "address", "flush", "dev", self.interface)
        return end_them, UndoStep(flush, absent=("does not exist", "Cannot find device"))


def left_over(host: Host, paths: Sequence[LinkPath]) -> list[str]:
    """Fail-closed policies, and exceptions to them, that a host still has for the ends of these paths."""
    ends = {
        addresses.alone(address)
        for path in paths
        for address in (path.initiator_address, path.target_address)
    }
    sources = {*addresses.ANY.values(), *(addresses.link_of(end.partition("/")[0]) for end in ends)}
    return [
        f"the policy {policy.text} dir {policy.direction}"
        for policy in xfrm.policies_of(host)
        if policy.source in sources
        and policy.priority in (PASSAGE_PRIORITY, FAIL_CLOSED_PRIORITY)
        and policy.destination in ends
    ]
