"""How much other programs took of the machines that a run measured on, and what follows for its figures.

Pure functions: two samples of a machine's counters, and what happened between them. ``observe.interference``
takes the samples. docs/results.md derives the formula and the threshold.

Sources: proc(5) on ``schedstat`` (Documentation/scheduler/sched-stats.rst) and ``stat``;
Documentation/accounting/psi.rst; Documentation/admin-guide/cgroup-v2.rst on ``cpu.stat``.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Protocol, TypeVar

import msgspec

from harness.model import Plan, Setting, Status
from harness.model.telemetry import BackgroundLoad
from harness.model.texts import Prose

THRESHOLD = 0.10
"""A measurement of which other programs took a larger part is disturbed. So an unmarked figure is within 15 %
of its undisturbed value: it loses at most what was taken, plus up to a quarter of that for caches that must
be filled again, plus the few percent by which undisturbed repeats differ."""

LOST_OF_TAKEN = 1.5
"""A throughput loses at most so much of the part that was taken (0.15 at the threshold)."""

HYPERTHREAD = 0.5
"""The most that a busy hyperthread takes from the other one of its core: each has an equal share."""


LEAST_SLEEP_NS = 10_000_000
"""No machine sleeps for less. A sleep is the difference of two clocks, between whose readings others may have
had the processor."""

STOOD_STILL = "stood still"
"""In the causes that are suspensions, and in no other."""


class AnyRecord(Protocol):
    """The record of a cell or of a probe."""

    @property
    def run_id(self) -> str: ...

    @property
    def status(self) -> Status: ...

    @property
    def setting(self) -> Setting: ...

    @property
    def background_load(self) -> tuple[BackgroundLoad, ...]: ...


R = TypeVar("R", bound=AnyRecord)


class Disturbed(msgspec.Struct, frozen=True):
    """The part of a measurement that other programs took, and who took it, in words."""

    share: float
    cause: Prose


class Core(msgspec.Struct, frozen=True, kw_only=True):
    """A processor that programs of the run are bound to, with its counters since some moment before.

    ``ran_ns`` and ``waited_ns`` are sums over these programs. ``siblings`` is the number of the core's other
    hyperthreads that the run does not use, and ``siblings_idle_ns`` the sum of their idle times.
    """

    number: int
    idle_ns: int
    stolen_ns: int
    ran_ns: int
    waited_ns: int
    siblings: int = 0
    siblings_idle_ns: int = 0
    paces: int = 0
    pace_sum: float = 0.0
    best_pace: float = 0.0


class MachineSample(msgspec.Struct, frozen=True, kw_only=True):
    """A machine at one moment: its counters since it started. None: the machine does not have this counter.

    ``at_ns`` and ``until_ns`` are times of its monotonic clock; ``until_ns`` is written last, so a sample in
    which it differs was read while it was written. ``idle_ns`` is the sum over all processors; ``stolen_ns``
    is one value for each processor, or one for all if ``cores`` have their own. ``ours_ns`` is the explained
    processor time: that of the run's own programs, and the kernel's too if the run is on the machine's own
    kernel. ``cores`` are empty if the run's programs are not bound to any. ``still_ns`` is for how long, in
    all, the machine slept or the run was stopped.
    """

    at_ns: int
    processors: int
    idle_ns: int
    stolen_ns: tuple[int, ...]
    ours_ns: int
    cores: tuple[Core, ...] = ()
    pressure_ns: int | None = None
    throttled_ns: int | None = None
    is_hyperthreaded: bool = False
    still_ns: int = 0
    until_ns: int


def between(
    first: MachineSample, last: MachineSample, hosts: Sequence[str], busy: float = 1.0
) -> BackgroundLoad | None:
    """What other programs took between two samples of one machine; None if no time has passed.

    ``busy`` is in which part of the time the run's own kernel was, 0 to 1. The rest of the time in which its
    process ran, it waited for its next timer.
    """
    wall_ns = last.at_ns - first.at_ns
    if wall_ns <= 0:
        return None
    # A hypervisor may take back what it said (proc(5)).
    stolen = [max(0, b - a) / wall_ns for a, b in zip(first.stolen_ns, last.stolen_ns, strict=False)]
    pressure, throttled = (
        None if a is None or b is None else (b - a) / wall_ns
        for a, b in ((first.pressure_ns, last.pressure_ns), (first.throttled_ns, last.throttled_ns))
    )
    # In units of one processor's time. Idle time is exact; the times of tasks are sampled by ticks.
    unexplained = last.processors - (last.idle_ns - first.idle_ns + last.ours_ns - first.ours_ns) / wall_ns
    others = max(0.0, unexplained - sum(stolen))
    use = BackgroundLoad(
        hosts=tuple(hosts),
        wall_ns=wall_ns,
        cores=last.processors,
        stolen=max(stolen, default=None),
        throttled=throttled,
        used=min(1.0, others / last.processors),
        pressure=pressure,
        suspended_ns=max(0, last.still_ns - first.still_ns),
    )
    was = {core.number: core for core in first.cores}
    cores = [_on_core(was[core.number], core, use, busy) for core in last.cores if core.number in was]
    return max(cores, key=lambda core: core.taken or 0.0) if cores else _anywhere(use, last)


def _on_core(first: Core, last: Core, use: BackgroundLoad, busy: float) -> BackgroundLoad:
    """For a run bound to a core: how long it waited, but no longer than other programs used the core."""
    wall_ns = use.wall_ns
    stolen_ns = max(0, last.stolen_ns - first.stolen_ns)
    waited_ns = last.waited_ns - first.waited_ns
    # The rest of the core's time is other programs', including what a hypervisor took. The run's programs
    # also wait for one another, each time that one hands the core to the next: any longer wait is of that
    # kind.
    others_ns = max(0, wall_ns - (last.idle_ns - first.idle_ns) - (last.ran_ns - first.ran_ns))
    held_ns = (use.throttled or 0.0) * wall_ns
    idle = (last.siblings_idle_ns - first.siblings_idle_ns) / wall_ns
    sibling_busy = max(0.0, 1 - idle / last.siblings) if last.siblings else None
    slowed = None
    if last.best_pace and (paces := last.paces - first.paces):
        pace = (last.pace_sum - first.pace_sum) / paces / last.best_pace
        slowed = max(0.0, 1 - pace)
    # The loss to a shared core is known if its pace was measured; otherwise it is at most half of the core.
    shared_ns = HYPERTHREAD * (sibling_busy or 0.0) * wall_ns
    if slowed is not None:
        shared_ns = slowed * min(last.ran_ns - first.ran_ns, busy * wall_ns)
    taken = (min(waited_ns + stolen_ns, others_ns + held_ns) + shared_ns) / wall_ns
    return msgspec.structs.replace(
        use,
        taken=min(1.0, taken),
        waited=min(1.0, waited_ns / wall_ns),
        stolen=stolen_ns / wall_ns,
        sibling_busy=sibling_busy,
        slowed=slowed,
    )


def _anywhere(use: BackgroundLoad, last: MachineSample) -> BackgroundLoad:
    """For a run on any processor: how long any program waited, but no longer than other programs ran."""
    others = use.used or 0.0
    # If no counter says who waits, the run meets other programs as often as they run.
    waited = others if use.pressure is None else use.pressure
    sibling_busy = others if last.is_hyperthreaded else None
    taken = min(waited, others * use.cores) + (use.stolen or 0.0)
    taken += min(use.throttled or 0.0, waited) + HYPERTHREAD * (sibling_busy or 0.0)
    return msgspec.structs.replace(
        use, taken=min(1.0, taken), waited=min(1.0, waited), sibling_busy=sibling_busy
    )


def stood_still_ns(use: BackgroundLoad) -> int:
    """For how long a machine slept, or the run on it was stopped; 0 if that is unknown."""
    found = use.suspended_ns or 0
    return found if found >= LEAST_SLEEP_NS else 0


def is_idle(others: Iterable[BackgroundLoad]) -> bool:
    """Whether all machines have room for a run: a processor that no other program needs or slows."""
    return all(
        not stood_still_ns(use)
        and max(use.stolen or 0.0, use.slowed or 0.0) <= THRESHOLD
        and (1 - (use.used or 0.0)) * use.cores >= 1 - THRESHOLD
        for use in others
    )


def lost(use: BackgroundLoad) -> float | None:
    """The most that a run can have lost of a machine, 0 to 1; None: unknown."""
    if not stood_still_ns(use):
        return use.taken
    return max(use.taken or 0.0, min(1.0, stood_still_ns(use) / max(1, use.wall_ns)))


def worst(record: AnyRecord) -> BackgroundLoad | None:
    """The machine that lost most; None if nothing is known."""
    known = [
        (part, number) for number, use in enumerate(record.background_load) if (part := lost(use)) is not None
    ]
    # A suspension is the graver cause, however short it was.
    suspended = [(part, number) for part, number in known if stood_still_ns(record.background_load[number])]
    return record.background_load[max(suspended or known)[1]] if known else None


def share(record: AnyRecord) -> float | None:
    """The part of a measurement that other programs took, or for which it was suspended, 0 to 1; None:
    unknown.

    Virtual time stands still while other programs have the processor.
    """
    if record.setting.is_virtual:
        return 0.0
    return max((part for use in record.background_load if (part := lost(use)) is not None), default=None)


def undisturbed(throughput: float, record: AnyRecord) -> tuple[float, float]:
    """The least and the most that a throughput would be if no other program had taken anything; the most is
    infinite if that is unknown."""
    part = share(record)
    left = 0.0 if part is None else 1 - LOST_OF_TAKEN * part  # unknown, like the part
    return throughput, throughput / left if left > 0 else math.inf


def is_disturbed(record: AnyRecord) -> bool:
    """Whether other programs took too much of a measurement for its figure to be used, or it was suspended.

    An unknown share does not: records of other tools and of older versions have no monitoring.
    """
    if record.setting.is_virtual:
        return False
    part = share(record)
    return part is not None and (part > THRESHOLD or any(map(stood_still_ns, record.background_load)))


def counting(records: Iterable[R]) -> list[R]:
    """The repeats that count: ok and undisturbed. If there are none, all that are ok.

    A repeat of which nothing is known, in a run whose others were watched, is not one of the undisturbed: it
    must not take the place of a figure that is known to be disturbed, nor be used together with a good one.
    """
    found = list(records)
    return quiet(found) or [record for record in found if record.status is Status.OK]


def quiet(records: Iterable[R]) -> list[R]:
    """The repeats that conclusions can be drawn from: ok and undisturbed, as far as their run was watched."""
    found = list(records)
    watched = {record.run_id for record in found if share(record) is not None}
    return [
        record
        for record in found
        if record.status is Status.OK
        and not is_disturbed(record)
        and (share(record) is not None or record.run_id not in watched)
    ]


def most_disturbed(records: Iterable[R]) -> R | None:
    """The record that was disturbed most; one of which nothing is known only if that is so of all."""

    def severity(record: R) -> tuple[bool, float]:
        part = share(record)
        return is_disturbed(record), -1.0 if part is None else part

    return max(records, key=severity, default=None)


def is_final(record: AnyRecord, plan: Plan) -> bool:
    """Whether a measurement need not be repeated."""
    return record.status is Status.OK and not (plan.retries and is_disturbed(record))


def described(record: AnyRecord) -> Disturbed | None:
    """What to say about a figure that counts, if it was disturbed."""
    part = share(record)
    if record.status is not Status.OK or part is None or not is_disturbed(record):
        return None
    return Disturbed(part, cause(record))


def summary(records: Iterable[AnyRecord]) -> str:
    """The worst disturbance of several measurements of one cell; "" if none was disturbed."""
    found = [disturbed for record in records if (disturbed := described(record)) is not None]
    if not found:
        return ""
    worst = max(found, key=lambda disturbed: disturbed.share)
    return f"disturbed: {in_words(worst.share, worst.cause)}"


def in_words(share: float, cause: str) -> str:
    """What was lost of a measurement, with its cause (``cause``)."""
    if STOOD_STILL in cause:
        return cause
    return f"other programs took up to {percent(share)} of the time ({cause})"


def cause(record: AnyRecord) -> str:
    """Who disturbed a measurement: ``other programs used 63 % of the processors``."""
    use = worst(record)
    if use is None:
        return "the cause is unknown"
    where = f"on the {' and '.join(use.hosts)} " if len(record.background_load) > 1 else ""
    if still_ns := stood_still_ns(use):
        time = f"{still_ns / 1e9:.1f} s"
        if use.taken is None:
            return f"{where}the harness {STOOD_STILL} for {time}, or got no processor time: not monitored"
        return f"{where}the run {STOOD_STILL} for {time}: it was stopped, or the machine slept"
    half = (use.taken or 0.0) / 2
    if (use.stolen or 0.0) >= half:
        return f"{where}the hypervisor gave {percent(use.stolen)} of a processor to other machines"
    if (use.throttled or 0.0) >= half:
        return f"{where}the limit of a control group held the run for {percent(use.throttled)} of the time"
    if (use.slowed or 0.0) >= max(half, use.waited or 0.0):
        return f"{where}the processor was {percent(use.slowed)} slower than at its best"
    return f"{where}other programs used {percent(use.used)} of the processors"


def percent(part: float | None) -> str:
    """``63 %``."""
    return f"{100 * (part or 0.0):.0f} %"
