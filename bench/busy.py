"""Does what `harness explain` says of a busy machine hold? What IPsec costs, next to busy loops.

    python bench/busy.py                      # all of it, about an hour on a machine that is quiet otherwise
    python bench/busy.py --results FOLDER     # keep the runs there; what is there is not run again
    python bench/busy.py --only 2             # next to 2 busy loops only
    python bench/busy.py --store              # for docs/scores.md

Four cells (wired, without IPsec and with AES-GCM; 256K and 4K), 24 rounds, first with nothing put in, and
then next to 2, 4 and 8 programs that never sleep. Nothing is measured again. Printed is for each number of
loops in how many runs an interval of IPsec's cost is stated, how many of these hold the median of the
undisturbed pairs without loops, how wide they are, how many limits are named, and how many of them are
others than those without loops. It is a score, and no test.
"""

from __future__ import annotations

import argparse
import contextlib
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from tabulate import tabulate

from bench.disturbed import SPIN
from bench.in_turns import run_harness
from harness import report
from harness.analysis import stats
from harness.analysis.limit import Limit
from harness.model import Column
from harness.report.conclusion import ThroughputRatio
from harness.results.store import open_runs
from tools import scores

WORKLOADS = ("seq-read-256k", "rand-read-4k")
WORDS = (
    "--lab-kernel=debian",
    "--link=wired",
    "--protect=off",
    "--protect=aes128gcm16",
    "--retries=0",
    *(f"--workload={name}" for name in WORKLOADS),
)
RUNS = {0: 5, 2: 10, 4: 3, 8: 3}
"""How many runs next to so many loops."""


@contextlib.contextmanager
def busy_loops(count: int) -> Iterator[None]:
    with contextlib.ExitStack() as stack:
        for _ in range(count):
            # In a session each: those of one share what one process would have (sched(7), autogroup).
            loop = stack.enter_context(subprocess.Popen([sys.executable, "-c", SPIN], start_new_session=True))
            stack.callback(loop.kill)
        yield


def measured(loops: int, number: int, folder: Path, rounds: int) -> Path:
    """The folder of a run next to so many loops, which is made unless it is there."""
    base = folder / f"{loops}-loops" / str(number)
    if not base.is_dir():
        made = base.with_name(f"{number}.part")
        made.mkdir(parents=True)
        with busy_loops(loops):
            run_harness("run", *WORDS, f"--repeats={rounds}", f"--seed={number}", f"--results={made}")
        made.rename(base)
    return next(run.path for run in open_runs([base]))


Costs = dict[int | None, ThroughputRatio]
"""What IPsec leaves of the rate, by the size of blocks in bytes."""


def stated(found: report.LoadedResults) -> Costs:
    """Of disturbed figures what is stated within each round, of others what is."""
    made: Costs = {}
    for answer in found.answers:
        for loss in answer.losses if answer.baseline else ():
            if loss.compared is not None and loss.compared.interval is not None:
                made[loss.block_bytes] = loss.compared
            elif loss.duet is not None and loss.duet.is_stated:
                made[loss.block_bytes] = ThroughputRatio.next_to_others(loss.duet)
    return made


def limits(found: report.LoadedResults) -> dict[tuple[Column, str], Limit]:
    """What is said to limit, by cell."""
    return {
        (cell.evidence.column, cell.evidence.workload): cell.verdict.limited_by
        for cell in found.explained
        if cell.verdict.limited_by is not Limit.UNKNOWN
    }


def scored(quiet: report.LoadedResults, runs: Sequence[report.LoadedResults]) -> list[str]:
    """A line of the table: how much was stated of these runs, and how much of it holds."""
    known, limited = stated(quiet), limits(quiet)
    costs = [(known[size], ratio) for run in runs for size, ratio in stated(run).items()]
    intervals = [(was.ratio, *ratio.interval) for was, ratio in costs if ratio.interval is not None]
    held = [low <= was <= high for was, low, high in intervals]
    widths = [high - low for _, low, high in intervals]
    named = [(limited.get(cell), limit) for run in runs for cell, limit in limits(run).items()]
    wrong = sum(was is not None and was is not limit for was, limit in named)
    width = f"{100 * stats.median(widths):.0f} points" if widths else ""
    return [
        str(len(runs)),
        f"{sum(map(bool, map(stated, runs)))}",
        f"{sum(held)} of {len(held)}",
        width,
        f"{len(named)} of {4 * len(runs)}",
        str(wrong),
    ]


HEADINGS = ("busy loops", "runs", "with a cost", "hold", "wide", "limits named", "wrong")


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--only", action="append", type=int, choices=RUNS, help="loops; again for more")
    parser.add_argument("--rounds", type=int, default=24)
    parser.add_argument("--results", type=Path, help="where the runs are kept")
    parser.add_argument("--store", action="store_true", help="store the table for docs/scores.md")
    chosen = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(dir="/var/tmp") as scratch:
        folder = (chosen.results or Path(scratch)).resolve()
        made = {
            loops: [measured(loops, number, folder, chosen.rounds) for number in range(1, count + 1)]
            for loops, count in RUNS.items()
            if not (loops and chosen.only and loops not in chosen.only)
        }
        quiet = report.load(made[0])
        lines = [
            [str(loops), *scored(quiet, [report.load([run]) for run in runs])] for loops, runs in made.items()
        ]
    for size, ratio in stated(quiet).items():
        print(f"quiet, {size} bytes: {ratio.brief}")
    print("\n" + tabulate(lines, HEADINGS))
    if chosen.store:
        scores.store("busy", "python bench/busy.py", HEADINGS, lines)
    return 0


if __name__ == "__main__":
    sys.exit(main())
