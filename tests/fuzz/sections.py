"""Folders of runs with a section that somebody damaged: what reads them, and what would go on with them."""

from __future__ import annotations

import atexit
import tempfile
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from random import Random

import msgspec

from harness.model import Plan, Record
from harness.results.store import RunFolder
from tests.fuzz.driver import Case, several
from tests.fuzz.folders import damage, in_folder

RUN_ID = "20261129-010203-5eed"

COMMANDS: dict[str, tuple[str, ...]] = {
    "table": ("table", "RUN"),
    "table as json": ("table", "RUN", "--format", "json"),
    "explain": ("explain", "RUN"),
    "explain as json": ("explain", "RUN", "--format", "json"),
    "summary": ("explain", "RUN", "--summary"),
    "what if": ("explain", "RUN", "--what-if", "2x"),
    "report": ("report", "RUN", "-o", "page.html"),
    **{f"plot {kind}": ("plot", kind, "RUN", "-o", "a.svg") for kind in ("curves", "response", "heat-map")},
    **{f"export to {name}": ("export", "RUN", "--to", name) for name in ("csv", "jsonl")},
    "compare": ("compare", "RUN", "GOOD"),
    "resume": ("run", "--resume", "./RUN", "--plan"),
    "cpu-cost": ("cpu-cost", "RUN"),
}


PLANNED: dict[str, Callable[[], Path]] = {}
"""Runs by name, as far as they came; each question adds its own."""


@cache
def run_of(name: str) -> Path:
    return PLANNED[name]()


def saved(plan: Plan, records: Sequence[Record]) -> Path:
    made = tempfile.TemporaryDirectory(prefix="fuzz-")
    atexit.register(made.cleanup)
    run = RunFolder(Path(made.name, RUN_ID))
    run.save_plan(msgspec.structs.replace(plan, run_id=RUN_ID))
    for record in records:
        run.save_record(msgspec.structs.replace(record, run_id=RUN_ID))
    run.save_environment({})
    return run.path


class Sections:
    name = "sections"

    def draw(self, chance: Random) -> Case:
        of = chance.choice([*PLANNED])
        command = chance.choice(list(COMMANDS))
        return Case(f"{of}: {command}", several(chance, lambda chance: damage(chance, run_of(of))))

    def check(self, case: Case) -> None:
        of, _, command = case.start.partition(": ")
        in_folder(COMMANDS[command], case.parts, run_of(of))
