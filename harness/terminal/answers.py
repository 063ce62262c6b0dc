"""What results say, as it is printed."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Sequence
from functools import partial

from harness import report
from harness.explain import curves, volumes
from harness.explain.text import outcome_lines
from harness.model.escape import printable
from harness.model.lines import wrapped
from harness.report import summary
from harness.results import sections
from harness.results.measured import Measured
from harness.terminal.streams import NARROW, tell


def print_outcomes(results: Measured) -> None:
    """What questions found of these cells in runs of their own; nothing of other runs."""
    for outcome in results.outcomes:
        lines = outcome_lines(outcome)
        sys.stdout.write("\n".join(["", *map(printable, lines), ""]))


def print_curves(results: Measured, *, in_short: bool = False) -> None:
    """What curves and questions say; nothing of other runs. If ``in_short``, no more curves than fit onto a
    screen."""
    said = curves.in_short(results.curves) if in_short else curves.sentences(results.curves)
    for sentence in (*said, *results.section_sentences):
        sys.stdout.write("\n".join(wrapped(sentence, NARROW, "  ")) + "\n")


def print_answers(results: report.LoadedResults, corrections: Sequence[str] = ()) -> None:
    """What each column reaches and costs, and why; to standard error if there is nothing to say. Then what
    answers of earlier versions said wrongly."""
    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else NARROW
    disks = volumes.lines(results.volumes, width)
    if lines := summary.lines(results.answers, results, width, disks, partial(sections.command, results)):
        lines += [cut for line in corrections for cut in wrapped(line, width, "  ")]
        sys.stdout.write("\n".join(lines) + "\n")
    else:
        tell("nothing to compare: measure a link, or protected columns together with --protect off")
