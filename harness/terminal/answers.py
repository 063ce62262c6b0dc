"""What results say, as it is printed."""

from __future__ import annotations

import shlex
import shutil
import sys
from collections.abc import Sequence

from harness import explain, report
from harness.explain import curves, volumes
from harness.model.errors import UsageError
from harness.model.escape import printable
from harness.model.lines import wrapped
from harness.planning import forecasts
from harness.report import summary
from harness.results import archive
from harness.results.measured import Measured
from harness.terminal.streams import NARROW, tell


def print_tried(results: report.LoadedResults) -> None:
    """What was said and what was measured, of forecasts that were tried; nothing of other runs."""
    if lines := explain.said_and_measured(results.tried):
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
    if lines := summary.lines(
        results.answers, results, width, disks, lambda cells: try_command(results, cells)
    ):
        lines += [cut for line in corrections for cut in wrapped(line, width, "  ")]
        sys.stdout.write("\n".join(lines) + "\n")
    else:
        tell("nothing to compare: measure a link, or protected columns together with --protect off")


def try_command(results: report.LoadedResults, cells: Sequence[explain.Explained]) -> str:
    """What to type to try the forecasts of these cells of one workload; empty if no run's plan can be changed
    so."""
    for run_id, folder in results.folders.items():
        try:
            is_known = run_id in results.plans and not archive.is_unpacked(folder)
            is_made = is_known and forecasts.make_plans(results.plans[run_id], cells)
        except UsageError:
            continue
        if is_made:
            named = dict.fromkeys(cell.evidence.workload for cell in cells)
            return shlex.join(["harness", "explain", str(folder), "--try", "--cell", *named])
    return ""
