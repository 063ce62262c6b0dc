"""Said and tried: what was forecast of a run's cells next to what was measured with the change made.

A run that tries them measures each cell with its change and without, in turns. So what a
machine did meanwhile is in both, and a forecast is held to their ratio: said is what the cell without the
change was in these turns, times by how much the forecast had it rise.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Sequence

import msgspec

from harness.analysis import disturbance, stats
from harness.analysis.schedule import Place, throughput_bytes_s
from harness.model import Plan, Record
from harness.model.errors import HarnessError
from harness.model.lines import counted
from harness.parse.files import read_bytes
from harness.questions.trial.section import SECTION, Forecast
from harness.results.measured import Measured
from harness.results.sections import Outcome
from harness.results.store import RunFolder


class Tried(msgspec.Struct, frozen=True, kw_only=True):
    """A forecast that a run checked. ``tried_by`` is that run's id.

    ``now_mb_s`` is the cell without the change in that run (its forecast's own figure, where the disk was
    changed), ``said_mb_s`` the forecast, from ``least_mb_s`` to ``most_mb_s``, and ``mb_s`` the measurement
    with the change, all in 10^6 bytes per second. ``is_within``: the measurement is between the two.
    ``is_disturbed``: other programs disturbed all repeats of one of the two.
    """

    forecast: Forecast
    tried_by: str
    now_mb_s: float
    said_mb_s: float
    least_mb_s: float
    most_mb_s: float
    mb_s: float
    is_within: bool
    is_disturbed: bool = False

    @property
    def error(self) -> float:
        """Forecast / measured."""
        return self.said_mb_s / self.mb_s

    @property
    def name(self) -> str:
        return f"{self.forecast.column.label} {self.forecast.workload}"


def tried(plan: Plan, records: Iterable[Record]) -> Iterator[Tried]:
    """What a run tried, as far as both cells have a figure."""
    found: dict[Place, list[Record]] = {}
    for record in records:
        if record.run_id == plan.run_id:
            found.setdefault((record.column, record.workload.name), []).append(record)
    for forecast in SECTION.of(plan).forecasts:
        after = _by_repeat(found.get(forecast.changed, ()))
        before = {} if forecast.unchanged is None else _by_repeat(found.get(forecast.unchanged, ()))
        if not after or (forecast.unchanged and not before):
            continue
        now_mb_s, mb_s = (
            stats.median([*before.values()] or [forecast.before_mb_s]),
            stats.median([*after.values()]),
        )
        if common := before.keys() & after.keys():
            mb_s = now_mb_s * stats.median([after[repeat] / before[repeat] for repeat in common])
        now = now_mb_s / forecast.before_mb_s
        places = [place for place in (forecast.unchanged, forecast.changed) if place]
        yield Tried(
            forecast=forecast,
            tried_by=plan.run_id,
            now_mb_s=now_mb_s,
            said_mb_s=now * forecast.said_mb_s,
            least_mb_s=now * forecast.least_mb_s,
            most_mb_s=now * forecast.most_mb_s,
            mb_s=mb_s,
            is_within=now * forecast.least_mb_s <= mb_s <= now * forecast.most_mb_s,
            is_disturbed=any(not disturbance.quiet(found[place]) for place in places),
        )


def _by_repeat(records: Iterable[Record]) -> dict[int, float]:
    """MB/s of the repeats that count."""
    counting = disturbance.counting(records)
    return {record.repeat: rate / 1e6 for record in counting if (rate := throughput_bytes_s(record))}


def stored(found: Measured) -> list[Tried]:
    """What these runs tried, and what was tried of them by runs whose folders are next to theirs."""
    own = [plan for plan in found.plans.values() if SECTION.name in plan.sections]
    of = [(plan, found.records) for plan in own] + [
        (plan, run.load_records()) for run, plan in _next_to(found)
    ]
    return [each for plan, records in of for each in tried(plan, records)]


def _next_to(found: Measured) -> Iterator[tuple[RunFolder, Plan]]:
    ids = [run_id.encode() for run_id in found.plans]
    folders = {folder.resolve() for folder in found.folders.values()}
    for place in sorted({folder.parent for folder in folders}):
        for file in sorted(place.glob("*/plan.json")):
            # A folder may have many runs, and one that cannot be read is no matter of this one.
            with contextlib.suppress(HarnessError, OSError):
                text = b"" if file.parent in folders else read_bytes(file, follow=False)
                if any(run_id in text for run_id in ids):
                    run = RunFolder(file.parent)
                    plan = run.load_plan()
                    if SECTION.name in plan.sections and any(
                        forecast.run_id in found.plans for forecast in SECTION.of(plan).forecasts
                    ):
                        yield run, plan


HEADINGS = ("MB/s", "change", "now", "forecast", "measured", "forecast/measured", "")


def rows(found: Sequence[Tried]) -> list[list[str]]:
    """A line of a table for each."""
    return [
        [
            each.name,
            each.forecast.step.words,
            f"{each.now_mb_s:.4g}",
            f"{each.said_mb_s:.4g} ({each.least_mb_s:.4g} to {each.most_mb_s:.4g})",
            f"{each.mb_s:.4g}",
            f"{each.error:.2f}",
            ("within" if each.is_within else "outside") + (", disturbed" if each.is_disturbed else ""),
        ]
        for each in found
    ]


def summary(found: Sequence[Tried]) -> str:
    """``7 of 8 forecasts hit: ... Worst: ...``; empty if nothing was tried."""
    if not found:
        return ""
    right = sum(each.is_within for each in found)
    worst = max(found, key=lambda each: max(each.error, 1 / each.error))
    return (
        f"{right} of {counted(len(found), 'forecast')} hit: measured within the forecast range. Worst: "
        f"{worst.name} with {worst.forecast.step.words}: forecast / measured = {worst.error:.2f}. "
        "Forecasts start from the cell measured in the same rounds (now)."
    )


def outcome(results: Measured) -> Outcome | None:
    """What was tried of these runs; None if nothing was."""
    found = stored(results)
    if not found:
        return None
    return Outcome(
        title="Forecast and measured",
        caption="Forecasts checked",
        summary=summary(found),
        headings=HEADINGS,
        rows=rows(found),
        found=found,
    )
