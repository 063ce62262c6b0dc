"""``harness explain --figures FILE`` and ``--ask``."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from harness.model.errors import UsageError
from harness.questions import Ask, Explanation
from harness.questions.figures import answer, reported


def of_file(file: Path, ask: Ask) -> Explanation:
    """What limits the figures of a file."""
    del ask
    return _judged(reported.load(file))


def asked(value: bool, ask: Ask) -> Explanation:
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


def _judged(claim: Sequence[reported.Reported]) -> Explanation:
    found = answer.judge_all(claim)
    return Explanation(answer.lines(found), answer.PrintedFigures(figures=tuple(found)))
