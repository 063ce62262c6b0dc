"""What is measured during a cell or a probe, its telemetry: round trips, processors, interfaces, and what
other programs took.

``OBSERVED`` has the figures that tables, exports and the page show of it.

What a machine lacks, or a kernel does not report, is None here and "n/a" in every table, never 0.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable
from typing import Literal

import msgspec

from harness.model.ranges import Amount, Count
from harness.model.texts import HostName, InterfaceLabel, Prose
from harness.model.units import format_ns

NOT_STEADY = (
    "not steady: in five parts of the measurement, bandwidth differs by more than 20 % of its mean or "
    "rises or falls by more than 10 % (SNIA PTS)"
)
WARMING_UP = (
    "warming up: bandwidth was steady (SNIA PTS) in the last five seconds, but not over the whole "
    "measurement; give the workload a ramp_time"
)

UNSTEADY = frozenset({NOT_STEADY, WARMING_UP})
"""Doubts that a record has whose bandwidth changed while it was measured."""

CPU_SATURATED = "CPU saturated"
"""What a warning begins with that a core was almost never idle."""


class RoundTrips(msgspec.Struct, frozen=True, kw_only=True):
    """Echo requests (RFC 792), one every ``interval_ns``, and the times of those that were answered; or
    commands of a transport, each sent when the last one was answered (``interval_ns`` is 0).

    ``payload_bytes`` is each one's payload after the ICMP header, or the size of the answer. Percentiles are
    over the single replies, None if the tool printed only a summary. All times are None if nothing came back.
    """

    interval_ns: Count
    payload_bytes: Count
    sent: Count
    received: Count
    min_ns: Amount | None = None
    mean_ns: Amount | None = None
    p50_ns: Amount | None = None
    p99_ns: Amount | None = None
    max_ns: Amount | None = None
    stddev_ns: Amount | None = None

    @property
    def lost_percent(self) -> float | None:
        return 100 * (self.sent - self.received) / self.sent if self.sent else None


class ProcessorUse(msgspec.Struct, frozen=True, kw_only=True):
    """What the processors of one kernel did for ``wall_ns`` (proc(5), stat), as parts of their time: 0 to 1.

    ``hosts`` are all hosts of the run that share this kernel; each one's own use is unknown. ``busiest_core``
    is the busy part of the busiest core. ``user`` includes nice, ``interrupt`` is hardware interrupts,
    ``stolen`` is time that a hypervisor gave to others. A user-mode kernel counts all busy time as one, so
    ``user``, ``system``, ``softirq`` and ``interrupt`` are None there. ``energy_j`` is the machine's, from
    RAPL (Documentation/power/powercap) or an energy counter of hwmon.
    """

    hosts: tuple[HostName, ...]
    wall_ns: Count
    cores: Count
    busy: Amount | None = None
    user: Amount | None = None
    system: Amount | None = None
    softirq: Amount | None = None
    interrupt: Amount | None = None
    stolen: Amount | None = None
    idle: Amount | None = None
    busiest_core: Amount | None = None
    interrupts: Count | None = None
    context_switches: Count | None = None
    energy_j: Amount | None = None

    @property
    def whose(self) -> str:
        """For people: all hosts that share this kernel."""
        return " and ".join(self.hosts)


class InterfaceUse(msgspec.Struct, frozen=True, kw_only=True):
    """By how much an interface's counters (/proc/net/dev, or IF-MIB by SNMP) grew; drops and errors add up
    both directions.

    For initiators and target these are the path's interfaces, for hops all interfaces that counted anything.
    """

    host: HostName
    interface: InterfaceLabel
    rx_bytes: Count
    tx_bytes: Count
    rx_packets: Count
    tx_packets: Count
    drops: Count
    errors: Count


class TcpUse(msgspec.Struct, frozen=True, kw_only=True):
    """One end's tcp_info over all its connections to the portal: how much its counters grew, and its state
    after fio.

    ``busy_ns`` is how long it had unacknowledged data to send; for ``peer_window_ns`` of that the other end's
    window limited it, for ``buffer_ns`` its own send buffer. ``round_trip_ns`` is the smoothed round trip
    (RFC 6298), and ``least_round_trip_ns`` the recent minimum. ``window_bytes`` is the largest receive window
    that it advertises.
    """

    host: HostName
    sent_bytes: Count
    received_bytes: Count
    retransmitted_bytes: Count
    busy_ns: Count
    peer_window_ns: Count
    buffer_ns: Count
    round_trip_ns: Amount | None = None
    least_round_trip_ns: Amount | None = None
    window_bytes: Count | None = None


class BackgroundLoad(msgspec.Struct, frozen=True, kw_only=True):
    """How much of one machine's processors other programs used for ``wall_ns``, as parts of that time: 0 to
    1.

    ``hosts`` are all hosts of the run on that machine, which has ``cores`` processors. ``taken`` is an upper
    bound of what the run lost (``analysis.disturbance``); None: unknown. The other fields are what ``taken``
    is made of, None if the machine does not report them. ``waited`` is the time that the run's programs were
    runnable but not running. ``stolen`` is what a hypervisor gave to other machines. ``throttled`` is the
    time in which a limit of the run's control group held it back. ``sibling_busy`` is the time in which other
    programs kept the second hyperthreads of its cores busy. ``slowed`` is how much slower its core worked
    than at its best. ``used`` is what other processes used of all cores together. ``pressure`` is the time in
    which any program on the machine waited for a processor (/proc/pressure/cpu). ``suspended_ns`` is how long
    the machine slept or the run was stopped; None in older records. With ``taken`` unknown, it is the time
    without monitoring.
    """

    hosts: tuple[HostName, ...]
    wall_ns: Count
    cores: Count
    taken: Amount | None = None
    waited: Amount | None = None
    stolen: Amount | None = None
    throttled: Amount | None = None
    sibling_busy: Amount | None = None
    slowed: Amount | None = None
    used: Amount | None = None
    pressure: Amount | None = None
    suspended_ns: Count | None = None


class Telemetry(msgspec.Struct, frozen=True, kw_only=True):
    """What was measured during one cell, or just before it.

    ``round_trips`` were measured just before it on its own path, idle and with its protection;
    ``no_round_trips`` says why there are none. ``emulation_round_trip_ns`` is what the emulation of its link
    adds to a round trip, the minimum measured so far in the run; None where nothing is emulated, in virtual
    time, in older records, and where it is unknown. ``processors`` and ``interfaces`` cover the time that fio
    ran, including its start and end, and so does ``background_load``, one for each machine. ``tcp`` is of the
    initiators' connections, where ss(8) tells; empty in older records. ``commands`` need no disk (TEST UNIT
    READY of SCSI, Identify Controller of NVMe), and were timed after the cell, the first of its column in
    each of the first rounds; None where both ends share a kernel in real time. ``lost_hops`` are hops for
    which they are unknown, each with the reason. A run without probes has only ``background_load``.
    """

    round_trips: RoundTrips | None = None
    no_round_trips: Prose | None = None
    emulation_round_trip_ns: Amount | None = None
    processors: tuple[ProcessorUse, ...] = ()
    interfaces: tuple[InterfaceUse, ...] = ()
    background_load: tuple[BackgroundLoad, ...] = ()
    tcp: tuple[TcpUse, ...] = ()
    commands: RoundTrips | None = None
    lost_hops: dict[HostName, Prose] = {}


class Unit(enum.Enum):
    """What a figure is given in. A ``PART`` is one of 1."""

    NS = enum.auto()
    PERCENT = enum.auto()
    PART = enum.auto()
    COUNT = enum.auto()

    def shown(self, value: float) -> str:
        match self:
            case Unit.NS:
                return format_ns(value)
            case Unit.PERCENT:
                return f"{value:.3g} %"
            case Unit.PART:
                return f"{value:.0%}"
            case Unit.COUNT:
                return f"{value:.0f}"


class Observed(msgspec.Struct, frozen=True):
    """A figure of a cell's telemetry: its ``name`` for programs, its ``title`` for people,
    in lines that ``|`` ends.

    It is the attribute ``figure`` of each of what ``source`` names in a ``Telemetry``. Counts are added up,
    over places and repeats. Of anything else, the most of all places counts, and the median of the repeats.
    """

    name: str
    title: str
    unit: Unit
    source: Literal["round_trips", "processors", "interfaces"]
    figure: str

    def at(self, telemetry: Telemetry) -> dict[str, float | None]:
        """By place (a kernel, an interface; "" if there is but one); None is unknown."""
        if self.source == "round_trips":
            trips = telemetry.round_trips
            return {} if trips is None else {"": getattr(trips, self.figure)}
        if self.source == "interfaces":
            return {f"{use.host} {use.interface}": getattr(use, self.figure) for use in telemetry.interfaces}
        known = {name for use in telemetry.processors for name in use.hosts}
        lost = dict.fromkeys(name for name in telemetry.lost_hops if name not in known)
        return {use.whose: getattr(use, self.figure) for use in telemetry.processors} | lost

    def joined(self, values: Iterable[float | None]) -> float | None:
        """One value for several places; None if all are unknown."""
        known = [value for value in values if value is not None]
        if not known:
            return None
        return sum(known) if self.unit is Unit.COUNT else max(known)

    def of(self, telemetry: Telemetry) -> float | None:
        return self.joined(self.at(telemetry).values())


BUSIEST_CORE = Observed("busiest_core", "busiest|core", Unit.PART, "processors", "busiest_core")

OBSERVED = (
    Observed("round_trip_p50_ns", "idle round|trip, p50", Unit.NS, "round_trips", "p50_ns"),
    Observed("round_trip_p99_ns", "p99", Unit.NS, "round_trips", "p99_ns"),
    Observed("round_trips_lost_percent", "lost", Unit.PERCENT, "round_trips", "lost_percent"),
    BUSIEST_CORE,
    Observed("all_cores", "all|cores", Unit.PART, "processors", "busy"),
    Observed("drops", "drops", Unit.COUNT, "interfaces", "drops"),
    Observed("errors", "errors", Unit.COUNT, "interfaces", "errors"),
)
"""In the order of columns: an export has them at its end, so new ones come last."""
