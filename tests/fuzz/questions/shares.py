"""Runs with names and secrets in places of all kinds, and damaged: what is shared of them has none of it, and
is read as the run is."""

from __future__ import annotations

import json
import os
import re
import tempfile
import zipfile
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from random import Random

from tests.fuzz import commands, sections, zips
from tests.fuzz.driver import Broken, Case, several
from tests.fuzz.folders import RESULTS, RUN, a_run, damage, names
from tests.fuzz.mutate import places
from tests.unit.questions.share.test_share import SECRETS, TELL_NOTHING

zips.COMMANDS["share"] = ("share", "RUN", "-o", "again.zip")
sections.COMMANDS["share"] = ("share", "RUN", "--list")
FIGURES = Path(__file__).parents[3] / "docs" / "figures"
RUNS = {
    "matrix": RESULTS / RUN,
    **{name: FIGURES / name for name in ("generic", "hops-virtual", "packet-rate", "scale-virtual")},
}
FILE = "mine.zip"
READING: tuple[tuple[str, ...], ...] = (
    *(("table",), ("table", "--format", "json"), ("explain",), ("explain", "--summary"), ("export",)),
    *(("report", "-o", "page.html"), ("table", "--view", "counters"), ("table", "--view", "scale")),
)


@dataclass(frozen=True)
class Secret:
    """Something secret in a text of a file: instead of it, before or behind it; or as the name of a key."""

    name: str
    at: float
    form: str
    secret: str

    def __call__(self, run: Path) -> None:
        file = run / self.name
        try:
            whole = json.loads(file.read_bytes())
        except ValueError:
            return
        is_key = not self.form
        found = [
            (holder, key) for holder, key in places(whole) if isinstance(key if is_key else holder[key], str)
        ]
        if not found:
            return
        holder, key = found[int(self.at * len(found))]
        if is_key:
            holder[SECRETS[self.secret]] = holder.pop(key)
        else:
            holder[key] = self.form.format(holder[key], SECRETS[self.secret])
        file.unlink()  # the other link to it stays whole
        file.write_bytes(json.dumps(whole).encode())


FORMS = ("{1}", "{1}", "{0} {1}", "{0}-{1}", "{1}{0}", "{1} {0}", "{0}: {1}", "{0}\n{1}", "")


@cache
def reported(of: str) -> str:
    """All that the run itself says, which is no secret."""
    files = [file for file in RUNS[of].rglob("*.json") if "raw" not in file.parts]
    return "".join(file.read_text() + str(file) for file in files).lower()


class Shares:
    name = "shares"

    def draw(self, chance: Random) -> Case:
        of = chance.choice(list(RUNS))

        def part(chance: Random) -> object:
            if chance.random() < 0.25:
                return damage(chance, RUNS[of])
            shared = [name for name in names(RUNS[of]) if name.endswith(".json") and "raw/" not in name]
            name, secret = chance.choice(shared), chance.choice(list(SECRETS))
            return Secret(name, chance.random(), chance.choice(FORMS), secret)

        command = chance.choice(READING)
        return Case(f"{of}: {' '.join(command)}", several(chance, part, most=8))

    def check(self, case: Case) -> None:
        of, _, words = case.start.partition(": ")
        command, *options = words.split()
        with tempfile.TemporaryDirectory(prefix="fuzz-") as name:
            folder = Path(name)
            run = a_run(folder, RUNS[of])
            for part in case.parts:
                assert callable(part)
                part(run)
            done = commands.run(["share", run.name, "-o", FILE], folder)
            commands.require_good(done)
            if not os.path.lexists(folder / FILE):
                return
            with zipfile.ZipFile(folder / FILE) as shared:
                held = "".join(shared.read(name).decode() + name for name in shared.namelist()).lower()
            secret = {word for text in SECRETS.values() for word in re.findall(r"[a-z0-9]{4,}", text.lower())}
            if leaked := [
                word for word in secret - TELL_NOTHING if word in held and word not in reported(of)
            ]:
                raise Broken("a secret is shared", sorted(leaked))
            own, theirs = (commands.run([command, of, *options], folder) for of in (run.name, FILE))
            commands.require_good(theirs)
            if own.status == 0 and theirs.status != 0:
                raise Broken("what is shared is not read as the run is", (theirs.argv, theirs.err))


OFFERED = (Shares(),)
