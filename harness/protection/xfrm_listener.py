"""Xfrm listeners at both ends of a protected path: what ESP carried and what was blocked, by the kernel's
counters.

Each is a program on its host (``programs/xfrm_listener.py``) that lives as long as the path and starts no
process when it is asked. A security association that a rekey replaces (RFC 7296, section 1.3.3) takes its
counters with it. The xfrm listener hears from the kernel what it had carried when it ended, so sums continue
over any number of rekeys.
"""

from __future__ import annotations

import contextlib
import itertools
import signal
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import msgspec

from harness.hosts import Daemon, Host, programs
from harness.hosts.runner import await_condition, tail
from harness.model.errors import CommandFailed
from harness.network import links
from harness.network.links import LinkPath
from harness.protection.layer import Carried

ANSWER_DEADLINE_S = 10.0
START_DEADLINE_S = 20.0

T = TypeVar("T")

REQID = 0x48000000
"""With the path's index added: marks charon's policies and states as the run's."""

ANY_PORT = 0
CLOSED_PORT = 9
"""A port of the initiator that the target's canary tries. Discard (RFC 863); it does not matter whether it is
open."""


class SaCounters(msgspec.Struct, frozen=True, kw_only=True):
    """One xfrm state (an SA of one direction), or the kernel's last report of it if it has ``ended``.

    ``bytes`` are what it protects, without padding and trailer. ``sequence`` is the number of the last ESP
    packet sent with it (RFC 4303, section 2.2); it means nothing at the receiver. ``missing``: it is gone,
    and the kernel did not report what it had carried. ``cipher_bits`` is the length of its first algorithm's
    key, with its salt, and ``udp_ports`` are the sender's and the receiver's where ESP is in UDP (RFC 3948).
    """

    spi: int
    source: str
    destination: str
    bytes: int
    packets: int
    sequence: int
    algorithms: tuple[str, ...]
    mode: str
    cipher_bits: tuple[int, ...] = ()
    udp_ports: tuple[int, ...] = ()
    ended: bool = False
    missing: bool = False


class OverlayCounters(msgspec.Struct, frozen=True, kw_only=True):
    """What an interface that protects has carried since it was made.

    Packets are what is on the wire, such as UDP datagrams or frames, and bytes what is encrypted of them,
    with what the kernel counts besides. ``numbers`` are those of the last packets sent, by association, where
    the kernel tells them. ``agreed`` is what holds between the ends just now.
    """

    tx_packets: int = 0
    tx_bytes: int = 0
    rx_packets: int = 0
    rx_bytes: int = 0
    numbers: dict[int, int] = {}
    agreed: dict[str, int | bool] = {}


class ListenerReport(msgspec.Struct, frozen=True, kw_only=True):
    """One end at one moment: its interface's line of /proc/net/dev before and after the rest, which is its
    associations, or what an interface over it has ``carried``.

    ``snmp`` are the lines of /proc/net/snmp for IP and TCP, of /proc/net/snmp6 over IPv6, and of
    /proc/net/xfrm_stat for what goes out.
    """

    before: str
    states: tuple[SaCounters, ...] = ()
    carried: OverlayCounters = OverlayCounters()
    after: str
    snmp: str = ""


class ConnectAttempt(msgspec.Struct, frozen=True, kw_only=True):
    """An attempt to connect: the name of its ``error`` (errno(3)), "" if there was none.

    ``blocked`` is how many packets xfrm policies stopped during the attempt (XfrmOutPolBlock); None if the
    kernel does not count them.
    """

    error: str
    blocked: int | None


def sent(states: Iterable[SaCounters], source: str) -> Carried:
    """By their sender. With segmentation offload (``esp4_offload``, or a NIC's) a state counts 64 KiB as one
    packet, with one header; sequence numbers do not (esp_xmit in net/ipv4/esp4_offload.c)."""
    ours = [state for state in states if state.source == source]
    return Carried(
        packets=sum(state.sequence for state in ours),
        bytes=sum(state.bytes for state in ours),
        repeated_headers=sum(max(0, state.sequence - state.packets) for state in ours),
    )


def received(states: Iterable[SaCounters], destination: str) -> Carried:
    """By their receiver."""
    ours = [state for state in states if state.destination == destination]
    return Carried(packets=sum(state.packets for state in ours), bytes=sum(state.bytes for state in ours))


REPORT, TRY_CONNECT, CONVERSE = signal.SIGUSR1, signal.SIGUSR2, signal.SIGURG
"""A request to an xfrm listener."""


@dataclass(kw_only=True)
class XfrmListener:
    """The program at one end, and the file with its answers: a line of JSON each. It began after so many
    ``boots`` of its host."""

    host: Host
    daemon: Daemon
    file: Path
    boots: int = 0
    _read: int = 0
    """How many bytes of the file are answers that have been read."""

    def ask(self, what: int = REPORT) -> None:
        self.daemon.signal(what)

    def begin(self) -> None:
        """Wait until it has started: it gives its first answer unasked."""
        self._answer(ListenerReport, within_s=START_DEADLINE_S, interval_s=0.01)

    def report(self) -> ListenerReport:
        """The answer to ``ask``, or what the interfaces have counted since its host has booted anew, with
        which the program ended. CommandFailed if it has ended otherwise, or does not answer."""
        if self.host.boots != self.boots:
            (devices,) = self.host.read_files(["/proc/net/dev"])
            return ListenerReport(before=devices, after=devices)
        return self._answer(ListenerReport)

    def attempted(self) -> ConnectAttempt:
        """The same for TRY_CONNECT and CONVERSE."""
        return self._answer(ConnectAttempt)

    def _answer(self, kind: type[T], within_s: float | None = None, interval_s: float = 0.002) -> T:
        line = b""

        def has_come() -> bool:
            nonlocal line
            with self.file.open("rb") as stream:
                stream.seek(self._read)
                line = stream.readline()
            return line.endswith(b"\n") or self.daemon.ended()

        what = f"the {self.host.name} to report what its end of the path carried"
        await_condition(has_come, deadline_s=within_s or ANSWER_DEADLINE_S, what=what, interval_s=interval_s)
        if not line.endswith(b"\n"):
            raise CommandFailed(
                f"expected the {self.host.name}'s xfrm listener to run as long as the "
                f"path is up, but it ended: {tail(self.file.with_suffix('.log'))}"
            )
        self._read += len(line)
        return msgspec.json.decode(line, type=kind)


@dataclass(frozen=True, kw_only=True)
class XfrmListeners:
    """The xfrm listeners of a path's ends, the initiator's first. All are asked at the same time."""

    ends: tuple[XfrmListener, ...]

    def begin(self) -> None:
        """Wait until they have started."""
        for each in self.ends:
            each.begin()

    def look(self) -> tuple[ListenerReport, ...]:
        """What the ends have counted by now."""
        for each in self.ends:
            each.ask()
        return tuple(each.report() for each in self.ends)

    def try_connect(self, what: int = TRY_CONNECT) -> tuple[ConnectAttempt, ...]:
        """Make them try to connect like the portal's traffic does, or CONVERSE in clear."""
        for each in self.ends:
            each.ask(what)
        return tuple(each.attempted() for each in self.ends)


def listeners(
    path: LinkPath, folder: Path, reqid: int | None = None
) -> contextlib.AbstractContextManager[XfrmListeners]:
    """Keep an xfrm listener at the ends of a path; their answers stay in ``folder`` as raw output. ``reqid``
    is that of the associations, by default the run's own."""
    near, far = path.initiator_address, path.target_address
    attempts = ((near, ANY_PORT, far, path.port), (far, path.port, near, CLOSED_PORT))
    words = [
        (iface, REQID + path.index if reqid is None else reqid, *attempt)
        for (_, _, iface, _, _), attempt in zip(links.ends(path), attempts, strict=False)
    ]
    source = programs.source(__package__, "xfrm_listener")
    return started(path, source, words, folder, "xfrm_listener")


@contextlib.contextmanager
def started(
    path: LinkPath, source: str, words: Sequence[Sequence[object]], folder: Path, stem: str
) -> Iterator[XfrmListeners]:
    """Run a program at the ends of a path, with these arguments, until the context ends."""
    with contextlib.ExitStack() as stack:
        all_ends = XfrmListeners(
            ends=tuple(
                stack.enter_context(_listener(host, source, each, folder, f"{stem}-{host.name}"))
                for (_, host, *_), each in zip(links.ends(path), words, strict=True)
            )
        )
        # Only now: each takes a while to start.
        all_ends.begin()
        yield all_ends


@contextlib.contextmanager
def _listener(
    host: Host, source: str, words: Sequence[object], folder: Path, stem: str
) -> Iterator[XfrmListener]:
    number = next(n for n in itertools.count(1) if not (folder / f"{stem}-{n}.jsonl").exists())
    file = folder / f"{stem}-{number}.jsonl"
    with host.daemon(
        [programs.PYTHON, "-I", "-S", "-c", source, *map(str, words)],
        log=file.with_suffix(".log"),
        output=file,
        ready=lambda: True,
        deadline_s=START_DEADLINE_S,
    ) as daemon:
        yield XfrmListener(host=host, daemon=daemon, file=file, boots=host.boots)
