"""Tries one case after another; of those that fail it keeps the first of each kind, reduced."""

from __future__ import annotations

import contextlib
import resource
import signal
import time
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from random import Random
from types import FrameType
from typing import Protocol, TypeVar

MOST_CPU_S, LONGEST_S = 10.0, 60.0
"""A case that takes more of the processor's time, or waits for longer, has failed. To be ready to run, while
other programs have the processor, is not to wait."""

LOOK_S = 5.0
"""How often it is asked whether a case waits."""

MOST_MEMORY_KIB = 300 << 10
"""By so much no case may make the process grow."""

MOST_ADDRESSES_BYTES = 4 << 30
"""What the process may take at all, so that a case which takes everything ends in it, and not the machine."""

REDUCTIONS = 60
PACKAGE = Path(__file__).parents[2] / "harness"


class Broken(Exception):
    """Something that a case must not do, and did; ``kind`` is the same for all that do it."""

    def __init__(self, kind: str, found: object = "") -> None:
        super().__init__(f"{kind}: {str(found)[:1000]!r}")
        self.kind = kind


class TooSlow(BaseException):
    """Not an Exception: a case must not be able to pass over it."""


@dataclass(frozen=True)
class Case:
    """What is tried: ``start`` says with what (a sample, a command), ``parts`` what is done to it."""

    start: str
    parts: tuple[object, ...]


class Door(Protocol):
    """A way in. ``draw`` makes a case by chance; ``check`` tries it and raises what is wrong."""

    @property
    def name(self) -> str: ...

    def draw(self, chance: Random) -> Case: ...

    def check(self, case: Case) -> None: ...


@dataclass
class Finding:
    """A kind of failure: where it came from, the words of the first, and the case that it took."""

    kind: str
    words: str
    case: Case
    number: int
    times: int = 0


@dataclass
class Findings:
    """What came of a door."""

    door: str
    cases: int = 0
    seconds: float = 0.0
    most_s: float = 0.0
    """What one case took of the processor at most."""
    findings: dict[str, Finding] = field(default_factory=dict)

    def __str__(self) -> str:
        kinds = f"{len(self.findings)} kinds of failures"
        most = f"at most {self.most_s:.2f} s for one"
        lines = [f"{self.door}: {self.cases} cases in {self.seconds:.0f} s, {most}, {kinds}"]
        for finding in self.findings.values():
            lines += [f"  {finding.kind} ({finding.times} times, first in case {finding.number})"]
            lines += [f"    {line}" for line in finding.words.splitlines()[-3:]]
            lines += [f"    {finding.case}"]
        return "\n".join(lines)


def fuzz(door: Door, *, seed: int, seconds: float, first: int = 0, most: int | None = None) -> Findings:
    """Try cases from the number ``first`` on, for seconds of processor. A number always is the same case."""
    reported, began = Findings(door.name), time.process_time()
    _, hard = resource.getrlimit(resource.RLIMIT_AS)
    most_bytes = MOST_ADDRESSES_BYTES if hard == resource.RLIM_INFINITY else min(MOST_ADDRESSES_BYTES, hard)
    resource.setrlimit(resource.RLIMIT_AS, (most_bytes, hard))
    while (reported.cases < most if most is not None else True) and time.process_time() - began < seconds:
        number = first + reported.cases
        case = drawn(door, seed, number)
        reported.cases += 1
        case_began = time.process_time()
        failed = tried(door, case)
        reported.most_s = max(reported.most_s, time.process_time() - case_began)
        if failed is not None:
            kind, words = failed
            if kind not in reported.findings:
                reported.findings[kind] = Finding(kind, words, reduced(door, case, kind), number)
            reported.findings[kind].times += 1
    reported.seconds = time.process_time() - began
    return reported


def drawn(door: Door, seed: int, number: int) -> Case:
    return door.draw(Random(f"{seed} {door.name} {number}"))  # noqa: S311 (no secret)


def tried(door: Door, case: Case) -> tuple[str, str] | None:
    """The kind of failure and its words; None if all is well."""
    before_kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    try:
        with time_limit():
            door.check(case)
        grown_kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before_kib
        if grown_kib > MOST_MEMORY_KIB:
            raise Broken("takes too much memory", f"{grown_kib} KiB")
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        return _kind(error), "".join(traceback.format_exception_only(error)).strip()
    return None


def _kind(error: BaseException) -> str:
    """An oracle's own kind, or the error and the line of the harness that it came from."""
    if isinstance(error, Broken):
        return error.kind
    frames = traceback.extract_tb(error.__traceback__)
    last = ([frame for frame in frames if Path(frame.filename).is_relative_to(PACKAGE)] or frames)[-1]
    name = Path(last.filename)
    where = name.relative_to(PACKAGE.parent) if name.is_relative_to(PACKAGE.parent) else name
    return f"{type(error).__name__} in {where}:{last.name}"


def _waited_s() -> float:
    """How long this process has neither run nor been ready to, since some time (sched-stats.rst of Linux)."""
    running_ns, ready_ns, _ = map(int, Path("/proc/self/schedstat").read_text(encoding="ascii").split())
    return time.monotonic() - (running_ns + ready_ns) / 1e9


@contextlib.contextmanager
def time_limit() -> Iterator[None]:
    began = _waited_s()

    def over(number: int, _frame: FrameType | None) -> None:
        if number == signal.SIGPROF:
            raise TooSlow(f"over {MOST_CPU_S:g} s of the processor")
        if _waited_s() - began > LONGEST_S:
            raise TooSlow("it waits")

    timers = {
        signal.SIGPROF: (signal.ITIMER_PROF, MOST_CPU_S),
        signal.SIGALRM: (signal.ITIMER_REAL, LOOK_S),
    }
    before = {number: signal.signal(number, over) for number in timers}
    for timer, seconds in timers.values():
        signal.setitimer(timer, seconds, seconds)
    try:
        yield
    finally:
        for number, (timer, _) in timers.items():
            signal.setitimer(timer, 0)
            signal.signal(number, before[number])


def reduced(door: Door, case: Case, kind: str) -> Case:
    """The case without the parts that this kind of failure does not take."""
    left = list(case.parts)
    for part in case.parts[:REDUCTIONS]:
        without = [other for other in left if other is not part]
        failed = tried(door, replace(case, parts=tuple(without)))
        if failed is not None and failed[0] == kind:
            left = without
    return replace(case, parts=tuple(left))


T = TypeVar("T")


def several(chance: Random, make: Callable[[Random], T], most: int = 6) -> tuple[T, ...]:
    """From one to so many, few more often than many."""
    return tuple(make(chance) for _ in range(min(chance.randint(1, most), chance.randint(1, most))))
