"""The telemetry of cells (``model.telemetry.OBSERVED``): a row for each column and workload."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from harness.analysis import disturbance, stats
from harness.model import Plan, Record, Status
from harness.model.probing import TITLES, View
from harness.model.telemetry import OBSERVED, Observed, Telemetry, Unit
from harness.results.columns import by_column, in_order, rows_of
from harness.results.metrics import Metric
from harness.table.views.grid import Grid, GridCell, GridColumn, GridRow
from harness.table.views.tables import runs_note

REPEATS = GridColumn(key="repeats", heading="repeats")
TAKEN = GridColumn(key="others_took", heading="other programs|took")


def build(records: Sequence[Record], plans: Sequence[Plan] = ()) -> Grid:
    """Medians of each cell's repeats; what is counted is added up."""
    samples = by_column(records)
    keys = in_order(samples, plans)
    workloads = dict.fromkeys(row.workload for row in rows_of(records, Metric.MB_S, plans))
    is_alike = len({key.setting for key in keys}) == 1
    return Grid(
        title=TITLES[View.COUNTERS],
        view=View.COUNTERS,
        labels=("Column", "Workload") if is_alike else ("Column", "Workload", "Testbed"),
        fields=(REPEATS, TAKEN, *(GridColumn(key=each.name, heading=each.title) for each in OBSERVED)),
        rows=tuple(
            GridRow(labels=(key.label, workload, key.setting.name)[: 2 if is_alike else 3], entries=entries)
            for key in keys
            for workload in workloads
            if (entries := _entries(samples[key].get(workload, ())))
        ),
        common={"Testbed": keys[0].setting.name} if is_alike else {},
        notes=(*(f"n/a: {reason}." for reason in lost_hops(records)), *runs_note(records)),
    )


def lost_hops(records: Iterable[Record]) -> list[str]:
    """Why the counters of hops are unknown for some cells, each reason once."""
    return sorted(
        {why for record in records if record.telemetry for why in record.telemetry.lost_hops.values()}
    )


def _entries(records: Sequence[Record]) -> dict[str, GridCell]:
    good = [record for record in records if record.status is Status.OK]
    found = [record.telemetry for record in good if record.telemetry is not None]
    if not found:
        return {}
    taken = _median([disturbance.share(record) for record in good])
    return {
        REPEATS.key: GridCell(value=len(found), shown=str(len(found))),
        TAKEN.key: GridCell(
            value=taken, shown="" if taken is None else Unit.PART.shown(taken), disturbed=taken
        ),
        **{each.name: _entry(each, found) for each in OBSERVED},
    }


def _entry(observed: Observed, found: Iterable[Telemetry]) -> GridCell:
    """With the name of each place if there are several; of counts, of those that counted anything."""
    by_place: dict[str, list[float | None]] = {}
    for telemetry in found:
        for place, value in observed.at(telemetry).items():
            by_place.setdefault(place, []).append(value)
    is_count = observed.unit is Unit.COUNT
    values = {place: observed.joined(each) if is_count else _median(each) for place, each in by_place.items()}
    values_text = {
        place: "n/a" if each is None else observed.unit.shown(each) for place, each in values.items()
    }
    value = observed.joined(values.values())
    shown = "" if value is None else observed.unit.shown(value)
    if len(values) > 1 and is_count and value:
        shown += f" ({', '.join(f'{place} {values_text[place]}' for place, each in values.items() if each)})"
    elif len(values) > 1 and not is_count:
        shown = ", ".join(f"{place} {text}" for place, text in values_text.items())
    return GridCell(value=value, shown=shown)


def _median(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return stats.median(known) if known else None
