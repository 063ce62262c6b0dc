"""One sample of the processors of the machine that it runs on: whose time is accounted for, and who waited.

    interference.py PROC [NAMESPACE...]

PROC is where a procfs with all of the machine's processes is mounted. It prints one JSON object, with the
fields of ``disturbance.MachineSample``. For how long the machine slept is the difference of two of its clocks
(clock_gettime(2), CLOCK_BOOTTIME). Explained is what the kernel does by itself (interrupts, its threads), and
what is done in the named process namespaces, which are the run's own (``pid:[4026531836]``). Times are in
nanoseconds, and as fine as the machine counts them: ticks, mostly of 10 ms (proc(5), stat).
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

TICK_NS = 10**9 // os.sysconf("SC_CLK_TCK")
KERNEL_THREAD = 0x00200000
"""PF_KTHREAD of a process's flags (include/linux/sched.h)."""

SMT = "/sys/devices/system/cpu/smt/active"
CGROUPS = Path("/sys/fs/cgroup")


def read(path: str | Path) -> str:
    """A file's text, "" if it cannot be read. Hundreds are read per second: open() would take twice as
    long."""
    parts = []
    try:
        file = os.open(path, os.O_RDONLY)
        try:
            while part := os.read(file, 1 << 16):
                parts.append(part)
        finally:
            os.close(file)
    except OSError:
        return ""
    return b"".join(parts).decode("utf-8", "replace")


def processors(proc: str) -> tuple[list[list[int]], int]:
    """User, nice, system, idle, iowait, irq, softirq, steal of each processor in ticks; and how many there
    are."""
    lines = [line.split() for line in read(f"{proc}/stat").splitlines()]
    each = [[int(word) for word in words[1:9]] for words in lines if words and words[0][:3] == "cpu"]
    return each[1:], max(1, len(each) - 1)


def explained_ticks(proc: str, ours: list[str]) -> int:
    """Ticks of all kernel threads, and of all processes in the run's namespaces, with their ended
    children."""
    ticks = 0
    for name in os.listdir(proc):  # noqa: PTH208 -- a Path for each process would take longer than the rest
        if not name.isdecimal():
            continue
        text = read(f"{proc}/{name}/stat")
        # Its name, in brackets, may contain blanks and brackets. After it comes field 3, the state.
        fields = text.rpartition(")")[2].split()
        if len(fields) < 15:
            continue
        if int(fields[6]) & KERNEL_THREAD:
            ticks += int(fields[11]) + int(fields[12])
        elif namespace(proc, name) in ours:
            ticks += sum(int(field) for field in fields[11:15])
    return ticks


def namespace(proc: str, name: str) -> str:
    try:
        return str(Path(f"{proc}/{name}/ns/pid").readlink())
    except OSError:
        return ""


def pressure_ns() -> int | None:
    """The time in which any program waited for a processor: ``some avg10=0.00 ... total=MICROSECONDS``."""
    first = read("/proc/pressure/cpu").partition("\n")[0]
    total = first.rpartition("total=")[2]
    return 1000 * int(total) if total.isdecimal() else None


def throttled_ns() -> int | None:
    """The time in which control groups (version 2) held this program's processes back; None: no such
    groups."""
    group = next((line[3:] for line in read("/proc/self/cgroup").splitlines() if line[:3] == "0::"), None)
    if group is None:
        return None
    place, found = CGROUPS / group.lstrip("/"), None
    for folder in (place, *place.parents):
        if not folder.is_relative_to(CGROUPS):
            break
        for line in read(folder / "cpu.stat").splitlines():
            name, _, value = line.partition(" ")
            if name == "throttled_usec" and value.isdecimal():
                found = (found or 0) + 1000 * int(value)
    return found


def look(proc: str, *ours: str) -> dict[str, Any]:
    at_ns = time.monotonic_ns()
    each, count = processors(proc)
    interrupts = sum(ticks for times in each for ticks in times[5:7])
    return {
        "at_ns": at_ns,
        "processors": count,
        "idle_ns": TICK_NS * sum(ticks for times in each for ticks in times[3:5]),
        "stolen_ns": [TICK_NS * sum(times[7:8]) for times in each],
        "ours_ns": TICK_NS * (interrupts + explained_ticks(proc, list(ours))),
        "pressure_ns": pressure_ns(),
        "throttled_ns": throttled_ns(),
        "is_hyperthreaded": read(SMT).strip() == "1",
        # Slept since it started. Others may have the processor between the readings of its clocks, so the
        # largest of several is the nearest.
        "still_ns": max(
            time.clock_gettime_ns(time.CLOCK_BOOTTIME) - time.clock_gettime_ns(time.CLOCK_MONOTONIC)
            for _ in range(3)
        ),
        "until_ns": at_ns,
    }


if __name__ == "__main__":
    sys.stdout.write(json.dumps(look(*sys.argv[1:])) + "\n")
