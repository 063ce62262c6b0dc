"""Results for programs: what the commands ``table``, ``explain``, ``compare`` and ``export`` print.

Nothing here needs a machine that can measure.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from harness.model import unread
from harness.results.measured import Measured

if TYPE_CHECKING:
    import pandas

    from harness.explain import Explained
    from harness.table.comparison import Comparison
    from harness.table.options import Options, Table


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

    def explain(self) -> list[Explained]:
        """What limits each cell, where its time goes, and what would help, in the order of the table."""
        from harness.explain import explain

        return explain(self.records, self.plans, self.probes)

    def compare(self, other: Results, *, metric: str = "MB/s", margin: float | None = None) -> Comparison:
        """Whether each cell of ``other`` is faster or slower than here, or that it is inconclusive.

        ``margin`` is the part (0.05) by which a cell has to differ to be of interest; None: as in ``harness
        compare``.
        """
        from harness.table import Metric
        from harness.table.comparison import MARGIN, compare

        return compare(self, other, Metric(metric), MARGIN if margin is None else margin)

    def to_pandas(self) -> pandas.DataFrame:
        """A row for each record and direction, and for each point of a sweep that was not measured, with the
        columns of ``harness export``.

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
    """All that was measured in ``paths``: folders of runs, records, or plain JSON outputs of fio.

    UsageError for a path without anything to read; what cannot be read within one costs itself alone.
    """
    with unread.noted():
        return Results.read(paths)
