"""Results for programs: what the commands ``table``, ``explain``, ``compare`` and ``export`` print.

Nothing here needs a machine that can measure.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from harness.model import unread
from harness.model.errors import UsageError
from harness.results.measured import Measured

if TYPE_CHECKING:
    import pandas

    from harness.explain.text import Explained
    from harness.table.comparison import Comparison
    from harness.table.options import Options, Table
    from harness.table.views import Grid

__all__ = ["Results", "UsageError", "open_results"]


class Results(Measured, frozen=True, kw_only=True, dict=True):
    """What one run, or several, have measured: ``records``, ``probes``, ``plans``, ``environments`` and
    ``lacks`` (``Measured``), and what the commands say of it."""

    def table(self, *, metric: str = "MB/s", ratio: str = "none") -> Table:
        """The matrix, as ``harness table`` prints it (``harness.table.render``); both words as typed there.

        UsageError for others.
        """
        from harness.table import Metric, Options, RatioTo

        return self.table_of(Options(metric=Metric(metric), ratio=RatioTo(ratio)))

    def table_of(self, options: Options) -> Table:
        """The same, and with ``reference`` what was published."""
        from harness.explain import lab_limited
        from harness.table import build

        own = lab_limited(self.records, self.plans, self.probes)
        made = build(self.records, options, self.plans, self.environments, own)
        return msgspec.structs.replace(made, notes=(*self.lacks, *made.notes))

    def view(self, name: str) -> Grid:
        """A view of probes (link, pppoe, openflow, pps, udp-latency), or of cells (scale, counters), as
        ``harness table --view`` prints it (``harness.table.views.render``, with a ``TableFormat``).

        UsageError for another name. A view of what was not measured has no rows.
        """
        from harness.table import views

        match view := views.View(name):
            case views.View.SCALE:
                return views.build_scale(self.records)
            case views.View.COUNTERS:
                return views.build_counters(self.records, [*self.plans.values()])
        return views.build(view, self.probes)

    def explain(self) -> list[Explained]:
        """What limits each cell, where its time goes, and what would help, in the order of the table."""
        from harness.explain import explain

        return explain(self.records, self.plans, self.probes)

    def compare(
        self, other: Results | Path | str, *, metric: str = "MB/s", margin: float | str | None = None
    ) -> Comparison:
        """Whether each cell of ``other``, results or a path, is faster or slower than here, or inconclusive.

        Equivalent needs an interval within ``margin`` of 1 (0.05 or 5%; None: as in ``harness compare``);
        faster and slower do not depend on it. For a gate, check ``is_judged``, then ``slower_by``
        of the result. UsageError for another margin, and without a cell in common.
        """
        from harness.model.units import as_part
        from harness.table import Metric
        from harness.table.comparison import MARGIN, compare

        least = MARGIN if margin is None else as_part(margin, what="margin")
        found = other if isinstance(other, Measured) else open_results(other)
        return compare(self, found, Metric(metric), least)

    def to_pandas(self) -> pandas.DataFrame:
        """A row for each record and direction, with the columns of ``harness export``; and one for each point
        of a sweep that was not measured, whose status is ``estimated``, ``is_estimated`` true, and
        ``is_disturbed`` None.

        RequirementError without pandas, which the harness does not install.
        """
        from harness.table.export import COLUMNS, rows

        try:
            import pandas
        except ImportError as error:
            from harness.model.errors import RequirementError

            raise RequirementError(
                "expected pandas, found none", hint="pip install pandas, or use harness export"
            ) from error
        found = rows(self.records, self.environments, self.plans, self.curves)
        return pandas.DataFrame(found, columns=list(COLUMNS))


def open_results(*paths: Path | str) -> Results:
    """All that was measured in ``paths``: folders of runs, records, or plain JSON outputs of fio. A run may
    have probes alone.

    UsageError without a path, for what is none, and for a path without anything to read; what cannot be read
    within one costs itself alone.
    """
    if not paths:
        raise UsageError("expected a path, found none", hint='open_results("results/")')
    for path in paths:
        if not isinstance(path, str | os.PathLike):
            raise UsageError(
                f"expected a path, found {type(path).__name__}", hint="several: open_results(*paths)"
            )
    with unread.noted():
        return Results.read(paths, with_probes=True)
