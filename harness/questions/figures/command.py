"""``harness explain --figures FILE`` and ``--ask``."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from harness.model.errors import UsageError
from harness.questions import Answer, Ask
from harness.questions.figures import answer, reported


def of_file(file: Path, ask: Ask) -> Answer:
    """What limits the figures of a file."""
    del ask
    return _judged(reported.load(file))


def asked(value: bool, ask: Ask) -> Answer:
    """The same of one figure, as answered at the terminal; what is wrong is asked again."""
    del value
    found = {}
    for key, question in reported.QUESTIONS.items():
        wrong = ""
        while said := ask(question, wrong):
            try:
                found[key] = reported.entry(key, said)[1]
                break
            except UsageError as error:
                wrong = str(error)
    return _judged((reported.Reported(**found),))


def _judged(claim: Sequence[reported.Reported]) -> Answer:
    found = answer.judge_all(claim)
    return Answer(answer.lines(found), answer.PrintedFigures(figures=tuple(found)))
