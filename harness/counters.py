"""What kernels count while something is measured: the time of processors, packets of interfaces, energy.

Sources: proc(5), ``stat``; ``dev_seq_printf_stats()`` in net/core/net-procfs.c for /proc/net/dev;
Documentation/power/powercap/powercap.rst and Documentation/hwmon/sysfs-interface.rst for energy.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from harness.beside import InterfaceUse, ProcessorUse
from harness.hosts import Host

STAT, CPUINFO = "/proc/stat", "/proc/cpuinfo"

FIELDS = ("user", "nice", "system", "idle", "iowait", "interrupt", "softirq", "stolen")
"""Of a processor's line in /proc/stat; what follows, guests' time, is in ``user`` already."""

USER_MODE = "User Mode Linux"
"""How a user-mode kernel names its processor. Its timer is a signal, which always meets it "in user mode"."""

MICRO = 1e-6

# Energy counters only: of a power that is told now and then nobody knows what was used between. A package's
# zone has its cores' and memory's in it, and "psys" the packages': the packages alone are added up.
_ENERGY = """
for zone in /sys/class/powercap/*-rapl:[0-9] /sys/class/powercap/*-rapl:[0-9][0-9]; do
    read -r name 2>/dev/null <"$zone/name" && [ "$name" != psys ] && [ -r "$zone/energy_uj" ] || continue
    found=yes
    echo "$zone/energy_uj"
done
[ "$found" ] && exit
for f in /sys/class/hwmon/hwmon*/energy*_input; do
    [ -r "$f" ] && echo "$f"
done
:
"""


@dataclass(frozen=True, kw_only=True)
class Traffic:
    """The counters of one interface at one moment; all 0 for one that is not there."""

    rx_bytes: int = 0
    rx_packets: int = 0
    tx_bytes: int = 0
    tx_packets: int = 0
    drops: int = 0
    errors: int = 0

    def grown(self, later: Traffic, host: str, interface: str) -> InterfaceUse:
        """What came on top until ``later``."""
        return InterfaceUse(
            host=host,
            interface=interface,
            rx_bytes=later.rx_bytes - self.rx_bytes,
            tx_bytes=later.tx_bytes - self.tx_bytes,
            rx_packets=later.rx_packets - self.rx_packets,
            tx_packets=later.tx_packets - self.tx_packets,
            drops=later.drops - self.drops,
            errors=later.errors - self.errors,
        )


NOTHING = Traffic()


def traffic(proc_net_dev: str) -> dict[str, Traffic]:
    """The counters of every interface in /proc/net/dev, by its name."""
    found = {}
    for line in proc_net_dev.splitlines():
        name, colon, rest = line.rpartition(":")
        fields = rest.split()
        if colon and len(fields) >= 12 and all(field.isdecimal() for field in fields):
            count = [int(field) for field in fields]
            found[name.strip()] = Traffic(
                rx_bytes=count[0],
                rx_packets=count[1],
                tx_bytes=count[8],
                tx_packets=count[9],
                errors=count[2] + count[10],
                drops=count[3] + count[11],
            )
    return found


@dataclass(frozen=True, kw_only=True)
class Processors:
    """One kernel at one moment. ``ticks`` are by processor and field, ``total`` those of all processors."""

    at_ns: int
    total: dict[str, int]
    ticks: tuple[dict[str, int], ...]
    interrupts: int | None
    context_switches: int | None
    energy: tuple[int | None, ...] = ()


def processors(proc_stat: str, at_ns: int, energy: Sequence[str] = ()) -> Processors:
    """What /proc/stat and the texts of energy counters (in microjoules) tell."""
    total: dict[str, int] = {}
    each: list[dict[str, int]] = []
    counts: dict[str, int] = {}
    for line in proc_stat.splitlines():
        name, _, rest = line.partition(" ")
        values = [int(word) for word in rest.split() if word.isdecimal()]
        if name == "cpu":
            total = dict(zip(FIELDS, values, strict=False))
        elif re.fullmatch(r"cpu[0-9]+", name):
            each.append(dict(zip(FIELDS, values, strict=False)))
        elif name in ("intr", "ctxt") and values:
            counts[name] = values[0]
    return Processors(
        at_ns=at_ns,
        total=total,
        ticks=tuple(each),
        interrupts=counts.get("intr"),
        context_switches=counts.get("ctxt"),
        energy=tuple(int(text) if text.strip().isdecimal() else None for text in energy),
    )


def processor_use(
    first: Processors, last: Processors, *, hosts: Sequence[str], counts_busy_as_one: bool
) -> ProcessorUse:
    """What the processors did between two moments.

    Parts are None if no tick passed. A counter of energy that went backwards has wrapped around: None.
    """
    part = _parts(first.total, last.total)
    cores = [_parts(a, b) for a, b in zip(first.ticks, last.ticks, strict=False)]
    busiest = [busy for busy in map(_busy, cores) if busy is not None]
    by_kind = {} if counts_busy_as_one else part
    joules = [
        (b - a) * MICRO if a is not None and b is not None and b >= a else None
        for a, b in zip(first.energy, last.energy, strict=False)
    ]
    return ProcessorUse(
        hosts=tuple(hosts),
        wall_ns=last.at_ns - first.at_ns,
        processors=len(last.ticks),
        busy=_busy(part),
        user=by_kind["user"] + by_kind.get("nice", 0.0) if "user" in by_kind else None,
        system=by_kind.get("system"),
        softirq=by_kind.get("softirq"),
        interrupt=by_kind.get("interrupt"),
        stolen=by_kind.get("stolen"),
        idle=part["idle"] + part.get("iowait", 0.0) if "idle" in part else None,
        hottest=max(busiest, default=None),
        interrupts=_difference(first.interrupts, last.interrupts),
        context_switches=_difference(first.context_switches, last.context_switches),
        energy_j=sum(j for j in joules if j is not None) if joules and None not in joules else None,
    )


def _parts(first: dict[str, int], last: dict[str, int]) -> dict[str, float]:
    # iowait may go backwards by a little (proc(5)).
    grown = {field: max(0, last[field] - first.get(field, 0)) for field in last}
    ticks = sum(grown.values())
    return {field: value / ticks for field, value in grown.items()} if ticks else {}


def _busy(part: dict[str, float]) -> float | None:
    return max(0.0, 1 - part["idle"] - part.get("iowait", 0.0)) if "idle" in part else None


def _difference(first: int | None, last: int | None) -> int | None:
    return None if first is None or last is None else last - first


@dataclass(frozen=True, kw_only=True)
class Kernel:
    """A kernel of the run: the hosts that it is, and where it counts energy."""

    host: Host
    names: tuple[str, ...]
    counts_busy_as_one: bool
    energy: tuple[str, ...]

    def look(self) -> Processors:
        stat, *energy = self.host.read_files([STAT, *self.energy])
        return processors(stat, time.monotonic_ns(), energy)


def kernels(hosts: Sequence[Host], *, energy: bool = True) -> tuple[Kernel, ...]:
    """The kernels behind these hosts, each once; ``energy``: with its counters, which a program looks for."""
    by_kernel: dict[object, list[Host]] = {}
    for host in hosts:
        by_kernel.setdefault(host.kernel, []).append(host)
    return tuple(
        Kernel(
            host=same[0],
            names=tuple(dict.fromkeys(host.name for host in same)),
            counts_busy_as_one=USER_MODE in same[0].read_files([CPUINFO])[0],
            energy=tuple(same[0].run(["sh", "-c", _ENERGY], check=False).stdout.split()) if energy else (),
        )
        for same in by_kernel.values()
    )


def watch(seen: Sequence[Kernel]) -> Callable[[], tuple[ProcessorUse, ...]]:
    """Begin to watch kernels; what is returned says what their processors did until it is called."""
    before = [kernel.look() for kernel in seen]

    def done() -> tuple[ProcessorUse, ...]:
        return tuple(
            processor_use(
                first, kernel.look(), hosts=kernel.names, counts_busy_as_one=kernel.counts_busy_as_one
            )
            for kernel, first in zip(seen, before, strict=True)
        )

    return done
