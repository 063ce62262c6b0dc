"""What this question adds to the harness."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from harness.questions import Answer, Ask, Question, Source

_FILE = typer.Option(metavar="FILE.toml", help="Figures that somebody else measured.", show_default=False)
_ASK = typer.Option("--ask", help="Enter one such figure, question by question.")


def _of_file() -> Callable[[Path, Ask], Answer]:
    from harness.questions.figures.command import of_file

    return of_file


def _asked() -> Callable[[bool, Ask], Answer]:
    from harness.questions.figures.command import asked

    return asked


def _schemas() -> Mapping[str, tuple[Any, str]]:
    from harness.questions.figures.answer import PrintedFigures

    title = "What `harness explain --figures FILE --format json` prints"
    return {"explain-figures": (PrintedFigures, title)}


OFFERED = (
    Question(
        name="figures",
        explains=(
            Source(name="figures", option=Annotated[Path | None, _FILE], load=_of_file),
            Source(name="ask", option=Annotated[bool, _ASK], load=_asked),
        ),
        examples={"explain": ("harness explain --figures mine.toml",)},
        schemas=_schemas,
    ),
)
