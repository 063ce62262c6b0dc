"""Completion of the command line, for shells that ask by the environment variable ``_HARNESS_COMPLETE``.

``bash``, ``zsh`` and ``fish`` print the shell's script (``completion/``); ``words`` completes the last
argument. It is made of the declarations, like the help (``help``): what Typer has for it differs between
versions.
"""

from __future__ import annotations

import contextlib
import itertools
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from harness.cli import COMMANDS
from harness.cli.help import Parameter, parameters
from harness.cli.tree import commands
from harness.model import PROTECTION_OFF, TRANSPORTS, TestbedKind
from harness.model.errors import HarnessError
from harness.model.protections import PROTECTIONS
from harness.parse.jobfile import load_jobs
from harness.parse.profiles import data_folder, search_folders

SCRIPTS = {shell.stem: shell for shell in (Path(__file__).parent / "completion").iterdir()}
JOINED = ",+"
"""What joins values in one word: of a list, and of nested protections."""


def main(asked: str, words: Sequence[str]) -> int:
    """Print what is ``asked`` for; 2 if nobody knows that."""
    if asked in SCRIPTS:
        sys.stdout.write(SCRIPTS[asked].read_text(encoding="utf-8"))
    elif asked == "words":
        for word, does in candidates(words):
            sys.stdout.write(f"{word}\t{does}\n")
    else:
        sys.stderr.write(f"expected _HARNESS_COMPLETE to be {', '.join(sorted(SCRIPTS))} or words\n")
        return 2
    return 0


def candidates(words: Sequence[str]) -> Iterator[tuple[str, str]]:
    """What the last of ``words`` can become, each with what it does; none where file names are expected."""
    # Bash takes the `=` of --link=wired for a word of its own.
    *before, last = ["" if word == "=" else word for word in words] or [""]
    for word, does in _offered([word for word in before if word], last):
        if word.startswith(last):
            yield word, does.partition(". ")[0]


def _offered(before: Sequence[str], last: str) -> Iterator[tuple[str, str]]:
    named = [word for word in before if not word.startswith("-")]
    if not named:
        yield from ((name, summary) for name, (_, summary) in COMMANDS.items())
        yield from (("--help", "What there is."), ("--version", "Print the version."))
        return
    of_command = commands(named[0])
    if "" not in of_command and (len(named) == 1 or named[1] not in of_command):
        yield from ((name, command.words.partition("\n")[0]) for name, command in of_command.items())
        return
    command = of_command[""] if "" in of_command else of_command[named[1]]
    options = {flag: option for option in parameters(command.function)[1] for flag in option.flags}
    flag, joint, typed = last.partition("=")
    if joint and flag in options:
        yield from ((f"{flag}={value}", "") for value in _values(named[0], options[flag], before, typed))
    elif before[-1] in options and options[before[-1]].value:
        yield from ((value, "") for value in _values(named[0], options[before[-1]], before, last))
    elif last.startswith("-"):
        yield from ((flag, option.words) for flag, option in options.items())
        yield "--help", "What each option does."


def _values(command: str, option: Parameter, before: Sequence[str], typed: str) -> Iterator[str]:
    if "|" in option.value:
        yield from option.value.split("|")
        return
    flag = option.flags[-1]
    known = OF_COMMAND.get((command, flag)) or VALUES.get(flag)
    if known is None:
        return
    done = typed[: max(typed.rfind(mark) for mark in JOINED) + 1]
    with contextlib.suppress(HarnessError, OSError):
        yield from (f"{done}{value}" for value in known(before))


def _files(*parts: str) -> Callable[[Sequence[str]], list[str]]:
    """The names of the files of a kind, wherever they are looked up."""

    def known(_: Sequence[str]) -> list[str]:
        return sorted({file.stem for folder in search_folders(*parts) for file in folder.glob("*.toml")})

    return known


def _ipsec(before: Sequence[str]) -> list[str]:
    return [PROTECTION_OFF, "on", "both", *_files("ipsec")(before)]


def _profiles(_: Sequence[str]) -> list[str]:
    return sorted(file.stem for file in (data_folder() / "profiles").glob("*.fio"))


def _workloads(before: Sequence[str]) -> list[str]:
    """Those of the profile that was typed before."""
    spec = "document"
    for flag, value in itertools.pairwise(before):
        spec = value if flag == "--profile" else spec
    return [workload.name for workload in load_jobs(spec)[1]]


VALUES: Mapping[str, Callable[[Sequence[str]], Iterable[str]]] = {
    "--link": lambda before: ["local", *_files("profiles", "links")(before)],
    "--ipsec": _ipsec,
    "--protect": lambda before: [*_ipsec(before), *PROTECTIONS],
    "--transport": lambda _: TRANSPORTS,
    "--profile": _profiles,
    "--workload": _workloads,
    "--disk": _files("profiles", "disks"),
    "--reference": _files("profiles", "references"),
    "--testbed": lambda _: list(TestbedKind),
}
OF_COMMAND = {("probe", "--profile"): _files("profiles", "probes")}
"""Where the same option has other values."""
