"""Witnesses at both ends of a protected path: what ESP carried by the kernel's counters, and what is blocked.

Each is a program on its host (``programs/witness.py``) that lives as long as the path and starts no process
when it is asked. A security association that a rekey replaces (RFC 7296, section 1.3.3) takes its counters
with it. The witness hears from the kernel what it had carried when it ended, so sums continue over any number
of rekeys.
"""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import msgspec

from harness.hosts import Host, programs
from harness.network.links import LinkPath
from harness.protection.answers import Answers, BothEnds, started
from harness.protection.layer import Carried

REQID = 0x48000000
"""With the path's index added: marks charon's policies and states as the run's."""

ANY_PORT = 0
CLOSED_PORT = 9
"""A port of the initiator that the target's bait tries. Discard (RFC 863); it does not matter whether it is
open."""


class Association(msgspec.Struct, frozen=True, kw_only=True):
    """One xfrm state (an SA of one direction), or the kernel's last report of it if it has ``ended``.

    ``bytes`` are what it protects, without padding and trailer. ``sequence`` is the number of the last ESP
    packet sent with it (RFC 4303, section 2.2); it means nothing at the receiver. ``missing``: it is gone,
    and the kernel did not report what it had carried.
    """

    spi: int
    source: str
    destination: str
    bytes: int
    packets: int
    sequence: int
    algorithms: tuple[str, ...]
    mode: str
    ended: bool = False
    missing: bool = False


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """One end at one moment: its associations, and its interface's line of /proc/net/dev before and after.

    ``snmp`` are the lines of /proc/net/snmp for IP and TCP.
    """

    before: str
    states: tuple[Association, ...]
    after: str
    snmp: str


class Knock(msgspec.Struct, frozen=True, kw_only=True):
    """An attempt to connect: the name of its ``error`` (errno(3)), "" if there was none.

    ``blocked`` is how many packets xfrm policies stopped during the attempt (XfrmOutPolBlock); None if the
    kernel does not count them.
    """

    error: str
    blocked: int | None


def sent(states: Iterable[Association], source: str) -> Carried:
    """By their sender. With segmentation offload (``esp4_offload``, or a NIC's) a state counts 64 KiB as one
    packet, with one header; sequence numbers do not (esp_xmit in net/ipv4/esp4_offload.c)."""
    ours = [state for state in states if state.source == source]
    return Carried(
        packets=sum(state.sequence for state in ours),
        bytes=sum(state.bytes for state in ours),
        repeated_headers=sum(max(0, state.sequence - state.packets) for state in ours),
    )


def received(states: Iterable[Association], destination: str) -> Carried:
    """By their receiver."""
    ours = [state for state in states if state.destination == destination]
    return Carried(packets=sum(state.packets for state in ours), bytes=sum(state.bytes for state in ours))


class Witness(Answers[Report]):
    """The witness at one end."""

    PROGRAM = "witness to watch its security associations"
    SUBJECT = "security associations have"
    REPORT = Report

    def look(self) -> Report:
        self.ask()
        return self.report()

    def knock(self) -> Knock:
        """Make it try to connect like the portal's traffic does."""
        self.daemon.signal(signal.SIGUSR2)
        return self._answer(Knock)


@dataclass(frozen=True, kw_only=True)
class Witnesses(BothEnds[Report]):
    """The witnesses of a path."""

    initiator: Witness
    target: Witness


@contextlib.contextmanager
def witnesses(path: LinkPath, folder: Path) -> Iterator[Witnesses]:
    """Keep a witness at both ends of a path; their answers stay in ``folder`` as raw output."""
    near, far = path.initiator_address, path.target_address
    with contextlib.ExitStack() as stack:
        yield Witnesses(
            initiator=stack.enter_context(
                _witness(path.initiator, folder, path.initiator_iface, path, (near, ANY_PORT, far, path.port))
            ),
            target=stack.enter_context(
                _witness(path.target, folder, path.target_iface, path, (far, path.port, near, CLOSED_PORT))
            ),
        ).begin()


@contextlib.contextmanager
def _witness(
    host: Host, folder: Path, iface: str, path: LinkPath, knocks: tuple[str, int, str, int]
) -> Iterator[Witness]:
    words = map(str, (iface, REQID + path.index, *knocks))
    source = programs.source(__package__, "witness")
    with started(host, source, tuple(words), folder, f"witness-{host.name}") as (daemon, file):
        yield Witness(name=host.name, daemon=daemon, file=file)
