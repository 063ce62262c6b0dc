"""Command lines: the options of every command that only reads or plans, with sensible values and others."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from random import Random
from typing import Any

import typer.main

from harness.cli import app
from harness.parse.profiles import data_folder
from tests.fuzz import commands
from tests.fuzz.driver import Case, several
from tests.fuzz.folders import KINDS, RUN, a_run
from tests.fuzz.mutate import NUMBERS, TEXTS, edit

READING = ["table", "compare", "explain", "report", "plot", "export", "parse"]
PLANNING = ("run", "probe")
"""With --plan they do nothing."""

NEVER = ("--try", "--ask", "--help")
"""One measures, one asks; the last is not of the harness."""

WORDS = """\
link: local wired wifi wired:jumbo wired:mtu=9000 switched:4 routed FILE.toml wan
ipsec: off on both null-sha256 FILE.toml
profile: basic modern switches FILE.fio
workload: rand-read-4k seq-write-256k
confidence: 5% 0% 100% 5 1e-9%
max_time: 30m 0s 1e308h
runtime: 1.5s 250ms 0 1e308s
duration: 3s 0.5s 1e9s
testbed: auto lab host
backing: ramdisk file file:/tmp/x.img block:/dev/sda /dev/sda block:/dev/../etc/passwd
size: 128M 1G 0 1E 7 4096P
target: ssh://root@server local
initiators: local ssh://a ssh://a:22 ssh://-oX@b
hops: ssh://me@gateway snmp://switch.lan/gi1,2
iscsi: MaxBurstLength=64K InitialR2T=No FirstBurstLength=0 = X=Y
results: results RUN .
resume: RUN ./RUN
metric: MB/s IOPS p99 mean
format: plain json html csv latex github text
ratio: none local ipsec
view: link pppoe openflow pps udp-latency scale counters
reference: packet-rate iscsi-ipsec switches
to: csv jsonl influx parquet
fail_if_slower: 5% 0% -1%
output: page.html picture.svg rows.parquet /dev/zero /dev/full /proc/self/mem RUN .
disk: hdd-7200 sata-ssd ram FILE.toml
cpu_costs: lab-debian lab-custom FILE.toml
initiator_cpu_costs: lab-custom FILE.toml
probe: ping tcp udp pps udp-latency cipher forwarding
paths: RUN .
a: RUN
b: RUN
figures: FILE.toml
file: FILE.toml RUN/raw/wired.rand-read-4k.r1/fio.json
"""
VALUES = {name: words.split() for name, words in (line.split(": ") for line in WORDS.splitlines())}
VALUES["kind"] = [*KINDS]
"""Values that may make sense, by the parameter's name. FILE is a user's own, damaged; RUN a run's folder."""


@dataclass(frozen=True)
class Word:
    """Of a command line: an option with its value, or a value alone."""

    words: tuple[str, ...]


@dataclass(frozen=True)
class Written:
    """The damaged file: what it was, and the damage."""

    text: bytes


@cache
def user_files() -> tuple[bytes, ...]:
    """What users write: links, proposals, disks, job files, configurations."""
    folder = data_folder()
    places = (("profiles", "**/*.toml"), ("profiles", "*.fio"), ("ipsec", "*.toml"))
    files = [file for place, pattern in places for file in sorted((folder / place).glob(pattern))]
    page = (folder / "docs" / "commands.md").read_text(encoding="utf-8")
    example = page.split("```toml\n")[1].split("```")[0]
    return (*(file.read_bytes() for file in files), *[example.encode()] * 10)


@dataclass(frozen=True)
class Parameter:
    """What a command takes: an option by its names, or an argument, which has none."""

    name: str
    options: tuple[str, ...] = ()
    is_flag: bool = False


@cache
def parameters() -> dict[str, tuple[Parameter, ...]]:
    """Of every command that is tried, by its words."""
    found: dict[str, tuple[Parameter, ...]] = {}
    left: list[tuple[str, Any]] = [("", typer.main.get_command(app))]
    while left:
        words, command = left.pop()
        command = getattr(command, "real", command)
        if inner := getattr(command, "commands", {}):
            left += [(f"{words} {name}".strip(), below) for name, below in inner.items()]
        elif words.split()[0] in (*READING, *PLANNING):
            found[words] = tuple(map(_parameter, command.params))
    return dict(sorted(found.items()))


def _parameter(known: Any) -> Parameter:
    name = (known.name or "").replace("testbed_name", "testbed")
    if known.param_type_name == "argument":
        return Parameter(name)
    return Parameter(name, (*known.opts, *known.secondary_opts), known.is_flag)


class Words:
    name = "words"

    def draw(self, chance: Random) -> Case:
        command = chance.choice(list(parameters()))
        every = [known for known in parameters()[command] if not {*known.options} & {*NEVER, "--plan"}]

        def part(chance: Random) -> Word:
            known = chance.choice(every)
            value = () if known.is_flag else (_value(chance, known.name),)
            return Word((*((chance.choice(known.options),) if known.options else ()), *value))

        arguments = [known for known in every if not known.options and chance.random() < 0.9]
        first = tuple(Word((_value(chance, known.name),)) for known in arguments)
        parts = several(chance, part, most=5)
        text = chance.choice(user_files())
        for damage in several(chance, edit) if chance.random() < 0.8 else ():
            text = damage(text)
        return Case(command, (*first, *parts, Written(text[: 1 << 16])))

    def check(self, case: Case) -> None:
        with tempfile.TemporaryDirectory(prefix="fuzz-") as name:
            folder = Path(name)
            a_run(folder)
            argv = case.start.split()
            for part in case.parts:
                if isinstance(part, Written):
                    (folder / "own.toml").write_bytes(part.text)
                    (folder / "own.fio").write_bytes(part.text)
                elif isinstance(part, Word):
                    argv += part.words
            is_planned = argv[0] in PLANNING
            done = commands.run([*argv, *["--plan"] * is_planned], folder)
            commands.require_good(done, may_start=is_planned, data="parquet" in argv)


def _value(chance: Random, name: str) -> str:
    known = VALUES.get(name, ("1", "2", "30"))
    value = chance.choice(known if chance.random() < 0.6 else (*NUMBERS, *TEXTS))
    if name == "output" and value not in known:
        value = value.replace("/", "")  # another folder is what was asked for
    value = value.replace("FILE", "./own").replace("RUN", RUN)
    # What the system's interface cannot carry, nobody can type.
    return value.replace("\0", "").encode("utf-8", "replace").decode("utf-8")
