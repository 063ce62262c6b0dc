"""A run as text to paste into a thread: its answer, its table, and the command that makes such a run."""

from __future__ import annotations

from harness.explain import volumes
from harness.model.escape import printable
from harness.questions.share.cleaned import SharedRun
from harness.report import summary
from harness.report.content import LoadedResults
from harness.results import again
from harness.table import Metric, TableFormat, render

WIDTH = 80


def of_run(shared: SharedRun) -> str:
    """What others may have of a run, as GitHub's Markdown."""
    run, plan = shared.run_id, shared.plan
    results = LoadedResults(
        records=shared.records,
        probes=shared.probes,
        plans={run: plan} if plan is not None else {},
        environments={run: shared.environment},
    )
    disks = volumes.lines(results.volumes, WIDTH)
    lines = summary.lines(results.answers, results, WIDTH, disks) if results.records else []
    # Names cannot end the block: no line begins with a fence.
    parts = ["\n".join(("```text", *lines, "```"))] if lines else []
    parts += [render(results.table(Metric.MB_S), TableFormat.MARKDOWN)] if results.records else []
    if plan is not None and (typed := again.command(plan)):
        parts.append(f"```sh\n{printable(typed)}\n```")
    return "\n\n".join(parts) + "\n"
