"""All that runs have measured, with what belongs to it."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import msgspec

from harness.model import FIO_SOURCE, Plan, Record, unread
from harness.results import store
from harness.results.machine import set_apart
from harness.results.probe_records import ProbeRecord

if TYPE_CHECKING:
    from harness.results.curves import MeasuredCurve
    from harness.results.sections import Outcome, Section


class Measured(msgspec.Struct, frozen=True, kw_only=True, dict=True):
    """What one run, or several, have measured.

    ``records`` are their cells, each with its outcome, ``probes`` those of their paths; ``plans``,
    ``environments`` and ``folders`` are by run id. ``lacks`` says in a sentence what could not be read.
    """

    records: Sequence[Record]
    probes: Sequence[ProbeRecord] = ()
    plans: Mapping[str, Plan] = {}
    environments: Mapping[str, Mapping[str, Any]] = {}
    folders: Mapping[str, Path] = {}
    lacks: Sequence[str] = ()

    @classmethod
    def read(cls, paths: Sequence[Path | str], *, is_pooled: bool = False, with_probes: bool = False) -> Self:
        """Everything in ``paths``: folders of runs, records, or plain JSON outputs of fio.

        ``is_pooled``: runs of several machines and kernels share their columns. ``with_probes``: runs of
        probes alone are results, too.
        UsageError for a path without anything to read. What cannot be read within one is noted
        (``harness.model.unread``).
        """
        with unread.passed_on() as lost:
            records = store.open_results(paths, with_probes=with_probes)
            probes = store.open_probes(paths)
            if lost and not records and not probes:
                raise lost[0]
        environments = store.open_environments(paths)
        return cls(
            records=records if is_pooled else set_apart(records, environments),
            probes=probes,
            plans=store.open_plans(paths),
            environments=environments,
            folders={run.run_id: run.path for run in store.open_runs(paths)},
            lacks=unread.sentences(lost),
        )

    @property
    def runs(self) -> list[str]:
        """The ids of the runs that have records."""
        return list(dict.fromkeys(record.run_id for record in self.records))

    @functools.cached_property
    def sections(self) -> Mapping[str, Section[msgspec.Struct]]:
        """Those of its plans, by run id."""
        if not any(plan.sections for plan in self.plans.values()):
            return {}  # as most results
        from harness.results.sections import of_plan

        return {run: found for run, plan in self.plans.items() if (found := of_plan(plan)) is not None}

    @functools.cached_property
    def curves(self) -> list[MeasuredCurve]:
        """Those of plans with a section, and of fio outputs that differ only in depth, block or jobs."""
        found = []
        for run, section in self.sections.items():
            found += section.curves(self.plans[run], self.records)
        if any(record.setting.source == FIO_SOURCE for record in self.records):
            from harness.results import plain

            found += plain.curves(self.records)
        return found

    def is_apart(self, record: Record) -> bool:
        """Whether its section shows a record, and not the matrix."""
        return record.run_id in self.sections and self.sections[record.run_id].is_apart(record)

    @functools.cached_property
    def section_sentences(self) -> list[str]:
        """What questions say of their runs, besides curves."""
        found = []
        for run, section in self.sections.items():
            own = [record for record in self.records if record.run_id == run]
            found += section.sentences(self.plans[run], own)
        return found

    @functools.cached_property
    def outcomes(self) -> list[Outcome]:
        """What questions found of these cells, in these runs or in those next to them."""
        from harness.results.sections import known

        found = (section.outcome(self) for section in known().values())
        return [outcome for outcome in found if outcome is not None]

    def found(self, question: str) -> list[Any]:
        """What a question found in its runs, besides curves: for ``knee`` the knees."""
        of = {run: section for run, section in self.sections.items() if section.name == question}
        return [each for run, section in of.items() for each in section.found(self.plans[run], self.records)]

    @property
    def section_tables(self) -> list[str]:
        """What questions show of their runs, besides curves."""
        apart: dict[str, list[Record]] = {}
        for record in self.records:
            if self.is_apart(record):
                apart.setdefault(self.sections[record.run_id].name, []).append(record)
        by_name = {section.name: section for section in self.sections.values()}
        return [table for name, records in apart.items() for table in by_name[name].tables(records)]

    @functools.cached_property
    def rest(self) -> Self:
        """The same without the points of curves, and without what questions show."""
        if not self.curves and not any(map(self.is_apart, self.records)):
            return self
        points = {
            (run, place) for curve in self.curves for place in curve.grid for run in curve.runs_of(place)
        }
        left = [
            r
            for r in self.records
            if (r.run_id, (r.column, r.workload.name)) not in points and not self.is_apart(r)
        ]
        return msgspec.structs.replace(self, records=left)
