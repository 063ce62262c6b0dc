"""Job files of users: each can be handed to fio, or is refused in a sentence with all its obstacles."""

from __future__ import annotations

from functools import cache, partial
from random import Random

from harness.model.errors import UsageError
from harness.parse.jobfile import check_job, job_file, parse_jobs, shortened
from harness.parse.profiles import data_folder
from tests.fuzz.driver import Broken, Case, several
from tests.fuzz.mutate import Edit, edit
from tests.unit.parsing import OUTPUTS

LONGEST = 20_000
"""Characters of a refusal: of at most 50 obstacles, each with a name of at most 60."""


@cache
def samples() -> dict[str, bytes]:
    """What ships, and fio's own examples, if there is a collection next to the project."""
    folders = (data_folder() / "profiles", OUTPUTS / "fio-examples")
    return {file.stem: file.read_bytes() for folder in folders for file in sorted(folder.glob("*.fio"))}


class Jobs:
    name = "jobs"

    def draw(self, chance: Random) -> Case:
        return Case(chance.choice(list(samples())), several(chance, edit))

    def check(self, case: Case) -> None:
        text = samples()[case.start]
        for part in case.parts:
            assert isinstance(part, Edit)
            text = part(text)[: 1 << 20]
        notes: list[str] = []
        try:
            fits = partial(job_file, device="/dev/sdb", size_bytes=1 << 27, seed=1)
            for workload in parse_jobs(text.decode(errors="replace"), "own.fio", notes, measurable=fits):
                check_job(workload)
                shortened(workload, 1 << 27)
        except UsageError as error:
            if not error.message.isprintable() or len(error.message) > LONGEST or not error.hint:
                raise Broken("a refusal that is no sentence with a hint", error.message) from error
        if not all(map(str.isprintable, notes)):
            raise Broken("a note with control characters", notes)
