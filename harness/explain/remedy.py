"""What would help, and between which rates a cell would then be: operational analysis with one thing changed.

A change is forecast only if it can be made, so that a forecast can be tried (`python bench/remedies.py`): it
is what was measured, times the ratio of the same cell in ``analysis.stations`` with one demand changed and
without.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from harness.analysis import stations
from harness.analysis.interval import Interval
from harness.analysis.limit import ChangeKind, ChangeStep, Limit
from harness.explain import limits
from harness.explain.waterfall import OF_RULES, Sample, parts
from harness.model import ENDS

DEEPEST = 32
"""The queue depth that open-iscsi gives a disk (node.session.queue_depth)."""

ENOUGH = 1.1
"""A depth suffices if a deeper queue would gain no more than this factor."""


class Change(msgspec.Struct, frozen=True, kw_only=True):
    """A step. After it ``each_ns`` is the time per I/O, ``limited_by`` what limits, and ``how`` the
    calculation."""

    step: ChangeStep
    what: str
    each_ns: Interval
    limited_by: Limit
    how: str


class Chances(msgspec.Struct, frozen=True):
    """Where within the model's own bounds the truth is: each from 0 to 1.

    ``waits``: how far I/Os wait for one another, within ``WAITS``. ``work`` and ``clumps``: within ``WORK``
    and ``CLUMPS``.
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
"""How far I/Os wait for one another (``stations.each``): services vary, and those that began together stay
together."""

CLUMPS = (1.0, 1.1)
"""By what factor N I/Os take longer than one where no core is full: they come in clumps."""

WORTH = 1.2
"""What gains less than this factor is not worth a sentence."""

FULL = 0.8
"""From this utilization on a core is what limits."""

OUTSIDE = 0.05
"""The part of the draws that lies on either side of an interval."""

AGAIN = 0.06
"""How far a second measurement may lie from any model: TCP begins slowly, and no two runs are alike."""


def forecast(guess: Sample, draws: Sequence[tuple[Sample, Chances]], step: ChangeStep) -> Change | None:
    """The forecast of one step: from the best guess and from what it would be in each draw.

    None if it is hardly worth it, or if the lab itself would be what limits: its core handles more packets at
    a time or fewer as they come, and so takes half as long for them or twice.
    """
    likely, path = after(guess, step, LIKELY), guess.faster if step.kind is ChangeKind.RATE else guess.path
    # Nothing goes faster than the link lets it.
    bound_ns = path.busy_ns if path is not None else 0.0
    time_ns, then = max(likely.ns, bound_ns), likely.limited_by
    is_full = then is Limit.CPU and likely.utilization > FULL
    is_of_lab = is_full and limits.of_parts(guess.evidence)["cpu"] is Limit.LAB
    if guess.time_ns < WORTH * time_ns or (step.kind is ChangeKind.RATE and is_of_lab):
        return None
    drawn = sorted(after(sample, step, chances).ns for sample, chances in draws) or [time_ns]
    outer = round(OUTSIDE * len(drawn))
    return Change(
        step=step,
        what=step.words,
        each_ns=Interval(
            max((1 - AGAIN) * min(time_ns, drawn[outer]), bound_ns),
            time_ns,
            # Nothing of this makes a cell slower.
            min(guess.time_ns, (1 + AGAIN) * max(time_ns, drawn[-1 - outer])),
            1 - 2 * OUTSIDE,
        ),
        limited_by=then,
        how=_how(guess, step, then),
    )


def deeper(guess: Sample) -> ChangeStep | None:
    """The smallest power of two beyond which a deeper queue gains almost nothing."""
    depths = [depth for depth in (2, 4, 8, 16, DEEPEST) if depth > guess.depth]
    at = {depth: after(guess, ChangeStep(ChangeKind.DEPTH, depth), LIKELY).ns for depth in depths}
    best = min(at.values(), default=0.0)
    return next(
        (ChangeStep(ChangeKind.DEPTH, depth) for depth, ns in at.items() if ns <= ENOUGH * best), None
    )


def after(sample: Sample, step: ChangeStep, chances: Chances) -> stations.Each:
    """An I/O after a step: what was measured, times the ratio of the same cell with one demand changed and
    without."""
    depth = int(step.value) if step.kind is ChangeKind.DEPTH else sample.depth
    waits = _between(WAITS, chances.waits)
    before = stations.each([_cell(sample, step, chances, is_after=False)], sample.depth, waits)
    then = stations.each([_cell(sample, step, chances, is_after=True)], depth, waits)
    ratio = sample.time_ns / before.ns
    if step.kind is ChangeKind.DEPTH and then.limited_by is not Limit.CPU:
        ratio *= _between(CLUMPS, chances.clumps)
    return msgspec.structs.replace(then, ns=ratio * then.ns)


def _cell(sample: Sample, step: ChangeStep, chances: Chances, *, is_after: bool) -> stations.CellDemands:
    """What an I/O asks of the stations, before a step or after it.

    What of a core's work shows in the time of a single I/O is before or after all packets, and what does
    not is hidden by the link; while a disk works a core that waits for it is busy as well.
    """
    found, kind, is_alone = parts(sample), step.kind, sample.depth == 1
    path = sample.faster if is_after and kind is ChangeKind.RATE else sample.path
    device_ns = (found.get("device") if is_alone else sample.device_ns) or 0.0
    shown_ns = found.get("cpu", 0.0) + found.get("crypto", 0.0) if is_alone else 0.0
    core_ns = _core_ns(sample, found, chances)
    # A core that idles most of the time does more in it than its work, for which nothing queues.
    besides_ns, shown_ns = max(0.0, shown_ns - core_ns), min(shown_ns, core_ns)
    if sample.evidence.is_memory:
        shown_ns, device_ns = shown_ns + device_ns, 0.0
    elif is_alone and kind is ChangeKind.DEVICE:
        core_ns = shown_ns
    factor = 1.0
    if is_after:
        factor = _between(WORK.get((kind, is_alone), STEADY), chances.work)
        device_ns *= step.value if kind is ChangeKind.DEVICE else 1.0
    at = sample.evidence.busiest if sample.evidence.busiest in ENDS else "core"
    return stations.CellDemands(
        path=path,
        work={at: factor * max(0.0, core_ns - shown_ns)},
        whole={at: factor * shown_ns},
        device_ns=device_ns,
        idle_ns=besides_ns + sum(found.get(name, 0.0) for name in OF_RULES),
    )


def _between(bounds: tuple[float, float], part: float) -> float:
    return bounds[0] + part * (bounds[1] - bounds[0])


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
