"""Links between separate kernels of the lab: a macvlan at each end of the trunk that connects the two.

Like those of ``links`` they are emulated: netem (tc-netem(8)) at both ends as the profile says, and for half
duplex one queue for both directions, at the target's end. Each initiator has a trunk of its own, so the same
profile for several initiators makes several links, each with a rate of its own.

A VLAN would work as well, but hands GSO super-packets to the trunk frame by frame, and each frame costs a
system call: 29 % more processor time for 500 MB by TCP, where a macvlan costs none. The kernels answer ARP
only on the interface of the address (``lab/boot/init.sh``), so the links of one trunk cannot be confused.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import msgspec

from harness.hosts import Host
from harness.hosts.undo import UndoStep
from harness.network import links
from harness.network.links import LinkPath

MODULES = ("macvlan", *links.SHAPING_MODULES)


class Macvlan(msgspec.Struct, frozen=True):
    """An interface on a trunk, with a MAC address of its own (ip-link(8)). Its qdiscs are removed with it."""

    iface: str
    trunk: str
    mtu_bytes: int

    def acquire(self, host: Host) -> None:
        host.run(
            ["ip", "link", "add", "link", self.trunk, "name", self.iface, "mtu", str(self.mtu_bytes)]
            + ["type", "macvlan", "mode", "private"]
        )

    def undo(self) -> tuple[UndoStep, ...]:
        return (UndoStep(("ip", "link", "del", "dev", self.iface), absent=("Cannot find device",)),)


@contextlib.contextmanager
def bring_up(
    place: links.LinkPlace, target: Host, *, initiator_trunk: str, target_trunk: str
) -> Iterator[LinkPath]:
    """Build a link to ``target`` and yield it, ready for traffic.

    The trunks are the names of the two connected interfaces, each as its own host knows it.
    """
    path = place.path(target)
    for host in (path.initiator, target):
        links.refuse_used_network(host, place.index, path.ip)
    with contextlib.ExitStack() as stack:
        for (_, host, iface, _, _), trunk in zip(
            links.ends(path), (initiator_trunk, target_trunk), strict=True
        ):
            stack.enter_context(place.journal.hold(host, Macvlan(iface, trunk, place.profile.mtu_bytes)))
        yield stack.enter_context(links.ready(place, path))
