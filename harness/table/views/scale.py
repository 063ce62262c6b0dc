"""What each further initiator costs: throughput, fairness and tail latency against how many measure at once.

A figure is the median over the repeats that count, of all runs given. The throughput of one initiator is over
its own run time, the total over the longest.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Sequence

import msgspec

from harness.analysis import disturbance
from harness.analysis.stats import fairness
from harness.model import (
    TRANSPORTS,
    ClientPart,
    Column,
    Io,
    Record,
    Setting,
    is_unencrypted,
)
from harness.model.probing import TITLES, View
from harness.results.metrics import Direction
from harness.table.notes import DISTURBED_SIGN
from harness.table.views.grid import Footnotes, Grid, GridCell, GridColumn, GridRow
from harness.table.views.tables import protection_of, runs_note

MB, US_NS = 1e6, 1e3

INITIATORS = GridColumn(key="initiators", heading="initiators", decimals=0)
TOTAL = GridColumn(key="total_mb_s", heading="in total|MB/s", decimals=2)
PER_ONE = GridColumn(key="of_one_percent", heading="of N times|one alone %", decimals=1)
SLOWEST = GridColumn(key="slowest_of_fastest_percent", heading="slowest of|fastest %", decimals=1)
JAIN = GridColumn(key="jain", heading="Jain's|index", decimals=4)
P99_MEDIAN = GridColumn(key="p99_median_us", heading="p99, median|one µs", decimals=1)
P99_WORST = GridColumn(key="p99_worst_us", heading="p99, worst|one µs", decimals=1)
ADDED_TOTAL = GridColumn(key="protection_total_percent", heading="protection:|total %", decimals=1)
ADDED_P99 = GridColumn(key="protection_p99_percent", heading="protection:|p99 %", decimals=1)
FIELDS = (INITIATORS, TOTAL, PER_ONE, SLOWEST, JAIN, P99_MEDIAN, P99_WORST, ADDED_TOTAL, ADDED_P99)

LABELS = ("Link", "Protection", "Transport", "Workload", "Testbed")
"""Of ``_names``."""

NOTES = (
    "p99: of each initiator's I/Os by itself; the median and the worst of the initiators.",
    "Jain's index: 1 if all got the same, 1/N if one got everything (DEC-TR-301). "
    "protection: what it changes against the same number of initiators without.",
)


class Series(msgspec.Struct, frozen=True):
    """What the rows of one protection have in common: ``column`` is that of one initiator."""

    setting: Setting
    column: Column
    workload: str
    direction: Direction
    is_unencrypted: bool

    @property
    def place(self) -> tuple[Setting, Column, str, Direction]:
        """What it has in common with those of other protections."""
        return self.setting, self.column.bare, self.workload, self.direction


class Parts(msgspec.Struct, frozen=True):
    """One repeat: its total in bytes per second, and each initiator's throughput and p99 (None: unknown)."""

    total: float
    each: tuple[float, ...]
    p99_ns: tuple[float, ...] | None


Counts = dict[int, list[Record]]


def build(records: Sequence[Record]) -> Grid:
    """The scale of each link, transport, protection and workload that several initiators have measured.

    Without any it has no rows.
    """
    found = _series(records)
    footnotes = Footnotes()
    shown = [(series, counts) for series, counts in found.items() if max(counts) > 1]
    names = [_names(series) for series, _ in shown]
    differing = [n for n, column in enumerate(zip(*names, strict=True)) if n < 2 or len(set(column)) > 1]
    rows = [
        GridRow(labels=tuple(name[n] for n in differing), entries=entries)
        for name, (series, counts) in zip(names, shown, strict=True)
        for entries in _entries(series, counts, found, footnotes)
    ]
    return Grid(
        title=TITLES[View.SCALE],
        view=View.SCALE,
        labels=tuple(LABELS[n] for n in differing),
        fields=FIELDS,
        rows=tuple(rows),
        common={label: names[0][n] for n, label in enumerate(LABELS) if names and n not in differing},
        footnotes=tuple(footnotes.texts),
        notes=(
            *NOTES,
            *runs_note([record for _, counts in shown for each in counts.values() for record in each]),
        ),
    )


def _series(records: Iterable[Record]) -> dict[Series, Counts]:
    """All records over a network, by series and number of initiators; the counts in order."""
    found: dict[Series, Counts] = {}
    for record in records:
        if record.column.transport is None:
            continue
        column = msgspec.structs.replace(record.column, initiators=1)
        for direction, io in ((Direction.READ, record.read), (Direction.WRITE, record.write)):
            if io is None:
                continue
            is_open = bool(column.protection) and is_unencrypted(record.encrypts, record.agreed)
            series = Series(record.setting.distinct, column, record.workload.name, direction, is_open)
            found.setdefault(series, {}).setdefault(record.column.initiators, []).append(record)
    ordered = sorted(found, key=lambda of: (of.place, len(of.column.protection), of.column.protection))
    return {series: dict(sorted(found[series].items())) for series in ordered}


def _names(series: Series) -> tuple[str, ...]:
    """The texts of ``LABELS``."""
    column = series.column
    return (
        column.link,
        protection_of(column, is_unencrypted=series.is_unencrypted),
        TRANSPORTS.get(column.transport or "", column.transport or ""),
        f"{series.workload}, {series.direction}",
        series.setting.name,
    )


def _entries(
    series: Series, counts: Counts, found: dict[Series, Counts], footnotes: Footnotes
) -> Iterable[dict[str, GridCell]]:
    direction = series.direction
    alone = _parts(counts.get(1, []), direction)
    plain = next(
        (found[other] for other in found if other.place == series.place and not other.column.protection), {}
    )
    for count, records in counts.items():
        entries = {INITIATORS.key: GridCell(value=count)}
        parts = _parts(records, direction)
        if not parts:
            reason = next((record.reason for record in records if record.reason), None)
            entries[TOTAL.key] = footnotes.without_figure(records[0].status, reason)
            yield entries
            continue
        good = disturbance.counting(records)
        disturbed = disturbance.summary(good)
        entries[TOTAL.key] = GridCell(
            value=_total(parts) / MB,
            sign=DISTURBED_SIGN if disturbed else "",
            mark=footnotes.mark(f"{DISTURBED_SIGN}: {disturbed}") if disturbed else None,
            disturbed=max((share for r in good if (share := disturbance.share(r)) is not None), default=None),
        )
        each = {
            PER_ONE: 100 * _total(parts) / (count * _total(alone)) if alone and _total(alone) else None,
            SLOWEST: _median(parts, lambda part: 100 * min(part.each) / max(part.each)),
            JAIN: _median(parts, lambda part: fairness(part.each)),
            P99_MEDIAN: _p99_us(parts, statistics.median),
            P99_WORST: _p99_us(parts, max),
        }
        off = _parts(plain.get(count, []), direction) if series.column.protection else []
        if off:
            each[ADDED_TOTAL] = _change(_total(parts), _total(off))
            each[ADDED_P99] = _change(each[P99_MEDIAN], _p99_us(off, statistics.median))
        yield entries | {
            field.key: GridCell(value=value) for field, value in each.items() if value is not None
        }


def _parts(records: Iterable[Record], direction: Direction) -> list[Parts]:
    """The repeats that count, each initiator apart."""
    found = []
    for record in disturbance.counting(records):
        total = _io(record, direction)
        each = [_io(part, direction) for part in record.clients] if record.clients else [total]
        ios = [io for io in each if io is not None]
        if total is None or len(ios) != len(each) or not all(io.bytes_per_s for io in ios):
            continue
        known = [io.latency.p99_ns for io in ios if io.latency.p99_ns is not None]
        found.append(
            Parts(
                total.bytes_per_s,
                tuple(io.bytes_per_s for io in ios),
                tuple(known) if len(known) == len(ios) else None,
            )
        )
    return found


def _io(of: Record | ClientPart, direction: Direction) -> Io | None:
    return of.read if direction is Direction.READ else of.write


def _median(parts: Iterable[Parts], figure: Callable[[Parts], float]) -> float:
    return statistics.median(map(figure, parts))


def _total(parts: Iterable[Parts]) -> float:
    return _median(parts, lambda part: part.total)


def _p99_us(parts: Iterable[Parts], of_each: Callable[[Sequence[float]], float]) -> float | None:
    known = [of_each(part.p99_ns) / US_NS for part in parts if part.p99_ns is not None]
    return statistics.median(known) if known else None


def _change(value: float | None, against: float | None) -> float | None:
    """In percent."""
    return None if value is None or not against else 100 * (value / against - 1)
