"""Is what others spoil marked? Busy loops and an I/O hog come and go during runs of the lab.

    python bench/disturbed.py                           # all of it, some 20 minutes on a quiet machine
    python bench/disturbed.py --only "2 busy loops" --repeats 1 --runtime 0.7s
    python bench/disturbed.py --results FOLDER          # keep the runs; what is there is not run again

First nothing is put in: that is each cell's quiet figure, and tells how much is marked for nothing. Then 1, 2
and 4 busy loops, and one program that writes, synchronises and reads a file, run for 0.5 to 4 seconds, pause
as long, and so on. Nothing is measured again but in the last experiment. Printed is, for each of them, how
many cells (medians of their repeats, as the table shows them) and how many single repeats are within 15 % of
the quiet figure and further from it, with a mark and without. The exit status is 1 if one cell is further
from it without a mark, or more than 2 % of the repeats are marked on a quiet machine.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tabulate import tabulate

from harness.analysis import disturbance, stats
from harness.analysis.schedule import throughput_bytes_s
from harness.model import Record
from harness.results.store import open_results, record_key
from harness.table import Options, build

HARNESS = str(Path(sys.executable).with_name("harness"))
FAR = 0.15
MOST_MARKED = 0.02
PAUSE_S = (0.5, 4.0)
"""How long what was put in runs, and how long it pauses, at least and at most."""

SPIN = "while True: pass"
HOG = """
import os, sys
block = os.urandom(1 << 20)
with open(sys.argv[1], "w+b", buffering=0) as file:
    while True:
        os.lseek(file.fileno(), 0, os.SEEK_SET)
        for _ in range(128):
            file.write(block)
        os.fsync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        os.lseek(file.fileno(), 0, os.SEEK_SET)
        while file.read(1 << 20):
            pass
"""


@dataclass(frozen=True, kw_only=True)
class Experiment:
    """So many busy loops and I/O hogs during a run, whose disturbed cells are measured again so many
    times."""

    name: str
    loops: int = 0
    hogs: int = 0
    retries: int = 0

    @property
    def folder(self) -> str:
        return "".join(letter if letter.isalnum() else "-" for letter in self.name)

    @property
    def is_quiet(self) -> bool:
        return not self.loops and not self.hogs


EXPERIMENTS = (
    Experiment(name="nothing"),
    Experiment(name="1 busy loop", loops=1),
    Experiment(name="2 busy loops", loops=2),
    Experiment(name="4 busy loops", loops=4),
    Experiment(name="I/O hog", hogs=1),
    Experiment(name="nothing, later"),
    Experiment(name="2 busy loops, measured again", loops=2, retries=2),
)
WORDS = ("--link=local", "--link=wired", "--link=wifi", "--ipsec=both", "--seed=1", "--lab-kernel=debian")
WORKLOADS = ("rand-read-4k", "seq-read-256k", "seq-write-256k")


@contextlib.contextmanager
def put_in(experiment: Experiment, scratch: Path) -> Iterator[None]:
    """Programs that come and go for the length of the context: they are stopped and go on."""
    commands = [[sys.executable, "-c", SPIN]] * experiment.loops
    commands += [[sys.executable, "-c", HOG, str(scratch / f"hog-{n}")] for n in range(experiment.hogs)]
    end = threading.Event()
    with contextlib.ExitStack() as stack:
        programs = []
        for command in commands:
            # In a session each: those of one share what one process would have (sched(7), autogroup).
            program = stack.enter_context(subprocess.Popen(command, start_new_session=True))
            stack.callback(program.kill)
            program.send_signal(signal.SIGSTOP)
            programs.append(program)
        comings = random.Random(1)  # noqa: S311 -- the same each time

        def come_and_go() -> None:
            while True:
                for what in (signal.SIGCONT, signal.SIGSTOP):
                    for program in programs:
                        program.send_signal(what)
                    if end.wait(comings.uniform(*PAUSE_S)):
                        return

        thread = threading.Thread(target=come_and_go)
        thread.start()
        try:
            yield
        finally:
            end.set()
            thread.join()


def measure(experiment: Experiment, folder: Path, repeats: int, runtime: str) -> None:
    """One run, and its experiment meanwhile."""
    words = [*WORDS, f"--repeats={repeats}", f"--runtime={runtime}", f"--retries={experiment.retries}"]
    words += [f"--workload={name}" for name in WORKLOADS]
    with (
        tempfile.TemporaryDirectory(dir=os.environ.get("TMPDIR", "/var/tmp")) as scratch,
        put_in(experiment, Path(scratch)),
    ):
        done = subprocess.run(
            [HARNESS, "run", *words, f"--results={folder}"], capture_output=True, text=True, check=False
        )
    if done.returncode != 0:
        raise SystemExit(f"{experiment.name}: {done.stdout}\n{done.stderr}")
    for line in done.stderr.splitlines()[-4:]:
        print(f"    {line}", flush=True)


Figures = dict[str, tuple[float, bool]]
"""MB/s and whether it is marked, by cell or repeat."""


def repeats_of(records: Sequence[Record]) -> Figures:
    return {
        record_key(record): (throughput_bytes_s(record) / 1e6, disturbance.is_disturbed(record))
        for record in records
    }


def cells_of(records: Sequence[Record]) -> Figures:
    """As `harness table` has them."""
    table = build(records, Options())
    return {
        f"{column.label}.{row.workload}": (cell.value, cell.is_disturbed)
        for row, line in zip(table.rows, table.cells, strict=True)
        for column, cell in zip(table.columns, line, strict=True)
        if cell is not None and cell.value is not None
    }


def quiet_figures(found: Mapping[str, Sequence[Record]], quiet: Sequence[str]) -> dict[str, float]:
    """The median of all repeats without a mark of the runs into which nothing was put."""
    values: dict[str, list[float]] = {}
    for name in quiet:
        for key, (mb_s, is_marked) in repeats_of(found.get(name, ())).items():
            if not is_marked:
                values.setdefault(key.rpartition(".r")[0], []).append(mb_s)
    return {cell: stats.median(of_cell) for cell, of_cell in values.items()}


def verdicts(figures: Figures, quiet: Mapping[str, float]) -> dict[str, tuple[bool, bool]]:
    """Of each figure whether it is far from the quiet one, and whether it is marked."""
    found = {}
    for key, (mb_s, is_marked) in figures.items():
        cell = key if key in quiet else key.rpartition(".r")[0]
        if cell in quiet:
            found[key] = (abs(mb_s / quiet[cell] - 1) > FAR, is_marked)
    return found


def line(name: str, found: Mapping[str, tuple[bool, bool]]) -> list[object]:
    counts = Counter(found.values())
    both = (False, True)
    return [name, len(found), *(counts[is_far, is_marked] for is_far in both for is_marked in both)]


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    names = [experiment.name for experiment in EXPERIMENTS]
    parser.add_argument("--only", action="append", choices=names, help="again for more")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--runtime", default="1.5s")
    parser.add_argument("--results", type=Path, help="where the runs are kept")
    chosen = parser.parse_args(arguments)
    quiet = [experiment.name for experiment in EXPERIMENTS if experiment.is_quiet]
    asked = [e for e in EXPERIMENTS if not chosen.only or e.name in chosen.only or e.name == quiet[0]]
    found: dict[str, list[Record]] = {}
    with tempfile.TemporaryDirectory(dir="/var/tmp") as scratch:
        for experiment in asked:
            folder = (chosen.results or Path(scratch)).resolve() / experiment.folder
            if not folder.is_dir():
                print(experiment.name, flush=True)
                measure(experiment, folder, chosen.repeats, chosen.runtime)
            found[experiment.name] = open_results([folder])
    figures = quiet_figures(found, quiet)
    heading = ["put in", "", "near, unmarked", "near, marked", "far, unmarked", "far, marked"]
    cells = {name: verdicts(cells_of(records), figures) for name, records in found.items()}
    repeats = {name: verdicts(repeats_of(records), figures) for name, records in found.items()}
    for what, of_all in (("cells", cells), ("repeats", repeats)):
        heading[1] = what
        print("\n" + tabulate([line(*each) for each in of_all.items()], heading, tablefmt="simple"))
    missed = [
        (name, key, cells_of(found[name])[key][0], figures[key])
        for name, each in cells.items()
        for key, (is_far, is_marked) in each.items()
        if is_far and not is_marked
    ]
    print()
    for name, key, mb_s, quiet_mb_s in missed:
        print(f"far without a mark: {key} with {name}: {mb_s:.2f} for {quiet_mb_s:.2f} MB/s")
    idle = [is_marked for name in quiet for _, is_marked in repeats.get(name, {}).values()]
    part = sum(idle) / len(idle) if idle else 0.0
    print(f"{len(missed)} cells further than {FAR:.0%} from their quiet figure have no mark; ", end="")
    print(f"with nothing put in {part:.1%} of {len(idle)} repeats are marked")
    return int(bool(missed) or part > MOST_MARKED)


if __name__ == "__main__":
    sys.exit(main())
