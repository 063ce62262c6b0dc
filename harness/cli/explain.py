"""The command ``harness explain``."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from harness import report
from harness.explain import published, text, what_if
from harness.model import LINK_LOCAL
from harness.model.choices import TextFormat
from harness.model.errors import UsageError
from harness.model.escape import as_json, printable
from harness.model.lines import wrapped
from harness.model.units import shown
from harness.parse import references
from harness.parse.profiles import load_link
from harness.questions import Explanation, questions
from harness.results.measured import Measured
from harness.results.store import RESULTS
from harness.terminal import options
from harness.terminal.answers import print_answers, print_curves, print_outcomes
from harness.terminal.common import (
    ReferenceOption,
    ResultsPaths,
    WhatIfOption,
    format_option,
)
from harness.terminal.streams import NARROW, tell

SOURCES = tuple(source for question in questions() for source in question.explains)


ACTIONS = tuple(action for question in questions() for action in question.acts)


@options.adding(
    {f"{name}_": option for action in ACTIONS for name, option in action.options.items()}
    | {source.name: source.option for source in SOURCES}
)
def explain_command(
    paths: ResultsPaths = None,
    format: Annotated[str, format_option(TextFormat)] = "text",
    summary: Annotated[bool, typer.Option("--summary", help="Only what each column costs and why.")] = False,
    with_twin: Annotated[
        bool,
        typer.Option(
            "--twin",
            help="Of the last version: the cost of processors is in every answer now.",
            hidden=True,
        ),
    ] = False,
    if_faster: WhatIfOption = None,
    reference: ReferenceOption = None,
    **more: Any,
) -> None:
    """Show what limits each cell, where time goes, what would help.

    It also says how certain that is. --reference and the options below it explain other figures than
    results.
    """
    shape = TextFormat(format)
    asked = [(source, value) for source in SOURCES if (value := more.get(source.name))]
    instead = [("--reference", reference), *((f"--{source.name}", value) for source, value in asked)]
    acts = {name: more.get(f"{name}_") for action in ACTIONS for name in action.options}
    others = [("--summary", summary), *((f"--{name}", value) for name, value in acts.items())]
    if if_faster is not None and (given := [name for name, value in (*others, *instead) if value]):
        raise UsageError(f"expected one of --what-if and {given[0]}, found both", hint="leave one out")
    if given := [name for name, value in instead if value is not None]:
        if paths or len(given) > 1:
            both = " and ".join(given) if len(given) > 1 else f"results or {given[0]}, found both"
            raise UsageError(f"expected one of {both}", hint="leave one out")
        if reference is not None:
            sys.stdout.write(_concluded(reference, shape) + "\n")
        else:
            ((source, value),) = asked
            _answer(source.load()(value, _ask if sys.stdin.isatty() else None), shape)
        return
    files = paths or [Path(RESULTS)]
    if if_faster is not None:
        _change(what_if.of_run(Measured.read(files), if_faster), shape)
        return
    if with_twin:
        tell("note: --twin does nothing more; what processors take is in every answer (implementation_ns)")
    for action in ACTIONS:
        typed = {name: acts[name] for name in action.options}
        if any(typed.values()):
            action.load()(files, typed)
    results = report.load(files)
    if shape is TextFormat.JSON:
        tried = [each for outcome in results.outcomes for each in outcome.found]
        found = text.as_json(results.explained, results.corrections, tried, results.volumes)
        sys.stdout.write(found + "\n")
        return
    print_curves(results, in_short=summary)
    # Of fio outputs without a plan nothing is known that their curves do not show.
    is_shown = results.section_tables or (results.curves and not any(curve.links for curve in results.curves))
    if is_shown and not (results := results.rest).records:
        return
    if summary:
        print_answers(results, results.corrections)
        print_outcomes(results)
    else:
        width = shutil.get_terminal_size().columns if sys.stdout.isatty() else None
        sys.stdout.write(text.text(results.explained, width, results.corrections) + "\n")
        print_outcomes(results)


def _change(found: what_if.PrintedWhatIf, shape: TextFormat) -> None:
    """What changes would give that nobody made."""
    if shape is TextFormat.JSON:
        sys.stdout.write(as_json(found) + "\n")
        return
    said = [what_if.sentence(found), "", *what_if.lines(found), *found.outside]
    sys.stdout.write("\n".join(map(printable, said)) + "\n")


def _answer(found: Explanation, shape: TextFormat) -> None:
    if shape is TextFormat.JSON:
        sys.stdout.write(as_json(found.document) + "\n")
        return
    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else NARROW
    for line in found.lines:
        # Commands stay whole, to be copied.
        cut = [printable(line)] if line.startswith(" ") else wrapped(printable(line), width, "    ")
        sys.stdout.write("\n".join(cut) + "\n")


def _ask(question: str, word: str) -> str:
    if word:
        tell(word)
    return str(typer.prompt(question, default="", show_default=False, err=True)).strip()


def _concluded(name: str, shape: TextFormat) -> str:
    if references.view_of(name) is not None:
        raise UsageError(
            f"expected a published matrix of storage, but {shown(name)} has figures of paths",
            hint="try --reference iscsi-ipsec",
        )
    matrix = references.load_reference(name)
    links = {column.link for column in matrix.columns} - {LINK_LOCAL}
    found = published.conclude(matrix, {link: load_link(link) for link in sorted(links)})
    return as_json(found) if shape is TextFormat.JSON else published.text(found)
