"""Files that a user writes, each given to the commands that read it: CPU cost files, those of questions, and
settings, with the environment variables that say where these are."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from random import Random

from harness.parse.profiles import data_folder
from harness.questions import Source, questions
from tests.fuzz import commands
from tests.fuzz.driver import Case, several
from tests.fuzz.folders import a_run
from tests.fuzz.mutate import NUMBERS, TEXTS, rewrite

VIRTUAL = ("run", "--virtual-time", "--lab-kernel", "custom", "--link", "wired", "--plan")
OF_LISTS: list[tuple[str, ...]] = [
    ("cpu-cost", "own.toml", f"{data_folder()}/profiles/cpu-costs/lab-debian.toml"),
    ("cpu-cost", f"{data_folder()}/profiles/cpu-costs/lab-custom.toml", "own.toml"),
    (*VIRTUAL, "--cpu-costs", "own.toml"),
]

RUN_PLAN = ("run", "--plan", "--seed", "1")
OF_SETTINGS: dict[str, tuple[str, str, tuple[tuple[str, ...], ...]]] = {
    "links": ("profiles/links/*.toml", "links", ((*RUN_PLAN, "--link", "NAME"), ("table", "RUN"))),
    "proposals": ("ipsec/*.toml", "ipsec", ((*RUN_PLAN, "--link", "wired", "--ipsec", "NAME"),)),
    "disks": ("profiles/disks/*.toml", "disks", ((*VIRTUAL, "--disk", "NAME"),)),
    "jobs": ("profiles/*.fio", "profiles", ((*RUN_PLAN, "--profile", "NAME"),)),
    "probes": ("profiles/probes/*.toml", "probes", (("probe", "--plan", "--profile", "NAME"),)),
}
"""By kind: the shipped files, the folder of the user's own below ``$XDG_CONFIG_HOME/harness``, and commands
that read the file NAME there."""

VARIABLES = (
    *("XDG_CONFIG_HOME", "XDG_CACHE_HOME", "HOME", "TMPDIR", "COLUMNS", "LINES", "TERM", "LANG", "LC_ALL"),
    *("NO_COLOR", "FORCE_COLOR", "SNMPCONFPATH", "SOURCE_DATE_EPOCH", "PATH"),
)
PLACES = ("", ".", "config", "own.toml", "nowhere", "/dev/null", "/proc/self", "/proc/self/mem", "/root")


@dataclass(frozen=True)
class Sample:
    """A text, where it lies in the case's folder, and the command that reads it."""

    text: bytes
    file: str
    argv: tuple[str, ...]


@dataclass(frozen=True)
class Variable:
    """An environment variable."""

    name: str
    value: str


@cache
def cpu_costs() -> dict[str, Sample]:
    files = sorted(data_folder().glob("profiles/cpu-costs/*.toml"))
    return dict(_given(files, OF_LISTS))


def explained(source: Source) -> Callable[[], dict[str, Sample]]:
    """What else than results is explained."""
    argv = ("explain", f"--{source.name}", "own.toml")
    each = (argv, (*argv, "--format", "json"))
    return cache(lambda: dict(_given(sorted(data_folder().glob(source.files)), each)))


def _given(files: list[Path], each: Sequence[tuple[str, ...]]) -> Iterator[tuple[str, Sample]]:
    for number, argv in enumerate(each):
        for file in files:
            yield f"{argv[0]} {number}: {file.stem}", Sample(file.read_bytes(), "own.toml", argv)


@cache
def settings() -> dict[str, Sample]:
    found = {}
    for kind, (pattern, folder, each) in OF_SETTINGS.items():
        for file in sorted(data_folder().glob(pattern)):
            for argv in each:
                words = tuple(word.replace("NAME", file.stem) for word in argv)
                place = f"config/harness/{folder}/{file.name}"
                found[f"{kind}: {file.stem}: {argv[0]}"] = Sample(file.read_bytes(), place, words)
    page = (data_folder() / "docs" / "commands.md").read_text(encoding="utf-8")
    example = page.split("```toml\n")[1].split("```")[0]
    short = "version = 1\nlinks = ['wired']\nipsec = ['off']\nworkloads = ['rand-read-4k']\nrepeats = 2\n"
    for name, text in (("example", example), ("short", short)):
        for number in range(4):  # as likely as a kind of the others
            argv = ("run", "--config", "own.toml", "--plan")
            found[f"configuration {number}: {name}"] = Sample(text.encode(), "own.toml", argv)
    reached = ("run", "--plan", "--portal", "192.0.2.1", "--chap", "reader", "--chap-secret", "own.toml")
    found["secret"] = Sample(b"0123456789ab\ntarget 0123456789cd\n", "own.toml", reached)
    return found


def setting(chance: Random) -> object:
    """A damage to the file, or a variable."""
    if chance.random() < 0.75:
        return rewrite(chance)
    value = chance.choice(PLACES if chance.random() < 0.6 else (*NUMBERS, *TEXTS))
    # What the system's interface cannot carry, nobody can set.
    value = value.replace("\0", "").encode("utf-8", "replace").decode("utf-8")
    return Variable(chance.choice(VARIABLES), value)


@dataclass(frozen=True)
class Written:
    """A kind of files."""

    name: str
    samples: Callable[[], Mapping[str, Sample]]
    part: Callable[[Random], object] = rewrite

    def draw(self, chance: Random) -> Case:
        return Case(chance.choice(list(self.samples())), several(chance, self.part))

    def check(self, case: Case) -> None:
        sample = self.samples()[case.start]
        text, variables = sample.text, {}
        for part in case.parts:
            if isinstance(part, Variable):
                variables[part.name] = part.value
            else:
                assert callable(part)
                text = part(text)[: 1 << 20]
        with tempfile.TemporaryDirectory(prefix="fuzz-") as name:
            folder = Path(name)
            file = folder / sample.file
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(text)
            argv = list(sample.argv)
            if "RUN" in argv:
                argv[argv.index("RUN")] = a_run(folder).name
            done = commands.run(argv, folder, variables)
            commands.require_good(done, may_start="--plan" in argv)


EACH: tuple[Written, ...] = (
    Written("costs", cpu_costs),
    Written("settings", settings, setting),
    *(
        Written(source.name, explained(source))
        for question in questions()
        for source in question.explains
        if source.files
    ),
)
