"""What would help, and between which rates a cell would then be: operational analysis with one thing changed.

A change is forecast only if it can be made, so that a forecast can be tried (`python bench/remedies.py`).
With N requests in flight, the time between two completions lies between the asymptotic bound and that of mean
value analysis (``analysis.queueing``).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from harness.analysis.limit import Limit
from harness.analysis.queueing import mean_value_ns
from harness.analysis.stations import Demands
from harness.explain.waterfall import Sample, parts
from harness.model import ChangeKind, ChangeStep

DEEPEST = 32
"""The queue depth that open-iscsi gives a disk (node.session.queue_depth)."""

ENOUGH = 1.1
"""A depth suffices if a deeper queue would gain no more than this factor."""


class Change(msgspec.Struct, frozen=True, kw_only=True):
    """A step, and the time per I/O after it: most likely, and from and to which.

    ``then`` is what limits after it, ``how`` the calculation.
    """

    step: ChangeStep
    what: str
    time_ns: float
    least_ns: float
    most_ns: float
    then: Limit
    how: str


class Chances(msgspec.Struct, frozen=True):
    """Where within the model's own bounds the truth is: each from 0 to 1.

    ``waits``: how far from the asymptotic bound towards mean value analysis, within ``WAITS``. ``work`` and
    ``clumps``: within ``WORK`` and ``CLUMPS``.
    """

    waits: float = 0.5
    work: float = 0.5
    clumps: float = 0.5


LIKELY = Chances()

WORK = {
    (ChangeKind.DEPTH, True): (0.88, 1.18),
    (ChangeKind.DEPTH, False): (0.9, 1.1),
    (ChangeKind.RATE, True): (0.85, 1.0),
    (ChangeKind.RATE, False): (0.7, 0.95),
}
"""By what factor the core's work for one I/O changes with a step, from depth 1 and from a greater one
(`python bench/remedies.py`). With more in flight, caches are colder and queues longer. With a faster link the
core handles more packets at a time, and sleeps less often in between."""

STEADY = (0.9, 1.1)
"""The same for all other steps."""

WAITS = (0.4, 1.0)
"""I/Os do wait for each other: services vary, and those that began together stay together."""

CLUMPS = (1.0, 1.1)
"""By what factor N I/Os take longer than one where no core is full: they come in clumps."""

QUEUED = 0.7
"""To queue I/Os takes fio two system calls for each, and one without a queue. Of memory that is the most, so
it takes this part longer."""

WORTH = 1.2
"""What gains less than this factor is not worth a sentence."""

OUTSIDE = 0.05
"""The part of the draws that lies on either side of an interval."""

AGAIN = 0.06
"""How far a second measurement may lie from any model: TCP begins slowly, and no two runs are alike."""


def forecast(guess: Sample, draws: Sequence[tuple[Sample, Chances]], step: ChangeStep) -> Change | None:
    """The forecast of one step: from the best guess and from what it would be in each draw.

    None if it is hardly worth it, or if the lab itself would be what limits: its core handles more packets at
    a time or fewer as they come, and so takes half as long for them or twice.
    """
    time_ns, then = after(guess, step, LIKELY)
    if guess.time_ns < WORTH * time_ns or (
        step.kind is ChangeKind.RATE and guess.is_bare_emulation and then is Limit.CPU
    ):
        return None
    drawn = sorted(after(sample, step, chances)[0] for sample, chances in draws) or [time_ns]
    outer = round(OUTSIDE * len(drawn))
    path = guess.faster if step.kind is ChangeKind.RATE else guess.path
    return Change(
        step=step,
        what=step.words,
        time_ns=time_ns,
        least_ns=max((1 - AGAIN) * min(time_ns, drawn[outer]), path.busy_ns if path is not None else 0.0),
        # Nothing of this makes a cell slower.
        most_ns=min(guess.time_ns, (1 + AGAIN) * max(time_ns, drawn[-1 - outer])),
        then=then,
        how=_how(guess, step, then),
    )


def deeper(guess: Sample) -> ChangeStep | None:
    """The smallest power of two beyond which a deeper queue gains almost nothing."""
    depths = [depth for depth in (2, 4, 8, 16, DEEPEST) if depth > guess.depth]
    at = {depth: after(guess, ChangeStep(ChangeKind.DEPTH, depth), LIKELY)[0] for depth in depths}
    best = min(at.values(), default=0.0)
    return next(
        (ChangeStep(ChangeKind.DEPTH, depth) for depth, ns in at.items() if ns <= ENOUGH * best), None
    )


def after(sample: Sample, step: ChangeStep, chances: Chances) -> tuple[float, Limit]:
    """The time per I/O after a step, and what then limits."""
    found = parts(sample)
    path = sample.faster if step.kind is ChangeKind.RATE else sample.path
    depth = int(step.value) if step.kind is ChangeKind.DEPTH else sample.depth
    gained = 0.0
    core_ns = _core_ns(sample, found, chances)
    device_ns = None if sample.evidence.is_memory else sample.device_ns
    if step.kind is ChangeKind.RATE and path is not None and sample.path is not None:
        gained = sample.path.alone_ns - path.alone_ns
    elif step.kind is ChangeKind.DEVICE and device_ns is not None:
        gained = (1 - step.value) * found.get("device", 0.0)
        device_ns *= step.value
    # With several in flight, what nothing explains is waiting, and most of it for what is full. At depth 1 it
    # takes its part of any time: while TCP's congestion window grows, everything takes longer.
    known_ns = sum(ns for name, ns in found.items() if name != "rest")
    slower = max(1.0, sample.whole_ns / known_ns) if sample.depth == 1 and known_ns else 1.0
    # Without the device's own time, what nothing explains may be that, which no other link shortens.
    alone_ns = known_ns * slower - gained * (1.0 if sample.device_ns is None else slower)
    if step.kind is ChangeKind.DEPTH and sample.depth == 1 and sample.evidence.is_memory:
        core_ns += QUEUED * (sample.device_ns or 0.0)
    core_ns *= _between(WORK.get((step.kind, sample.depth == 1), STEADY), chances.work)
    servers = {Limit.CPU: core_ns}
    if path is not None:
        servers[Limit.LINK] = path.busy_ns
    if device_ns is not None:
        servers[Limit.DEVICE] = device_ns
    if depth == 1 and step.kind is ChangeKind.DEVICE:
        # While the disk works the core waits, and shows no more of its work if it waits for less long.
        return alone_ns, Limit.LATENCY
    if depth == 1:
        return _one_at_a_time(alone_ns, servers, path, chances)
    bounds = {**servers, Limit.LATENCY: alone_ns / depth}
    if path is not None:
        bounds[Limit.WINDOW] = path.window_each_ns * (slower if sample.core_ns is not None else 1.0)
    if step.kind is ChangeKind.DEPTH:
        clumps = _between(CLUMPS, chances.clumps)
        bounds = {name: ns if name is Limit.CPU else clumps * ns for name, ns in bounds.items()}
    then = max(bounds, key=bounds.__getitem__)
    least_ns = bounds[then]
    most_ns = max(least_ns, mean_value_ns(alone_ns, list(servers.values()), depth))
    return least_ns + _between(WAITS, chances.waits) * (most_ns - least_ns), then


def _between(bounds: tuple[float, float], part: float) -> float:
    return bounds[0] + part * (bounds[1] - bounds[0])


def _one_at_a_time(
    alone_ns: float, servers: Mapping[Limit, float], path: Demands | None, chances: Chances
) -> tuple[float, Limit]:
    """A core works on one packet while the link carries the next, so its work shows once the link is faster.
    It idles at least while the first packet travels, and while the last one does if none waits before it."""
    idle_ns = path.round_trip_ns * (1 + chances.waits) / 2 if path is not None else 0.0
    core_ns = servers[Limit.CPU] + idle_ns
    return (core_ns, Limit.CPU) if core_ns > alone_ns else (alone_ns, Limit.LATENCY)


def _core_ns(sample: Sample, found: Mapping[str, float], chances: Chances) -> float:
    """How long the busiest core works for one I/O: as measured, else the parts that are its work, and as much
    of what nothing explains as chance will have it."""
    known = sample.core_ns if sample.work_ns is None else sample.work_ns
    if known is not None:
        return known
    work = found.get("cpu", 0.0) + found.get("crypto", 0.0)
    if sample.evidence.is_memory:
        work += sample.device_ns or 0.0
    return work + (chances.work * max(0.0, found.get("rest", 0.0)) if sample.depth == 1 else 0.0)


def _how(guess: Sample, step: ChangeStep, then: Limit) -> str:
    if step.kind is ChangeKind.DEPTH:
        one_us = sum(ns for name, ns in parts(guess).items() if name != "rest" or guess.depth == 1) / 1000
        return f"the longer of {one_us:.0f} us / {step.value:.0f} and the busiest resource's time"
    return "up to the core's work" if then is Limit.CPU else "all other parts unchanged"
