"""Is what `harness explain` computes of a disk over a path what that disk gives over it?

    python bench/volumes.py                     # in virtual time and in real time, some 10 minutes
    python bench/volumes.py --only virtual      # or one of them
    python bench/volumes.py --results FOLDER    # keep the runs there; what is there is not run again
    python bench/volumes.py --store             # for docs/scores.md

A run with a ramdisk says what three disks would give over each of its columns (`volumes` of `harness explain
--format json`). Then each disk is put behind the same columns (`harness run --disk`). In virtual time all
cells count. In real time the processor's time of the modelled disk is added to what its profile says, so only
cells count of workloads whose column `local` is within 10 % of the profile. It is a score, and no test.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from tabulate import tabulate

from bench.in_turns import run_harness
from harness import report
from harness.explain.volumes import DISKS
from harness.model import Column
from harness.results.store import open_runs
from tools import scores

VIRTUAL, REAL = "virtual", "real"
MEMORY = "memory"

WORKLOADS = ("seq-read-256k", "rand-read-256k", "seq-read-4k", "rand-read-4k")

WAYS = ("--link=local", "--link=wired", "--link=wifi", "--link=10g", "--protect=off", "--protect=aes128gcm16")
WORDS = {
    VIRTUAL: ("--virtual-time", "--repeats=1"),
    REAL: ("--lab-kernel=custom", "--repeats=4"),
}
WITHOUT_DISK = {VIRTUAL: ("--disk=ram",), REAL: ()}
WITHIN = {VIRTUAL: 0.05, REAL: 0.15}
NEAR = 0.1
"""As near its profile a disk's own column must be in real time."""


def jobs(clock: str, disk: str) -> str:
    """One read at a time. A head waits for anything up to a whole turn, so in two thousand reads the mean is
    known to 1 %."""
    made = "[global]\ndirect=1\nioengine=psync\ntime_based\n"
    for name in WORKLOADS:
        kind, _, block = name.split("-")
        seconds = 10 if (clock, kind) == (VIRTUAL, "rand") and disk.startswith("hdd") else 1
        made += f"[{name}]\nrw={'randread' if kind == 'rand' else 'read'}\nbs={block}\nruntime={seconds}s\n"
    return made


@dataclass(frozen=True)
class Tried:
    """A disk over a column: what was computed, and what was measured, in MB/s. ``local`` is how far the
    disk's own column is from its profile, as a part of that."""

    disk: str
    column: Column
    workload: str
    computed: float
    measured: float
    local: float

    @property
    def error(self) -> float:
        return self.computed / self.measured - 1


def loaded(clock: str, disk: str, folder: Path) -> report.LoadedResults:
    """The run of a disk, which is made unless it is there."""
    base = folder / clock / disk
    if not base.is_dir():
        made = base.with_name(f"{disk}.part")
        made.mkdir(parents=True)
        file = made / "jobs.fio"
        file.write_text(jobs(clock, disk), encoding="utf-8")
        words = [*WORDS[clock], *WAYS, f"--profile={file}", f"--results={made / 'results'}"]
        run_harness("run", *words, *(WITHOUT_DISK[clock] if disk == MEMORY else [f"--disk={disk}"]))
        made.rename(base)
    return report.load([run.path for run in open_runs([base / "results"])])


def tried(clock: str, folder: Path) -> Iterator[Tried]:
    """Each disk over each column of a clock."""
    computed = loaded(clock, MEMORY, folder).volumes
    for disk in DISKS:
        measured = {
            (cell.evidence.column, cell.evidence.workload): cell.mb_s
            for cell in loaded(clock, disk, folder).explained
        }
        for each in computed:
            found, local = (
                measured.get((column, each.workload)) for column in (each.column, Column("local"))
            )
            if each.disk == disk and each.over_mb_s and found and local:
                yield Tried(
                    disk,
                    each.column,
                    each.workload,
                    each.over_mb_s,
                    found,
                    local / each.disk_mb_s - 1,
                )


def counting(found: Sequence[Tried], clock: str) -> list[Tried]:
    """Those that count: all in virtual time."""
    return [each for each in found if clock == VIRTUAL or abs(each.local) <= NEAR]


def table(found: Sequence[Tried], clock: str) -> list[list[str]]:
    """A row for each disk over each column: computed, measured, and the error."""
    counted = counting(found, clock)
    rows = []
    for disk, column in dict.fromkeys((each.disk, each.column) for each in found):
        row = [disk, column.label]
        for name in WORKLOADS:
            one = next((e for e in found if (e.disk, e.column, e.workload) == (disk, column, name)), None)
            if one is None:
                row.append("")
            elif one in counted:
                row.append(f"{one.computed:.3g} / {one.measured:.3g} ({100 * one.error:+.1f} %)")
            else:
                row.append(f"local {100 * one.local:+.0f} %")
        rows.append(row)
    return rows


def summary(found: Sequence[Tried], clock: str) -> str:
    counted = counting(found, clock)
    near = sum(abs(each.error) <= WITHIN[clock] for each in counted)
    worst = max((abs(each.error) for each in counted), default=0.0)
    said = f"{clock} time: {near} of {len(counted)} cells within {100 * WITHIN[clock]:.0f} %"
    said += f", worst by {100 * worst:.1f} %"
    if left := len(found) - len(counted):
        said += f"; {left} of {len(found)} left out: local is not within {100 * NEAR:.0f} % of the profile"
    return said


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--only", choices=WORDS)
    parser.add_argument(
        "--results", type=Path, help="where the runs are kept; what is there is not run again"
    )
    parser.add_argument("--store", action="store_true", help="store the tables for docs/scores.md")
    chosen = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as scratch:
        for clock in [chosen.only] if chosen.only else WORDS:
            found = list(tried(clock, (chosen.results or Path(scratch)).resolve()))
            rows, heads = table(found, clock), ["disk", "column", *WORKLOADS]
            print(tabulate(rows, heads, disable_numparse=True), summary(found, clock), sep="\n\n", end="\n\n")
            if chosen.store:
                command = f"python bench/volumes.py --only {clock}"
                scores.store(f"volumes-{clock}", command, heads, rows, [summary(found, clock)])


if __name__ == "__main__":
    main()
