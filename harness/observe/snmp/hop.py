"""Switches, routers and appliances that answer SNMP: the counters of their interfaces, and nothing else.

Net-SNMP's programs ask by numbers, so no MIB is needed. Community or user are in the user's own
snmp.conf(5), so that no secret passes through here. Sources: IF-MIB (RFC 2863), sysUpTime (RFC 3418).
"""

from __future__ import annotations

import contextlib
import itertools
import math
import os
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence

import msgspec

from harness.hosts import packages, runner
from harness.hosts.remote import explain
from harness.model import temporary
from harness.model.errors import HopLost, RequirementError, UsageError
from harness.model.escape import printable
from harness.model.telemetry import InterfaceUse
from harness.observe.counters import COUNT, LOOPBACK, Counted

IF, IFX = ".1.3.6.1.2.1.2.2.1.", ".1.3.6.1.2.1.31.1.1.1."
"""ifEntry, whose counters have 32 bits, and ifXEntry, whose counters have 64."""

NAME, STATUS, SPEED, DISCONTINUITY = f"{IFX}1", f"{IF}8", f"{IFX}15", f"{IFX}19"
DESCRIPTION, UPTIME = ".1.3.6.1.2.1.1.1.0", ".1.3.6.1.2.1.1.3.0"
UP = "1"

COUNTERS: Mapping[str, tuple[str, ...]] = {
    "rx_bytes": (f"{IFX}6",),
    "rx_packets": (f"{IFX}7", f"{IFX}8", f"{IFX}9"),  # unicast, multicast, broadcast
    "tx_bytes": (f"{IFX}10",),
    "tx_packets": (f"{IFX}11", f"{IFX}12", f"{IFX}13"),
    "drops": (f"{IF}13", f"{IF}19"),  # in, out
    "errors": (f"{IF}14", f"{IF}20"),
}
"""What the fields of ``InterfaceUse`` are the sums of."""

NEEDED = tuple(itertools.chain(*COUNTERS.values()))
AT_ONCE = 3
"""Of how many interfaces the counters are in one answer, so that it fits into one frame."""

WORDS = ("-m", "", "-Oqnta", "-t", "1", "-r", "3")
"""snmpcmd(1): no MIBs; plain values by objects' numbers; four questions within four seconds."""

DEFAULTS = "defVersion 2c\ndefCommunity public\n"
POLL_S = 0.05
LOOK_S = SHORT_S = 1.0
LONGEST_REFRESH_S = 40.0
FULL = 0.95
BETWEEN_FRAMES_BYTES = 20
"""Preamble and gap of Ethernet (IEEE 802.3), which no counter includes."""

SWITCH_ON = (
    "enable SNMP there and allow this machine to query it; if its community is not public, write "
    "`defCommunity NAME` into ~/.snmp/snmp.conf (snmp.conf(5), which has SNMPv3 as well)"
)
FAILURES = (("Unknown host", "check the name"), ("", SWITCH_ON))


class SnmpAddress(msgspec.Struct, frozen=True):
    """Where a hop answers SNMP: ``text`` as typed, ``agent`` as snmpcmd(1) has it. ``interfaces`` are names
    (ifName) or numbers (ifIndex); none are all that are up."""

    text: str
    agent: str
    interfaces: tuple[str, ...]


_ADDRESS = re.compile(
    r"snmp://(?P<host>\[[0-9A-Fa-f:.]+\]|\w[\w.-]*)(?::(?P<port>\d{1,5}))?(?:/(?P<interfaces>[ -~]*))?",
    re.ASCII,
)


def parse(text: str) -> SnmpAddress:
    """An address as typed; UsageError for anything else."""
    match = _ADDRESS.fullmatch(text)
    if match is None or not 0 < int(match["port"] or 161) < 65536:
        raise UsageError(
            f"expected hop as snmp://HOST[:PORT][/INTERFACE,...], found {printable(text)}",
            hint="try --hop snmp://switch.lan",
        )
    host = f"udp6:{match['host']}" if match["host"].startswith("[") else match["host"]
    return SnmpAddress(
        text=text,
        agent=f"{host}:{match['port']}" if match["port"] else host,
        interfaces=tuple(filter(None, (match["interfaces"] or "").split(","))),
    )


class SnmpHop:
    """A hop whose interfaces alone are read, until it is ``lost``: that is why.

    ``refresh_s`` is the longest that its counters stand still: how old an answer may be. ``speeds`` are those
    of the interfaces that are read, in Mbit/s, by name; 0 is unknown.
    """

    def __init__(self, name: str, address: SnmpAddress, environment: Mapping[str, str]) -> None:
        self.name, self.address, self._agent = name, address.text, address.agent
        self._environment = environment
        self.lost: str | None = None
        self.system = printable(self._ask("snmpget", DESCRIPTION).get(DESCRIPTION, ""))
        self._names = {index: name or index for index, name in self._column(NAME).items()}
        status = self._column(STATUS)
        up = [index for index in self._names if status.get(index, UP) == UP]
        named = [self._index_of(each) for each in address.interfaces]
        # All of them tell when counters are renewed; questions come in by any.
        everything = list(dict.fromkeys((*named, *up)))
        now = self._read(everything)
        counting = [i for i in everything if all(f"{oid}.{i}" in now for oid in NEEDED)]
        self._interfaces = named or [index for index in counting if self._names[index] != LOOPBACK]
        if not self._interfaces or not {*named} <= {*counting}:
            raise RequirementError(
                f"the {name} ({self.address}) answers, but without 64-bit counters of interfaces (IF-MIB)",
                hint="allow SNMP version 2c or 3 and all of mib-2 there, or leave this hop out",
            )
        self.speeds = {self._names[i]: now.get(f"{SPEED}.{i}", 0) for i in self._interfaces}
        self.refresh_s = self._measured_refresh_s(everything)

    @property
    def freshness(self) -> str:
        """For people: how old its counters may be, and what to do about it."""
        advice = f": try --runtime {math.ceil(self.refresh_s)}s or more" if self.refresh_s > SHORT_S else ""
        return f"its counters may be {self.refresh_s:.1f} s old{advice}"

    @property
    def facts(self) -> Mapping[str, object]:
        return {
            "system": self.system,
            "refresh_s": round(self.refresh_s, 2),
            "speeds_mbit_s": self.speeds,
        }

    @property
    def summary(self) -> str:
        known = (
            printable(name) + (f" ({speed} Mbit/s)" if speed else "") for name, speed in self.speeds.items()
        )
        return f"answers SNMP: {self.system}; {self.freshness}; interfaces: {', '.join(known)}"

    def watch(self) -> Callable[[], Counted]:
        """Begin to watch; the returned function says by how much interfaces grew. HopLost if that is unknown.

        Nothing is counted that lasts less long than counters may be old.
        """
        began_s = time.monotonic()
        first = self._settled()
        settled_s = time.monotonic()

        def done() -> Counted:
            lasted_s = time.monotonic() - settled_s
            if max(lasted_s, SHORT_S) < self.refresh_s:
                raise self._gone(f"was watched for {lasted_s:.1f} s, but {self.freshness}")
            last = self._settled()
            if restarted(first.get(UPTIME, 0), last.get(UPTIME, 0), time.monotonic() - began_s):
                raise self._gone("was restarted in the meantime")
            uses = []
            for index in self._interfaces:
                grown = difference(index, first, last)
                if grown is not None and any(grown.values()):
                    uses.append(InterfaceUse(host=self.name, interface=self._names[index], **grown))
            warnings = [text for use in uses for text in doubts(use, self.speeds[use.interface], lasted_s)]
            return Counted(interfaces=tuple(uses), warnings=tuple(warnings))

        return done

    def _index_of(self, interface: str) -> str:
        for index, name in self._names.items():
            if interface in (name, index):
                return index
        raise RequirementError(
            f"expected the interface {printable(interface)} at the {self.name} ({self.address}), found "
            f"{', '.join(map(printable, self._names.values())) or 'none'}",
            hint="name one of these (ifName), or its number (ifIndex), or none for all that are up",
        )

    def _measured_refresh_s(self, interfaces: Sequence[str]) -> float:
        """How long counters stand still: they count the questions, too."""
        changes: list[tuple[float, float]] = []
        began = asked = time.monotonic()
        was = self._read(interfaces)
        while len(changes) < 2 or changes[-1][1] - began < LOOK_S:
            if time.monotonic() - began > LONGEST_REFRESH_S:
                raise RequirementError(
                    f"the counters of the {self.name} ({self.address}) did not change twice within "
                    f"{LONGEST_REFRESH_S:.0f} s, although it was polled all the time",
                    hint="if it is not between the ends, leave it out",
                )
            time.sleep(POLL_S)
            asks = time.monotonic()
            now = self._read(interfaces)
            if {**now, UPTIME: 0} != {**was, UPTIME: 0}:
                changes.append((asked, time.monotonic()))
            was, asked = now, asks
        return max(later - sooner for (sooner, _), (_, later) in itertools.pairwise(changes))

    def _settled(self) -> dict[str, int]:
        """Counters as they are now, or later."""
        # An agent may answer from an old copy, and make a new one only then.
        self._read(self._interfaces)
        time.sleep(self.refresh_s)
        return self._read(self._interfaces)

    def _read(self, interfaces: Sequence[str]) -> dict[str, int]:
        found: dict[str, str] = {}
        for some in (interfaces[i : i + AT_ONCE] for i in range(0, len(interfaces), AT_ONCE)):
            oids = [f"{oid}.{index}" for index in some for oid in (*NEEDED, SPEED, DISCONTINUITY)]
            found |= self._ask("snmpget", UPTIME, *oids)
        return {oid: int(value) for oid, value in found.items() if COUNT.fullmatch(value)}

    def _column(self, oid: str) -> dict[str, str]:
        return {key.removeprefix(f"{oid}."): value for key, value in self._ask("snmpbulkwalk", oid).items()}

    def _ask(self, program: str, *oids: str) -> dict[str, str]:
        if self.lost is not None:
            raise HopLost(self.lost)
        done = runner.run([program, *WORDS, self._agent, *oids], env=self._environment, check=False)
        if done.status != 0:
            lines = (done.stderr or done.stdout).splitlines()
            said = "\n".join(line for line in lines if not line.startswith("Created directory: "))
            raise self._gone(f"was lost: {runner.last_lines(said, 2)}")
        return variables(done.stdout)

    def _gone(self, why: str) -> HopLost:
        self.lost = f"the {self.name} ({self.address}) {printable(why)}"
        return HopLost(self.lost)


def variables(text: str) -> dict[str, str]:
    """Values by objects' numbers, as in ``.1.3.6.1.2.1.31.1.1.1.1.2 "gi2"``, but not absent ones."""
    lines = (line.partition(" ") for line in text.splitlines() if line.startswith(".1."))
    absent = ("No Such ", "No more variables ")
    return {oid: value.strip().strip('"') for oid, _, value in lines if not value.startswith(absent)}


def difference(index: str, first: Mapping[str, int], last: Mapping[str, int]) -> dict[str, int] | None:
    """By how much an interface's counters grew, by the fields of ``InterfaceUse``; None if that is unknown.

    They wrap around (RFC 2578, section 7.1.6): one that would have gone half way round was set back.
    """
    if first.get(f"{DISCONTINUITY}.{index}") != last.get(f"{DISCONTINUITY}.{index}"):
        return None
    grown = dict.fromkeys(COUNTERS, 0)
    for name, oid in ((name, f"{oid}.{index}") for name, oids in COUNTERS.items() for oid in oids):
        size = 1 << (64 if oid.startswith(IFX) else 32)
        step = (last[oid] - first[oid]) % size if oid in first and oid in last else size
        if step >= size // 2:
            return None
        grown[name] += step
    return grown


def restarted(first: int, last: int, within_s: float) -> bool:
    """Whether sysUpTime (in 10 ms) went back, or on by more than time did: it wraps around after 497 days."""
    return (last - first) % (1 << 32) > 200 * within_s + 1000


def doubts(use: InterfaceUse, speed_mbit_s: int, lasted_s: float) -> Iterator[str]:
    """Warnings about an interface that dropped packets, or was full all the time."""
    what = f"the {use.host}'s interface {printable(use.interface)}"
    if use.drops:
        yield f"packets dropped: {use.drops} by {what}"
    ways = ((use.rx_bytes, use.rx_packets, "received"), (use.tx_bytes, use.tx_packets, "sent"))
    for octets, packets, did in ways:
        mbit_s = 8e-6 * (octets + BETWEEN_FRAMES_BYTES * packets) / lasted_s
        # Beyond it, that speed is made up: Net-SNMP says 10 of what has none.
        if FULL * speed_mbit_s <= mbit_s <= (2 - FULL) * speed_mbit_s:
            yield f"interface full: {what} {did} {mbit_s:.0f} of {speed_mbit_s} Mbit/s"


@contextlib.contextmanager
def connect(address: SnmpAddress, *, name: str) -> Iterator[SnmpHop]:
    """A hop while the context lasts. RequirementError if it does not answer, or not with what is needed."""
    packages.require("snmp")
    with temporary.folder() as folder:
        # Later folders count more (snmp_config(5)). What the programs keep goes with this one.
        (folder / "snmp.conf").write_text(DEFAULTS, encoding="utf-8")
        own = os.path.expanduser("~/.snmp")  # noqa: PTH111 -- that of Path raises where there is no home
        users = os.environ.get("SNMPCONFPATH") or f"/etc/snmp:/usr/share/snmp:{own}"
        environment = {"SNMPCONFPATH": f"{folder}:{users}", "SNMP_PERSISTENT_DIR": str(folder)}
        try:
            hop = SnmpHop(name, address, environment)
        except HopLost as lost:
            said = lost.message.partition("was lost: ")[2]
            raise explain(f"{name} ({address.text})", said, FAILURES) from lost
        yield hop
