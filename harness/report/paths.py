"""What was measured during the cells, and the probes, as tables. What is unknown is "n/a"."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

import msgspec

from harness.analysis import disturbance
from harness.model.probing import CipherFigures, Figures
from harness.model.units import format_ns
from harness.report import draw
from harness.report.content import LoadedResults
from harness.results.probe_records import ProbeRecord
from harness.table.views import build_counters

UNKNOWN = "n/a"

Lines = list[tuple[str, ...]]

PROBES = ("path", "probe", "repeat", "status", "figures", "remarks")


def telemetry(results: LoadedResults) -> tuple[Sequence[str], Lines]:
    """Headings, and a line for each cell with probes."""
    grid = build_counters(results.records, list(results.plans.values()))
    headings = ("column", "row", *(field.heading.replace("|", " ") for field in grid.fields))
    return headings, [
        (*row.labels[:2], *(row.entries[f.key].text(f) for f in grid.fields)) for row in grid.rows
    ]


def probes(records: Iterable[ProbeRecord]) -> Lines:
    """A line for each probe, with all of its figures."""
    return [
        (
            record.shown,
            f"{record.probe.name}{' (between cells)' if record.is_from_run else ''}",
            str(record.repeat),
            str(record.status),
            "; ".join(_phrases(record.figures)) if record.figures is not None else UNKNOWN,
            "; ".join(filter(None, (record.reason, disturbance.summary([record]), *record.warnings))),
        )
        for record in records
    ]


def _phrases(figures: Figures) -> Iterable[str]:
    if isinstance(figures, CipherFigures):
        for kernel in figures.kernels:
            yield f"{' and '.join(kernel.ends)}: {kernel.driver}"
            for name, operation in (("encrypt", kernel.encrypt), ("decrypt", kernel.decrypt)):
                packet = format_ns(operation.each_packet_ns)
                yield f"{name}: {operation.each_byte_ns:.3g} ns per byte, {packet} per packet"
    else:
        yield from _figures(msgspec.to_builtins(figures))


def _figures(known: Mapping[str, object]) -> Iterable[str]:
    """Names and values, in the units that end the names. Lists of their own stay in the records."""
    for name, value in known.items():
        match value:
            case Mapping() if name != "histogram":
                yield from _figures(value)
            case bool():
                yield f"{_words(name)}: {'yes' if value else 'no'}"
            case None:
                yield f"{_words(name)}: {UNKNOWN}"
            case int() | float():
                yield _quantity(name, value)


_UNITS: Mapping[str, Callable[[float], str]] = {
    "_bit_s": lambda value: f"{draw.amount(value / 1e6)} Mbit/s",
    "_per_s": lambda value: f"{draw.amount(value)} a second",
    "_percent": lambda value: f"{value:.3g} %",
    "_bytes": lambda value: f"{draw.amount(value)} bytes",
    "_ns": format_ns,
}


def _quantity(name: str, value: float) -> str:
    for ending, shown in _UNITS.items():
        if name.endswith(ending):
            return f"{_words(name.removesuffix(ending))}: {shown(value)}"
    return f"{_words(name)}: {draw.amount(value)}"


def _words(name: str) -> str:
    return name.replace("_", " ")
