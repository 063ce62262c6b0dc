"""What a search found, as text: its knees in sentences, its trials in a table."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from tabulate import tabulate

from harness.model import LATENCIES, Record
from harness.model.units import format_duration
from harness.questions.knee.search import Goal, Knee


def sentences(knees: Iterable[Knee]) -> Iterator[str]:
    """One for each knee."""
    for knee in knees:
        met = _goal(knee.goal)
        if knee.low is None:
            said = f"even at {_load(knee, knee.high or 0)}, {_goal(knee.goal, is_met=False)}"
        elif knee.high is None:
            said = f"at {_load(knee, knee.low)}, the highest load tried, {met}"
        else:
            tried = f"met at {_count(knee.low)}, missed at {_count(knee.high)}"
            said = f"up to {_load(knee, knee.load)}, {met} (interpolated: {tried})"
        said += "" if knee.is_known else "; the search is unfinished"
        doubt = "; uncertain: trials were disturbed or have warnings" if knee.is_doubtful else ""
        yield f"{knee.curve.name}: {said}{doubt}."


def _goal(goal: Goal, *, is_met: bool = True) -> str:
    time = format_duration(goal.at_most_ns / 1e9)
    if goal.metric == "mean":
        return f"the mean latency is {'within' if is_met else 'above'} {time}"
    return f"{'' if is_met else 'fewer than '}{goal.metric[1:]} % of requests finish within {time}"


def _load(knee: Knee, load: float) -> str:
    block = dict(knee.curve.fixed).get("block")
    rate = f", {load * block / 1e6:.3g} MB/s" if block else ""
    return f"{_count(load)} IOPS{rate}"


def _count(load: float) -> str:
    """``18 700``: four digits are more than a search knows."""
    return f"{float(f'{load:.3g}'):,.0f}".replace(",", " ")


def table(records: Iterable[Record]) -> str:
    """What each trial of a search for knees found, by load: latencies in ms."""
    lines = sorted(
        (record.column.label, record.workload.base, record.workload.rate_iops or 0, record.repeat, name, io)
        for record in records
        for name, io in (("read", record.read), ("write", record.write))
        if io is not None
    )
    rows = [
        [column, base, load, name, io.ios, *(_ms(getattr(io.latency, field)) for field in LATENCIES.values())]
        for column, base, load, _, name, io in lines
    ]
    heading = ["column", "workload", "load", "", "requests", *(f"{of} ms" for of in LATENCIES)]
    return tabulate(rows, heading, disable_numparse=True, stralign="right")


def _ms(latency_ns: float | None) -> str:
    return "" if latency_ns is None else f"{latency_ns / 1e6:.4g}"
