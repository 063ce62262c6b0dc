"""Exported rows in OpenMetrics 1.0, which node_exporter's textfile collector takes as well.

That collector reads Prometheus' older text format (its ``textfile.go``, and ``text_parse.go`` of
prometheus/common): it takes ``# EOF`` for a comment, and refuses a file with times, with a type that it does
not know, or with a series twice. So all families are gauges, without times.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence

from harness.model.escape import printable

PREFIX = "harness_"
INFO = f"{PREFIX}record_info"
"""Always 1; its labels have the texts of a row."""

_UNITS = {
    "_bytes_s": ("_bytes_per_second", 1),
    "_unix_s": ("_timestamp_seconds", 1),
    "_ns": ("_seconds", 1e9),
    "_percent": ("_ratio", 100),
    "_mhz": ("_hertz", 1e-6),
}
"""How columns end, how metrics do, and how many of the column's unit one of the metric's is."""


def metric(column: str) -> str:
    """The metric's name of a column, in base units: ``harness_latency_p99_seconds``."""
    name, unit, _ = _based(column)
    return f"{PREFIX}{name}{unit}"


def _based(column: str) -> tuple[str, str, float]:
    for end, (unit, scale) in _UNITS.items():
        if column.endswith(end):
            return column.removesuffix(end), unit, scale
    return column, "", 1


def written(rows: Sequence[Mapping[str, object]], kinds: Mapping[str, type], tags: Collection[str]) -> bytes:
    """A family for each column of numbers, with a sample for each row that has one: its labels are ``tags``.
    What is unknown has no sample. ``kinds`` are the columns' types."""
    labels = [_labels(row, tags) for row in rows]
    texts = [name for name, kind in kinds.items() if kind is str]
    samples = (
        f"{INFO}{_labels(row, [*tags, *(name for name in texts if name not in tags)])} 1" for row in rows
    )
    lines = [*_family(INFO, "The texts of each row of harness export.", samples)]
    for name in (name for name, kind in kinds.items() if kind is not str and name not in tags):
        _, unit, scale = _based(name)
        about = f"Column {name} of harness export" + (f", in{unit.replace('_', ' ')}." if unit else ".")
        samples = (
            f"{metric(name)}{of} {_value(value, scale)}"
            for row, of in zip(rows, labels, strict=True)
            if isinstance(value := row[name], int | float)
        )
        lines += _family(metric(name), about, samples)
    return "".join(f"{line}\n" for line in (*lines, "# EOF")).encode()


def _family(name: str, about: str, samples: Iterable[str]) -> list[str]:
    found = [*samples]
    return [f"# TYPE {name} gauge", f"# HELP {name} {about}", *found] if found else []


def _value(value: float, scale: float) -> str:
    return repr(int(value) if isinstance(value, bool) else value if scale == 1 else value / scale)


def _labels(row: Mapping[str, object], names: Iterable[str]) -> str:
    """Those that are known: an empty label is none."""
    known = ((name, str(value)) for name in names if (value := row[name]) not in (None, ""))
    return "{" + ",".join(f'{name}="{_escaped(text)}"' for name, text in known) + "}"


def _escaped(text: str) -> str:
    return printable(text).replace("\\", r"\\").replace('"', r"\"")
