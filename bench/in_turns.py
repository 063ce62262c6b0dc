"""Runs of the lab in turns, for the scripts that compare two ways or more of doing the same.

Machines are shared and noisy, so nothing is compared with a figure of another time: each round has one run of
each way, in alternating order, and what is printed is the median of the rounds' ratios.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

from harness.analysis.stats import summarise
from harness.model import Record, Status
from harness.results.store import RunFolder

READS = "[global]\nioengine=libaio\ndirect=1\nrw=read\n" + "".join(
    f"[{size}-depth{depth}]\nbs={size}\niodepth={depth}\n" for size in ("256k", "4k") for depth in (1, 8)
)
"""Reads of 256K and 4K, one and eight at a time."""

HARNESS = (sys.executable, "-m", "harness")

Measured = TypeVar("Measured")

Cell = tuple[str, str]
"""The label of a column, and a workload."""

Figures = dict[Cell, float]
"""MB/s of each cell."""


def run_harness(*words: str, may_fail: bool = False) -> str:
    """What a harness prints; unless it may fail, a failure ends the script."""
    done = subprocess.run([*HARNESS, *words], capture_output=True, text=True, check=False)
    if done.returncode and not may_fail:
        sys.exit(f"{' '.join(words)}: {done.stderr[-2000:]}")
    return done.stdout


def measured(results: Path, *words: str) -> RunFolder:
    """The folder of a run of these words; it is left where it is if there is one already."""
    if not results.is_dir():
        run_harness(*words, "--results", str(results))
    (folder,) = [each for each in results.iterdir() if (each / "plan.json").is_file()]
    return RunFolder(folder)


def argument_parser(doc: str | None, *, rounds: int = 5) -> argparse.ArgumentParser:
    """The options that all these scripts have; ``doc`` is the script's own, and ``rounds`` the default."""
    made = argparse.ArgumentParser(description=(doc or "").splitlines()[0])
    made.add_argument("--rounds", type=int, default=rounds)
    made.add_argument("--runtime", default="1s")
    return made


def records(name: str, words: Sequence[str], harness: Sequence[str] = HARNESS) -> list[Record]:
    """Those of one `harness run`, for which the word READS is a file of these jobs. Ends the program if there
    are none, or one is not ok; ``name`` is for that message."""
    with tempfile.TemporaryDirectory() as folder:
        jobs, results = Path(folder, "reads.fio"), Path(folder, "results")
        jobs.write_text(READS, encoding="utf-8")
        options = [str(jobs) if word == "READS" else word for word in words]
        done = subprocess.run(
            [*harness, "run", *options, "--retries", "0", "--results", str(results)],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
        made = [record for run in results.glob("*/") for record in RunFolder(run).load_records()]
    if not made:
        sys.exit(f"the run with {name} measured nothing: {done.stderr[-1000:]}")
    for record in made:
        if record.status is not Status.OK or record.read is None:
            label = f"{record.column.label} {record.workload.name}"
            sys.exit(f"{name}: {label} is {record.status}: {record.reason}")
    return made


def mb_s(made: Sequence[Record]) -> Figures:
    """The figures of reads."""
    return {(one.column.label, one.workload.name): one.read.bytes_per_s / 1e6 for one in made if one.read}


def round_trip_us(made: list[Record], link: str) -> float:
    """What a round trip over an emulated link takes beyond its profile, in us; the least counts."""
    found = [
        one.telemetry.emulation_round_trip_ns for one in made if one.telemetry and one.column.link == link
    ]
    return min(ns for ns in found if ns is not None) / 1e3


def in_turns(
    names: Sequence[str], rounds: int, measure: Callable[[str], Measured]
) -> dict[str, list[Measured]]:
    """What each way measured in each round; ABBA, so that whatever drifts hits all alike."""
    found: dict[str, list[Measured]] = {name: [] for name in names}
    for number in range(rounds):
        for name in names[:: 1 if number % 2 == 0 else -1]:
            found[name].append(measure(name))
    return found


def ratio(these: Sequence[float], those: Sequence[float]) -> str:
    """The median of the rounds' ratios, with its 95 % interval."""
    found = summarise([one / other for one, other in zip(these, those, strict=True)])
    return f"{found.median:6.3f} [{found.low:.3f}, {found.high:.3f}]"


def print_table(names: Sequence[str], found: dict[str, list[Figures]]) -> None:
    """For each cell the median of each way, and its ratio to the first one."""
    first, *others = names
    width = max(len(cell[0]) for cell in found[first][0])
    print(f"{'MB/s':{width}} {'':12}{first:>9}", *(f"{name:>32}" for name in others))
    for cell in sorted(found[first][0]):
        column = {name: [figures[cell] for figures in found[name]] for name in names}
        line = f"{cell[0]:{width}} {cell[1]:12}{summarise(column[first]).median:9.2f}"
        for name in others:
            median = summarise(column[name]).median
            line += f" {median:9.2f} {ratio(column[name], column[first]):>22}"
        print(line)
