"""How much others took of the machines that a run measured on, and what is made of it.

Pure: two looks at a machine, and what happened between them. Who looks is ``observe.neighbours``; what is
shown of it is everybody's. docs/results.md derives the formula and the threshold.

Sources: proc(5) on ``schedstat`` (Documentation/scheduler/sched-stats.rst) and ``stat``;
Documentation/accounting/psi.rst; Documentation/admin-guide/cgroup-v2.rst on ``cpu.stat``.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Protocol, TypeVar

import msgspec

from harness.model import Clock, Plan, Status
from harness.model.beside import Others

THRESHOLD = 0.10
"""Of its time; what was taken more from is disturbed. A figure is to be told apart from its
quiet one by no more than 15 %: it loses at most what was taken, up to a quarter more for caches that have to
be filled again, and a few percent by which quiet repeats differ as well."""

HYPERTHREAD = 0.5
"""The most that a busy hyperthread takes from the other one of its core: their share is equal."""


class Record(Protocol):
    """Of a cell or of a probe."""

    @property
    def status(self) -> Status: ...

    @property
    def clock(self) -> Clock: ...

    @property
    def others(self) -> tuple[Others, ...]: ...


R = TypeVar("R", bound=Record)


class Disturbed(msgspec.Struct, frozen=True):
    """What part of a measurement others took, and who did, in words."""

    share: float
    cause: str


class Core(msgspec.Struct, frozen=True, kw_only=True):
    """A processor that programs of the run are bound to, since some moment before.

    ``ran_ns`` and ``waited_ns`` are of all these programs together. ``siblings`` are the other hyperthreads
    of its core, but for those that are the run's as well, and ``siblings_idle_ns`` is how long they idled,
    added up.
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


class Look(msgspec.Struct, frozen=True, kw_only=True):
    """A machine at one moment: its counters since it started, None for those that it does not have.

    ``at_ns`` is its monotonic clock, and so is ``until_ns``, which ends what is written: one that differs was
    read while it was written. ``idle_ns`` is of all processors together, ``stolen_ns`` of each, or of all
    where ``cores`` have their own. ``ours_ns`` is processor time that is explained: the run's own programs',
    and where the run is on the machine's own kernel also the kernel's. ``cores`` are empty where the run's
    programs are bound to none.
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
    until_ns: int


def between(first: Look, last: Look, hosts: Sequence[str]) -> Others | None:
    """What others took between two looks at one machine; None if no time has passed."""
    wall_ns = last.at_ns - first.at_ns
    if wall_ns <= 0:
        return None
    stolen = [(b - a) / wall_ns for a, b in zip(first.stolen_ns, last.stolen_ns, strict=False)]
    pressure, throttled = (
        None if a is None or b is None else (b - a) / wall_ns
        for a, b in ((first.pressure_ns, last.pressure_ns), (first.throttled_ns, last.throttled_ns))
    )
    # Of one processor's time. Idle time is exact where that of tasks is sampled by ticks.
    unexplained = last.processors - (last.idle_ns - first.idle_ns + last.ours_ns - first.ours_ns) / wall_ns
    others = max(0.0, unexplained - sum(stolen))
    use = Others(
        hosts=tuple(hosts),
        wall_ns=wall_ns,
        cores=last.processors,
        stolen=max(stolen, default=None),
        throttled=throttled,
        processors=min(1.0, others / last.processors),
        pressure=pressure,
    )
    was = {core.number: core for core in first.cores}
    cores = [_on_core(was[core.number], core, use) for core in last.cores if core.number in was]
    return max(cores, key=lambda core: core.taken or 0.0) if cores else _anywhere(use, last)


def _on_core(first: Core, last: Core, use: Others) -> Others:
    """Of a run whose programs are bound to a core: what they waited for others, as far as others had it."""
    wall_ns = use.wall_ns
    stolen_ns = last.stolen_ns - first.stolen_ns
    waited_ns = last.waited_ns - first.waited_ns
    # What is left of the core is others', what a hypervisor took with it. Programs of the run wait for one
    # another as well, each time that one hands the core to the next; what they wait beyond this is that.
    others_ns = max(0, wall_ns - (last.idle_ns - first.idle_ns) - (last.ran_ns - first.ran_ns))
    held_ns = (use.throttled or 0.0) * wall_ns
    idle = (last.siblings_idle_ns - first.siblings_idle_ns) / wall_ns
    beside = max(0.0, 1 - idle / last.siblings) if last.siblings else None
    slowed = None
    if last.best_pace and (paces := last.paces - first.paces):
        pace = (last.pace_sum - first.pace_sum) / paces / last.best_pace
        slowed = max(0.0, 1 - pace)
    # What a core loses to whoever shares it is known where its pace is, and else at most its half.
    shared_ns = HYPERTHREAD * (beside or 0.0) * wall_ns
    if slowed is not None:
        shared_ns = slowed * (last.ran_ns - first.ran_ns)
    taken = (min(waited_ns + stolen_ns, others_ns + held_ns) + shared_ns) / wall_ns
    return msgspec.structs.replace(
        use,
        taken=min(1.0, taken),
        waited=min(1.0, waited_ns / wall_ns),
        stolen=stolen_ns / wall_ns,
        beside=beside,
        slowed=slowed,
    )


def _anywhere(use: Others, last: Look) -> Others:
    """Of a run whose programs are on any processor: what anybody waited, as far as others had processors."""
    others = use.processors or 0.0
    # Where nobody counts who waits, somebody of the run's meets others as often as they are there.
    waited = others if use.pressure is None else use.pressure
    beside = others if last.is_hyperthreaded else None
    taken = min(waited, others * use.cores) + (use.stolen or 0.0)
    taken += min(use.throttled or 0.0, waited) + HYPERTHREAD * (beside or 0.0)
    return msgspec.structs.replace(use, taken=min(1.0, taken), waited=min(1.0, waited), beside=beside)


def is_calm(others: Iterable[Others]) -> bool:
    """Whether there is room for a run on all machines: a processor that nobody else needs or slows."""
    return all(
        max(use.stolen or 0.0, use.slowed or 0.0) <= THRESHOLD
        and (1 - (use.processors or 0.0)) * use.cores >= 1 - THRESHOLD
        for use in others
    )


def worst(record: Record) -> Others | None:
    """The machine from which most was taken; None where nothing is known."""
    known = [use for use in record.others if use.taken is not None]
    return max(known, key=lambda use: use.taken or 0.0, default=None)


def share(record: Record) -> float | None:
    """The part that others took of what a measurement could have had, 0 to 1; None: not known.

    Virtual time stands still while others have the processor.
    """
    if record.clock is Clock.VIRTUAL:
        return 0.0
    use = worst(record)
    return None if use is None else use.taken


def is_disturbed(record: Record) -> bool:
    """Whether others took so much of a measurement that its figure is not to be used."""
    return (share(record) or 0.0) > THRESHOLD


def counting(records: Iterable[R]) -> list[R]:
    """Of repeats those that count: what is ok and was not disturbed. Where all was, none is better."""
    good = [record for record in records if record.status is Status.OK]
    return [record for record in good if not is_disturbed(record)] or good


def quiet(records: Iterable[R]) -> list[R]:
    """Of repeats those that conclusions can be drawn from: ok and not disturbed."""
    return [record for record in records if record.status is Status.OK and not is_disturbed(record)]


def is_final(record: Record, plan: Plan) -> bool:
    """Whether what was measured need not be measured again."""
    return record.status is Status.OK and not (plan.retries and is_disturbed(record))


def told(record: Record) -> Disturbed | None:
    """What is to be said of a figure that counts, if it was disturbed."""
    if record.status is not Status.OK or not is_disturbed(record):
        return None
    return Disturbed(share(record) or 0.0, cause(record))


def summary(records: Iterable[Record]) -> str:
    """Of several measurements of one cell, what disturbed them most; "" for none that was."""
    found = [disturbed for record in records if (disturbed := told(record)) is not None]
    if not found:
        return ""
    worst = max(found, key=lambda disturbed: disturbed.share)
    return f"disturbed: others took up to {percent(worst.share)} of the time ({worst.cause})"


def cause(record: Record) -> str:
    """Who disturbed a measurement: ``other processes had 63 % of the processors``."""
    use = worst(record)
    if use is None or use.taken is None:
        return "it is not known by whom"
    where = f"on the {' and '.join(use.hosts)} " if len(record.others) > 1 else ""
    half = use.taken / 2
    if (use.stolen or 0.0) >= half:
        return f"{where}the hypervisor gave {percent(use.stolen)} of a processor to other machines"
    if (use.throttled or 0.0) >= half:
        return f"{where}the limit of a control group held it back for {percent(use.throttled)} of the time"
    if (use.slowed or 0.0) >= max(half, use.waited or 0.0):
        return f"{where}the processor was {percent(use.slowed)} slower than at its best"
    return f"{where}other processes had {percent(use.processors)} of the processors"


def percent(part: float | None) -> str:
    """``63 %``."""
    return f"{100 * (part or 0.0):.0f} %"
