"""Links: how initiator and target reach each other. One context manager yields one ``LinkPath``.

A link of the lab or of this machine is a veth pair into a namespace of its own for the target. netem
(tc-netem(8)) shapes it as its profile says. Full duplex shapes each end's egress, as a NIC does. Half duplex
leads what the target's end sends and receives through one ifb, so that both directions share one airtime
budget.
"""

from __future__ import annotations

import contextlib
import ipaddress
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from harness.hosts import Host, of_each
from harness.hosts.black_box import BlackBoxHost
from harness.hosts.footprint import Leftover
from harness.hosts.journal import Journal
from harness.hosts.undo import UndoStep
from harness.model import DEFAULT_TRANSPORT, IPV4, IPV6, Duplex, End, Family, LinkProfile, addresses, kinds
from harness.model.errors import RequirementError

SHAPING_MODULES = ("sch_netem",)
MODULES = ("veth", *SHAPING_MODULES)
HALF_DUPLEX_MODULES = ("ifb", "sch_ingress", "cls_matchall", "act_mirred")
LEAVES = (
    Leftover(
        what="the network namespace",
        names='ls /run/netns 2>/dev/null | grep -e "^harness-$1-"',
        where='/run/netns/harness-"$1"-*',
    ),
    Leftover(
        what="the interface",
        names='ls /sys/class/net | grep -e "^h$1[itw-z][0-9]"',
        where='/sys/class/net/h"$1"*',
    ),
)

IPV6_MODULES = ("ipv6",)
"""For links of IPv6. Where it is built in, modprobe(8) finds it as well."""

ETHERNET_HEADER_BYTES = 14

QUEUE_PACKETS = 10_000
"""Depth of netem's queue where a profile has none: deeper than any window used here, so that only
``loss_percent`` drops packets."""


AVERAGED_BYTES = 100
"""The most ``frame_overhead_bytes`` that may be taken off the rate (``netem``). Where frames have more, the
medium is so slow that the processor can make them one by one."""


@dataclass(frozen=True, kw_only=True)
class LinkPath:
    """A link that is up: the interface and address at both ends, and the host behind each.

    ``index`` identifies the path within a run. The portal listens on the target's ``port``. If ``is_shared``,
    other traffic uses the same addresses, and only the portal's may be touched. ``hops`` are the routers and
    switches between the ends, starting at the initiator's side. ``agreed`` is what they negotiated among
    themselves, for the record.
    """

    profile: LinkProfile
    index: int
    port: int = kinds.TRANSPORTS[DEFAULT_TRANSPORT].port
    is_shared: bool = False
    initiator: Host
    target: Host
    initiator_iface: str
    target_iface: str
    initiator_address: str
    target_address: str
    hops: tuple[Host, ...] = ()
    agreed: Mapping[str, str] = field(default_factory=dict)

    @property
    def ip(self) -> Family:
        """The version of IP that it speaks."""
        return addresses.family_of(self.initiator_address)

    @property
    def sees_target(self) -> bool:
        """Whether both ends are hosts of the run; if not, the target is a black box."""
        return not isinstance(self.target, BlackBoxHost)


@dataclass(frozen=True)
class LinkPlace:
    """Where a run makes its ``index``-th link (0 to 255) as ``profile`` says, from which initiator on.

    ``tag`` is the run's short id; every name and address made there contains it or ``index``.
    ``frame_by_frame`` is as for ``netem``: for virtual time.
    """

    journal: Journal
    initiator: Host
    profile: LinkProfile
    tag: str
    index: int
    frame_by_frame: bool = False

    @property
    def netns(self) -> str:
        """The network namespace of the target, if it has one of the link's own."""
        return f"harness-{self.tag}-{self.index}"

    def path(self, target: Host | None = None) -> LinkPath:
        """The link that leads from here to a target, by default in that namespace."""
        return LinkPath(
            profile=self.profile,
            index=self.index,
            initiator=self.initiator,
            target=target or self.initiator.in_netns("target", self.netns),
            initiator_iface=f"h{self.tag}i{self.index}",
            target_iface=f"h{self.tag}t{self.index}",
            initiator_address=addresses.of(self.profile.ip, self.index, 1),
            target_address=addresses.of(self.profile.ip, self.index, 2),
        )


@dataclass(frozen=True, kw_only=True)
class Folders:
    """``private``: for sockets and secrets, vanishes with the testbed; ``logs``: for the programs' output."""

    private: Path
    logs: Path


def ends(path: LinkPath) -> tuple[tuple[End, Host, str, str, str], ...]:
    """The visible ends of a path, the initiator's first: the host, interface and address of each, and
    the peer's address. A black-box target has none."""
    near, far = path.initiator_address, path.target_address
    first: tuple[End, Host, str, str, str] = ("initiator", path.initiator, path.initiator_iface, near, far)
    if not path.sees_target:
        return (first,)
    return first, ("target", path.target, path.target_iface, far, near)


def portal_connections(path: LinkPath) -> dict[End, tuple[Host, list[str]]]:
    """The host of each visible end, and the portal's connections there in the words of ss(8)."""
    portal = addresses.at_port(path.target_address, path.port)
    near = addresses.bracketed(path.initiator_address)
    words = (["src", near, "dst", portal], ["src", portal, "dst", near])
    return {end: (host, way) for (end, host, *_), way in zip(ends(path), words, strict=False)}


class NetworkNamespace(msgspec.Struct, frozen=True):
    """A network namespace under /run/netns (ip-netns(8))."""

    name: str

    def acquire(self, host: Host) -> None:
        host.run(["ip", "netns", "add", self.name])
        host.run(["ip", "-n", self.name, "link", "set", "lo", "up"])

    def undo(self) -> tuple[UndoStep, ...]:
        return (UndoStep(("ip", "netns", "del", self.name), absent=("No such file or directory",)),)


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

    def undo(self) -> tuple[UndoStep, ...]:
        return (UndoStep(("ip", "link", "del", "dev", self.iface), absent=("Cannot find device",)),)


def netem(profile: LinkProfile, *, frame_by_frame: bool = False) -> str | None:
    """The netem parameters of a profile, or None if it shapes nothing.

    netem takes a GSO super-packet of up to 64 KB for one frame, so it would charge the overhead of one frame
    for 44, which is 1.6 % too little on Ethernet. So the overhead is taken off the rate instead, in its
    proportion to a full frame. That is exact for full frames, whether they come alone or as a super-packet; a
    small frame is charged up to ``frame_overhead_bytes`` too little, 0.2 us at 1 Gbit/s. (Forbidding
    super-packets would be exact for all frames, but costs the lab's processor a fifth of the throughput to be
    measured.) In virtual time, where the processor costs nothing, super-packets are forbidden:
    ``frame_by_frame``. So they are for profiles beyond ``AVERAGED_BYTES``.
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
        if frame_by_frame:
            words += ["rate", f"{profile.rate_bit_s}bit", f"{profile.frame_overhead_bytes}"]
        else:
            words += ["rate", f"{round(profile.rate_bit_s * share)}bit"]
    return " ".join(["limit", str(profile.queue_packets or QUEUE_PACKETS), *words]) if words else None


def shape(host: Host, iface: str, parameters: str) -> None:
    """Make an interface send as ``netem`` says."""
    host.run(["tc", "qdisc", "add", "dev", iface, "root", "netem", *parameters.split()])


class Airtime(msgspec.Struct, frozen=True):
    """A half-duplex medium, or something else that serves one packet at a time: an ifb in which all packets
    wait that ``ends`` receive, and those that they send as well unless ``is_inward``.

    The filters that redirect them are removed with the interfaces ``ends``, which are the link's own.
    """

    iface: str
    ends: tuple[str, ...]
    is_inward: bool = False

    def acquire(self, host: Host) -> None:
        host.run(["ip", "link", "add", self.iface, "up", "type", "ifb"])
        ways = ("ingress",) if self.is_inward else ("egress", "ingress")
        lines = [f"qdisc add dev {end} clsact\n" for end in self.ends]
        for end in self.ends:
            filtered = (f"filter add dev {end} {way} matchall" for way in ways)
            lines += [f"{each} action mirred egress redirect dev {self.iface}\n" for each in filtered]
        host.run(["tc", "-batch", "-"], input="".join(lines))

    def undo(self) -> tuple[UndoStep, ...]:
        return (UndoStep(("ip", "link", "del", "dev", self.iface), absent=("Cannot find device",)),)


HAS_IPV6 = "/proc/net/if_inet6"
"""Without IPv6, or with it switched off at boot (``ipv6.disable=1``), a kernel has no such file."""

QUIET = """
cd "/proc/sys/net/ipv6/conf/$1"
echo 0 > disable_ipv6
echo 0 > accept_dad
echo 0 > accept_ra
echo 0 > router_solicitations
echo 1 > keep_addr_on_down
"""
"""For an interface of the run's own (Documentation/networking/ip-sysctl.rst): nobody else has its addresses,
there is no router to ask, and a link that was down is as before. Argument: the interface, which is down."""


def require_ipv6(host: Host) -> None:
    """RequirementError if a host's kernel does not speak IPv6."""
    if host.run(["test", "-e", HAS_IPV6], check=False).status != 0:
        raise RequirementError(
            f"--ip 6 needs IPv6, but the {host.name}'s kernel was built without "
            "it or booted with ipv6.disable=1",
            hint="leave --ip 6 out, or boot that kernel with IPv6",
        )


def ip(family: Family) -> tuple[str, ...]:
    """ip(8), which takes IPv4 if nothing says otherwise."""
    return ("ip",) if family == IPV4 else ("ip", "-6")


def settle(host: Host, iface: str, family: Family) -> None:
    """Prepare an interface of the run's own, which is down, for addresses of a family."""
    if family == IPV6:
        require_ipv6(host)
        host.run(["sh", "-euc", QUIET, "sh", iface])


def adding(address: str, prefix_bits: int, iface: str) -> str:
    """A line for ``ip -batch`` that gives an interface an address, which is of use at once."""
    checked = " nodad" if addresses.family_of(address) == IPV6 else ""
    return f"address add {address}/{prefix_bits} dev {iface}{checked}\n"


@contextlib.contextmanager
def ready(place: LinkPlace, path: LinkPath, *, prefix_bits: int | None = None) -> Iterator[LinkPath]:
    """Give both ends of an existing link their addresses, and shape it as its profile says."""
    prefix_bits = addresses.LINK_BITS[path.ip] if prefix_bits is None else prefix_bits
    frame_by_frame = place.frame_by_frame or path.profile.frame_overhead_bytes > AVERAGED_BYTES
    for _, host, iface, address, _ in ends(path):
        settle(host, iface, path.ip)
        host.run(
            ["ip", "-batch", "-"],
            input=f"link set dev {iface} up\n{adding(address, prefix_bits, iface)}"
            + (f"link set dev {iface} gso_max_segs 1\n" if frame_by_frame else "")
            + _window(path.profile, iface, f"{address}/{prefix_bits}"),
        )
    if path.profile.tcp_window_bytes is not None:
        # Half of a receive buffer is window (tcp_adv_win_scale=1), and a buffer that grows raises the route's
        # window. The initiator's buffer does not grow, because open-iscsi sets its size. The target's host is
        # the run's own.
        room = 2 * path.profile.tcp_window_bytes
        path.target.run(
            ["sh", "-euc", 'echo "$1" > /proc/sys/net/ipv4/tcp_rmem', "sh", f"4096 {room} {room}"]
        )
    with contextlib.ExitStack() as stack:
        queues = [(host, iface) for _, host, iface, _, _ in ends(path)]
        if path.profile.duplex is Duplex.HALF:
            airtime = Airtime(f"h{place.tag}a{path.index}", (path.target_iface,))
            queues = [(path.target, stack.enter_context(place.journal.hold(path.target, airtime)).iface)]
        parameters = netem(path.profile, frame_by_frame=frame_by_frame)
        if parameters is not None:
            for host, iface in queues:
                shape(host, iface, parameters)
        yield path


def _window(profile: LinkProfile, iface: str, end: str) -> str:
    """Limits the window that this end announces to its peer (RTAX_WINDOW); the route vanishes with the
    link."""
    if profile.tcp_window_bytes is None:
        return ""
    of_end = ipaddress.ip_interface(end)
    # The kernel's own route has this metric (IP6_RT_PRIO_ADDRCONF in include/net/ip6_route.h).
    way = "metric 256" if of_end.version == IPV6 else f"scope link src {of_end.ip}"
    window = f"window {profile.tcp_window_bytes}"
    return f"route replace {of_end.network} dev {iface} proto kernel {way} {window}\n"


@contextlib.contextmanager
def bring_up(place: LinkPlace, *, first: int | None = None) -> Iterator[LinkPath]:
    """Build a link and yield it, ready for traffic.

    ``first`` is the index of a link that is up and leads to the same target; None makes a target of this
    link's own.
    """
    journal, host, netns = place.journal, place.initiator, place.netns
    if first is not None:
        netns = f"harness-{place.tag}-{first}"
    path = place.path(host.in_netns("target", netns))
    refuse_used_network(host, place.index, path.ip)
    with contextlib.ExitStack() as stack:
        if first is None:
            stack.enter_context(journal.hold(host, NetworkNamespace(netns)))
        pair = VethPair(path.initiator_iface, path.target_iface, netns, place.profile.mtu_bytes)
        stack.enter_context(journal.hold(host, pair))
        yield stack.enter_context(ready(place, path))


def refuse_used_network(host: Host, index: int, family: Family = IPV4) -> None:
    """RequirementError if the host has a route into the network of the ``index``-th link."""
    ours = ipaddress.ip_network(addresses.network(family, index))
    # For the whole block, because some VPNs use all of it: their route is wider than the link's network.
    routes = host.run([*ip(family), "route", "show", "root", addresses.BLOCKS[family]]).stdout.splitlines()
    for route in routes:
        # "198.18.0.0/16 dev tun0 …", or "blackhole 198.18.0.0/16"
        found = re.search(_OF_BLOCK[family], route)
        if found is not None and ours.overlaps(ipaddress.ip_network(found[0])):
            raise RequirementError(
                f"expected no route into the benchmark network {ours}, found: {route.strip()}",
                hint="remove that route, or run in the lab with --testbed lab",
            )


_OF_BLOCK: dict[Family, str] = {IPV4: r"198\.1[89]\.[\d./]+", IPV6: r"2001:2:[0-9a-f:./]+"}


def describe(path: LinkPath) -> dict[str, str]:
    """The link as the kernel has it, its ends and its hops: the output of ip(8) and tc(8)."""
    of = {host: (end, iface) for end, host, iface, _, _ in ends(path)}

    def report(host: Host) -> dict[str, str]:
        end, iface = of[host]
        return {
            f"{end}_interface": host.run(["ip", "-d", "address", "show", "dev", iface]).stdout,
            f"{end}_qdisc": host.run(["tc", "-s", "qdisc", "show", "dev", iface]).stdout,
        }

    reported = {name: text for found in of_each([*of], report) for name, text in found.items()}
    for hop in path.hops:
        reported[f"{hop.name}_interfaces"] = hop.run(["ip", "-d", "address"]).stdout
        reported[f"{hop.name}_qdiscs"] = hop.run(["tc", "-s", "qdisc"]).stdout
        reported[f"{hop.name}_routes"] = hop.run([*ip(path.ip), "route"]).stdout
    return {**reported, **path.agreed}
