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
    if ask is None:
        raise UsageError("--ask asks, and there is no terminal", hint="write a file: --figures FILE.toml")
    found, word = {}, "what is not known stays empty"
    for key, question in reported.QUESTIONS.items():
        while said := ask(question, word):
            try:
                found[key] = reported.entry(key, said)[1]
                break
            except UsageError as error:
                word = str(error)
        word = ""
    return _judged((reported.Reported(**found),))


def _judged(claim: Sequence[reported.Reported]) -> Explanation:
    found = answer.judge_all(claim)
    return Explanation(answer.lines(found), answer.PrintedFigures(figures=tuple(found)))
