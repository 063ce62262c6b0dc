"""A folder of results that somebody damaged: every command says what is wrong, or shows what is there."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from random import Random

from harness.results.store import RunFolder
from tests.fuzz import commands
from tests.fuzz.driver import Case, several
from tests.fuzz.mutate import Change, Edit, change, edit

RESULTS = Path(__file__).parents[1] / "data" / "results"
RUN, OTHER = "20261121-223206-9146", "20261121-223206-9147"
FORMATS = ("plain", "github", "html", "csv", "latex", "json")
KINDS = ("matrix", "bars", "roofline", "percentiles", "over-time", "waterfall")

COMMANDS: dict[str, tuple[str, ...]] = {
    **{f"table as {name}": ("table", "RUN", "--format", name) for name in FORMATS},
    "table of p99": ("table", "RUN", "--metric", "p99", "--format", "json"),
    "table of ratios": ("table", "RUN", "--ratio", "unprotected"),
    "table with a reference": ("table", "RUN", "--reference", "iscsi-ipsec"),
    "table of all": ("table", "."),
    "view": ("table", "RUN", "--view", "link"),
    "compare": ("compare", "RUN", "GOOD"),
    "compare back": ("compare", "GOOD", "RUN", "--format", "json"),
    "explain": ("explain", "RUN"),
    "explain as json": ("explain", "RUN", "--format", "json"),
    "summary": ("explain", "RUN", "--summary"),
    "report": ("report", "RUN", "-o", "page.html"),
    **{f"plot {kind}": ("plot", kind, "RUN", "-o", "picture.svg") for kind in KINDS},
    **{f"export to {name}": ("export", "RUN", "--to", name) for name in ("csv", "jsonl", "influx")},
    "export to a file": ("export", "RUN", "--to", "parquet", "-o", "rows.parquet"),
    "resume": ("run", "--resume", "./RUN", "--plan"),
    "parse": ("parse", "fio", "RUN/raw/wired.rand-read-4k.r1/fio.json"),
}
"""What a user may do with a run's folder; GOOD is another one, whole."""

READ = ("plan.json", "environment.json", "cells/", "probes/", "raw/")


@cache
def names(run: Path = RESULTS / RUN) -> tuple[str, ...]:
    """The files of a run; what is read more often comes more often."""
    files = [str(file.relative_to(run)) for file in sorted(run.rglob("*")) if file.is_file()]
    return (*files, *(name for name in files if name.startswith(READ[:4])), *["plan.json"] * 10)


@dataclass(frozen=True)
class At:
    """A damage to one file of the run."""

    name: str
    damage: Edit | Change

    def __call__(self, run: Path) -> None:
        file = run / self.name
        data = file.read_bytes()
        file.unlink()  # the other link to it stays whole
        file.write_bytes(self.damage(data)[: 1 << 20])


@dataclass(frozen=True)
class Whole:
    """Copies of a run: ``run`` to make links to, which is much faster than to copy, and ``other`` as another
    run, to compare with. They go when the process ends."""

    made: tempfile.TemporaryDirectory[str]

    @property
    def run(self) -> Path:
        return Path(self.made.name, RUN)

    @property
    def other(self) -> Path:
        return Path(self.made.name, OTHER)


@cache
def whole(source: Path = RESULTS / RUN) -> Whole:
    found = Whole(tempfile.TemporaryDirectory(prefix="fuzz-"))
    for run in (found.run, found.other):
        shutil.copytree(source, run)
    run_id = RunFolder(source).run_id.encode()
    for file in found.other.rglob("*.json"):
        file.write_bytes(file.read_bytes().replace(run_id, OTHER.encode()))
    return found


def a_run(folder: Path, source: Path = RESULTS / RUN) -> Path:
    """The run in a folder of the case's own. What damages a file has to make it anew."""
    run = folder / RUN
    shutil.copytree(whole(source).run, run, copy_function=os.link)
    return run


def in_folder(words: Sequence[str], damage: Sequence[object], source: Path = RESULTS / RUN) -> None:
    """Make the run's folder, damage it, and carry out a command."""
    with tempfile.TemporaryDirectory(prefix="fuzz-") as name:
        folder = Path(name)
        run = a_run(folder, source)
        for part in damage:
            assert callable(part)
            part(run)
        known = {"RUN": RUN, "GOOD": str(whole(source).other), "./RUN": f"./{RUN}"}
        argv = [known.get(word, word.replace("RUN/", f"{RUN}/")) for word in words]
        commands.require_good(commands.run(argv, folder), may_start="--plan" in argv)


def damage(chance: Random, source: Path = RESULTS / RUN) -> At:
    """Of a file of the run."""
    name = chance.choice(names(source))
    is_json = name.endswith(".json")
    return At(name, change(chance) if is_json and chance.random() < 0.75 else edit(chance))


class Folders:
    name = "folders"

    def draw(self, chance: Random) -> Case:
        return Case(chance.choice(list(COMMANDS)), several(chance, damage))

    def check(self, case: Case) -> None:
        in_folder(COMMANDS[case.start], case.parts)
