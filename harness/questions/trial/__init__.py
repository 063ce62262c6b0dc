"""Do forecasts come true? Each change is made, and measured with it and without."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from harness.questions import Action, Offer

_TRY = typer.Option(
    "--try",
    help="Make each forecast change, measure with and without it, and compare with the forecast.",
    show_default=False,
)
_CELL = typer.Option(
    "--cell",
    metavar="CELL",
    help="With --try: only this column, workload, or 'COLUMN WORKLOAD'.",
    show_default=False,
)


def _load() -> Callable[[Sequence[Path], Mapping[str, Any]], None]:
    from harness.questions.trial.command import try_forecasts

    return try_forecasts


OFFERED = (
    Offer(
        name="trial",
        acts=(
            Action(
                options={"try": Annotated[bool, _TRY], "cell": Annotated[list[str] | None, _CELL]}, load=_load
            ),
        ),
    ),
)
