"""What is measured beside a cell or a probe: round trips, processors, interfaces, and what others took.

Types alone, no work.

What a machine lacks, or a kernel cannot tell, is None here and "n/a" in every table, never 0.
"""

from __future__ import annotations

import msgspec

from harness.model.ranges import Amount, Count


class RoundTrips(msgspec.Struct, frozen=True, kw_only=True):
    """Echo requests (RFC 792), one every ``interval_ns``; times of those that were answered.

    ``payload_bytes`` is what each carried behind its ICMP header. Percentiles are of the single replies,
    None where the tool printed a summary alone; all times are None if nothing came back.
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

    ``hosts`` are all hosts of the run that are this kernel: what each of them used is not to be had.
    ``hottest`` is the busy part of the busiest core. ``user`` has nice in it, ``interrupt`` is of hardware,
    ``stolen`` what a hypervisor gave to others. A user-mode kernel counts all busy time as one, so that
    ``user``, ``system``, ``softirq`` and ``interrupt`` are None there. ``energy_j`` is the machine's, by RAPL
    (Documentation/power/powercap) or an energy counter of hwmon.
    """

    hosts: tuple[str, ...]
    wall_ns: Count
    processors: Count
    busy: Amount | None = None
    user: Amount | None = None
    system: Amount | None = None
    softirq: Amount | None = None
    interrupt: Amount | None = None
    stolen: Amount | None = None
    idle: Amount | None = None
    hottest: Amount | None = None
    interrupts: Count | None = None
    context_switches: Count | None = None
    energy_j: Amount | None = None

    @property
    def whose(self) -> str:
        """For people: all hosts that are this kernel."""
        return " and ".join(self.hosts)


class InterfaceUse(msgspec.Struct, frozen=True, kw_only=True):
    """What an interface's counters (/proc/net/dev) grew by, of which drops and errors of both directions.

    Of initiators and target they are those that the path has; of hops all that counted anything meanwhile.
    """

    host: str
    interface: str
    rx_bytes: Count
    tx_bytes: Count
    rx_packets: Count
    tx_packets: Count
    drops: Count
    errors: Count


class Others(msgspec.Struct, frozen=True, kw_only=True):
    """What others had of one machine's processors for ``wall_ns``, as parts of that time: 0 to 1.

    ``hosts`` are all hosts of the run on that machine, which has ``cores`` processors. ``taken`` is the most
    that the run can have lost (``analysis.disturbance``); None: not known. The rest is what it comes from,
    None where the machine does not say: ``waited`` is the time in which the run's programs were ready and did
    not run, ``stolen`` what a hypervisor gave to other machines, ``throttled`` the time in which a limit of
    the run's control group held it back, ``beside`` the time in which others kept the second hyperthreads of
    its cores busy, ``slowed`` by how much its core worked slower than at its best. ``processors`` is what
    other processes had of all processors together, ``pressure`` the time in which anybody on the machine
    waited for a processor (/proc/pressure/cpu).
    """

    hosts: tuple[str, ...]
    wall_ns: Count
    cores: Count
    taken: Amount | None = None
    waited: Amount | None = None
    stolen: Amount | None = None
    throttled: Amount | None = None
    beside: Amount | None = None
    slowed: Amount | None = None
    processors: Amount | None = None
    pressure: Amount | None = None


class Beside(msgspec.Struct, frozen=True, kw_only=True):
    """What was measured beside one cell.

    ``round_trips`` were made just before it on its own path, which was idle then and as protected as it was
    for the cell; ``no_round_trips`` says why there are none. ``processors`` and ``interfaces`` are of the
    time that fio ran, its start and end included, and so is ``others``, one for each machine. ``unseen`` are
    hops of which they are not known, each with the reason. A run without probes has ``others`` alone.
    """

    round_trips: RoundTrips | None = None
    no_round_trips: str | None = None
    processors: tuple[ProcessorUse, ...] = ()
    interfaces: tuple[InterfaceUse, ...] = ()
    others: tuple[Others, ...] = ()
    unseen: dict[str, str] = {}
