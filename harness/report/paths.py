"""What was measured during the cells, and the probes, as tables. What is unknown is "n/a"."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence

import msgspec

from harness.analysis import disturbance, stats
from harness.model import Record, Status
from harness.model.beside import Beside, InterfaceUse, ProcessorUse
from harness.report import draw
from harness.report.content import ColumnFacts
from harness.results.probe_records import CipherFigures, Figures, ProbeRecord
from harness.table.options import Table

UNKNOWN = "n/a"

Lines = list[tuple[str, ...]]

BESIDE = (
    "column",
    "row",
    "repeats",
    "idle round trip, p50",
    "p99",
    "lost",
    "busiest core",
    "all cores",
    "other programs took",
    "drops",
    "errors",
)
PROBES = ("path", "probe", "repeat", "status", "figures", "remarks")


def beside(table: Table, facts: Sequence[ColumnFacts]) -> Lines:
    """A line for each cell with probes: medians of its repeats; drops and errors are sums."""
    workloads = {row.workload: row.name for row in table.rows}
    return [
        (fact.name, name, *line)
        for fact in facts
        for workload, name in workloads.items()
        if (line := _beside(fact.samples.get(workload, ())))
    ]


def _beside(records: Iterable[Record]) -> tuple[str, ...]:
    good = [record for record in records if record.status is Status.OK]
    found = [record.beside for record in good if record.beside is not None]
    if not found:
        return ()
    trips = [beside.round_trips for beside in found if beside.round_trips is not None]
    interfaces = [use for beside in found for use in beside.interfaces]
    return (
        str(len(found)),
        _median([trip.p50_ns for trip in trips], _time),
        _median([trip.p99_ns for trip in trips], _time),
        _median([trip.lost_percent for trip in trips], lambda value: f"{value:.3g} %"),
        _by_kernel(found, lambda use: use.hottest),
        _by_kernel(found, lambda use: use.busy),
        _median([disturbance.share(record) for record in good], _part),
        _by_host(interfaces, lambda use: use.drops),
        _by_host(interfaces, lambda use: use.errors),
    )


def _by_kernel(found: Sequence[Beside], part: Callable[[ProcessorUse], float | None]) -> str:
    """The median of each kernel, with names if there are several; for a lost hop, what is known."""
    parts: dict[str, list[float | None]] = {}
    for beside in found:
        for use in beside.processors:
            parts.setdefault(use.whose, []).append(part(use))
    known = {name for use in (use for beside in found for use in beside.processors) for name in use.hosts}
    parts |= {name: [] for beside in found for name in beside.unseen if name not in known}
    if len(parts) < 2:
        return _median(next(iter(parts.values()), ()), _part)
    return ", ".join(f"{name} {_median(values, _part)}" for name, values in parts.items())


def _by_host(interfaces: Sequence[InterfaceUse], count: Callable[[InterfaceUse], int]) -> str:
    """The sum, and where it was counted if it is not zero and there are several places."""
    if not interfaces:
        return UNKNOWN
    counted = Counter[str]()
    for use in interfaces:
        counted[f"{use.host} {use.interface}"] += count(use)
    places = ", ".join(f"{place} {number}" for place, number in counted.items() if number)
    return f"{counted.total()} ({places})" if places and len(counted) > 1 else str(counted.total())


def unseen(facts: Sequence[ColumnFacts]) -> list[str]:
    """Why the counters of hops are unknown beside some cells, each reason once."""
    reasons = {
        reason
        for fact in facts
        for records in fact.samples.values()
        for record in records
        if record.beside is not None
        for reason in record.beside.unseen.values()
    }
    return sorted(reasons)


def probes(records: Iterable[ProbeRecord]) -> Lines:
    """A line for each probe, with all of its figures."""
    return [
        (
            record.shown,
            f"{record.probe.name}{' (between cells)' if record.is_beside else ''}",
            str(record.repeat),
            str(record.status),
            "; ".join(_told(record.figures)) if record.figures is not None else UNKNOWN,
            "; ".join(filter(None, (record.reason, disturbance.summary([record]), *record.warnings))),
        )
        for record in records
    ]


def _told(figures: Figures) -> Iterable[str]:
    if isinstance(figures, CipherFigures):
        for kernel in figures.kernels:
            yield f"{' and '.join(kernel.ends)}: {kernel.driver}"
            for name, operation in (("encrypt", kernel.encrypt), ("decrypt", kernel.decrypt)):
                packet = _time(operation.each_packet_ns)
                yield f"{name}: {operation.each_byte_ns:.3g} ns for each byte, {packet} for each packet"
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
    "_ns": lambda value: _time(value),
}


def _quantity(name: str, value: float) -> str:
    for ending, shown in _UNITS.items():
        if name.endswith(ending):
            return f"{_words(name.removesuffix(ending))}: {shown(value)}"
    return f"{_words(name)}: {draw.amount(value)}"


def _words(name: str) -> str:
    return name.replace("_", " ")


def _median(values: Iterable[float | None], shown: Callable[[float], str]) -> str:
    known = [value for value in values if value is not None]
    return shown(stats.median(known)) if known else UNKNOWN


def _time(ns: float) -> str:
    return draw.microseconds(ns / 1000)


def _part(part: float) -> str:
    return f"{part:.0%}"
