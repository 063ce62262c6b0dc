"""Which figures of which probes each view shows, and which records they come from.

A figure is the median over all ok repeats of all runs given. The probes that ``harness run`` makes between
its cells count only where there is no probe of ``harness probe``.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Sequence
from functools import partial

import msgspec

from harness.analysis import disturbance
from harness.model import (
    PROTECTION_OFF,
    UNENCRYPTED,
    Column,
    IpsecMode,
    Record,
    Setting,
    TestbedKind,
    is_unencrypted,
)
from harness.model.lines import listed
from harness.model.probing import KINDS, ROWS, TITLES, Probe, View
from harness.parse.references import PathReference
from harness.results.probe_records import ProbeRecord
from harness.table.notes import LAB_SIGN
from harness.table.views.grid import NOTHING, Footnotes, Grid, GridCell, GridColumn, GridRow

TOLERANCE = disturbance.LOST_OF_TAKEN * disturbance.THRESHOLD
"""Single figures may differ by so much without a cause."""

TOLERANCE_POINTS = 1.0
"""The same for parts that are lost, in percent."""

UNITS = {
    "_mbit_s": "Mbit/s",
    "_per_s": "per second",
    "_ms": "ms",
    "_us": "µs",
    "lost_percent": "%",
}
"""Of figures that can be compared, by how their keys end."""


def unit_of(key: str) -> str | None:
    return next((unit for end, unit in UNITS.items() if key.endswith(end)), None)


def differ(key: str, one: float, other: float, tolerance: float = TOLERANCE) -> bool:
    """Whether two figures differ by more than single measurements may; without ``tolerance``, at all."""
    if unit_of(key) == "%":
        return abs(one - other) > (TOLERANCE_POINTS if tolerance else 0.0)
    return abs(one - other) > tolerance * max(one, other)


def build(view: View, records: Sequence[ProbeRecord], reference: PathReference | None = None) -> Grid:
    """The table of a view. Without a record that it could show, it has no rows."""
    notes = Footnotes()
    records = [record for record in records if record.probe.FIGURES]
    found = _groups(records)
    several = [ROWS[view]] if view in ROWS else []
    places = {setting for _, _, setting in found}
    labels = ("Link", *several, "IPsec", *(["Testbed"] if len(places) > 1 else []))
    fields = _fields(view)
    shown = [
        (setting, (link, *([name] if several else []), protection), _marked_once(entries))
        for (link, protection, setting), group in found.items()
        for name, made in _rows(group, view).items()
        if (entries := _entries(made, view, fields, notes))
    ]
    shown, lab_limited = _signed(shown)
    # If all are of one place, only the notes name it.
    rows = [
        GridRow(labels=(*path, setting.name) if len(places) > 1 else path, entries=entries)
        for setting, path, entries in shown
    ]
    if reference is not None:
        rows += [
            GridRow(
                labels=(published.title, *("",) * (len(labels) - 1)),
                entries={key: GridCell(value=value) for key, value in published.values.items()},
                is_published=True,
            )
            for published in reference.row
        ]
    return Grid(
        title=TITLES[view],
        view=view,
        labels=labels,
        fields=fields,
        rows=tuple(rows),
        footnotes=tuple(notes.texts),
        notes=(*lab_limited, *_notes(records, reference)),
    )


_Shown = tuple[Setting, tuple[str, ...], dict[str, GridCell]]
"""A row: where it was measured, its other labels, and its entries."""


def _signed(rows: Sequence[_Shown]) -> tuple[list[_Shown], list[str]]:
    """The rows with a sign at each figure of the lab's that is another one in virtual time, where processors
    cost nothing; and what to say of that."""
    virtual = {
        path: entries for setting, path, entries in rows if setting.is_virtual and not setting.predicted_from
    }

    def signed(entry: GridCell, key: str, other: GridCell) -> GridCell:
        if entry.sign or unit_of(key) is None or entry.value is None or other.value is None:
            return entry
        is_own = differ(key, entry.value, other.value)
        return msgspec.structs.replace(entry, sign=LAB_SIGN if is_own else "")

    found = []
    for setting, path, entries in rows:
        if setting.testbed is TestbedKind.LAB and not setting.is_virtual:
            ideal = virtual.get(path, {})
            entries = {key: signed(each, key, ideal.get(key, NOTHING)) for key, each in entries.items()}
        found.append((setting, path, entries))
    note = (
        f"{LAB_SIGN}: limited by the lab: the row in virtual time shows links and protocols alone; the "
        "lab's one processor makes the difference."
    )
    is_any = any(entry.sign == LAB_SIGN for _, _, entries in found for entry in entries.values())
    return found, [note] if is_any else []


def _groups(records: Iterable[ProbeRecord]) -> dict[tuple[str, str, Setting], list[ProbeRecord]]:
    """The records of each path. Figures of different testbeds, clocks and kernels are never mixed."""
    found: dict[tuple[str, str, Setting], list[ProbeRecord]] = {}
    for record in records:
        emulated = " (emulated)" if record.emulated else ""
        is_open = bool(record.column.protection) and is_unencrypted(record.encrypts, record.agreed)
        protection = protection_of(record.column, is_unencrypted=is_open)
        key = (f"{record.column.link}{emulated}", protection, record.setting.distinct)
        found.setdefault(key, []).append(record)
    return found


def protection_of(column: Column, *, is_unencrypted: bool) -> str:
    """``aes128gcm16, tunnel``; ``off`` without any."""
    parts = [column.title.removeprefix("IPsec ") or PROTECTION_OFF]
    parts += [column.mode] if column.mode not in (None, IpsecMode.TRANSPORT) else []
    return ", ".join([*parts, *([UNENCRYPTED] if is_unencrypted else [])])


def _entry(
    asked: Sequence[ProbeRecord], value: Callable[[ProbeRecord], float | None], notes: Footnotes
) -> GridCell:
    """The median of the records that count; else the status of the first, with its reason."""
    chosen = [record for record in asked if not record.is_from_run] or asked
    good = disturbance.counting(chosen)
    values = [number for record in good if (number := value(record)) is not None]
    if values:
        doubts = {warning for record in good for warning in record.warnings}
        return notes.figure(statistics.median(values), good, doubts)
    if good:
        return GridCell()
    first = chosen[0]
    return notes.without_figure(first.status, first.reason)


def _marked_once(entries: dict[str, GridCell]) -> dict[str, GridCell]:
    """The entries of a row, with each footnote's mark only at the first entry that has it."""
    seen: set[int] = set()
    found = {}
    for key, entry in entries.items():
        is_known = entry.mark in seen
        if entry.mark is not None:
            seen.add(entry.mark)
        found[key] = msgspec.structs.replace(entry, mark=None) if is_known else entry
    return found


def _fields(view: View) -> tuple[GridColumn, ...]:
    """The columns of a view, each once."""
    shown = (figure for kind in KINDS for figure in kind.FIGURES if view in figure.views)
    return tuple(
        {
            f.key: GridColumn(key=f.key, heading=f.heading, decimals=f.decimals, is_probed=True)
            for f in shown
        }.values()
    )


def _rows(group: Iterable[ProbeRecord], view: View) -> dict[str, list[ProbeRecord]]:
    """The records of a path by their rows in a view; numbers in their order."""
    rows: dict[str, list[ProbeRecord]] = {}
    for record in group:
        if record.probe.figures_of(view):
            rows.setdefault(record.probe.row, []).append(record)
    # As numbers if they are numbers.
    return dict(sorted(rows.items(), key=lambda row: row[0].zfill(9) if row[0].isdigit() else row[0]))


def _entries(
    made: Sequence[ProbeRecord], view: View, fields: Iterable[GridColumn], notes: Footnotes
) -> dict[str, GridCell]:
    highest: dict[type[Probe], float] = {}
    for record in made:
        kind = type(record.probe)
        highest[kind] = max(highest.get(kind, 0.0), record.probe.rank)
    found: dict[str, list[ProbeRecord]] = {}
    for record in made:
        if record.probe.rank == highest[type(record.probe)]:
            for figure in record.probe.figures_of(view):
                found.setdefault(figure.key, []).append(record)
    return {
        field.key: _entry(found[field.key], partial(_value, field.key), notes)
        for field in fields
        if field.key in found
    }


def _value(key: str, record: ProbeRecord) -> float | None:
    shown = next(figure for figure in record.probe.FIGURES if figure.key == key)
    if shown.figure is not None:
        return shown.read(record.figures)
    busy = [use.busy for use in record.processors if use.busy is not None]
    return 100 * max(busy) if busy else None


def runs_note(records: Sequence[Record | ProbeRecord]) -> list[str]:
    """Which runs the records are of; nothing without any."""
    runs = sorted({record.run_id for record in records})
    if not runs:
        return []
    testbeds = ", ".join(sorted({record.setting.testbed for record in records}))
    return [f"Testbed {testbeds}: {'run' if len(runs) == 1 else 'runs'} {listed(runs)}."]


def _notes(records: Sequence[ProbeRecord], reference: PathReference | None) -> list[str]:
    found = runs_note(records)
    if any(len(record.processors) > 1 for record in records):
        found.append("CPU: of the busiest host, or hop.")
    elif any(len(use.hosts) > 1 for record in records for use in record.processors):
        found.append("CPU: all hosts share one kernel, so each one's own use is unknown.")
    reasons = sorted({reason for record in records for reason in record.lost_hops.values()})
    found += [f"CPU n/a: {reason}." for reason in reasons]
    if any(record.setting.testbed is TestbedKind.LAB for record in records):
        found.append("The lab runs on one core, so speeds are too low: compare paths (docs/paths.md).")
    if reference is not None:
        found.append(f"Published: {reference.title}, {reference.source}.")
    return found
