"""What limits a figure that somebody else measured?"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated

import typer

from harness.questions import Ask, Explanation, Offer, PrintedType, Source

_FILE = typer.Option(metavar="FILE.toml", help="Figures that somebody else measured.", show_default=False)
_FILES = "profiles/references/public/*.toml"
_ASK = typer.Option("--ask", help="Enter one such figure, question by question.")


def _of_file() -> Callable[[Path, Ask], Explanation]:
    from harness.questions.figures.command import of_file

    return of_file


def _asked() -> Callable[[bool, Ask], Explanation]:
    from harness.questions.figures.command import asked

    return asked


def _schemas() -> Mapping[str, PrintedType]:
    from harness.parse.profiles import data_folder
    from harness.questions.figures.answer import PrintedFigures

    title = "What `harness explain --figures FILE --format json` prints"
    command = f"explain --figures {data_folder()}/profiles/references/public/libreswan-252.toml"
    return {"explain-figures": PrintedType(PrintedFigures, title, command)}


OFFERED = (
    Offer(
        name="figures",
        explains=(
            Source(
                name="figures",
                option=Annotated[Path | None, _FILE],
                load=_of_file,
                files=_FILES,
            ),
            Source(name="ask", option=Annotated[bool, _ASK], load=_asked),
        ),
        schemas=_schemas,
    ),
)
