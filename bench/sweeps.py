"""How many points sweeps save, and how far the others are from where they were forecast.

    python bench/sweeps.py [--folder FOLDER] [--store] [HARNESS-OPTION...]

It measures a surface over depth and block as a sweep, then each point of the same grid, with the same options
(default: virtual time, wired, four access patterns), and prints a line for each curve.
"""

from __future__ import annotations

import argparse
import shlex
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from statistics import median

from tabulate import tabulate

from bench.in_turns import measured
from harness.analysis.schedule import Place, throughput_bytes_s
from harness.explain.curves import NEARLY
from harness.model import Record
from harness.questions.sweep.section import SECTION
from harness.results.curves import MeasuredCurve
from tools import scores

PATTERNS = ("seq-write-4k", "seq-read-4k", "rand-write-4k", "rand-read-4k")
OPTIONS = ("--virtual-time", "--link", "wired", "--protect", "off")
DEPTHS = "1,2,3,4,6,8,11,16,23,32,45,64"
BLOCKS = "4K,8K,16K,32K,64K,128K,256K,512K,1M"
ERROR = 0.05


def bends(curve: MeasuredCurve, rates: Mapping[Place, float]) -> Iterator[int]:
    """How many points lie between where the curve bends and where it bends in truth (``rates``), along each
    axis at each place of the others."""
    for axis in curve.axes:
        for there in {tuple(p[o] for o in curve.axes if o != axis) for p in curve.grid.values()}:
            others = dict(zip((o for o in curve.axes if o != axis), there, strict=True))
            line = [place for _, place in curve.along(axis, others)]
            said, true = (
                next(n for n, each in enumerate(found) if each >= NEARLY * max(found))
                for found in ([curve.at(place).mid for place in line], [rates[place] for place in line])
            )
            yield abs(said - true)


def score(curve: MeasuredCurve, truth: Sequence[Record]) -> list[str]:
    """A row: what was measured, and how right the rest is."""
    rates = {(each.column, each.workload.name): throughput_bytes_s(each) for each in truth}
    found = [(estimate, rates[place]) for place, estimate in curve.estimates.items()]
    errors = [abs(estimate.mid / rate - 1) for estimate, rate in found]
    right = sum(error <= ERROR for error in errors) / len(errors)
    covered = sum(estimate.low <= rate <= estimate.high for estimate, rate in found) / len(found)
    away = list(bends(curve, rates))
    return [
        curve.curve.name,
        f"{len(curve.rates)} of {len(curve.grid)}",
        f"{right:.1%}",
        f"{median(errors):.2%}",
        f"{max(errors):.1%}",
        f"{covered:.0%}",
        f"{sum(each <= 1 for each in away)} of {len(away)}",
    ]


HEADINGS = (
    *("curve", "measured", "others within 5 %", "median error", "worst", "in their interval"),
    "bends within a step",
)


def main() -> None:
    """See above."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--folder", type=Path, help="keep the runs there, and use those that are")
    parser.add_argument("--store", action="store_true", help="store the table for docs/scores.md")
    asked, options = parser.parse_known_args()
    folder = asked.folder or Path(tempfile.mkdtemp(prefix="sweeps-"))
    words = [*(options or OPTIONS), *(word for name in PATTERNS for word in ("--workload", name))]
    few = measured(
        folder / "sweep", "sweep", "--over", "depth=1..64", "--over", "block=4K..1M", "--seed", "1", *words
    )
    grid = measured(
        folder / "grid", "run", "--depth", DEPTHS, "--block", BLOCKS, "--repeats", "1", "--no-probes", *words
    )
    rows = [
        score(curve, grid.load_records()) for curve in SECTION.curves(few.load_plan(), few.load_records())
    ]
    print(tabulate(rows, HEADINGS, disable_numparse=True))
    if asked.store:
        scores.store("sweeps", shlex.join(["python", "bench/sweeps.py", *options]), HEADINGS, rows)


if __name__ == "__main__":
    main()
