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
    from harness.results.knee import Knee
    from harness.results.sweep import MeasuredCurve


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
    def curves(self) -> list[MeasuredCurve]:
        """Those of sweeps, and of fio outputs that differ only in depth, block or jobs."""
        found = []
        # Here, because most results have none.
        if sweeps := [plan for plan in self.plans.values() if plan.sweep and plan.sweep.over]:
            from harness.results import sweep

            found += [curve for plan in sweeps for curve in sweep.measured(plan, self.records)]
        if any(record.setting.source == FIO_SOURCE for record in self.records):
            from harness.results import plain

            found += plain.curves(self.records)
        return found

    @property
    def trials(self) -> list[Record]:
        """Those of searches for knees."""
        return [record for record in self.records if record.workload.rate_iops is not None]

    @functools.cached_property
    def knees(self) -> list[Knee]:
        """What searches found."""
        if not self.trials:
            return []
        from harness.results import knee

        return [found for plan in self.plans.values() for found in knee.knees(plan, self.records)]

    @functools.cached_property
    def rest(self) -> Self:
        """The same without the points of curves, and without trials."""
        if not self.curves and not self.trials:
            return self
        points = {
            (run, place) for curve in self.curves for place in curve.grid for run in curve.runs_of(place)
        }
        left = [
            r
            for r in self.records
            if (r.run_id, (r.column, r.workload.name)) not in points and r.workload.rate_iops is None
        ]
        return msgspec.structs.replace(self, records=left)
