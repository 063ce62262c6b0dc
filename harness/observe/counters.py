"""What kernels count during a measurement: the time of processors, packets of interfaces, energy.

Sources: proc(5), ``stat``; ``dev_seq_printf_stats()`` in net/core/net-procfs.c for /proc/net/dev;
Documentation/power/powercap/powercap.rst and Documentation/hwmon/sysfs-interface.rst for energy.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import partial
from typing import Protocol, TypeVar

from harness.hosts import BOOT_ID, Host, ReadableHost
from harness.model.errors import HopLost
from harness.model.telemetry import InterfaceUse, ProcessorUse

T = TypeVar("T")

STAT, CPUINFO, NET_DEV = "/proc/stat", "/proc/cpuinfo", "/proc/net/dev"
LOOPBACK = "lo"

FIELDS = ("user", "nice", "system", "idle", "iowait", "interrupt", "softirq", "stolen")
"""Fields of a processor's line in /proc/stat. The rest, guests' time, is already part of ``user``."""

USER_MODE = "User Mode Linux"
"""A user-mode kernel's name of its processor. Its timer is a signal, which always arrives "in user mode"."""

MICRO = 1e-6

COUNT = re.compile("[0-9]{1,20}")
"""The largest 64-bit counter; a hop may print anything."""


def _first_of(name: str) -> Callable[[str], int | None]:
    """The first number of the line of a text that begins with ``name``."""
    line = re.compile(rf"^{name} ({COUNT.pattern})\b", re.MULTILINE)
    return lambda text: int(found[1]) if (found := line.search(text)) else None


COUNTS: Mapping[str, tuple[str, Callable[[str], int | None]]] = {
    "interrupts": (STAT, _first_of("intr")),
    "context_switches": (STAT, _first_of("ctxt")),
}
"""The counters of a kernel that are fields of ``ProcessorUse``: the file of each, and how that is read."""

FILES = tuple(dict.fromkeys((STAT, *(file for file, _ in COUNTS.values()))))
"""What is read of each kernel."""

# Energy counters only: occasional readings of power say nothing about the time in between. A package's zone
# includes its cores and memory, and "psys" includes the packages, so only the packages are added up.
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
class InterfaceCounters:
    """The counters of one interface at one moment; all 0 for an absent interface."""

    rx_bytes: int = 0
    rx_packets: int = 0
    tx_bytes: int = 0
    tx_packets: int = 0
    drops: int = 0
    errors: int = 0

    def grown(self, later: InterfaceCounters, host: str, interface: str) -> InterfaceUse:
        """What was added until ``later``: nothing where it counts less, see ``went_back``."""
        return InterfaceUse(
            host=host,
            interface=interface,
            **{name: max(0, count - was) for name, was, count in self._pairs(later)},
        )

    def went_back(self, later: InterfaceCounters) -> bool:
        """Whether ``later`` counts fewer bytes or packets: then that is another interface, or none any more.

        Drops and errors prove nothing: drivers may correct them.
        """
        return any(c < was for name, was, c in self._pairs(later) if name not in ("drops", "errors"))

    def _pairs(self, later: InterfaceCounters) -> Iterator[tuple[str, int, int]]:
        return ((each.name, getattr(self, each.name), getattr(later, each.name)) for each in fields(self))


NOTHING = InterfaceCounters()


def traffic(proc_net_dev: str) -> dict[str, InterfaceCounters]:
    """The counters of every interface in /proc/net/dev, by its name."""
    found = {}
    for line in proc_net_dev.splitlines():
        name, colon, rest = line.rpartition(":")
        fields = rest.split()
        if colon and len(fields) >= 12 and all(map(COUNT.fullmatch, fields)):
            count = [int(field) for field in fields]
            found[name.strip()] = InterfaceCounters(
                rx_bytes=count[0],
                rx_packets=count[1],
                tx_bytes=count[8],
                tx_packets=count[9],
                errors=count[2] + count[10],
                drops=count[3] + count[11],
            )
    return found


def traffic_of(host: ReadableHost) -> dict[str, InterfaceCounters]:
    """The counters of every interface of a host now, by its name."""
    return traffic(host.read_files([NET_DEV])[0])


@dataclass(frozen=True, kw_only=True)
class Processors:
    """One kernel at one moment. ``ticks`` are by processor and field, ``total`` those of all processors;
    ``counts`` are by the names of ``COUNTS``.
    """

    at_ns: int
    total: dict[str, int]
    ticks: tuple[dict[str, int], ...]
    counts: Mapping[str, int | None]
    energy: tuple[int | None, ...] = ()


def processors(texts: Mapping[str, str], at_ns: int, energy: Sequence[str] = ()) -> Processors:
    """Read the texts of ``FILES``, and those of energy counters (in microjoules)."""
    total: dict[str, int] = {}
    each: list[dict[str, int]] = []
    for line in texts[STAT].splitlines():
        name, _, rest = line.partition(" ")
        values = [int(word) for word in rest.split() if COUNT.fullmatch(word)]
        if name == "cpu":
            total = dict(zip(FIELDS, values, strict=False))
        elif re.fullmatch(r"cpu[0-9]+", name):
            each.append(dict(zip(FIELDS, values, strict=False)))
    return Processors(
        at_ns=at_ns,
        total=total,
        ticks=tuple(each),
        counts={name: read(texts.get(file, "")) for name, (file, read) in COUNTS.items()},
        energy=tuple(int(text) if COUNT.fullmatch(text.strip()) else None for text in energy),
    )


def processor_use(
    first: Processors, last: Processors, *, hosts: Sequence[str], counts_busy_as_one: bool
) -> ProcessorUse:
    """What the processors did between two moments.

    Parts are None if no tick passed. An energy counter that went backwards has wrapped around: None.
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
        cores=len(last.ticks),
        busy=_busy(part),
        user=by_kind["user"] + by_kind.get("nice", 0.0) if "user" in by_kind else None,
        system=by_kind.get("system"),
        softirq=by_kind.get("softirq"),
        interrupt=by_kind.get("interrupt"),
        stolen=by_kind.get("stolen"),
        idle=part["idle"] + part.get("iowait", 0.0) if "idle" in part else None,
        busiest_core=max(busiest, default=None),
        energy_j=sum(j for j in joules if j is not None) if joules and None not in joules else None,
        **{name: _difference(first.counts[name], last.counts[name]) for name in COUNTS},
    )


def _parts(first: dict[str, int], last: dict[str, int]) -> dict[str, float]:
    # iowait may go backwards by a little (proc(5)).
    grown = {field: max(0, last[field] - first.get(field, 0)) for field in last}
    ticks = sum(grown.values())
    return {field: value / ticks for field, value in grown.items()} if ticks else {}


def _busy(part: dict[str, float]) -> float | None:
    return max(0.0, 1 - part["idle"] - part.get("iowait", 0.0)) if "idle" in part else None


def _difference(first: int | None, last: int | None) -> int | None:
    """None also for a counter that went backwards, which is another kernel's: that one has booted anew."""
    return None if first is None or last is None or last < first else last - first


class KernelCounters:
    """A kernel of the run: all of its hosts, of which the first is read, and its energy counters."""

    def __init__(self, same: Sequence[ReadableHost], *, energy: bool) -> None:
        self.host = same[0]
        self.names = _names(same)
        self.counts_busy_as_one = USER_MODE in self.host.read_files([CPUINFO])[0]
        self._energy = energy_files(self.host) if energy else ()

    def look(self) -> Processors:
        texts = self.host.read_files([*FILES, *self._energy])
        return processors(dict(zip(FILES, texts, strict=False)), time.monotonic_ns(), texts[len(FILES) :])


@dataclass(frozen=True, kw_only=True)
class Counted:
    """What was counted between two readings. ``interfaces`` are those of the hops, and ``warnings`` about
    them. ``lost_hops`` says, by the name of a hop, why its counters are unknown.
    """

    processors: tuple[ProcessorUse, ...] = ()
    interfaces: tuple[InterfaceUse, ...] = ()
    lost_hops: Mapping[str, str] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()


class InterfaceReader(Protocol):
    """A hop whose interfaces alone can be read."""

    name: str

    def watch(self) -> Callable[[], Counted]:
        """Begin to watch; the returned function says what was counted until it is called. HopLost."""
        ...


class Observer:
    """Reads all kernels of a run, each once, and the interfaces of the hops between its hosts.

    ``energy``: include energy counters, which a program looks for. A lost hop is in ``Counted.lost_hops``
    from then on, and ``tell`` is called once; a lost host raises HostLost.
    """

    def __init__(
        self,
        hosts: Sequence[Host] = (),
        hops: Sequence[ReadableHost | InterfaceReader] = (),
        *,
        energy: bool = True,
        tell: Callable[[str], object] = lambda _text: None,
    ) -> None:
        self._tell = tell
        self._unseen: dict[str, str] = {}
        self._hops: list[ReadableHost | InterfaceReader] = []
        by_kernel: dict[object, list[ReadableHost]] = {}
        places: set[object] = set()
        # The hosts first: a kernel that a hop shares with a host is read through the host.
        for host in (*hosts, *hops):
            if not isinstance(host, ReadableHost):
                self._hops.append(host)
                continue
            found = self._try(partial(_identity, host, with_place=bool(hops)), [host.name])
            if found is None:
                continue
            kernel, place = found
            by_kernel.setdefault(kernel, []).append(host)
            if host in hops and place not in places:
                self._hops.append(host)
            places.add(place)
        tried = [
            self._try(partial(KernelCounters, same, energy=energy), _names(same))
            for same in by_kernel.values()
        ]
        self._kernels = [kernel for kernel in tried if kernel is not None]

    def watch(self) -> Callable[[], Counted]:
        """Begin to watch; the returned function says what was counted until it is called."""
        # Hops are read outside the hosts' interval, so their SSH latency is not counted: first here, last
        # below.
        begun = [(hop.name, self._try(partial(_watch_interfaces, hop), [hop.name])) for hop in self._hops]
        looks = [
            (kernel, kernel.host.boots, self._try(kernel.look, kernel.names))
            for kernel in reversed(self._kernels)
        ]

        def done() -> Counted:
            uses: list[ProcessorUse] = []
            grown: list[Counted] = []
            for kernel, boots, first in reversed(looks):
                last = self._try(kernel.look, kernel.names)
                if first is not None and last is not None and kernel.host.boots == boots:
                    as_one = kernel.counts_busy_as_one
                    uses.append(processor_use(first, last, hosts=kernel.names, counts_busy_as_one=as_one))
            for name, ended in begun:
                if ended is not None and (counted := self._try(ended, [name])) is not None:
                    grown.append(counted)
            return Counted(
                processors=tuple(uses),
                interfaces=tuple(use for each in grown for use in each.interfaces),
                lost_hops=dict(self._unseen),
                warnings=tuple(text for each in grown for text in each.warnings),
            )

        return done

    def _try(self, look: Callable[[], T], names: Sequence[str]) -> T | None:
        """The result of a reading; None for a lost hop."""
        try:
            return look()
        except HopLost as lost:
            if not self._unseen.keys() >= set(names):
                self._tell(f"{lost.message}; its counters are n/a from now on")
            self._unseen |= dict.fromkeys(names, lost.message)
            return None


def _names(hosts: Sequence[ReadableHost]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(host.name for host in hosts))


def kernel_of(host: ReadableHost) -> object:
    """What identifies a host's kernel: one machine may have two names."""
    (boot,) = host.read_files([BOOT_ID])
    return boot.strip() or host.kernel


def _identity(host: ReadableHost, *, with_place: bool) -> tuple[object, object]:
    """What identifies a host's kernel, and its interfaces."""
    kernel = kernel_of(host)
    if not with_place:
        return kernel, None
    namespace = host.run(["readlink", "/proc/self/ns/net"], check=False).stdout.strip()
    return kernel, (kernel, namespace or host.name)


def energy_files(host: ReadableHost) -> tuple[str, ...]:
    """The energy counters of a host that the caller may read."""
    return tuple(host.run(["sh", "-c", _ENERGY], check=False).stdout.split())


def _watch_interfaces(hop: ReadableHost | InterfaceReader) -> Callable[[], Counted]:
    if not isinstance(hop, ReadableHost):
        return hop.watch()
    was = traffic_of(hop)
    return lambda: Counted(interfaces=tuple(_grown(hop.name, was, traffic_of(hop))))


def _grown(
    host: str, first: Mapping[str, InterfaceCounters], last: Mapping[str, InterfaceCounters]
) -> Iterator[InterfaceUse]:
    """The interfaces of a hop that counted anything: it is unknown which of them are on the path.

    An interface that counts less than before was made anew, and is left out.
    """
    for name in sorted(first.keys() & last.keys() - {LOOPBACK}):
        if first[name] != last[name] and not first[name].went_back(last[name]):
            yield first[name].grown(last[name], host, name)
