"""A load around a fault over time, as a picture: how many requests were answered, and how long each took."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import msgspec

from harness.model import Record, kinds
from harness.model.stalls import Stall
from harness.questions.fault.printed import Repeats, errors_after_ns, grouped, named
from harness.questions.fault.requests import LoadOutput, LoadReport
from harness.report import draw
from harness.report.charts import LEFT, TOP, WIDTH, Chart, horizontal, keyed, vertical
from harness.report.curves import BOTTOM
from harness.results.raw_files import raw_file

INTERVALS = 160
"""The most that the time is divided into."""

LEAST_S = 0.1

LOOKS = {"stall": ("li", "me"), "first error": ("li da", 'me" style="fill-opacity:0')}
"""Of a line and its marks."""

RATE_TOP = TOP + 14
RATE_BOTTOM = RATE_TOP + 90
LATENCY_TOP = RATE_BOTTOM + 30
LATENCY_BOTTOM = LATENCY_TOP + 110


def charts(records: Sequence[Record], folders: Mapping[str, Path]) -> Iterator[Chart]:
    """One for each parameter that was varied, and one for each cell whose raw outputs are there."""
    found = grouped(records)
    over: dict[str, list[Repeats]] = {}
    for repeats in found:
        for name, value in repeats.stalls[0].parameters.items():
            if value.isdecimal():
                over.setdefault(name, []).append(repeats)
    for name, each in over.items():
        yield from _over(name, each)
    for record in itertools.chain.from_iterable(repeats.records for repeats in found):
        file = raw_file(record, folders, "fio.json")
        if record.stall is None or file is None:
            continue
        try:
            load = msgspec.json.decode(file.read_bytes(), type=LoadOutput).around
        except (OSError, msgspec.DecodeError):
            continue
        if load.rows:
            yield _chart(record, record.stall, load)


def _over(name: str, found: Sequence[Repeats]) -> Iterator[Chart]:
    """How long I/O stood still, and when the first error came, over the values of a parameter."""
    points = [
        (named(record, stall), what, float(stall.parameters[name]), time_ns / 1e9)
        for record, stall in (repeats.middle for repeats in found)
        for what, time_ns in (("stall", stall.lasted_ns), ("first error", errors_after_ns(stall)))
        if time_ns is not None
    ]
    labels = [*dict.fromkeys(label for label, *_ in points)]
    x = draw.linear([value for *_, value, _ in points], LEFT, WIDTH - 12)
    y = draw.linear([time_s for *_, time_s in points], BOTTOM, TOP)
    kind = kinds.transport(found[0].records[0].column.transport or "")
    unit = " [s]" if any(name in timer.parameters for timer in kind.timers) else ""
    for first in range(0, len(labels), draw.SERIES):
        shown = labels[first : first + draw.SERIES]
        drawn, high = keyed([(draw.series(n), n, label) for n, label in enumerate(shown)], BOTTOM + 50)
        drawn += horizontal(y, [(tick, draw.amount(tick)) for tick in y.ticks()])
        drawn += vertical([(x.at(tick), f"{tick:g}") for tick in x.ticks()], TOP, BOTTOM)
        drawn.append(draw.text((LEFT + WIDTH) / 2, BOTTOM + 30, f"{name}{unit}; stall [s]", "m mu"))
        for (n, label), (what, look) in itertools.product(enumerate(shown), LOOKS.items()):
            tips = [
                (x.at(value), y.at(time_s), f"{name}={value:g}: {what} {time_s:.2f} s")
                for *of, value, time_s in points
                if of == [label, what]
            ]
            line = draw.path([tip[:2] for tip in tips], look[0])
            marks = draw.group(look[1], "", draw.marks(n, tips, 3.4))
            drawn.append(draw.group(draw.series(n), label, line, marks) if tips else "")
        yield Chart(
            title=f"stall over {name}",
            description="how long I/O stood still, and dashed when the first error came, over a setting",
            height=BOTTOM + 44 + high,
            body="".join(drawn),
            headings=("fault", "time", name, "s"),
            lines=tuple(
                (label, what, f"{value:g}", f"{time_s:.2f}")
                for label, what, value, time_s in points
                if label in shown
            ),
        )


def _chart(record: Record, stall: Stall, load: LoadReport) -> Chart:
    ends = [due + max(0, latency) for due, latency, _ in load.rows]
    span_s = max(ends) / 1e9
    step_s = max(LEAST_S, span_s / INTERVALS)
    answered = Counter(
        int((due + latency) / 1e9 / step_s) for due, latency, error in load.rows if latency >= 0 and not error
    )
    rates = [answered[n] / step_s for n in range(int(span_s / step_s))]
    longest_ms: dict[int, float] = {}
    for due, latency, error in load.rows:
        if latency >= 0 and not error:
            at = int(due / 1e9 / step_s)
            longest_ms[at] = max(longest_ms.get(at, 0.0), latency / 1e6)
    x = draw.linear([span_s], LEFT, WIDTH - 12)
    rate = draw.linear(rates, RATE_BOTTOM, RATE_TOP)
    time = draw.logarithmic([*longest_ms.values()], LATENCY_BOTTOM, LATENCY_TOP)
    began, ended = x.at(stall.began_ns / 1e9), x.at(stall.ended_ns / 1e9)
    through = [(x.at((n + 0.5) * step_s), rate.at(each)) for n, each in enumerate(rates)]
    set_to, room = f", {stall.set_to}" if stall.set_to else "", draw.fits(WIDTH)
    dots = [
        (x.at((n + 0.5) * step_s), time.at(each), f"due at {n * step_s:.1f} s: up to {each:.4g} ms")
        for n, each in sorted(longest_ms.items())
    ]
    return Chart(
        title=named(record, stall),
        description="requests answered a second, and the longest latency since they were due, over the time "
        "of a load; the fault is shaded",
        height=LATENCY_BOTTOM + 40,
        body="".join(
            [
                *horizontal(rate, [(tick, draw.amount(tick)) for tick in rate.ticks(3)]),
                *horizontal(time, [(tick, draw.amount(tick)) for tick in time.ticks(4)]),
                *vertical([(x.at(tick), f"{tick:g}") for tick in x.ticks()], RATE_TOP, LATENCY_BOTTOM),
                draw.group("f1", "", _shaded(began, max(ended, began + 2))),
                draw.group("f0", "", draw.path(through, "li"), draw.marks(0, dots, 1.8)),
                draw.text(LEFT, RATE_TOP - 5, draw.shortened(f"answered a second{set_to}", room), "mu"),
                draw.text(LEFT, LATENCY_TOP - 8, "longest latency [ms], logarithmic axis", "mu"),
                draw.text((LEFT + WIDTH) / 2, LATENCY_BOTTOM + 30, "s since the load began", "m mu"),
            ]
        ),
        headings=("fault", "stall", "longest latency", "late", "errors"),
        lines=(
            (
                f"{stall.fault}{set_to}",
                "does not end" if stall.lasted_ns is None else f"{stall.lasted_ns / 1e9:.2f} s",
                f"{stall.longest_ns / 1e9:.2f} s",
                str(stall.late),
                str(sum(stall.errnos.values())),
            ),
        ),
    )


def _shaded(began: float, ended: float) -> str:
    corners = [(began, RATE_TOP), (ended, RATE_TOP), (ended, LATENCY_BOTTOM), (began, LATENCY_BOTTOM)]
    return draw.area(corners)
