"""What WireGuard and MACsec have in common: an interface over a link, with addresses of its own.

A path that is protected so has its portal at the address of that interface. The link below keeps its
addresses, which carry the protected packets and nothing of the portal's. At both ends a *barrier* stands
before the interface is made and after it is gone (``protection.barrier``), for the addresses above and those
below.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from harness.hosts import Host, programs
from harness.hosts.journal import Journal
from harness.hosts.undo import Step
from harness.model import IPV6, End, Family, addresses
from harness.model.errors import CommandFailed, RequirementError
from harness.model.protections import PROTECTIONS
from harness.network import links
from harness.network.links import LinkPath
from harness.protection import layer
from harness.protection.answers import Answers, BothEnds, started
from harness.protection.barrier import Barrier, NoOtherWay, Passage
from harness.protection.kind import Attempt
from harness.protection.layer import Due, Tally

FIRST = 128
"""Of the last numbers of the addresses: a link's own, and those of its hops, are below."""

CLOSED_PORT = 9
"""Discard (RFC 863); whether it is open does not matter."""


class Interface(msgspec.Struct, frozen=True):
    """A network interface of a kind that ip-link(8) knows, with the words that it takes. It is down.

    ``below`` is the interface that it is bound to, "" if routing decides.
    """

    name: str
    kind: str
    mtu_bytes: int
    below: str = ""
    words: tuple[str, ...] = ()

    def acquire(self, host: Host) -> None:
        over = ["link", self.below] if self.below else []
        host.run(
            ["ip", "link", "add", *over, "name", self.name, "mtu", str(self.mtu_bytes)]
            + ["type", self.kind, *self.words]
        )

    def undo(self) -> tuple[Step, ...]:
        return (Step(("ip", "link", "del", "dev", self.name), absent=("Cannot find device",)),)


def require(path: LinkPath, modules: Sequence[str], title: str) -> None:
    """RequirementError if a kernel at the ends of a path does not have what it takes."""
    for _, host, *_ in links.ends(path):
        require_on(host, modules, title)


def require_on(host: Host, modules: Sequence[str], title: str) -> None:
    for module in modules:
        if host.run(["modprobe", *module.split()], check=False).status != 0:
            raise RequirementError(
                f"{title} needs the module {module}, which the {host.name}'s kernel does not have",
                hint="the lab's own kernel has it: `harness kernel build`, then --lab-kernel own",
            )


def trial(host: Host, name: str, modules: Sequence[str], interface: str) -> tuple[Attempt, ...]:
    """To make an interface, by lines for sh(1), in a network namespace with which it goes."""
    title = PROTECTIONS[name].title

    def make() -> str:
        require_on(host, modules, title)
        host.run(["unshare", "--net", "sh", "-euc", interface])
        return f"an interface of {title}"

    return ((title, make),)


def name(tag: str, path: LinkPath, level: int) -> str:
    """Of the interface at both ends: ``level`` counts those below it on the same link."""
    return f"h{tag}{'wxyz'[level]}{path.index}"


def inside(path: LinkPath, *, tag: str, level: int) -> LinkPath:
    """The path that the portal's traffic takes: it ends at the interfaces of an overlay on ``path``."""
    first = FIRST + 4 * level
    iface = name(tag, path, level)
    return dataclasses.replace(
        path,
        is_shared=False,
        initiator_iface=iface,
        target_iface=iface,
        initiator_address=addresses.of(path.ip, path.index, first + 1),
        target_address=addresses.of(path.ip, path.index, first + 2),
    )


def peer_of(end: End) -> End:
    return "target" if end == "initiator" else "initiator"


@contextlib.contextmanager
def closed(journal: Journal, path: LinkPath) -> Iterator[None]:
    """Keep barriers at both ends, for the portal's traffic between the addresses of a path."""
    with contextlib.ExitStack() as stack:
        for end, host, _, _, peer in links.ends(path):
            stack.enter_context(journal.hold(host, Barrier(end, peer, path.port)))
            if path.ip == IPV6:
                stack.enter_context(journal.hold(host, NoOtherWay(addresses.pair_of(peer))))
        yield


def open_up(path: LinkPath) -> None:
    """Give the interfaces at the ends of an overlay their addresses. CommandFailed if nothing comes back."""
    bits = addresses.PAIR_BITS[path.ip]
    for _, host, iface, own, _ in links.ends(path):
        links.settle(host, iface, path.ip)
        host.run(
            ["ip", "-batch", "-"],
            input=f"{links.adding(own, bits, iface)}link set dev {iface} up\n",
        )
    reach(path)


@contextlib.contextmanager
def passing(journal: Journal, path: LinkPath) -> Iterator[None]:
    """Let the portal's traffic pass by the interfaces at the ends of an overlay, for as long as they are."""
    with contextlib.ExitStack() as stack:
        for end, host, iface, _, peer in links.ends(path):
            stack.enter_context(journal.hold(host, Passage(end, peer, path.port, iface)))
        yield


def ask(host: Host, what: str, **request: object) -> dict[str, Any]:
    """Have ``programs/overlay.py`` do something on a host; its answer."""
    text = msgspec.json.encode(request).decode()
    argv = [programs.PYTHON, "-I", "-S", "-c", programs.source(__package__, "overlay"), what]
    done = host.run(argv, input=text, check=False)
    if done.status != 0:
        words = done.stderr.strip().splitlines() or ["it said nothing"]
        raise CommandFailed(f"the {host.name}'s kernel refused to {what} {request['interface']}: {words[-1]}")
    answer: dict[str, Any] = msgspec.json.decode(done.stdout)
    return answer


def reach(path: LinkPath) -> None:
    """Have a packet go from the initiator to the target, and one come back."""
    ask(
        path.initiator,
        "reach",
        interface=path.initiator_iface,
        own=path.initiator_address,
        peer=path.target_address,
        port=CLOSED_PORT,
    )


# What was carried


class Carried(msgspec.Struct, frozen=True, kw_only=True):
    """What an interface has carried since it was made, by the counters of what protects.

    For WireGuard packets are UDP datagrams, handshakes as well, and bytes their payload. For MACsec they are
    frames that were encrypted, or decrypted and found valid, and bytes what is encrypted of them. ``numbers``
    are those of the last packets sent, by association; WireGuard's kernel does not tell them. ``agreed`` is
    what holds between the ends just now.
    """

    tx_packets: int
    tx_bytes: int
    rx_packets: int
    rx_bytes: int
    numbers: dict[int, int]
    agreed: dict[str, int | bool]


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """One end at one moment; the line of /proc/net/dev of the interface below, before and after.

    ``snmp`` are the lines of /proc/net/snmp for IP and TCP.
    """

    before: str
    carried: Carried
    after: str
    snmp: str = ""


class Watcher(Answers[Report]):
    """The watcher at one end."""

    PROGRAM = "watcher to watch its protected interface"
    SUBJECT = "protected interface has"
    REPORT = Report


@dataclass(frozen=True, kw_only=True)
class Watchers(BothEnds[Report]):
    """Those of a path."""

    def carried(self) -> tuple[Carried, Carried]:
        near, far = self.look()
        return near.carried, far.carried


@dataclass(frozen=True, kw_only=True)
class OverlayLayer:
    """Interfaces over ``below``, whose path is ``within``.

    Of what the kernel counts for each packet, ``sealed_bytes`` are not the packet's own; on the link it takes
    ``around_bytes`` more than the packet, and the interface above counts up to ``header_bytes`` more.
    """

    title: str
    below: LinkPath
    within: LinkPath
    watchers: Watchers
    sealed_bytes: int
    around_bytes: int
    header_bytes: int
    due_of: Callable[[Tally, Tally, int], Due]
    agreed: dict[str, str]

    def look(self) -> tuple[layer.Look, layer.Look]:
        near, far = self.watchers.look()
        return self._look(near), self._look(far)

    def _look(self, report: Report) -> layer.Look:
        counted = report.carried
        out, into = (
            layer.Carried(packets=packets, bytes=size - packets * self.sealed_bytes)
            for packets, size in (
                (counted.tx_packets, counted.tx_bytes),
                (counted.rx_packets, counted.rx_bytes),
            )
        )
        tally = Tally(out=out, into=into, numbers=counted.numbers)
        return layer.Look(before=report.before, tally=tally, after=report.after, snmp=report.snmp)

    def due(self, before: Tally, after: Tally, one_in: int) -> Due:
        return self.due_of(before, after, one_in)

    def frame_bytes(self, carried: layer.Carried, _fragments: int, header_bytes: int) -> int:
        """Exactly: the kernel counts padding as well, and nothing is split."""
        return carried.bytes + carried.packets * (header_bytes + self.around_bytes)


@contextlib.contextmanager
def watchers(below: LinkPath, path: LinkPath, kind: str, folder: Path) -> Iterator[Watchers]:
    """Keep a watcher at both ends of an overlay; ``below`` is its link. Answers stay as raw output."""
    with contextlib.ExitStack() as stack:
        near, far = (
            stack.enter_context(_watcher(host, kind, iface, under, below.ip, folder))
            for (_, host, iface, _, _), (_, _, under, _, _) in zip(
                links.ends(path), links.ends(below), strict=True
            )
        )
        yield Watchers(initiator=near, target=far).begin()


@contextlib.contextmanager
def _watcher(
    host: Host, kind: str, iface: str, below: str, family: Family, folder: Path
) -> Iterator[Watcher]:
    words = {"kind": kind, "interface": iface, "below": below, "ip": family}
    request = msgspec.json.encode(words).decode()
    source = programs.source(__package__, "overlay")
    with started(host, source, ("watch", request), folder, f"{kind}-{host.name}") as (daemon, file):
        yield Watcher(name=host.name, daemon=daemon, file=file)
