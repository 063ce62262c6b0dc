"""What kinds of protection share that are an interface over a link, with its own addresses.

A path that is protected so has its portal at the address of that interface. The link below keeps its
addresses, which carry the protected packets and nothing of the portal's. At both ends a *fail-closed policy*
is in force before the interface is made and after it is gone (``protection.fail_closed``), for the addresses
above and those below.
"""

from __future__ import annotations

import abc
import contextlib
import dataclasses
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import msgspec

from harness.analysis import theory
from harness.hosts import Host, programs
from harness.hosts.journal import Breaks, Journal
from harness.hosts.undo import UndoStep
from harness.model import ENDS, IPV6, End, addresses
from harness.model.errors import RequirementError
from harness.model.protections import PROTECTIONS
from harness.network import links
from harness.network.links import LinkPath
from harness.protection import xfrm_listener
from harness.protection.fail_closed import AllowOutbound, InterfaceFailClosed, UnreachableRoute
from harness.protection.kind import Attempt, ProtectionContext, Underlay
from harness.protection.layer import Carried, Due, EndCounts, Layer, Said, Tally, due_by_number
from harness.protection.xfrm_listener import ListenerReport, XfrmListeners
from harness.storage import requests

FIRST = 128
"""Of the last numbers of the addresses: a link's own, and those of its hops, are below."""


class OverlayInterface(msgspec.Struct, frozen=True):
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

    def undo(self) -> tuple[UndoStep, ...]:
        return (UndoStep(("ip", "link", "del", "dev", self.name), absent=("Cannot find device",)),)


CUSTOM_KERNEL = "the custom kernel has it: `harness kernel build`, then --lab-kernel custom"


def require(host: Host, modules: Sequence[str], title: str, *, hint: str = CUSTOM_KERNEL) -> None:
    """RequirementError if a host's kernel does not have what it takes."""
    for module in modules:
        if host.run(["modprobe", module], check=False).status != 0:
            raise RequirementError(
                f"{title} needs the module {module}, which the {host.name}'s kernel does not have", hint=hint
            )


def trial(host: Host, name: str, modules: Sequence[str], interface: str) -> tuple[Attempt, ...]:
    """To make an interface, by lines for sh(1), in a network namespace with which it goes."""
    title = PROTECTIONS[name].title

    def make() -> str:
        require(host, modules, title)
        host.run(["unshare", "--net", "sh", "-euc", interface])
        return f"an interface of {title}"

    return ((title, make),)


def name(tag: str, path: LinkPath, level: int) -> str:
    """Of the interface at both ends: ``level`` counts those below it on the same link."""
    return f"h{tag}{'wxyz'[level]}{path.index}"


def inner_path(path: LinkPath, *, tag: str, level: int) -> LinkPath:
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
    """Keep fail-closed policies at both ends, for the portal's traffic between the addresses of a path."""
    with contextlib.ExitStack() as stack:
        for end, host, _, _, peer in links.ends(path):
            stack.enter_context(journal.hold(host, InterfaceFailClosed(end, peer, path.port)))
            if path.ip == IPV6:
                stack.enter_context(journal.hold(host, UnreachableRoute(addresses.pair_of(peer))))
        yield


def open_up(path: LinkPath) -> None:
    """Give the interfaces at the ends of an overlay their addresses. CommandFailed if nothing comes back."""
    for end in ENDS:
        open_end(path, end)
    reach(path)


def open_end(path: LinkPath, end: End) -> None:
    """One of them; nothing is sent."""
    _, host, iface, own, _ = links.ends(path)[ENDS.index(end)]
    links.settle(host, iface, path.ip)
    host.run(
        ["ip", "-batch", "-"],
        input=f"{links.adding(own, addresses.PAIR_BITS[path.ip], iface)}link set dev {iface} up\n",
    )


@contextlib.contextmanager
def passing(journal: Journal, path: LinkPath) -> Iterator[None]:
    """Let the portal's traffic pass by the interfaces at the ends of an overlay, for as long as they are."""
    with contextlib.ExitStack() as stack:
        for end, host, iface, _, peer in links.ends(path):
            stack.enter_context(journal.hold(host, AllowOutbound(end, peer, path.port, iface)))
        yield


PROGRAM = "interface"
"""Of a kind's folder ``programs``: an end of its interface."""


def ask(
    host: Host, what: str, *, room: str = __package__, program: str = "overlay", **request: object
) -> dict[str, Any]:
    """Have a package's program do something on a host; its answer."""
    refused = f"the {host.name}'s kernel refused to {what} {request['interface']}"
    return requests.reported(host, requests.step(room, program, what, **request), refused)


def reach(path: LinkPath) -> None:
    """Have a packet go from the initiator to the target, and one come back."""
    ask(
        path.initiator,
        "reach",
        interface=path.initiator_iface,
        own=path.initiator_address,
        peer=path.target_address,
        port=xfrm_listener.CLOSED_PORT,
    )


@dataclass(frozen=True, kw_only=True)
class Overlay(abc.ABC):
    """A kind of protection that is an interface of its own, ``NAME`` for the kernel and in columns.

    Of what the kernel counts for each packet, ``SEALED_BYTES`` are not the packet's own, and the interface
    counts up to ``HEADER_BYTES`` more than the packet. It is bound to the one below, or routing decides.
    """

    run: ProtectionContext

    NAME: ClassVar[str]
    ROOM: ClassVar[str]
    """Its package, whose ``PROGRAM`` reports what an end has carried."""
    IS_BOUND: ClassVar[bool]
    SEALED_BYTES: ClassVar[int]
    HEADER_BYTES: ClassVar[int]

    def words(self, path: LinkPath, end: End, /) -> tuple[str, ...]:
        """What ip-link(8) is given of its interface at an end, over that of a path. Nothing is run yet."""
        del path, end
        return ()

    @abc.abstractmethod
    def keyed(self, underlay: Underlay, within: LinkPath, /) -> contextlib.AbstractContextManager[Breaks]:
        """The interfaces are up and have keys, for as long as the context lasts; what can break them."""

    @abc.abstractmethod
    def agreed(self, reports: Sequence[ListenerReport], underlay: Underlay, /) -> dict[str, str]:
        """What holds between the ends, for the record. CommandFailed if it is not what was asked for."""

    @staticmethod
    def said(reports: Sequence[ListenerReport], /) -> Iterable[Said]:
        """As ``Layer.said``."""
        del reports
        return ()

    @staticmethod
    def due(before: Tally, after: Tally, one_in: int, /) -> Due:
        return due_by_number(before, after, one_in)

    @classmethod
    @contextlib.contextmanager
    def watched(
        cls, below: LinkPath, within: LinkPath, raw: Path, breaks: Breaks = dict
    ) -> Iterator[OverlayLayer]:
        """The layer of interfaces that are up."""
        words = [
            (iface, under, below.ip)
            for (_, _, iface, *_), (_, _, under, *_) in zip(
                links.ends(within), links.ends(below), strict=True
            )
        ]
        source = programs.source(cls.ROOM, PROGRAM)
        with xfrm_listener.started(within, source, words, raw, cls.NAME) as watchers:
            yield OverlayLayer(kind=cls, below=below, inner=within, watchers=watchers, breaks=breaks)

    @contextlib.contextmanager
    def protect(self, underlay: Underlay) -> Iterator[OverlayLayer]:
        made, below, journal = PROTECTIONS[self.NAME], underlay.below, self.run.journal
        for host in (below.initiator, below.target):
            require(host, (self.NAME,), made.title)
        within = inner_path(below, tag=self.run.plan.tag, level=underlay.level)
        mtu_bytes = made.inner_mtu_bytes(underlay.mtu_bytes)
        words = {end: self.words(below, end) for end in ENDS}
        with contextlib.ExitStack() as stack:
            stack.enter_context(closed(journal, within))
            for (end, host, iface, *_), (_, _, under, *_) in zip(
                links.ends(within), links.ends(below), strict=True
            ):
                over = under if self.IS_BOUND else ""
                stack.enter_context(
                    journal.hold(host, OverlayInterface(iface, self.NAME, mtu_bytes, over, words[end]))
                )
            breaks = stack.enter_context(self.keyed(underlay, within))
            layer = stack.enter_context(self.watched(below, within, underlay.raw, breaks))
            layer.agreed.update(self.agreed(layer.watchers.look(), underlay), mtu_bytes=str(mtu_bytes))
            yield layer


@dataclass(frozen=True, kw_only=True)
class OverlayLayer(Layer):
    """Interfaces over ``below``, whose path is ``inner``."""

    kind: type[Overlay]
    watchers: XfrmListeners

    @property
    def title(self) -> str:
        return PROTECTIONS[self.kind.NAME].title

    @property
    def header_bytes(self) -> int:
        return self.kind.HEADER_BYTES

    def look(self) -> tuple[EndCounts, ...]:
        return tuple(map(self._look, self.watchers.look()))

    def said(self) -> Iterator[Said]:
        yield from self.kind.said(self.watchers.look())

    def _look(self, report: ListenerReport) -> EndCounts:
        counted = report.carried
        out, into = (
            Carried(packets=packets, bytes=size - packets * self.kind.SEALED_BYTES)
            for packets, size in (
                (counted.tx_packets, counted.tx_bytes),
                (counted.rx_packets, counted.rx_bytes),
            )
        )
        tally = Tally(out=out, into=into, numbers=counted.numbers)
        return EndCounts(before=report.before, tally=tally, after=report.after, snmp=report.snmp)

    def due(self, before: Tally, after: Tally, one_in: int) -> Due:
        return self.kind.due(before, after, one_in)

    def frame_bytes(self, carried: Carried, _fragments: int, header_bytes: int) -> int:
        """Exactly: the kernel counts padding as well, and nothing is split."""
        made = PROTECTIONS[self.kind.NAME]
        around = made.around_bytes + (theory.IP_HEADER_BYTES[self.below.ip] if made.has_ip else 0)
        return carried.bytes + carried.packets * (header_bytes + around)
