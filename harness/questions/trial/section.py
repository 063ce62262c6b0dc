"""A trial's section of a plan: forecasts that it checks, each by a cell with its change and one without."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from harness.analysis.limit import ChangeKind, ChangeStep
from harness.model import Column, Plan
from harness.model.errors import UsageError
from harness.model.ranges import Figure
from harness.model.texts import Name, RunId
from harness.model.units import check_name
from harness.results.sections import Outcome, Section

if TYPE_CHECKING:
    from harness.results.measured import Measured


class Forecast(msgspec.Struct, frozen=True, kw_only=True):
    """A forecast of ``harness explain`` that a run checks; it is for a cell of the run ``run_id``.

    ``column`` and ``workload`` are that cell, ``changed_column`` and ``changed_workload`` the one with the
    step. ``before_mb_s`` is the cell's measured rate, ``said_mb_s`` the forecast, from ``least_mb_s`` to
    ``most_mb_s``, all in 10^6 bytes per second.
    """

    run_id: RunId
    step: ChangeStep
    column: Column
    workload: Name
    changed_column: Column
    changed_workload: Name
    before_mb_s: Figure
    said_mb_s: Figure
    least_mb_s: Figure
    most_mb_s: Figure

    @property
    def changed(self) -> tuple[Column, str]:
        """The cell with the step."""
        return self.changed_column, self.changed_workload

    @property
    def unchanged(self) -> tuple[Column, str] | None:
        """The cell without it; None if the run has another disk, and so cannot measure that in turns."""
        return None if self.step.kind is ChangeKind.DEVICE else (self.column, self.workload)


class Forecasts(msgspec.Struct, frozen=True, kw_only=True):
    """A run that checks these."""

    forecasts: tuple[Forecast, ...]


class TrialSection(Section[Forecasts]):
    name = "trial"
    holds = Forecasts

    def check(self, plan: Plan) -> None:
        """What it tries is of another run, and among its own cells."""
        forecasts = self.of(plan).forecasts
        own = {(column, job.name) for column in plan.columns for job in plan.jobs}
        tried = {place for each in forecasts for place in (each.unchanged, each.changed) if place}
        if not forecasts or not tried <= own or {*plan.cells} != tried:
            raise UsageError("expected forecasts of the cells of the plan, and of no others")
        for each in forecasts:
            check_name("run", each.run_id)
            if min(each.before_mb_s, each.least_mb_s, each.said_mb_s) <= 0:
                raise UsageError("expected rates of more than 0")

    def outcome(self, results: Measured) -> Outcome | None:
        from harness.questions.trial import tried

        return tried.outcome(results)

    def finds(self) -> type[msgspec.Struct]:
        from harness.questions.trial.tried import Tried

        return Tried

    def command(self, results: Measured, cells: Any) -> str:
        from harness.questions.trial.plan import command

        return command(results, cells)


SECTION = TrialSection()
OFFERED = (SECTION,)
