"""Real links: the user's interfaces, found and used as they are. No interface is brought up or down, no
address changed.

Where a host has several interfaces in one network, the kernel would answer for any address on any of them and
send by whichever route comes first. While a link is up, two things keep the traffic between its two addresses
on the named interfaces: a routing rule for just these two addresses (ip-rule(8)), and ARP that stays on its
interface (arp_ignore and arp_announce in Documentation/networking/ip-sysctl.rst). The rule also satisfies
strict reverse path filtering.

With IPv6, a link uses an address of the user's if it is named, and otherwise has a network of its own
(``OwnAddress``): it is added to the interfaces and removed when the link is taken down. Neighbours are then
asked for on these interfaces alone, because no other one has an address of that network.
"""

from __future__ import annotations

import contextlib
import ipaddress
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

import msgspec

from harness.hosts import Host, of_each
from harness.hosts.black_box import BlackBoxHost
from harness.hosts.footprint import Leftover
from harness.hosts.journal import Journal
from harness.hosts.undo import UndoStep
from harness.model import IPV4, IPV6, Family, LinkProfile, addresses
from harness.model.errors import RequirementError, UsageError
from harness.network import links, sysctls
from harness.network.links import LinkPath
from harness.network.sysctls import Sysctl
from harness.network.wireless import is_wireless
from harness.parse import ethtool

LEAVES = (
    Leftover(
        what="the routing rule",
        names='for ip in 4 6; do ip -$ip rule list; done 2>/dev/null | grep -e "lookup 48[0-5][0-9][0-9]$"',
    ),
    Leftover(
        what="the address",
        names='ip -6 -o address show 2>/dev/null | grep -oe "'
        f'{addresses.UNIQUE_LOCAL}:$(printf %x "0x$1" 2>/dev/null):[0-9a-f:/]*"',
    ),
)

TABLE = 48_000
"""First of the harness's routing tables; each path uses two, one per end."""

PRIORITY = 1_000
"""Priority of the harness's first routing rule: after strongSwan's (220), before those of VPNs (5210,
32764)."""

ARP = {"arp_ignore": (1, "1"), "arp_announce": (2, "2")}
"""The least effective value that suffices, and the value that is set where it is less."""

UNCHANGED = "the harness brings no interface up and changes no address: have it ready before the run"


# What the kernel has


class InterfaceAddress(msgspec.Struct):
    """An address of an interface. ``peer`` is the other end of a point-to-point link."""

    family: str = ""
    local: str = ""
    peer: str | None = msgspec.field(default=None, name="address")
    prefixlen: int = 32
    secondary: bool = False
    scope: str = ""
    temporary: bool = False
    deprecated: bool = False

    @property
    def is_to_use(self) -> bool:
        """Not the first address of its network, or one that others cannot or should not use for long."""
        if self.family == "inet":
            return not self.secondary
        is_lasting = self.scope != "link" and not (self.temporary or self.deprecated)
        is_runs = self.local.startswith(f"{addresses.UNIQUE_LOCAL}:")
        return self.family == "inet6" and is_lasting and not is_runs

    @property
    def network(self) -> ipaddress.IPv4Network | ipaddress.IPv6Network:
        """The network that is reached through it."""
        return ipaddress.ip_network(f"{self.peer or self.local}/{self.prefixlen}", strict=False)

    def __str__(self) -> str:
        return f"{self.local}/{self.prefixlen}"


class _LinkInfo(msgspec.Struct):
    info_kind: str = ""
    info_data: dict[str, object] = {}
    info_slave_kind: str = ""


class _Counters(msgspec.Struct):
    rx: dict[str, int] = {}
    tx: dict[str, int] = {}


class Interface(msgspec.Struct):
    """A device in the output of ``ip -d -s -j address`` and ``link``; old versions leave some of it out.

    ``link`` is the device that it was made over.
    """

    name: str = msgspec.field(default="", name="ifname")
    flags: list[str] = []
    link_type: str = ""
    address: str = ""
    operstate: str = ""
    mtu: int | None = None
    master: str | None = None
    link: str | None = None
    linkinfo: _LinkInfo = msgspec.field(default_factory=_LinkInfo)
    addr_info: list[InterfaceAddress] = []
    stats64: _Counters = msgspec.field(default_factory=_Counters)

    @property
    def is_loopback(self) -> bool:
        return "LOOPBACK" in self.flags

    @property
    def is_up(self) -> bool:
        return "UP" in self.flags

    @property
    def has_carrier(self) -> bool:
        # DORMANT: a station that is associated but not yet admitted
        # (Documentation/networking/operstates.rst).
        return "LOWER_UP" in self.flags and self.operstate != "DORMANT"

    @property
    def port_of(self) -> str | None:
        """The bridge or bond that it is a port of."""
        # A VRF is a master as well, but its ports keep their addresses.
        return self.master if self.linkinfo.info_slave_kind != "vrf" else None

    def of(self, family: Family) -> list[InterfaceAddress]:
        """Its addresses of a family by which others reach it. Of several in a network the first is used, as
        in the kernel."""
        name = "inet" if family == IPV4 else "inet6"
        return [each for each in self.addr_info if each.family == name and each.is_to_use]

    def has(self, address: str) -> bool:
        return any(one.local == address for one in (*self.of(IPV4), *self.of(IPV6)))

    def address_in(self, other: str) -> InterfaceAddress | None:
        """The interface's address whose network contains ``other``."""
        there = ipaddress.ip_address(other)
        own = self.of(addresses.family_of(other))
        return next((address for address in own if there in address.network), None)


class _Route(msgspec.Struct):
    dev: str = ""
    gateway: str | None = None
    prefsrc: str | None = None


class _Rule(msgspec.Struct):
    priority: int = 0
    table: str = ""


T = TypeVar("T")


def _ask_ip(
    host: Host, words: Sequence[str], type_: type[T], *, check: bool = True, family: Family = IPV4
) -> list[T]:
    """The answer of ``ip -j``; without ``check`` an error counts as an empty answer."""
    done = host.run([*links.ip(family), "-d", "-j", *words], check=check)
    if done.status != 0:
        return []
    try:
        return msgspec.json.decode(done.stdout or "[]", type=list[type_])  # type: ignore[valid-type]
    except msgspec.DecodeError as error:
        raise RequirementError(
            f"expected JSON from `ip -j {' '.join(words)}` on the {host.name}, found {done.stdout[:40]!r}",
            hint="install iproute2 4.17 (2018) or later there",
        ) from error


def read_interfaces(host: Host) -> list[Interface]:
    """All interfaces of a host."""
    return [device for device in _ask_ip(host, ["address"], Interface) if device.name]


def way(host: Host, address: str, *words: str) -> tuple[str, str] | None:
    """The interface and source address that a host would use for an address now; None if it has no route.

    ``words`` are further ones for ``ip route get``.
    """
    family = addresses.family_of(address)
    found = _ask_ip(host, ["route", "get", address, *words], _Route, check=False, family=family)
    return (found[0].dev, found[0].prefsrc or "") if found and found[0].dev else None


def default_interface(host: Host, family: Family = IPV4) -> str:
    """The interface of the main table's default route, which VPNs leave there; "" without one."""
    found = _ask_ip(host, ["route", "show", "default"], _Route, check=False, family=family)
    return found[0].dev if found else ""


# Which interfaces and addresses a link is made of


@dataclass(frozen=True, kw_only=True)
class LinkEnd:
    """One side of a link: ``all`` interfaces of its host, and ``iface``, the one that it uses.

    Packets from ``address`` to ``peer`` leave through that one, by ``gateway`` if there is one.
    """

    host: Host
    all: Sequence[Interface]
    iface: Interface
    address: str = ""
    peer: str = ""
    gateway: str | None = None

    def __str__(self) -> str:
        return f"{self.iface.name} of the {self.host.name}"

    @property
    def ip(self) -> Family:
        return addresses.family_of(self.address)

    @property
    def siblings(self) -> list[str]:
        """Other interfaces of the host in the same network."""
        networks = [one.network for one in self.iface.of(self.ip) if one.local == self.address]
        return [
            one.name
            for one in self.all
            if one.name != self.iface.name and one.is_up and not one.is_loopback
            if any(other.network.overlaps(each) for other in one.of(self.ip) for each in networks)
        ]

    @property
    def chosen(self) -> str:
        """The interface through which the kernel's own routing sends now; "" if there is none."""
        words = ["route", "get", self.peer, "from", self.address]
        routes = _ask_ip(self.host, words, _Route, check=False, family=self.ip)
        return routes[0].dev if routes else ""


def check(initiator: Host, target: Host, profile: LinkProfile) -> None:
    """UsageError or RequirementError if a link cannot be brought up, with the reason. Nothing is changed."""
    find = _find_pair if has_own_addresses(profile) else _find_ends
    find(initiator, target, profile)


def has_own_addresses(profile: LinkProfile) -> bool:
    """Whether the run gives a real link its addresses."""
    return profile.ip == IPV6 and profile.portal is None


def _named(initiator: Host, found: Sequence[Interface], profile: LinkProfile) -> LinkEnd:
    """The initiator's side of a link: of its interfaces the one that ``profile`` names; UsageError without
    it."""
    iface = next((one for one in found if one.name == profile.interface), None)
    if iface is None:
        raise UsageError(
            f"the {initiator.name} has no interface {profile.interface}, only "
            f"{', '.join(one.name for one in found)}",
            hint=f"choose one of them: --link {profile.name}=IFACE",
        )
    return LinkEnd(host=initiator, all=found, iface=iface)


def _find(
    initiator: Host, target: Host, profile: LinkProfile, families: Sequence[Family]
) -> tuple[LinkEnd, LinkEnd, str]:
    """Both sides of a link, and the target's address on it: of the first of ``families`` in which they share
    a network."""
    near, far = of_each((initiator, target), read_interfaces)
    if profile.ip == IPV6:
        for host in (initiator, target):
            links.require_ipv6(host)
    here = _named(initiator, near, profile)
    iface = here.iface
    known = [family for family in families if iface.of(family)] or families
    _require_usable(here, profile, known[0])
    family = next((each for each in known if _common(iface, far, each)), known[0])
    portal = profile.portal or _portal(here, target, far, profile, family)
    there = next((one for one in far if one.has(portal)), None)
    if there is None:
        raise UsageError(
            f"expected an IPv{family} address of the {target.name} for link {profile.name}, found {portal}; "
            f"it has {_listed(far, family)}",
            hint=f"try --link {profile.name}={iface.name}@ADDRESS with one of them",
        )
    peer = LinkEnd(host=target, all=far, iface=there)
    _require_usable(peer, profile, family)
    _require_different(here, target, portal)
    return here, peer, portal


def _find_pair(initiator: Host, target: Host, profile: LinkProfile) -> tuple[LinkEnd, LinkEnd]:
    """The interfaces of both sides that get addresses of the run's own: they share a network already."""
    near, far, _ = _find(initiator, target, profile, (IPV4, IPV6))
    for side in (near, far):
        setting = f"net.ipv6.conf.{side.iface.name}.disable_ipv6"
        (off,) = side.host.read_files([f"/proc/sys/net/ipv6/conf/{side.iface.name}/disable_ipv6"])
        if off.strip() == "1":
            raise RequirementError(
                f"link {profile.name}: {side} has IPv6 switched off ({setting}=1)",
                hint=f"sysctl {setting}=0 there, or leave --ip 6 out",
            )
    return near, far


def _find_ends(initiator: Host, target: Host, profile: LinkProfile) -> tuple[LinkEnd, LinkEnd]:
    near, far, portal = _find(initiator, target, profile, (profile.ip,))
    address, gateway = _source(near, portal)
    _require_different(far, initiator, address)
    back = _route_through(far, address)
    return (
        replace(near, address=address, peer=portal, gateway=gateway),
        replace(far, address=portal, peer=address, gateway=back.gateway),
    )


def _source(side: LinkEnd, portal: str) -> tuple[str, str | None]:
    """The address from which a side reaches a portal through its interface, and by which gateway."""
    route = _route_through(side, portal)
    if route.prefsrc is None:
        raise RequirementError(
            f"the {side.host.name} has no address to reach {portal} from through {side.iface.name}"
        )
    return route.prefsrc, route.gateway


def _listed(interfaces: Sequence[Interface], family: Family = IPV4) -> str:
    """The addresses by which others can reach a host."""
    words = [
        f"{address} on {iface.name}"
        for iface in interfaces
        if not iface.is_loopback
        for address in iface.of(family)
    ]
    return ", ".join(words) or f"no IPv{family} address"


def _require_usable(side: LinkEnd, profile: LinkProfile, family: Family) -> None:
    iface, what = side.iface, f"link {profile.name}: {side}"
    if iface.is_loopback:
        raise UsageError(
            f"{what} is the loopback interface, which reaches no other machine",
            hint="name a network interface; `ip -br address` lists them",
        )
    if iface.port_of is not None:
        raise UsageError(
            f"{what} is a port of {iface.port_of}, which has the addresses",
            hint=f"name {iface.port_of} instead",
        )
    for is_so, words in (
        (iface.is_up, "is down"),
        (iface.has_carrier, "has no carrier: no cable, or not associated"),
        (iface.of(family), f"has no IPv{family} address"),
    ):
        if not is_so:
            raise RequirementError(f"{what} {words}", hint=UNCHANGED)


def _require_different(side: LinkEnd, other: Host, address: str) -> None:
    """Check that what one side sends to the other's address does not stay inside it."""
    own = next((one for one in side.all if one.has(address)), None)
    if own is not None:
        raise UsageError(
            f"{address} of the {other.name} is also an address of the {side.host.name} ({own.name}), so "
            f"packets to it would never leave the machine",
            hint="initiator and target must be two machines (or network namespaces)",
        )


def _common(iface: Interface, far: Sequence[Interface], family: Family) -> dict[str, str]:
    """The target's addresses in a network of the initiator's interface, each with its interface's name."""
    return {
        address.local: one.name
        for one in far
        if not one.is_loopback
        for address in one.of(family)
        if iface.address_in(address.local) is not None
    }


def _portal(
    near: LinkEnd, target: Host, far: Sequence[Interface], profile: LinkProfile, family: Family
) -> str:
    """The only address of the target in a network of the initiator's interface."""
    iface = near.iface
    found = _common(iface, far, family)
    # A network that both have, such as Docker's, leads nowhere; it is named only if there is no other.
    own = {address.local for one in near.all for address in one.of(family)}
    others = {address: name for address, name in found.items() if address not in own}
    if not found:
        raise UsageError(
            f"{near} ({', '.join(map(str, iface.of(family)))}) and the "
            f"{target.name} ({_listed(far, family)}) have no IPv{family} network in common",
            hint=f"if it is behind a router, name its address: --link {profile.name}={iface.name}@ADDRESS",
        )
    if len(others) > 1:
        raise UsageError(
            f"the {target.name} has several addresses that {near} reaches: "
            f"{', '.join(f'{address} ({name})' for address, name in others.items())}",
            hint=f"name one: --link {profile.name}={iface.name}@{next(iter(others))}",
        )
    return next(iter(others or found))


def _route_through(side: LinkEnd, destination: str) -> _Route:
    """The route to an address through a side's interface; RequirementError if there is none."""
    # If an interface is given, the kernel assumes that everything is on its link
    # (ip_route_output_key_hash_rcu() in net/ipv4/route.c). Only fibmatch shows whether there is such a route.
    host, iface = side.host, side.iface.name
    asked, family = [destination, "oif", iface], addresses.family_of(destination)
    if not _ask_ip(host, ["route", "get", "fibmatch", *asked], _Route, check=False, family=family):
        raise RequirementError(
            f"the {host.name} has no route to {destination} through {iface}",
            hint=f"try `ip route get {destination}` there, and name the interface it prints",
        )
    return _ask_ip(host, ["route", "get", *asked], _Route, family=family)[0]


def towards(host: Host, address: str) -> str:
    """The interface through which a host sends to an address now. RequirementError if there is no route."""
    found = way(host, address)
    if found is None:
        raise RequirementError(
            f"the {host.name} has no route to {address}",
            hint=f"`ip route get {address}` there says why",
        )
    return found[0]


def to_portal(initiator: Host, profile: LinkProfile, *, index: int, port: int) -> LinkPath:
    """The path to a portal of which only this end is visible, through the interface that ``profile`` names.

    Nothing is changed for it. UsageError if there is no such interface, RequirementError if it is not up or
    leads nowhere.
    """
    portal = profile.portal or ""
    side = _named(initiator, read_interfaces(initiator), profile)
    iface = side.iface
    if not (iface.is_up and (iface.has_carrier or iface.is_loopback)):
        raise RequirementError(f"link {profile.name}: {side} is down, or has no carrier", hint=UNCHANGED)
    address, _ = _source(side, portal)
    return LinkPath(
        profile=profile,
        index=index,
        port=port,
        is_shared=True,
        initiator=initiator,
        target=BlackBoxHost(),
        initiator_iface=iface.name,
        target_iface="",
        initiator_address=address,
        target_address=portal,
    )


# Holding the traffic to them


class OwnAddress(msgspec.Struct, frozen=True):
    """An IPv6 address of the run's own on an interface of the user's (``addresses.unique_local``).

    It is of use at once: nobody else has its network, so nobody is asked whether it is free.
    """

    address: str
    iface: str

    @property
    def _words(self) -> tuple[str, ...]:
        return (f"{self.address}/{addresses.LINK_BITS[IPV6]}", "dev", self.iface)

    def acquire(self, host: Host) -> None:
        host.run(["ip", "-6", "address", "add", *self._words, "nodad"])

    def undo(self) -> tuple[UndoStep, ...]:
        gone = ("Cannot assign requested address", "Cannot find device")
        return (UndoStep(("ip", "-6", "address", "del", *self._words), absent=gone),)


class PolicyRoute(msgspec.Struct, frozen=True):
    """A rule and a table of its own for packets from ``address`` to ``peer``, and for nothing else."""

    address: str
    peer: str
    iface: str
    gateway: str | None
    table: int
    priority: int

    @property
    def _ip(self) -> tuple[str, ...]:
        return links.ip(addresses.family_of(self.peer))

    @property
    def _rule(self) -> tuple[str, ...]:
        ends = ("from", addresses.alone(self.address), "to", addresses.alone(self.peer))
        return (*ends, "lookup", str(self.table), "priority", str(self.priority))

    @property
    def _route(self) -> tuple[str, ...]:
        via = ("via", self.gateway) if self.gateway else ()
        way = ("dev", self.iface, "src", self.address, "table", str(self.table))
        return (addresses.alone(self.peer), *via, *way)

    def acquire(self, host: Host) -> None:
        host.run([*self._ip, "route", "add", *self._route])
        host.run([*self._ip, "rule", "add", *self._rule])

    def undo(self) -> tuple[UndoStep, ...]:
        return (
            UndoStep((*self._ip, "rule", "del", *self._rule), absent=("No such file or directory",)),
            UndoStep(
                (*self._ip, "route", "del", *self._route),
                absent=("No such process", "FIB table does not exist", "Cannot find device"),
            ),
        )


def _arp_sysctls(end: LinkEnd) -> list[Sysctl]:
    """What keeps ARP on its interface, for each interface where it does not do so already.

    IPv6 needs none: a host answers for addresses of the interface that was asked (RFC 4861, section 7.2.3).
    """
    wanted: list[Sysctl] = []
    if end.ip == IPV6:
        return wanted
    for name, (least, value) in ARP.items():
        folders = ["all", end.iface.name, *end.siblings]
        paths = [f"/proc/sys/net/ipv4/conf/{folder}/{name}" for folder in folders]
        # By a program: below /proc/sys/net are the values of the reader's network namespace.
        everywhere, *old = end.host.run(["cat", *paths]).stdout.split()
        for path, found in zip(paths[1:], old, strict=True):
            # The larger of the two counts.
            if sysctls.is_held(end.host, path) or max(int(everywhere), int(found)) < least:
                wanted.append(Sysctl(path, value, found))
    return wanted


def _require_free(host: Host, table: int, priority: int, family: Family) -> None:
    rules = _ask_ip(host, ["rule"], _Rule, family=family)
    taken = [rule for rule in rules if rule.priority == priority or rule.table == str(table)]
    routes = _ask_ip(host, ["route", "show", "table", str(table)], _Route, check=False, family=family)
    if taken or routes:
        raise RequirementError(
            f"expected routing table {table} and rule {priority} of the {host.name} to be free, "
            "but they are in use",
            hint="if a killed run left them, `harness clean` or the next run removes them; see `ip rule`",
        )


@contextlib.contextmanager
def bring_up(
    journal: Journal,
    initiator: Host,
    target: Host,
    profile: LinkProfile,
    *,
    index: int,
    port: int,
    tag: str = "",
) -> Iterator[LinkPath]:
    """Find the ``index``-th link of a run and keep its traffic on it; yields it, ready for traffic.

    ``tag`` is the run's short id: addresses of its own have it. Raises what ``check`` raises, and
    RequirementError if the traffic cannot be kept on the interfaces.
    """
    with contextlib.ExitStack() as stack:
        if has_own_addresses(profile):
            ends = stack.enter_context(_addressed(journal, initiator, target, profile, tag=tag, index=index))
        else:
            ends = _find_ends(initiator, target, profile)
        near, far = ends
        for side, end in enumerate(ends):
            if end.siblings or end.chosen != end.iface.name:
                table, priority = (first + 2 * index + side for first in (TABLE, PRIORITY))
                _require_free(end.host, table, priority, end.ip)
                route = PolicyRoute(end.address, end.peer, end.iface.name, end.gateway, table, priority)
                stack.enter_context(journal.hold(end.host, route))
                if (chosen := end.chosen) != end.iface.name:
                    raise RequirementError(
                        f"expected packets of the {end.host.name} from {end.address} to {end.peer} to leave "
                        f"through {end.iface.name}, but they go "
                        f"{f'through {chosen}' if chosen else 'nowhere'}",
                        hint="a routing rule of higher priority, perhaps a VPN's, sends them there: see "
                        "`ip rule`, and stop the VPN",
                    )
            for sysctl in _arp_sysctls(end) if end.siblings else ():
                stack.enter_context(sysctls.held(journal, end.host, sysctl))
        if near.siblings or far.siblings:
            for end in ends:
                # An earlier entry may name the wrong interface. A new request also informs the peer (RFC 826:
                # the receiver of a request updates what it knows of the sender).
                flush = ("neigh", "flush", "to", end.gateway or end.peer, "dev", end.iface.name)
                end.host.run([*links.ip(end.ip), *flush])
        yield LinkPath(
            profile=profile,
            index=index,
            port=port,
            is_shared=True,
            initiator=initiator,
            target=target,
            initiator_iface=near.iface.name,
            target_iface=far.iface.name,
            initiator_address=near.address,
            target_address=far.address,
        )


@contextlib.contextmanager
def _addressed(
    journal: Journal, initiator: Host, target: Host, profile: LinkProfile, *, tag: str, index: int
) -> Iterator[tuple[LinkEnd, LinkEnd]]:
    """Give the interfaces of both sides addresses of the run's own, for as long as the context lasts."""
    own = [addresses.unique_local(tag, index, number) for number in (1, 2)]
    network = f"{addresses.unique_local(tag, index, 0)}/{addresses.LINK_BITS[IPV6]}"
    with contextlib.ExitStack() as stack:
        ends = []
        sides = _find_pair(initiator, target, profile)
        for side, address, peer in zip(sides, own, reversed(own), strict=True):
            words = ["route", "show", "root", network]
            if _ask_ip(side.host, words, _Route, family=IPV6):
                raise RequirementError(
                    f"expected no route of the {side.host.name} into the run's own network {network}, found "
                    "one",
                    hint="if a killed run left it, `harness clean` or the next run removes it",
                )
            stack.enter_context(journal.hold(side.host, OwnAddress(address, side.iface.name)))
            ends.append(replace(side, address=address, peer=peer))
        yield ends[0], ends[1]


# What an interface is


KINDS = ("bridge", "bond", "vlan")
NO_ERRORS = ("bytes", "packets", "multicast")


def describe(host: Host, iface: str) -> dict[str, object]:
    """An interface as the kernel, and ethtool(8) if it is installed, report it now.

    ``kind`` (ethernet, wifi, bridge, bond, vlan, virtual), ``mtu_bytes``, ``errors`` (counters since the
    interface was made), ``speed_mbit_s``, ``duplex`` (full, half), ``driver``, ``firmware``, ``offloads`` (by
    name: on, off). What is not reported is left out. CommandFailed if there is no such interface.
    """
    found: dict[str, object] = {}
    for device in _ask_ip(host, ["-s", "link", "show", "dev", iface], Interface):
        wifi = is_wireless(host, iface)
        found |= {"kind": "wifi" if wifi else _kind(device), "mtu_bytes": device.mtu}
        found["errors"] = {
            f"{direction}_{name}": value
            for direction, values in msgspec.structs.asdict(device.stats64).items()
            for name, value in values.items()
            if name not in NO_ERRORS
        }
    found |= ethtool.settings(_ethtool(host, iface))
    found |= ethtool.driver(_ethtool(host, "-i", iface))
    found["offloads"] = ethtool.offloads(_ethtool(host, "-k", iface))
    return {name: value for name, value in found.items() if value not in (None, {})}


def _kind(device: Interface) -> str:
    kind = device.linkinfo.info_kind
    if not kind and device.link_type == "ether":
        return "ethernet"
    return kind if kind in KINDS else "virtual"


def _ethtool(host: Host, *words: str) -> str:
    """ethtool's output; empty if it is not installed, or fails."""
    with contextlib.suppress(RequirementError):
        return host.run(["ethtool", *words], check=False).stdout
    return ""
