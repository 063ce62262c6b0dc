"""The composer of probes: every probe on every column, without a disk, a target or a session."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence

import msgspec

from harness.analysis import disturbance
from harness.model import Column, Plan, Status
from harness.model.errors import HarnessError, HostLost, RequirementError
from harness.model.probing import Probe
from harness.network import links
from harness.observe import environment
from harness.probes import judged
from harness.results.events import TAKING_DOWN, CellEnded, CellStarted, ago_s
from harness.results.probe_records import ProbeRecord, probe_key
from harness.runs.columns import ColumnPath
from harness.runs.composer import Composer
from harness.storage import transports


class Question(msgspec.Struct, frozen=True):
    """A probe of a column, in its ``repeat``-th repeat."""

    column: Column
    probe: Probe
    repeat: int

    @property
    def key(self) -> str:
        return probe_key(self.column, self.probe, self.repeat)


def questions(plan: Plan) -> list[Question]:
    """All probes of a plan in their order. Columns alternate, so that each repeat covers all of them."""
    return [
        Question(column, probe, repeat)
        for repeat in range(1, plan.repeats + 1)
        for probe in plan.probing
        for column in plan.columns
    ]


class Prober(Composer):
    """One run of a plan of probes. A column is brought up with its first probe, and stays up."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self._up: dict[Column, ColumnPath | HarnessError | OSError] = {}

    def execute(self, todo: Sequence[tuple[int, Question]]) -> None:
        """Make the probes in ``todo`` (place in the order, question) and write a record for each. Disturbed
        ones are made again in the end, up to as often as the plan says, once other programs have calmed down.

        Raises HarnessError only if the run as a whole cannot go on.
        """
        self._facts = environment.describe(self.hosts.all, self.hosts.hops, more=transports.versions())
        if not self.plan.setting.is_virtual:
            self._observer = self.hosts.observer(self.emit)
        with contextlib.ExitStack() as stack:
            self._tell_what_is_left(stack)
            stack.enter_context(self._paths.shared())
            columns = stack.enter_context(contextlib.ExitStack())
            left = self._make_all(todo, columns)
            for _ in range(self.plan.retries):
                if left and self._patience.wait_for_idle():
                    left = self._make_all(left, columns)
            self.emit(TAKING_DOWN)

    def _make_all(
        self, todo: Sequence[tuple[int, Question]], columns: contextlib.ExitStack
    ) -> list[tuple[int, Question]]:
        """Those of them that were disturbed."""
        disturbed = []
        for number, (order, question) in enumerate(todo, 1):
            self.emit(CellStarted(question.key, number, len(todo)))
            record = self._make(question, order, columns)
            self.folder.save_probe(record)
            disturbance_found = disturbance.described(record)
            if disturbance_found is not None:
                disturbed.append((order, question))
            ended_ago_s = ago_s(record.started_unix_s)
            self.emit(
                CellEnded(question.key, record.status, record.reason, 0, ended_ago_s, disturbance_found)
            )
        return disturbed

    def _make(self, question: Question, order: int, columns: contextlib.ExitStack) -> ProbeRecord:
        record = judged.blank(self.plan, question.column, question.probe, repeat=question.repeat, order=order)
        up = self._column(question.column, columns)
        if isinstance(up, RequirementError):
            return msgspec.structs.replace(record, status=Status.SKIPPED, reason=str(up))
        if not isinstance(up, ColumnPath):
            return msgspec.structs.replace(record, status=Status.FAILED, reason=str(up))
        return self._probed(record, up)

    def _column(self, column: Column, columns: contextlib.ExitStack) -> ColumnPath | HarnessError | OSError:
        """The path of a column, or why there is none. It is tried once."""
        if column not in self._up:
            try:
                with contextlib.ExitStack() as stack:
                    up = self._paths.bring_up(column, 0, stack)
                    columns.push(stack.pop_all())
            except HostLost:
                raise
            except (HarnessError, OSError) as error:
                self._up[column] = error
            else:
                self._up[column] = up
                self._note_column(column, [up], link=[links.describe(up.link)])
        return self._up[column]
