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
    "table of ratios": ("table", "RUN", "--ratio", "ipsec"),
    "table with a reference": ("table", "RUN", "--reference", "document-003"),
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
def names() -> tuple[str, ...]:
    """The files of the run; what is read more often comes more often."""
    run = RESULTS / RUN
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


@cache
def _whole() -> tempfile.TemporaryDirectory[str]:
    """A copy to make links to, which is much faster than to copy, and one as another run, to compare with.

    They go when the process ends.
    """
    made = tempfile.TemporaryDirectory(prefix="fuzz-")
    for run in (RUN, OTHER):
        shutil.copytree(RESULTS / RUN, Path(made.name) / run)
    for file in (Path(made.name) / OTHER).rglob("*.json"):
        file.write_bytes(file.read_bytes().replace(RUN.encode(), OTHER.encode()))
    return made


def a_run(folder: Path) -> Path:
    """The run in a folder of the case's own. What damages a file has to make it anew."""
    run = folder / RUN
    shutil.copytree(Path(_whole().name) / RUN, run, copy_function=os.link)
    return run


def in_folder(case: Case, damage: Sequence[object]) -> None:
    """Make the run's folder, damage it, and carry out the case's command."""
    with tempfile.TemporaryDirectory(prefix="fuzz-") as name:
        folder = Path(name)
        run = a_run(folder)
        for part in damage:
            assert callable(part)
            part(run)
        words = {"RUN": RUN, "GOOD": f"{_whole().name}/{OTHER}", "./RUN": f"./{RUN}"}
        argv = [words.get(word, word.replace("RUN/", f"{RUN}/")) for word in COMMANDS[case.start]]
        commands.require_good(commands.run(argv, folder), may_start="--plan" in argv)


class Folders:
    name = "folders"

    def draw(self, chance: Random) -> Case:
        def part(chance: Random) -> At:
            name = chance.choice(names())
            is_json = name.endswith(".json")
            return At(name, change(chance) if is_json and chance.random() < 0.75 else edit(chance))

        return Case(chance.choice(list(COMMANDS)), several(chance, part))

    def check(self, case: Case) -> None:
        in_folder(case, case.parts)
