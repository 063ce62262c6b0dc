"""Causes of odd figures: the clock or governor changed during the measurement, or a processor was saturated.

None of them makes a figure wrong: fio measures by a clock that nobody sets.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import msgspec

from harness.hosts import Host
from harness.model.telemetry import CPU_SATURATED, ProcessorUse

CLOCK_SOURCE = "/sys/devices/system/clocksource/clocksource0/current_clocksource"
GOVERNOR = "/sys/devices/system/cpu/cpu{}/cpufreq/scaling_governor"
MOST_CPUS = 1024
STEP_NS = 1_000_000
"""A larger change means that the clock was set. NTP slews both clocks, and they are read within
microseconds."""


SATURATED = 0.95
"""The busy part of its time from which on a core limits what is measured."""


class Conditions(msgspec.Struct, frozen=True, kw_only=True):
    """A host at one moment. ``clock_offset_ns`` is its time of day minus its monotonic clock.

    ``governors`` are those of its processors (cpufreq), by file; without frequency scaling there are none.
    """

    clock_offset_ns: int
    clock_source: str
    governors: Mapping[str, str]
    boots: int = 0


class ConditionsWatch:
    """Reads the conditions of hosts again and again; of hosts that share a kernel, on one of them."""

    def __init__(self, hosts: Iterable[Host]) -> None:
        self._hosts = list({host.kernel: host for host in hosts}.values())
        self._governors = {host.name: _governor_files(host) for host in self._hosts}

    def look(self) -> dict[str, Conditions]:
        """Each host's conditions now, by its name."""
        found = {}
        for host in self._hosts:
            files = self._governors[host.name]
            source, *governors = host.read_files([CLOCK_SOURCE, *files])
            found[host.name] = Conditions(
                boots=host.boots,
                clock_offset_ns=host.clock_offset_ns(),
                clock_source=source.strip(),
                governors={
                    file: text.strip() for file, text in zip(files, governors, strict=True) if text.strip()
                },
            )
        return found


def changed(before: Mapping[str, Conditions], after: Mapping[str, Conditions]) -> list[str]:
    """Warnings about what has changed, for hosts that are in both."""
    found = []
    for name in sorted(before.keys() & after.keys()):
        was, now = before[name], after[name]
        if now.boots != was.boots:
            continue
        if abs(now.clock_offset_ns - was.clock_offset_ns) > STEP_NS:
            found.append(
                f"clock changed: the {name}'s clock was set, or the machine slept, during the measurement"
            )
        if now.clock_source != was.clock_source:
            found.append(
                f"clock changed: the clock source of the {name}, from {was.clock_source or 'none'} "
                f"to {now.clock_source or 'none'} during the measurement"
            )
        if now.governors != was.governors:
            found.append(
                f"governor changed: on the {name}, from {_named(was)} to {_named(now)} during the measurement"
            )
    return found


def saturated(uses: Iterable[ProcessorUse]) -> list[str]:
    """A warning for each kernel with a core that was almost never idle."""
    return [
        f"{CPU_SATURATED}: a core {_whose(use)} was busy for {100 * SATURATED:.0f} % of the time or more"
        for use in uses
        if use.busiest_core is not None and use.busiest_core >= SATURATED
    ]


def _whose(use: ProcessorUse) -> str:
    return f"that {use.whose} share" if len(use.hosts) > 1 else f"of the {use.whose}"


def _named(conditions: Conditions) -> str:
    return "/".join(sorted(set(conditions.governors.values()))) or "none"


def _governor_files(host: Host) -> Sequence[str]:
    """The existing ones, of all possible processors: ``0-7`` (sysfs, cpu/possible)."""
    (possible,) = host.read_files(["/sys/devices/system/cpu/possible"])
    last = possible.strip().rpartition("-")[2].rpartition(",")[2]
    count = min(int(last) + 1, MOST_CPUS) if last.isdecimal() else 0
    files = [GOVERNOR.format(number) for number in range(count)]
    return [file for file, text in zip(files, host.read_files(files), strict=True) if text]
