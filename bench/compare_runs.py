#!/usr/bin/env python3
"""Does `harness compare` tell equal runs from slower ones? Three runs: A, A again, and B with slower links.

    python bench/compare_runs.py FOLDER [OPTION of harness run...]

B's links have the names of A's, but so much more delay that each 4K cell over them is slower by some 10 %
(computed from A). Runs that are in FOLDER already (`a`, `again`, `slowed`) are not measured again. It prints
how many cells are said to differ, and how much runs vary beyond their repeats. Exits 1 if more than one cell
in 40 differs between A and A again, or if a 4K cell of B is not said to be slower. With the options of a
default run it takes 12 minutes.
"""

from __future__ import annotations

import argparse
import json
import math
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

import msgspec

from harness.analysis.disturbance import quiet
from harness.analysis.schedule import throughput_bytes_s
from harness.analysis.stats import Difference, median, student_quantile
from harness.model import LINK_LOCAL, LinkProfile
from harness.parse.profiles import load_link
from harness.results.store import open_results
from harness.table import build

HARNESS = str(Path(sys.executable).with_name("harness"))
PART = 0.10
"""By how much 4K cells of B are slower, about: by the delay alone, of the slowest cell of a link."""

SMALL = "-4k"
SMALL_BYTES = 4096
MOST_DIFFERENT = 1 / 40


def measure(folder: Path, options: Sequence[str], place: Path | None = None) -> None:
    """One run, in the working folder ``place``, whose profiles are found before all others."""
    if not folder.is_dir():
        words = [HARNESS, "run", *options, "--results", str(folder)]
        subprocess.run(words, cwd=place, check=True, stdout=sys.stderr)


def link_of(cell: dict[str, Any]) -> str:
    return str(cell["column"]["link"])


def slowed_links(folder: Path) -> dict[str, LinkProfile]:
    """The links of the runs in ``folder`` with delay added, each by name."""
    times_us: dict[str, dict[tuple[object, ...], list[float]]] = {}
    for record in quiet(open_results([folder])):
        if record.column.link != LINK_LOCAL and record.workload.name.endswith(SMALL):
            cells = times_us.setdefault(record.column.link, {})
            time_us = 1e6 * SMALL_BYTES / throughput_bytes_s(record)
            cells.setdefault((record.column.protection, record.workload.name), []).append(time_us)
    found = {}
    for name, cells in times_us.items():
        # What slows the slowest cell by PART slows the others by more. A 4K request is one round trip.
        more_us = max(map(median, cells.values())) * (1 / (1 - PART) - 1) / 2
        link = load_link(name)
        found[name] = msgspec.structs.replace(link, delay_us=link.delay_us + more_us)
    return found


def write_links(links: Mapping[str, LinkProfile], place: Path) -> None:
    """As files that are found before the harness's own by who works in ``place``."""
    folder = place / "profiles" / "links"
    folder.mkdir(parents=True)
    for name, link in links.items():
        kept = {
            key: value
            for key, value in msgspec.to_builtins(link).items()
            if value not in (None, "") and key != "name"
        }
        text = "".join(f"{key} = {json.dumps(value)}\n" for key, value in kept.items())
        (folder / f"{name}.toml").write_text(text, encoding="utf-8")
        print(f"{name}: {load_link(name).delay_us:g} us of delay each way, slowed {link.delay_us:.0f} us")


def compare(a: Path, b: Path) -> tuple[int, dict[str, Any]]:
    words = [HARNESS, "compare", str(a), str(b), "--fail-if-slower", "5%", "--format", "json"]
    done = subprocess.run(words, check=False, capture_output=True, text=True)
    if not done.stdout:
        sys.exit(done.stderr)
    return done.returncode, json.loads(done.stdout)


def undecided(folder: Path) -> list[str]:
    """The cells of a run whose table says `?`."""
    table = build(open_results([folder]))
    return [
        f"{column.label} {row.workload}"
        for row, line in zip(table.rows, table.cells, strict=True)
        for column, cell in zip(table.columns, line, strict=True)
        if cell is not None and cell.difference_from_unprotected is Difference.INCONCLUSIVE
    ]


def between_runs(cells: Sequence[Mapping[str, Any]]) -> float:
    """The standard deviation of a cell's logarithm from run to run, beyond what its repeats explain.

    An interval has the variance within runs and ``BETWEEN_RUNS``; the latter is taken out of it here.
    """
    excess = []
    for cell in cells:
        if cell["low"] is not None:
            half = math.log(cell["high"] / cell["low"]) / 2
            quantile = student_quantile(cell["n_a"] + cell["n_b"] - 2)
            within = max(0.0, half**2 - cell["more"] ** 2) / quantile**2
            excess.append((math.log(cell["ratio"]) ** 2 - within) / 2)
    return math.sqrt(max(0.0, fmean(excess or [0.0])))


def summary(cells: Sequence[Mapping[str, Any]]) -> str:
    return ", ".join(
        f"{count} {verdict}" for verdict, count in Counter(cell["verdict"] for cell in cells).items()
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("folder", type=Path)
    known, options = parser.parse_known_args()
    a, again, slowed = (known.folder.resolve() / name for name in ("a", "again", "slowed"))
    measure(a, options)
    measure(again, options)
    if not slowed.is_dir():
        with tempfile.TemporaryDirectory() as place:
            write_links(slowed_links(a), Path(place))
            measure(slowed, options, Path(place))
    for folder in (a, again):
        doubtful = undecided(folder)
        print(f"{folder.name}: {len(doubtful)} cells with ? in the table {', '.join(doubtful)}".rstrip())
    status, equal = compare(a, again)
    cells = equal["cells"]
    differ = [cell for cell in cells if cell["verdict"] in ("faster", "slower")]
    print(
        f"A against A again: {len(differ)} of {len(cells)} cells differ ({summary(cells)}); status {status}"
    )
    for cell in differ:
        column = "+".join((link_of(cell), *cell["column"]["protection"]))
        print(f"  {column} {cell['workload']}: {cell['ratio']:.3f}")
    for name, those in (
        ("local", [cell for cell in cells if link_of(cell) == LINK_LOCAL]),
        ("others", [cell for cell in cells if link_of(cell) != LINK_LOCAL]),
    ):
        print(f"  from run to run, {name} vary by {between_runs(those):.1%} beyond their repeats")
    slower_status, found = compare(a, slowed)
    is_small = [link_of(cell) != LINK_LOCAL and cell["workload"].endswith(SMALL) for cell in found["cells"]]
    small, rest = (
        [cell for cell, small in zip(found["cells"], is_small, strict=True) if small is wanted]
        for wanted in (True, False)
    )
    print(f"A against B, 4K over slower links: {summary(small)}; status {slower_status}")
    print(f"A against B, the other cells: {summary(rest)}")
    good = len(differ) <= MOST_DIFFERENT * len(cells) and status == 0
    return 0 if good and slower_status == 1 and all(cell["verdict"] == "slower" for cell in small) else 1


if __name__ == "__main__":
    sys.exit(main())
