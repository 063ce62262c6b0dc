"""Tables of scores: what a script of bench/ measured and stored, or judges again from stored evidence.

``python bench/NAME.py --store`` writes ``docs/figures/scores/NAME.json``, and ``score NAME`` in a page of the
docs prints it (tools/figures.py).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from datetime import date
from importlib import import_module
from pathlib import Path
from typing import Any
from unittest import mock

import msgspec
from tabulate import tabulate

from harness.model import DEFAULT_TRANSPORT, TRANSPORTS

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / "docs" / "figures" / "scores"
EVIDENCE = ROOT / "tests" / "data" / "injections.json"

INJECTED = {
    "rate": "link of 30, 100 and 300 Mbit/s",
    "deep": "link of 100 Mbit/s, depth 32",
    "delay": "delay of 1, 5 and 20 ms each way",
    "depth": "delay of 10 ms each way, depth 1, 4 and 32",
    "window": "TCP window of 16 and 64 KiB",
    "disk": "disk of 10 ms per command",
    "r2t8": "bursts of 8 and 16 KiB: 7 to 31 R2Ts",
    "r2t16": "bursts of 8 and 16 KiB: 7 to 31 R2Ts",
    "cipher": "3DES",
    "processor": "unshaped link, depth 8 and 32",
    "quota": "a quarter of a core",
}
"""What each experiment of bench/whom_to_blame.py makes slow. The order is that of the table."""


class Table(msgspec.Struct, frozen=True, kw_only=True):
    """``command`` makes it, ``measured`` says when and on what; ``summary`` are sentences below the rows."""

    command: str
    measured: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    summary: Sequence[str] = ()

    def of(self, columns: Sequence[str]) -> Table:
        """With these columns alone. ValueError if it has no such column."""
        places = [list(self.columns).index(name) for name in columns]
        rows = [[row[place] for place in places] for row in self.rows]
        return msgspec.structs.replace(self, columns=columns, rows=rows)


def store(
    name: str,
    command: str,
    columns: Sequence[str],
    rows: Sequence[Sequence[str]],
    summary: Sequence[str] = (),
) -> None:
    """Write what ``command`` found today, each row on a line of its own, so that diff shows which changed."""
    about = {"command": command, "measured": f"{date.today():%B %Y}", "columns": [*columns]}
    lines = [f"{json.dumps(key)}: {_text(value)}" for key, value in about.items()]
    lines.append('"rows": [\n  ' + ",\n  ".join(map(_text, rows)) + "\n ]")
    lines.append(f'"summary": {_text([*summary])}')
    FOLDER.mkdir(exist_ok=True)
    (FOLDER / f"{name}.json").write_text("{\n " + ",\n ".join(lines) + "\n}\n", encoding="utf-8")


def load(name: str) -> Table:
    """A stored one. FileNotFoundError if there is none."""
    return msgspec.json.decode((FOLDER / f"{name}.json").read_bytes(), type=Table)


def injections() -> Table:
    """The verdicts on bottlenecks that were injected, judged again from the stored evidence."""
    from bench import whom_to_blame as bench
    from harness.analysis.limit import Limit
    from harness.explain.text import Explained

    cells = msgspec.json.decode(EVIDENCE.read_bytes(), type=list[bench.Judged])
    found: dict[tuple[str, Limit], list[Limit]] = {}
    for cell in sorted(cells, key=lambda cell: [*INJECTED].index(cell.experiment)):
        place = INJECTED[cell.experiment], cell.injected
        found.setdefault(place, []).append(Explained.of(cell.evidence).verdict.limited_by)
    rows = []
    for (what, limit), limits in found.items():
        right, unknown = limits.count(limit), limits.count(Limit.UNKNOWN)
        counts = (len(limits), right, unknown, len(limits) - right - unknown)
        rows.append([what, str(limit), *map(str, counts)])
    columns = ["injected", "right answer", "cells", "named", "no verdict", "another one named"]
    return Table(command="python bench/whom_to_blame.py", measured="", columns=columns, rows=rows)


def theory() -> Table:
    """How far virtual time is from theory: of the reference figures of the tests, and as it was stored."""
    from tests.lab import references
    from tests.lab import test_against_theory as against

    found: dict[str, list[tuple[str, str]]] = {}
    with mock.patch.object(references, "folder", lambda: ROOT / "tests/data/virtual/linux-6.1-fio-3.33"):
        for line in [*against.documented()][2:]:
            cells = [cell.strip() for cell in line.strip("|").split("|")]
            found.setdefault(f"iSCSI, {cells[1]}", []).append((cells[6], cells[9]))
    others = {name: title for name, title in TRANSPORTS.items() if name != DEFAULT_TRANSPORT}
    for name, title in (others | {"protections": ""}).items():
        for row in load(f"theory-{name}").rows:
            found.setdefault(title or row[0], []).append((row[-4], row[-1]))
    rows = [
        [name, str(len(cells)), *(max(each, key=_percent) for each in zip(*cells, strict=True))]
        for name, cells in found.items()
    ]
    columns = ["transport and protection", "cells", "time differs by", "bytes differ by"]
    command = "python -m tests.lab.test_against_theory table"
    return Table(command=command, measured="", columns=columns, rows=rows)


def _percent(text: str) -> float:
    return abs(float(text.removesuffix("%")))


JUDGED: Mapping[str, Callable[[], Table]] = {
    "third-party": lambda: import_module("bench.figures").for_docs(),
    "injections": injections,
    "theory": theory,
}
"""What is not stored as a table, because the evidence is."""


def printed(name: str, *columns: str) -> str:
    """As text, with these columns (all, if there are none)."""
    table = JUDGED[name]() if name in JUDGED else load(name)
    table = table.of(columns) if columns else table
    drawn = tabulate(table.rows, table.columns, disable_numparse=True)
    source = ", ".join(filter(None, (table.command, table.measured)))
    return "\n".join([*(line.rstrip() for line in drawn.splitlines()), "", *table.summary, source])


def _text(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)
