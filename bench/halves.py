#!/usr/bin/env python3
"""How often does `harness compare` see a difference between halves of one stored run, and a real one?

    python bench/halves.py [RUN ...] [--rounds 3000] [--slower 10 20 30 100] [--seed 1]

Each comparison divides the repeats of each cell into two halves at random: nothing but chance differs. For
each metric and RUN (by default those below docs/figures with four repeats or more) it prints in how many
comparisons any cell is said to differ. Then, how often one cell is found whose second half took so many
percent longer: compared alone, and among all cells of the run, none of the others of which differs. Exits 1
if any cell is said to differ in more than 2.5 % of the comparisons of a run: 2 % are promised, the rest is
chance.
"""

from __future__ import annotations

import argparse
import functools
import itertools
import random
import sys
from collections.abc import Sequence
from pathlib import Path

import msgspec

from harness.analysis.ratios import Judgement, Ratio, judge
from harness.model import Io, Record
from harness.results.measured import Measured
from harness.results.metrics import Metric, Of
from harness.table.comparison import compare

FIGURES = Path(__file__).parents[1] / "docs/figures"
FEWEST = 4
PROMISED = 0.025
"""Of 3,000 comparisons 2 % differ, give or take 0.5."""

Halves = list[list[Ratio]]
"""Of each cell, the ratio of its halves for each way to divide the repeats."""


@functools.cache
def stored_runs() -> dict[str, Sequence[Record]]:
    """The cells of each run below docs/figures that was measured with four repeats or more."""
    read = {at.parent.name: Measured.read([at.parent]).records for at in sorted(FIGURES.glob("*/cells"))}
    return {name: found for name, found in read.items() if max(r.repeat for r in found) >= FEWEST}


def halves(records: Sequence[Record], metric: Metric, longer: float = 0.0) -> Halves:
    """``longer``: how much longer, as a part, all took in the second half."""
    first, *others = sorted({record.repeat for record in records})
    later = [_longer(record, 1 + longer) for record in records] if longer else records
    found: dict[str, list[Ratio]] = {}
    # The first repeat is always in A: which half has which name does not matter.
    for chosen in itertools.combinations(others, (len(others) + 1) // 2 - 1):
        a = [record for record in records if record.repeat in (first, *chosen)]
        b = [record for record in later if record.repeat not in (first, *chosen)]
        for cell in compare(Measured(records=a), Measured(records=b), metric).cells:
            if cell.ratio is not None:
                found.setdefault(cell.name, []).append(cell.ratio)
    return list(found.values())


def _longer(record: Record, factor: float) -> Record:
    def longer(io: Io | None) -> Io | None:
        if io is None:
            return None
        times = {name: getattr(io.latency, name) for name in ("mean_ns", "p50_ns", "p99_ns", "p99_9_ns")}
        latency = {name: factor * value for name, value in times.items() if value is not None}
        return msgspec.structs.replace(
            io,
            runtime_ns=round(factor * io.runtime_ns),
            latency=msgspec.structs.replace(io.latency, **latency),
        )

    return msgspec.structs.replace(record, read=longer(record.read), write=longer(record.write))


def differ(cells: Halves, *, rounds: int, seed: int) -> float:
    """The part of so many comparisons of all cells in which any is said to differ."""
    choice = random.Random(seed).choice  # noqa: S311 -- no secret
    return sum(bool(_said(list(map(choice, cells)))) for _ in range(rounds)) / rounds


def found_alone(longer: Halves) -> float:
    """How often a cell is said to differ whose second half took longer, compared by itself."""
    each = [bool(_said([ratio])) for cell in longer for ratio in cell]
    return sum(each) / len(each)


def found_among(cells: Halves, longer: Halves, *, rounds: int, seed: int) -> float:
    """The same among all cells of the run, none of the others of which differs."""
    source = random.Random(seed)  # noqa: S311 -- no secret
    found = 0
    for _ in range(rounds):
        place = source.randrange(len(cells))
        ratios = [source.choice(longer[at] if at == place else cell) for at, cell in enumerate(cells)]
        found += place in _said(ratios)
    return found / rounds


def _said(ratios: Sequence[Ratio]) -> list[int]:
    """The places of those that are said to differ, in either direction."""
    verdicts = judge(ratios, margin=0.05, higher_is_better=True)
    return [at for at, (said, _) in enumerate(verdicts) if said in (Judgement.FASTER, Judgement.SLOWER)]


def _line(heading: str, each: Sequence[str]) -> None:
    print(f"{heading:8}" + "".join(f"{words:>16}" for words in each), flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("runs", nargs="*", type=Path, metavar="RUN")
    parser.add_argument("--rounds", type=int, default=3000)
    parser.add_argument("--slower", type=float, nargs="*", default=[10, 20, 30, 100], metavar="PERCENT")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    runs = {run.name: Measured.read([run]).records for run in options.runs} or stored_runs()
    chance = {"rounds": options.rounds, "seed": options.seed}
    metrics = [metric for metric in Metric if metric is not Metric.MIB_S]
    equal = {metric: [halves(records, metric) for records in runs.values()] for metric in metrics}
    print("comparisons in which any cell is said to differ, in percent")
    _line("", list(runs))
    most = 0.0
    for metric in metrics:
        false = [differ(cells, **chance) for cells in equal[metric]]
        _line(metric, [f"{100 * part:.2f}" for part in false])
        most = max(most, *false)
    for percent in options.slower:
        print(f"\ncells that are found where one took {percent:g} % longer, in percent: alone / among all")
        _line("", list(runs))
        for metric in metrics:
            if metric.figure.of is Of.RECORD:
                continue
            longer = [halves(records, metric, percent / 100) for records in runs.values()]
            among = [found_among(*both, **chance) for both in zip(equal[metric], longer, strict=True)]
            alone = map(found_alone, longer)
            both = zip(alone, among, strict=True)
            _line(metric, [f"{100 * one:.0f} / {100 * other:.0f}" for one, other in both])
    return 0 if most <= PROMISED else 1


if __name__ == "__main__":
    sys.exit(main())
