"""What curves say, in sentences: from where more of something helps no more, and what a
protection costs where."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from harness.analysis.interval import Interval
from harness.analysis.response import PREDICTED, Estimate
from harness.analysis.schedule import Place
from harness.analysis.theory import FULL, Wire
from harness.model.lines import counted
from harness.results.axes import AXES
from harness.results.curves import MeasuredCurve

NEARLY = 0.95
"""Of the peak: what is left is less than two runs differ by."""

MOST = 12
"""So many sentences are said of all workloads."""

LESS_IS_BETTER = frozenset({"rtt", "loss"})


def in_short(curves: Sequence[MeasuredCurve]) -> list[str]:
    """What the curves of one workload say, if there is more to say than fits onto a screen, and how many
    others there are."""
    said = [*sentences(curves)]
    workloads = list(dict.fromkeys(each.curve.workload for each in curves))
    if len(said) <= MOST or len(workloads) < 2:
        return said
    first = [each for each in curves if each.curve.workload == workloads[0]]
    return [*sentences(first), f"{counted(len(workloads) - 1, 'more workload')}: harness explain."]


def sentences(curves: Sequence[MeasuredCurve]) -> Iterator[str]:
    """What each curve says, then what each protection costs."""
    for curve in curves:
        if curve.disturbed:
            yield (
                f"{curve.name}: {len(curve.disturbed)} of {len(curve.rates)} points are disturbed, "
                "so its results are uncertain."
            )
        if curve.doubts:
            yield (
                f"{curve.name}: {len(curve.doubts)} of {len(curve.rates)} points have warnings "
                "('harness table' lists them), so its results are uncertain."
            )
        for axis in curve.axes:
            yield from _along(curve, axis)
    bare = {(each.side, each.curve.column, each.curve.workload, each.curve.fixed): each for each in curves}
    for curve in curves:
        key = (curve.side, curve.curve.column.bare, curve.curve.workload, curve.curve.fixed)
        if curve.curve.column.protection and key in bare:
            yield _cost(bare[key], curve)


def _along(curve: MeasuredCurve, axis: str) -> Iterator[str]:
    """Where the curve bends along an axis, at the ends of the others."""
    others = [name for name in curve.axes if name != axis]
    ends = []
    for name in others:
        values = curve.values(name)
        ends.append((values[0], values[-1]))
    for fixed in itertools.product(*ends):
        there = dict(zip(others, fixed, strict=True))
        if len(line := curve.along(axis, there)) > 1:
            yield _bend(curve, axis, there, line)


def _bend(
    curve: MeasuredCurve,
    axis: str,
    there: Mapping[str, float],
    line: Sequence[tuple[float, Place]],
) -> str:
    """What the curve does along an axis. Each sentence holds for every point that it speaks of."""
    found = [(AXES[axis].shown(value), curve.at(place)) for value, place in line]
    where = "".join(f", {name} {AXES[name].shown(value)}" for name, value in there.items())
    begin = f"{curve.name}{where}: "
    if axis in LESS_IS_BETTER:
        return f"{begin}{_lost(axis, found)}"
    best = _peak(found)[1]
    enough = NEARLY * best.mid
    start = _from_there_on([each.mid >= enough for _, each in found])
    if start is None:
        return f"{begin}{_falls(axis, found)}"
    if before := [shown for shown, each in found[:start] if each.mid >= enough]:
        least_at, least = min(found[:start], key=lambda each: each[1].mid)
        return (
            f"{begin}reaches {_percent(NEARLY)} of its peak ({_rate(best)}) at {axis} {', '.join(before)} "
            f"and from {found[start][0]} on, "
            f"but only {_percent(least.mid / best.mid)} at {axis} {least_at}."
        )
    end = len(found) - 1
    if start == end:
        return f"{begin}{_rises(axis, found)}"
    # The local disk has no link, and along an axis of links each point has another.
    link = curve.links.get(line[0][1][0].link) if AXES[axis].of_link is None else None
    goodput = Wire(link=link).goodput_bytes_s if link is not None else None
    low = _from_there_on([each.high >= enough for _, each in found]) or 0
    high = next((n for n in range(start, end) if found[n][1].low >= enough), end)
    span = f" ({found[low][0]} to {found[high][0]})" if low != high else ""
    at = f"{axis} {found[start][0]}{span}"
    if goodput and not curve.curve.column.protection and best.mid >= FULL * goodput:
        rates = f"{_number(best)} of {goodput / 1e6:.4g} MB/s"
        near = f"within {_percent(1 - NEARLY)} of its peak"
        return f"{begin}{near} from {at} on; the peak fills the link ({rates})."
    return f"{begin}reaches {_percent(NEARLY)} of its peak ({_rate(best)}) at {at}."


_Found = Sequence[tuple[str, Estimate]]
"""The points along an axis: the place as it is typed, and what was measured or estimated there."""


def _peak(found: _Found) -> tuple[str, Estimate]:
    """The highest of the measured points: a prediction may be higher by its error. If none was measured, the
    highest prediction."""
    return max(found, key=lambda each: (not each[1].is_predicted, each[1].mid))


def _from_there_on(holds: Sequence[bool]) -> int | None:
    """The first point from which on it holds for all; None if it does not hold for the last."""
    fails = [number for number, each in enumerate(holds) if not each]
    start = fails[-1] + 1 if fails else 0
    return start if start < len(holds) else None


def _rises(axis: str, found: _Found) -> str:
    """Of points of which the last is the only one near the most."""
    shown, most = found[-1]
    for (_, one), (at, other) in itertools.pairwise(found):
        if other.mid < NEARLY * one.mid:
            return (
                f"peaks at {axis} {shown}, the end of the range ({_rate(most)}), "
                f"but drops by {_percent(1 - other.mid / one.mid)} at {axis} {at}."
            )
    return f"still rising at {axis} {shown}, the end of the range ({_rate(most)})."


def _falls(axis: str, found: _Found) -> str:
    """Of points of which the last has less than the most."""
    shown, best = _peak(found)
    at, last = found[-1]
    return (
        f"peaks at {axis} {shown} ({_rate(best)}) and falls to {_percent(last.mid / best.mid)} of it "
        f"at {axis} {at}, the end of the range."
    )


def _lost(axis: str, found: _Found) -> str:
    """Along an axis of which less is better: where half is lost."""
    best = _peak(found)[1]
    half = [each.mid <= best.mid / 2 for _, each in found]
    start = _from_there_on(half)
    if not any(half):
        return f"still above half of its peak ({_rate(best)}) at {axis} {found[-1][0]}, the end of the range."
    if start is None or any(half[:start]):
        points = ", ".join(shown for (shown, _), is_lost in zip(found, half, strict=True) if is_lost)
        return f"at or below half of its peak ({_rate(best)}) only at {axis} {points}."
    return f"at or below half of its peak ({_rate(best)}) from {axis} {found[start][0]} on."


def _on(axes: Sequence[str], point: Mapping[str, float]) -> tuple[float, ...]:
    return tuple(point[axis] for axis in axes)


class _Cost(NamedTuple):
    """What a protection costs at a point, as parts of the rate without it."""

    part: Interval
    point: Mapping[str, float]
    is_predicted: bool


def _cost(bare: MeasuredCurve, protected: MeasuredCurve) -> str:
    """Where a protection costs most, and least."""
    by_point = {_on(bare.axes, point): place for place, point in bare.grid.items()}
    costs = list[_Cost]()
    for place, point in protected.grid.items():
        if (other := by_point.get(_on(bare.axes, point))) is not None:
            with_it, without = protected.at(place), bare.at(other)
            costs.append(
                _Cost(
                    part=with_it.over(without).falling(lambda kept: 1 - kept),
                    point=point,
                    is_predicted=with_it.is_predicted or without.is_predicted,
                )
            )
    # The extreme of many predictions is rather an error of theirs.
    measured = [cost for cost in costs if not cost.is_predicted]
    costs = measured or costs
    most, least = (pick(costs, key=lambda each: each.part.mid) for pick in (max, min))
    title = protected.curve.column.title
    if all(cost.part.low <= 0 for cost in costs):
        where = f"any of {counted(len(measured), 'measured point')}" if measured else "any point (predicted)"
        return (
            f"{title} has no measurable cost for {bare.name} at {where} (under "
            f"{_percent(max(0, *(cost.part.high for cost in costs)))})."
        )
    return (
        f"{title} costs {bare.name} most at {_named(most.point)} ({_said(most)}) and least at "
        f"{_named(least.point)} ({_said(least)})."
    )


def _named(point: Mapping[str, float]) -> str:
    found = ((AXES[name], name, value) for name, value in point.items() if name in AXES)
    return " and ".join(f"{name} {axis.shown(value)}" for axis, name, value in found)


def _said(cost: _Cost) -> str:
    how = "predicted: " if cost.is_predicted else ""
    part = cost.part
    if part.low <= 0:
        return f"{how}no measurable cost, under {_percent(max(part.high, 0))}"
    return f"{how}{_percent(part.mid)}, {_percent(part.low)} to {_percent(part.high)}"


def _percent(part: float) -> str:
    return f"{100 * part:.0f} %"


def _rate(of: Estimate) -> str:
    return f"{_number(of)} MB/s"


def _number(of: Estimate) -> str:
    """In MB/s; ``~`` marks a prediction, as in tables."""
    return f"{PREDICTED * of.is_predicted}{of.mid / 1e6:.4g}"
