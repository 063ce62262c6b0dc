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
from harness.hosts.journal import Journal
from harness.hosts.undo import Step
from harness.model import LinkProfile, addresses
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

    def undo(self) -> tuple[Step, ...]:
        return (Step(("ip", "link", "del", "dev", self.iface), absent=("Cannot find device",)),)


@contextlib.contextmanager
def bring_up(
    journal: Journal,
    initiator: Host,
    target: Host,
    profile: LinkProfile,
    *,
    tag: str,
    index: int,
    initiator_trunk: str,
    target_trunk: str,
    frame_by_frame: bool = False,
) -> Iterator[LinkPath]:
    """Build the ``index``-th link of a run (0 to 255) and yield it, ready for traffic.

    ``tag`` is the run's short id; every name and address made here contains it or ``index``. The trunks are
    the names of the two connected interfaces, each as its own host knows it. ``frame_by_frame`` is as for
    ``links.netem``.
    """
    path = LinkPath(
        profile=profile,
        index=index,
        initiator=initiator,
        target=target,
        initiator_iface=f"h{tag}i{index}",
        target_iface=f"h{tag}t{index}",
        initiator_address=addresses.of(profile.ip, index, 1),
        target_address=addresses.of(profile.ip, index, 2),
    )
    for host in (initiator, target):
        links.refuse_used_network(host, index, profile.ip)
    with contextlib.ExitStack() as stack:
        for host, iface, trunk in (
            (initiator, path.initiator_iface, initiator_trunk),
            (target, path.target_iface, target_trunk),
        ):
            stack.enter_context(journal.hold(host, Macvlan(iface, trunk, profile.mtu_bytes)))
        yield stack.enter_context(links.ready(journal, path, tag=tag, frame_by_frame=frame_by_frame))
