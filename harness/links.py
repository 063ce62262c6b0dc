"""Links: how initiator and target reach each other. One context manager yields one ``LinkPath``.

A link of the lab or of this machine is a veth pair into a namespace of its own for the target, shaped
by netem (tc-netem(8)) as its profile says. Full duplex shapes each end's egress, as a NIC does. Half
duplex puts a third namespace in between, the *medium*: a bridge whose two legs are redirected into one
ifb, so that both directions share one airtime budget.
"""

from __future__ import annotations

import contextlib
import ipaddress
import re
from collections.abc import Iterator
from dataclasses import dataclass

import msgspec

from harness.errors import RequirementError
from harness.hosts import Host, NamespaceHost
from harness.journal import Journal
from harness.model import Duplex, LinkProfile
from harness.target import PORT
from harness.undo import Step

NETWORK = "198.18"
"""First half of all addresses used: RFC 2544's block for benchmarks between isolated networks."""

BENCHMARK_BLOCK = "198.18.0.0/15"

ETHERNET_HEADER_BYTES = 14

QUEUE_PACKETS = 10_000
"""Depth of netem's queue: deeper than any window used here, so that only ``loss_percent`` drops."""


@dataclass(frozen=True, kw_only=True)
class LinkPath:
    """A link that is up: the interface and address at both ends, and the host behind each.

    ``index`` tells the paths of a run apart. The portal listens on the target's ``port``. Where
    ``is_shared``, other traffic has the same addresses, and only the portal's may be touched.
    """

    profile: LinkProfile
    index: int
    port: int = PORT
    is_shared: bool = False
    initiator: Host
    target: Host
    initiator_iface: str
    target_iface: str
    initiator_address: str
    target_address: str


class NetworkNamespace(msgspec.Struct, frozen=True):
    """A network namespace under /run/netns (ip-netns(8))."""

    name: str

    def acquire(self, host: Host) -> None:
        host.run(["ip", "netns", "add", self.name])
        host.run(["ip", "-n", self.name, "link", "set", "lo", "up"])

    def undo(self) -> tuple[Step, ...]:
        return (Step(("ip", "netns", "del", self.name), absent=("No such file or directory",)),)


class VethPair(msgspec.Struct, frozen=True):
    """``iface`` on the host, its peer in ``peer_netns``; removing either end removes both."""

    iface: str
    peer_iface: str
    peer_netns: str
    mtu_bytes: int

    def acquire(self, host: Host) -> None:
        host.run(
            ["ip", "link", "add", self.iface, "mtu", str(self.mtu_bytes), "type", "veth"]
            + ["peer", "name", self.peer_iface, "netns", self.peer_netns, "mtu", str(self.mtu_bytes)]
        )

    def undo(self) -> tuple[Step, ...]:
        return (Step(("ip", "link", "del", "dev", self.iface), absent=("Cannot find device",)),)


def netem(profile: LinkProfile) -> str | None:
    """The netem parameters of a profile, or None if it shapes nothing.

    netem takes a GSO super-packet of up to 64 KB for one frame and would charge the overhead of one for
    44 frames, 1.6 % too little on Ethernet. So the overhead is taken off the rate, in the proportion it
    has to a full frame: exact for full frames, whether they come alone or as a super-packet; a small
    frame is charged up to ``frame_overhead_bytes`` too little, 0.2 us at 1 Gbit/s. (Forbidding
    super-packets would be exact for all, but costs the lab's processor a fifth of the throughput it is
    to measure.)
    """
    words: list[str] = []
    if profile.delay_us or profile.jitter_us:
        words += ["delay", f"{profile.delay_us:g}us"]
        if profile.jitter_us:
            words += [f"{profile.jitter_us:g}us", "distribution", "normal"]
    if profile.loss_percent:
        words += ["loss", "random", f"{profile.loss_percent:g}%"]
    if profile.rate_bit_s is not None:
        frame_bytes = profile.mtu_bytes + ETHERNET_HEADER_BYTES
        share = frame_bytes / (frame_bytes + profile.frame_overhead_bytes)
        words += ["rate", f"{round(profile.rate_bit_s * share)}bit"]
    return " ".join(["limit", str(QUEUE_PACKETS), *words]) if words else None


def _end_commands(iface: str, address: str) -> str:
    """An ip(8) batch that makes one end of the link ready."""
    return f"link set dev {iface} up\naddress add {address}/24 dev {iface}\n"


def _shape(host: Host, iface: str, profile: LinkProfile) -> None:
    parameters = netem(profile)
    if parameters is not None:
        host.run(["tc", "qdisc", "add", "dev", iface, "root", "netem", *parameters.split()])


@contextlib.contextmanager
def bring_up(
    journal: Journal, initiator: Host, profile: LinkProfile, *, tag: str, index: int
) -> Iterator[LinkPath]:
    """Build the ``index``-th link of a run (0 to 255) and yield it, ready for traffic.

    ``tag`` is the run's short id; every name and address made here carries it or ``index``.
    """
    near, far = f"h{tag}i{index}", f"h{tag}t{index}"
    path = LinkPath(
        profile=profile,
        index=index,
        initiator=initiator,
        target=NamespaceHost(name="target", netns=f"harness-{tag}-{index}"),
        initiator_iface=near,
        target_iface=far,
        initiator_address=f"{NETWORK}.{index}.1",
        target_address=f"{NETWORK}.{index}.2",
    )
    _refuse_used_network(initiator, index)
    with contextlib.ExitStack() as stack:
        netns = stack.enter_context(journal.hold(initiator, NetworkNamespace(f"harness-{tag}-{index}"))).name
        if profile.duplex is Duplex.HALF:
            _through_medium(stack, journal, path, netns=netns, tag=tag, index=index)
        else:
            stack.enter_context(journal.hold(initiator, VethPair(near, far, netns, profile.mtu_bytes)))
        initiator.run(["ip", "-batch", "-"], input=_end_commands(near, path.initiator_address))
        path.target.run(["ip", "-batch", "-"], input=_end_commands(far, path.target_address))
        if profile.duplex is Duplex.FULL:
            _shape(initiator, near, profile)
            _shape(path.target, far, profile)
        yield path


def _through_medium(
    stack: contextlib.ExitStack, journal: Journal, path: LinkPath, *, netns: str, tag: str, index: int
) -> None:
    """Lead the link through a namespace where one ifb holds the airtime of both directions."""
    medium = NamespaceHost(name="medium", netns=f"harness-{tag}-{index}m")
    mtu = path.profile.mtu_bytes
    stack.enter_context(journal.hold(path.initiator, NetworkNamespace(f"harness-{tag}-{index}m")))
    legs = (f"h{tag}mi{index}", f"h{tag}mt{index}")
    stack.enter_context(
        journal.hold(path.initiator, VethPair(path.initiator_iface, legs[0], f"harness-{tag}-{index}m", mtu))
    )
    # Ends with its namespace, and so needs no entry of its own: both its ends live inside namespaces.
    medium.run(
        ["ip", "link", "add", legs[1], "mtu", str(mtu), "type", "veth"]
        + ["peer", "name", path.target_iface, "netns", netns, "mtu", str(mtu)]
    )
    ports = "".join(f"link set dev {leg} master bridge0\nlink set dev {leg} up\n" for leg in legs)
    medium.run(
        ["ip", "-batch", "-"],
        input=f"link add bridge0 mtu {mtu} type bridge\nlink set dev bridge0 up\n"
        f"link add airtime mtu {mtu} type ifb\nlink set dev airtime up\n" + ports,
    )
    _shape(medium, "airtime", path.profile)
    medium.run(
        ["tc", "-batch", "-"],
        input="".join(
            f"qdisc add dev {leg} ingress\n"
            f"filter add dev {leg} ingress matchall action mirred egress redirect dev airtime\n"
            for leg in legs
        ),
    )


def _refuse_used_network(host: Host, index: int) -> None:
    ours = ipaddress.ip_network(f"{NETWORK}.{index}.0/24")
    # Of the whole block, because some VPNs use all of it: their route is wider than our network.
    routes = host.run(["ip", "route", "show", "root", BENCHMARK_BLOCK]).stdout.splitlines()
    for route in routes:
        # "198.18.0.0/16 dev tun0 …", or "blackhole 198.18.0.0/16"
        found = re.search(r"198\.1[89]\.[\d./]+", route)
        if found is not None and ours.overlaps(ipaddress.ip_network(found[0])):
            raise RequirementError(
                f"the benchmark network {ours} was expected to be free, "
                f"but there is a route: {route.strip()}",
                hint="remove that route, or run in the lab with --testbed lab",
            )


def describe(path: LinkPath) -> dict[str, str]:
    """The link as the kernel has it, both ends: interfaces and qdiscs as ip(8) and tc(8) print them."""
    return {
        f"{end}_{what}": host.run(argv).stdout
        for end, host, iface in (
            ("initiator", path.initiator, path.initiator_iface),
            ("target", path.target, path.target_iface),
        )
        for what, argv in (
            ("interface", ["ip", "-d", "address", "show", "dev", iface]),
            ("qdisc", ["tc", "-s", "qdisc", "show", "dev", iface]),
        )
    }
