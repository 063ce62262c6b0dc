"""Manual pages from the commands' own help: ``python -m harness.cli.manual FOLDER``.

It writes harness.1, and harness-COMMAND.1 for each command, in man(7)'s language.
"""

from __future__ import annotations

import inspect
import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from harness import __version__
from harness.cli import COMMANDS, EXAMPLES, app
from harness.cli.help import Parameter, parameters, plain
from harness.cli.tree import Command, commands

STATUS = "0: all cells are ok. 1: some cell is not. 2: wrong usage, or something is missing."


def pages() -> Iterator[tuple[str, str]]:
    """The name of each page's file, and its text."""
    words, _, _ = (app.info.help or "").partition("\n\n")
    page = [*_heading("harness", words), ".B harness", ".I COMMAND", ".RI [ OPTIONS ]", ".SH DESCRIPTION"]
    page += _paragraphs(app.info.help or "")
    page.append(".SH COMMANDS")
    for name, (_, summary) in COMMANDS.items():
        page += [".TP", f".BR harness\\-{_escaped(name)} (1)", _escaped(summary)]
    page += [".SH EXIT STATUS", STATUS]
    page += _examples((app.info.epilog or "").partition("\n\n")[0])
    yield "harness.1", "\n".join(page) + "\n"
    for name, (_, summary) in COMMANDS.items():
        page = [*_heading(f"harness-{name}", summary)]
        for number, (sub, command) in enumerate(commands(name).items()):
            page += [*([".br"] if number else []), *_synopsis(f"harness {name} {sub}".strip(), command)]
        page.append(".SH DESCRIPTION")
        for sub, command in commands(name).items():
            if sub:
                page.append(f".SS {_escaped(f'harness {name} {sub}')}")
            page += _described(command, level=".SS" if not sub else ".PP")
        page += [".SH EXIT STATUS", STATUS, *_examples(EXAMPLES.get(name, ""))]
        page += [".SH SEE ALSO", ".BR harness (1)"]
        yield f"harness-{name}.1", "\n".join(page) + "\n"


def _heading(name: str, words: str) -> Iterator[str]:
    yield f'.TH {_escaped(name).upper()} 1 {_date()} "harness {__version__}" "User Commands"'
    yield from (".SH NAME", f"{_escaped(name)} \\- {_escaped(plain(words)).rstrip('.')}", ".SH SYNOPSIS")


def _synopsis(name: str, command: Command) -> Iterator[str]:
    arguments, options = parameters(command.function)
    yield f".B {_escaped(name)}"
    if options:
        yield ".RI [ OPTIONS ]"
    yield from (f".I {_escaped(each.left)}" for each in arguments)


def _described(command: Command, *, level: str) -> Iterator[str]:
    yield from _paragraphs(command.words)
    arguments, options = parameters(command.function)
    for each in arguments:
        yield from (".TP", f".I {_escaped(each.left)}", _escaped(each.words) or "What to take.")
    for group in dict.fromkeys(each.group for each in options):
        # Within the section of a group's command there is no other level below.
        yield from [".PP", f".B {_escaped(group)}"] if level == ".PP" else [f".SS {_escaped(group)}"]
        yield from _options([each for each in options if each.group == group])


def _options(options: list[Parameter]) -> Iterator[str]:
    for each in options:
        flags = ", ".join(f"\\fB{_escaped(flag)}\\fR" for flag in each.flags)
        value = f" \\fI{_escaped(each.value)}\\fR" if each.value else ""
        again = " It may be typed several times." if each.is_repeatable else ""
        yield from (".TP", f"{flags}{value}", f"{_escaped(each.words)}{again}")


def _paragraphs(text: str) -> Iterator[str]:
    for number, paragraph in enumerate(inspect.cleandoc(text).split("\n\n")):
        yield from ([".PP"] if number else [])
        yield _escaped(plain(paragraph))


def _examples(lines: str) -> Iterator[str]:
    if lines:
        yield from (".SH EXAMPLES", ".nf", *map(_escaped, lines.splitlines()), ".fi")


def _date() -> str:
    """Today, or the day that a reproducible build is told (reproducible-builds.org)."""
    seconds = int(os.environ.get("SOURCE_DATE_EPOCH", time.time()))
    return time.strftime("%Y-%m-%d", time.gmtime(seconds))


def _escaped(text: str) -> str:
    """As man(7) reads it: a hyphen that is typed as such, and no line that begins like a request."""
    made = text.replace("\\", "\\e").replace("-", "\\-")
    return f"\\&{made}" if made[:1] in (".", "'") else made


def main(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in pages():
        (folder / name).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
