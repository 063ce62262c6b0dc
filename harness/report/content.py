"""The contents of a report: the matrix of each metric, and what else is known of each column."""

from __future__ import annotations

import enum
import functools
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Self

import msgspec

from harness.analysis.limit import Limit
from harness.analysis.schedule import Place
from harness.explain import explain, lab_limited, likely_limits, volumes
from harness.explain.corrections import corrections
from harness.explain.evidence import Evidence, collect
from harness.explain.text import Explained
from harness.explain.volumes import VolumeOverPath
from harness.model import Column, LinkProfile, Plan, Record, Setting
from harness.model.choices import Choice
from harness.model.errors import UsageError
from harness.model.lines import listed
from harness.report.conclusion import Conclusion, answers
from harness.results.columns import CellKey, by_column, in_order
from harness.results.machine import side_by_side, side_of, together
from harness.results.measured import Measured
from harness.table import Metric, Options, build
from harness.table.comparison import Comparison, compare
from harness.table.notes import machines
from harness.table.options import Table, TableColumn
from harness.version import __version__


class Origin(enum.StrEnum):
    """What the figures of a column are based on. Each has a ``sign`` that needs no colour: a full circle, one
    with a ring, a half and an empty one."""

    sign: str
    meaning: str

    def __new__(cls, name: str, sign: str, meaning: str) -> Origin:
        made = str.__new__(cls, name)
        made._value_, made.sign, made.meaning = name, sign, meaning
        return made

    MEASURED = "measured", "●", "in real time, over a real link, or on a disk of the machine"
    MEMORY = "memory", "◉", "in real time, on a ramdisk without a network: not a disk's speed"
    EMULATED = "emulated", "◐", "in real time, over an emulated link or on an emulated disk"
    VIRTUAL = "virtual", "○", "in simulated time"
    PREDICTED = "predicted", "◌", "in simulated time that includes CPU costs: not measured"

    @property
    def look(self) -> Origin:
        """How it is drawn: neither of two was measured, and words and signs tell them apart."""
        return Origin.VIRTUAL if self is Origin.PREDICTED else self


class Words(msgspec.Struct, frozen=True, kw_only=True):
    """What the one who shows results says of them: unescaped text."""

    title: str = "Storage over network"
    author: str = ""
    notes: Sequence[str] = ()


class Theme(Choice):
    """theme"""

    LIGHT = "light"
    DARK = "dark"


Places = Mapping[tuple[Setting, Column], int]
"""The place of each column among all: its colour and the shape of its marks follow from it, everywhere."""


class LoadedResults(Measured, frozen=True, kw_only=True, dict=True):
    """What was measured, and what is concluded from it, which is so only once.

    ``of`` are the places of all columns, where these results are a part.
    """

    of: Places | None = None

    @functools.cached_property
    def places(self) -> Places:
        """The only source of columns' colours."""
        keys = in_order(by_column(self.records), self.plans.values())
        if any(side_of(key.setting) for key in keys):
            # The eight colours are for what two runs are compared for: their columns over a network.
            keys = sorted(keys, key=lambda key: key.column.is_local)
        return self.of or {(key.setting, key.column): place for place, key in enumerate(keys)}

    @functools.cached_property
    def rest(self) -> Self:
        """The same without the points of curves, and without trials; its columns keep their colours."""
        found = super().rest
        return found if found is self else msgspec.structs.replace(found, of=self.places)

    def table(self, metric: Metric) -> Table:
        """The matrix; UsageError if there are no records."""
        if metric not in self._tables:
            options = Options(metric=metric)
            self._tables[metric] = build(
                self.records, options, self.plans, self.environments, self._lab_limited
            )
        return self._tables[metric]

    @functools.cached_property
    def _tables(self) -> dict[Metric, Table]:
        """Those that were made, each once."""
        return {}

    @functools.cached_property
    def _lab_limited(self) -> frozenset[CellKey]:
        return lab_limited(self.records, self.plans, self.probes, self._evidence)

    @functools.cached_property
    def _evidence(self) -> list[Evidence]:
        return collect(self.records, self.plans, self.probes)

    @property
    def source(self) -> str:
        """Where the figures come from, in a line: runs, when they were planned, machines, version."""
        runs = self.runs
        plans = [self.plans[run] for run in runs if run in self.plans]
        days = sorted({f"{datetime.fromtimestamp(s, UTC):%Y-%m-%d}" for s in map(planned_s, plans) if s})
        text = " ".join(dict.fromkeys(machines(self.environments.values()))).removesuffix(".")
        versions = dict.fromkeys(plan.harness_version for plan in plans if plan.harness_version)
        parts = (listed(runs), " to ".join(dict.fromkeys((*days[:1], *days[-1:]))), text)
        return "; ".join(filter(None, (*parts, f"harness {', '.join(versions) or __version__}")))

    @functools.cached_property
    def explained(self) -> list[Explained]:
        """What limits each cell."""
        return explain(self.records, self.plans, self.probes)

    @functools.cached_property
    def compared(self) -> Comparison | None:
        """Of exactly two runs: the second compared with the first; None if they have no cell in common."""
        if len(self.runs) != 2:
            return None
        a, b = (
            Measured(
                records=together([record for record in self.records if record.run_id == run]),
                plans={name: plan for name, plan in self.plans.items() if name == run},
                environments={name: known for name, known in self.environments.items() if name == run},
            )
            for run in self.runs
        )
        try:
            return compare(a, b)
        except UsageError:
            return None

    @property
    def side_by_side(self) -> Self:
        """The same; of exactly two runs that have cells in common, each with columns of its own: A and B."""
        if self.compared is None:
            return self
        sides = dict(zip(self.runs, "AB", strict=True))
        return msgspec.structs.replace(self, records=side_by_side(self.records, sides))

    @functools.cached_property
    def limits(self) -> dict[str, dict[Place, Limit]]:
        """What likely limits each point of curves, by run id."""
        # Not the plan's own: where there are runs of several machines, a record's setting says which.
        settings = {record.run_id: record.setting.distinct for record in self.records}
        return {
            run: likely_limits([each for each in self._evidence if each.key.setting == settings.get(run)])
            for run, plan in self.plans.items()
            if self.sections.get(run) and self.sections[run].grids(plan)
        }

    @functools.cached_property
    def volumes(self) -> list[VolumeOverPath]:
        """What disks would give over each column: computed."""
        return volumes.volumes(self, self.explained)

    @property
    def corrections(self) -> list[str]:
        """What answers of earlier versions said wrongly of these runs."""
        return corrections(self.plans.values())

    @functools.cached_property
    def answers(self) -> list[Conclusion]:
        """What each column costs, and why."""
        return answers(self.table(Metric.MB_S), self.explained)


def planned_s(plan: Plan | None) -> float:
    """When a run was planned, as Unix time; 0 if that is not known, or no date."""
    return plan.created_unix_s if plan is not None and 0 < plan.created_unix_s < 1e11 else 0.0


class ColumnFacts(msgspec.Struct, frozen=True, kw_only=True):
    """A column of the matrix with its records by workload; ``link`` is as planned.

    ``name`` is the column's label, without the setting if that is the same for all columns. ``place`` gives
    it the same colour and marks in all pictures (``LoadedResults.places``).
    """

    column: TableColumn
    place: int
    name: str
    origin: Origin
    samples: Mapping[str, Sequence[Record]]
    link: LinkProfile | None = None


def load(paths: Sequence[Path], *, is_pooled: bool = False) -> LoadedResults:
    """Everything in ``paths`` that ``harness table`` takes; raises what it raises."""
    return LoadedResults.read(paths, is_pooled=is_pooled)


def columns(results: LoadedResults, table: Table) -> list[ColumnFacts]:
    """The measured columns of a table of ``results``, in its order."""
    samples = by_column(results.records)
    alike = len({column.setting for column in table.columns if column.key}) == 1
    facts = []
    for column in table.columns:
        if (key := column.key) is None:
            continue
        found = [record for cell in samples[key].values() for record in cell]
        plans = [results.plans[run] for run in dict.fromkeys(r.run_id for r in found) if run in results.plans]
        name = key.column.link
        emulated = any(record.emulated or record.setting.disk for record in found)
        memory = key.column.is_local and column.is_memory
        simulated = Origin.PREDICTED if key.setting.predicted_from else Origin.VIRTUAL
        real = Origin.MEMORY if memory else Origin.EMULATED if emulated else Origin.MEASURED
        facts.append(
            ColumnFacts(
                column=column,
                place=results.places[key.setting, key.column],
                name=column.name if alike else column.label,
                origin=simulated if key.setting.is_virtual else real,
                samples=samples[key],
                link=next((plan.links[name] for plan in plans if name in plan.links), None),
            )
        )
    return facts
