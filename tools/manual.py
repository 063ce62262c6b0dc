"""Manual pages of what ``--help`` prints, one per command: ``python -m tools.manual FOLDER``."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import typer.main

from harness import __version__
from harness.cli import app


def helps() -> Iterator[tuple[str, str]]:
    """Each command with its help, for 80 columns."""
    os.environ["COLUMNS"] = "80"
    waiting: list[tuple[str, Any]] = [("harness", typer.main.get_command(app))]
    while waiting:
        path, command = waiting.pop(0)
        command = getattr(command, "real", command)
        yield path, command.get_help(typer.Context(command, info_name=path))
        waiting += [(f"{path} {name}", each) for name, each in getattr(command, "commands", {}).items()]


def page(path: str, text: str) -> str:
    """In man(7)'s language: typed hyphens, and no line of the help that begins like a request."""
    # Today, or the day that a reproducible build is given (reproducible-builds.org).
    date = time.strftime("%Y-%m-%d", time.gmtime(int(os.environ.get("SOURCE_DATE_EPOCH", time.time()))))
    name = path.replace(" ", "\\-")
    does = " ".join(text.split("\n\n")[1].split()).rstrip(".")
    lines = (f"\\&{line}" for line in escaped(text).splitlines())
    return "\n".join(
        (
            f'.TH {name.upper()} 1 {date} "harness {__version__}" "User Commands"',
            *(".SH NAME", f"{name} \\- {escaped(does)}", ".SH DESCRIPTION", ".nf", *lines, ".fi", ""),
        )
    )


def escaped(text: str) -> str:
    return text.replace("\\", "\\e").replace("-", "\\-")


def main(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for path, text in helps():
        (folder / f"{path.replace(' ', '-')}.1").write_text(page(path, text), encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
