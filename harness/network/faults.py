"""What can break on a path, and on which host: interfaces, packets on the way, connections."""

from __future__ import annotations

import ipaddress
from collections.abc import Callable, Sequence
from typing import ClassVar

import msgspec

from harness.hosts import Host
from harness.hosts.journal import Resource
from harness.hosts.undo import UndoStep
from harness.model import ENDS, End, Family, LinkProfile, addresses
from harness.model.errors import RequirementError
from harness.network import links
from harness.network.links import LinkPath
from harness.network.paths.chain import FAR

Places = Sequence[tuple[Host, Resource]]


class LinkDown(msgspec.Struct, frozen=True):
    """An interface that is down. Its addresses stay (``links.QUIET``), and the kernel restores their routes
    (ip-link(8)), but not those through a router: ``routes`` are lines of ip(8) for all that it had."""

    iface: str
    family: Family
    routes: str

    def acquire(self, host: Host) -> None:
        host.run(["ip", "link", "set", "dev", self.iface, "down"])

    def undo(self) -> tuple[UndoStep, ...]:
        up = UndoStep(("ip", "link", "set", "dev", self.iface, "up"))
        return (up, UndoStep((*links.ip(self.family), "-batch", "-"), input=self.routes))


class WorseLink(msgspec.Struct, frozen=True):
    """An interface whose netem loses or delays packets: its parameters ``meanwhile`` and ``before``, without
    the rate, which stays if nobody says it (netem_change() of net/sched/sch_netem.c)."""

    iface: str
    meanwhile: str
    before: str

    def acquire(self, host: Host) -> None:
        host.run(self._change(self.meanwhile))

    def undo(self) -> tuple[UndoStep, ...]:
        return (UndoStep(self._change(self.before)),)

    def _change(self, parameters: str) -> tuple[str, ...]:
        return ("tc", "qdisc", "change", "dev", self.iface, "root", "netem", *parameters.split())


class Reset(msgspec.Struct, frozen=True):
    """The target's end of the portal's connections, which its kernel resets (ss(8), ``--kill``)."""

    peer: str
    port: int

    def acquire(self, host: Host) -> None:
        which = ("dst", addresses.bracketed(self.peer), "sport", "=", f":{self.port}")
        done = host.run(["ss", "--no-header", "--tcp", "--numeric", "--kill", *which])
        if not done.stdout.strip():
            raise RequirementError(
                f"expected a connection from {self.peer} that the {host.name}'s kernel resets, found none",
                hint="it needs CONFIG_INET_DIAG_DESTROY",
            )

    def undo(self) -> tuple[UndoStep, ...]:
        """Nothing to do: who had it connects anew."""
        return ()


class Blocked(msgspec.Struct, frozen=True):
    """What one end drops of a portal's packets, coming ``in`` or going ``out``: a policy before all others of
    the kernel's (ip-xfrm(8)). Nothing else on the machine is touched.

    The kernel has one policy for a selector, whatever its priority: this one's source is an address with its
    neighbour, as nobody else's is. The kernel itself ends it after ``most_s``, whoever has died meanwhile.
    """

    direction: str
    source: str
    destination: str
    port: str
    most_s: int

    PRIORITY: ClassVar[int] = 9_000

    def _policy(self, do: str, *more: str) -> tuple[str, ...]:
        length = ipaddress.ip_address(self.source).max_prefixlen - 1
        source = ipaddress.ip_network(f"{self.source}/{length}", strict=False)
        which = (
            f"src {source} dst {addresses.alone(self.destination)} proto 6 {self.port} dir {self.direction}"
        )
        return ("ip", "xfrm", "policy", do, *which.split(), *more)

    def acquire(self, host: Host) -> None:
        host.run(["modprobe", "--all", "xfrm_user"])
        ends = ("limit", "time-hard", str(self.most_s))
        host.run(self._policy("add", "action", "block", "priority", str(self.PRIORITY), *ends))

    def undo(self) -> tuple[UndoStep, ...]:
        return (UndoStep(self._policy("delete"), absent=("No such file or directory",)),)


def blocked(path: LinkPath, kind: str, most_s: int) -> Places:
    """What one of ``OF_PORTALS`` drops, for so many seconds at most."""
    ends = {name: (host, own, peer) for name, host, _, own, peer in links.ends(path)}
    found = []
    for end, direction in OF_PORTALS[kind]:
        host, own, peer = ends[end]
        source, destination = (peer, own) if direction == "in" else (own, peer)
        port = "dport" if destination == path.target_address else "sport"
        found.append((host, Blocked(direction, source, destination, f"{port} {path.port}", most_s)))
    return found


def _down(host: Host, iface: str, family: Family) -> Places:
    found = host.run([*links.ip(family), "route", "show", "dev", iface]).stdout
    routes = "".join(f"route replace {line.strip()} dev {iface}\n" for line in found.splitlines())
    return [(host, LinkDown(iface, family, routes))]


def _link_down(end: str) -> Callable[[LinkPath], Places]:
    def places(path: LinkPath) -> Places:
        ((host, iface),) = [(host, iface) for name, host, iface, _, _ in links.ends(path) if name == end]
        return _down(host, iface, path.ip)

    return places


def _hop_down(path: LinkPath) -> Places:
    """A hop in the middle, at its interface towards the target."""
    if not path.hops:
        raise RequirementError(
            f"expected a link with hops that hop-down breaks, found {path.profile.name}",
            hint="try --link switched",
        )
    return _down(path.hops[len(path.hops) // 2], FAR, path.ip)


def _losing(percent: float, *senders: str) -> Callable[[LinkPath], Places]:
    """So many packets of these ends are lost at random, besides those that the profile loses."""

    def worse(profile: LinkProfile) -> LinkProfile:
        kept = (1 - profile.loss_percent / 100) * (1 - percent / 100)
        return msgspec.structs.replace(profile, loss_percent=100 * (1 - kept))

    return lambda path: _changed(path, worse, senders)


def _delayed(times: float) -> Callable[[LinkPath], Places]:
    """A round trip so many times as long: that of the profile's delay, and the rest as it is."""
    return lambda path: _changed(
        path, lambda own: msgspec.structs.replace(own, delay_us=own.delay_us * times), ENDS
    )


def _changed(path: LinkPath, worse: Callable[[LinkProfile], LinkProfile], senders: Sequence[str]) -> Places:
    own = msgspec.structs.replace(path.profile, rate_bit_s=None)
    before = links.netem(own) or f"limit {links.QUEUE_PACKETS}"
    meanwhile = links.netem(worse(own)) or before
    return [
        (host, WorseLink(iface, meanwhile, before))
        for end, host, iface, _, _ in links.ends(path)
        if end in senders
    ]


OF_LINKS: dict[str, Callable[[LinkPath], Places]] = {
    "link-down": _link_down("target"),
    "initiator-link-down": _link_down("initiator"),
    "hop-down": _hop_down,
    "loss-1": _losing(1, *ENDS),
    "loss-10": _losing(10, *ENDS),
    "loss-100": _losing(100, *ENDS),
    "loss-100-to-target": _losing(100, "initiator"),
    "loss-100-to-initiator": _losing(100, "target"),
    "delay-10x": _delayed(10),
    "delay-100x": _delayed(100),
}

OF_PORTALS: dict[str, Sequence[tuple[End, str]]] = {
    "link-down": (("target", "in"), ("target", "out")),
    "initiator-link-down": (("initiator", "in"), ("initiator", "out")),
    "loss-100": (("target", "in"), ("initiator", "in")),
    "loss-100-to-target": (("target", "in"),),
    "loss-100-to-initiator": (("initiator", "in"),),
}
"""The same where others use the interfaces: each end that drops the portal's packets, coming in or going
out."""


def require_alone(path: LinkPath, connections: int) -> None:
    """RequirementError if the initiator has more connections to a portal than the run's own: a fault would
    break the others too."""
    to_portal = ("dst", addresses.bracketed(path.target_address), "dport", "=", f":{path.port}")
    listed = path.initiator.run(["ss", "--no-header", "--tcp", "--numeric", "state", "connected", *to_portal])
    if (found := len(listed.stdout.splitlines())) > connections:
        raise RequirementError(
            f"expected the run's own connections to {path.target_address}:{path.port}, {connections}, "
            f"found {found}: a fault would break the others too",
            hint="log the other sessions out, or name another portal of the target",
        )
