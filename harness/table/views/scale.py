"""What each further initiator costs: throughput, fairness and tail latency against how many measure at once.

A figure is the median over the repeats that count, of all runs given. The throughput of one initiator is over
its own run time, the total over the longest.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence

import msgspec

from harness.analysis import disturbance
from harness.analysis.stats import fairness
from harness.model import TRANSPORTS, Column, Io, Record, Setting
from harness.model.probing import TITLES, View
from harness.results.columns import ColumnKey, by_column
from harness.results.metrics import Direction
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

NOTES = (
    "p99: per initiator; the median and the worst of them.",
    "Jain's index: 1 if all got the same, 1/N if one got everything (DEC-TR-301). "
    "protection: change from the same number of initiators without it.",
)


class Series(msgspec.Struct, frozen=True):
    """What rows have in common that differ in how many initiators there are: ``key`` is of one."""

    key: ColumnKey
    workload: str
    direction: Direction

    @property
    def place(self) -> tuple[Setting, Column, str, Direction]:
        """What it has in common with those of other protections."""
        return self.key.setting, self.key.column.bare, self.workload, self.direction

    @property
    def names(self) -> tuple[str, ...]:
        """The texts of ``LABELS``."""
        column = self.key.column
        return (
            column.link,
            protection_of(column, is_unencrypted=self.key.is_unencrypted),
            TRANSPORTS.get(column.transport or "", column.transport or ""),
            f"{self.workload}, {self.direction}",
            self.key.setting.name,
        )


Repeats = list[tuple[Io, Sequence[Io]]]
"""What counts of a cell: of each repeat the total, and each initiator's part."""


def build(records: Sequence[Record]) -> Grid:
    """The scale of each link, transport, protection and workload that several initiators have measured.

    Without any it has no rows.
    """
    found = _series(records)
    footnotes = Footnotes()
    shown = [(series, counts) for series, counts in found.items() if max(counts) > 1]
    columns = list(zip(*(series.names for series, _ in shown), strict=True))
    differing = [n for n, column in enumerate(columns) if n < 2 or len(set(column)) > 1]
    rows = [
        GridRow(labels=tuple(series.names[n] for n in differing), entries=entries)
        for series, counts in shown
        for entries in _entries(series, counts, found, footnotes)
    ]
    return Grid(
        title=TITLES[View.SCALE],
        view=View.SCALE,
        labels=tuple(LABELS[n] for n in differing),
        fields=FIELDS,
        rows=tuple(rows),
        common={LABELS[n]: column[0] for n, column in enumerate(columns) if n not in differing},
        footnotes=tuple(footnotes.texts),
        notes=(
            *NOTES,
            *runs_note([record for _, counts in shown for each in counts.values() for record in each]),
        ),
    )


def _series(records: Iterable[Record]) -> dict[Series, dict[int, list[Record]]]:
    """All records over a network, by series and number of initiators; the counts in order."""
    found: dict[Series, dict[int, list[Record]]] = {}
    for key, cells in by_column(record for record in records if record.column.transport).items():
        one = msgspec.structs.replace(key, column=msgspec.structs.replace(key.column, initiators=1))
        for workload, of_cell in cells.items():
            for direction in (Direction.READ, Direction.WRITE):
                if moved := [record for record in of_cell if getattr(record, direction) is not None]:
                    found.setdefault(Series(one, workload, direction), {})[key.column.initiators] = moved
    ordered = sorted(
        found, key=lambda of: (of.place, len(of.key.column.protection), of.key.column.protection)
    )
    return {series: dict(sorted(found[series].items())) for series in ordered}


def _entries(
    series: Series,
    counts: Mapping[int, list[Record]],
    found: Mapping[Series, Mapping[int, list[Record]]],
    footnotes: Footnotes,
) -> Iterable[dict[str, GridCell]]:
    direction = series.direction
    alone = _total(_repeats(counts.get(1, []), direction))
    is_protected = bool(series.key.column.protection)
    plain = next(
        (
            of
            for other, of in found.items()
            if other.place == series.place and not other.key.column.protection
        ),
        {},
    )
    for count, records in counts.items():
        entries = {INITIATORS.key: GridCell(value=count)}
        repeats = _repeats(records, direction)
        total = _total(repeats)
        if total is None:
            reason = next((record.reason for record in records if record.reason), None)
            yield entries | {TOTAL.key: footnotes.without_figure(records[0].status, reason)}
            continue
        entries[TOTAL.key] = footnotes.figure(total / MB, disturbance.counting(records))
        rates = [[io.bytes_per_s for io in each] for _, each in repeats]
        p99_us = _p99_us(repeats, statistics.median)
        off = _repeats(plain.get(count, []), direction) if is_protected else []
        each = {
            PER_ONE: 100 * total / (count * alone) if alone else None,
            SLOWEST: statistics.median(100 * min(of) / max(of) for of in rates),
            JAIN: statistics.median(map(fairness, rates)),
            P99_MEDIAN: p99_us,
            P99_WORST: _p99_us(repeats, max),
            ADDED_TOTAL: _change(total, _total(off)),
            ADDED_P99: _change(p99_us, _p99_us(off, statistics.median)),
        }
        yield entries | {
            field.key: GridCell(value=value) for field, value in each.items() if value is not None
        }


def _repeats(records: Iterable[Record], direction: Direction) -> Repeats:
    found: Repeats = []
    for record in disturbance.counting(records):
        total = getattr(record, direction)
        each = [getattr(part, direction) for part in record.clients] or [total]
        if total is not None and all(io is not None and io.bytes_per_s for io in each):
            found.append((total, each))
    return found


def _total(repeats: Repeats) -> float | None:
    """In bytes per second."""
    return statistics.median(total.bytes_per_s for total, _ in repeats) if repeats else None


def _p99_us(repeats: Repeats, of_each: Callable[[Sequence[float]], float]) -> float | None:
    found = []
    for _, each in repeats:
        known = [io.latency.p99_ns for io in each if io.latency.p99_ns is not None]
        if len(known) == len(each):
            found.append(of_each(known) / US_NS)
    return statistics.median(found) if found else None


def _change(value: float | None, against: float | None) -> float | None:
    """In percent."""
    return None if value is None or not against else 100 * (value / against - 1)
