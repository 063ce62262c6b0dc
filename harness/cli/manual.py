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
from typing import Any

import typer

from harness import __version__
from harness.cli import app
from harness.cli.help import headings, summary

STATUS = (
    "0: all cells are ok. 1: a cell is not, or something was left behind. "
    "2: wrong usage, or something is missing."
)


def _page(name: str, command: Any) -> Iterator[str]:
    called = _escaped(name.replace(" ", "-"))
    # Today, or the day that a reproducible build is given (reproducible-builds.org).
    seconds = int(os.environ.get("SOURCE_DATE_EPOCH", time.time()))
    date = time.strftime("%Y-%m-%d", time.gmtime(seconds))
    yield f'.TH {called.upper()} 1 {date} "harness {__version__}" "User Commands"'
    yield from (".SH NAME", f"{called} \\- {_escaped(summary(command)).rstrip('.')}", ".SH SYNOPSIS")
    yield from _synopsis(name, command)
    yield from (".SH DESCRIPTION", *_described(name, command, ".SS"))
    for sub, each in getattr(command, "commands", {}).items():
        if " " in name:
            yield f".SS {_escaped(f'{name} {sub}')}"
            yield from (
                *_synopsis(f"{name} {sub}", each),
                ".PP",
                *_described(f"{name} {sub}", each, ".PP\n.B"),
            )
        else:
            yield from (".TP", f".BR {called}\\-{_escaped(sub)} (1)", _escaped(summary(each)))
    yield from (".SH EXIT STATUS", STATUS)
    if command.epilog:
        yield from (".SH EXAMPLES", ".nf", *map(_escaped, command.epilog.splitlines()[2:]), ".fi")


def _synopsis(name: str, command: Any) -> Iterator[str]:
    yield f".B {_escaped(name)}"
    yield f".I {_escaped(' '.join(command.collect_usage_pieces(typer.Context(command))))}"


def _described(name: str, command: Any, heading: str) -> Iterator[str]:
    for number, paragraph in enumerate(inspect.cleandoc(command.help or "").split("\n\n")):
        yield from ([".PP"] if number else [])
        yield _escaped(" ".join(paragraph.split()))
    context = typer.Context(command, info_name=name)
    for words, parameters in headings(command).items():
        yield f"{heading} {_escaped(words)}"
        for typed, does in (each.get_help_record(context) for each in parameters):
            yield from (".TP", f".B {_escaped(typed)}", _escaped(does) or "What to take.")


def _escaped(text: str) -> str:
    """As man(7) reads it: a hyphen that is typed as such, and no line that begins like a request."""
    made = text.replace("\\", "\\e").replace("-", "\\-")
    return f"\\&{made}" if made[:1] in (".", "'") else made


def main(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    whole: Any = typer.main.get_command(app)
    named = {"harness": whole, **{f"harness {name}": later.real for name, later in whole.commands.items()}}
    for name, command in named.items():
        text = "".join(f"{line}\n" for line in _page(name, command))
        (folder / f"{name.replace(' ', '-')}.1").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
