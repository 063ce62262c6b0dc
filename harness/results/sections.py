"""Sections of a plan: what questions add to one, which cells it then measures, and what these say.

A question has its section in ``section.py`` of its folder, which needs no machine. It is found by the name
that a plan has (``Plan.sections``), so nothing here knows which there are. A plan with a section that is not
here is shown as any other, and not measured.
"""

from __future__ import annotations

import abc
import functools
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar

import msgspec

from harness.analysis.schedule import Schedule
from harness.model import Plan, Record
from harness.model.errors import UsageError
from harness.model.kinds import offered
from harness.model.units import shown

if TYPE_CHECKING:
    from harness.results.axes import Curve
    from harness.results.curves import MeasuredCurve, Surface
    from harness.results.measured import Measured

T = TypeVar("T", bound=msgspec.Struct)

Rows = tuple[Sequence[str], list[tuple[str, ...]]]
"""Headings of a table, and its lines."""


class Outcome(NamedTuple):
    """What a question found of cells in runs of its own: a table for people, and ``found`` for programs."""

    title: str
    caption: str
    summary: str
    headings: Sequence[str]
    rows: Sequence[Sequence[str]]
    found: Sequence[msgspec.Struct]


class Section(Generic[T]):
    """What a question adds to plans. ``name`` is the question's, ``holds`` the type of what a plan says.

    With ``has_open_loop`` all its jobs send their requests at a rate, and otherwise none does. A question has
    its own of what is here, as far as it differs from any run.
    """

    name: str
    holds: type[T]
    has_open_loop = False

    def of(self, plan: Plan) -> T:
        """What a plan says. UsageError if it is not of this type."""
        return self.read(plan.sections[self.name])

    def read(self, said: Mapping[str, object]) -> T:
        """The same of the section alone."""
        try:
            return msgspec.convert(said, self.holds)
        except msgspec.ValidationError as error:
            raise UsageError(f"sections.{self.name}: {error}") from error

    def within(self, said: T) -> dict[str, dict[str, object]]:
        """``Plan.sections`` with that alone."""
        return {self.name: msgspec.to_builtins(said)}

    def check(self, plan: Plan) -> None:
        """UsageError for what could not have been typed."""

    def schedule(self, plan: Plan, records: Iterable[Record]) -> Schedule:
        """What is measured next."""
        return Schedule(plan, records)

    def grids(self, _plan: Plan) -> Mapping[Curve, Surface]:
        """The curves of which its cells are points."""
        return {}

    def axes(self, _plan: Plan) -> Mapping[str, str]:
        """The values on the axes of its curves, as they are typed, by what is typed before them."""
        return {}

    def curves(self, _plan: Plan, _records: Sequence[Record]) -> list[MeasuredCurve]:
        """Those of which something was measured."""
        return []

    def is_apart(self, _record: Record) -> bool:
        """Whether a cell of its plan has no place in a matrix, because ``tables`` and ``sentences`` show
        it."""
        return False

    def tables(self, _records: Sequence[Record]) -> list[str]:
        """Its cells as text, in place of the matrix."""
        return []

    def charts(self, _records: Sequence[Record], _folders: Mapping[str, Path]) -> list[Any]:
        """Its cells as pictures (``report.charts.Chart``); ``folders`` are those of the runs, by run id."""
        return []

    def sentences(self, _plan: Plan, _records: Sequence[Record]) -> list[str]:
        """What its cells say, besides curves."""
        return []

    def found(self, _plan: Plan, _records: Sequence[Record]) -> list[Any]:
        """What its cells say, for programs, besides curves."""
        return []

    def outcome(self, _results: Measured) -> Outcome | None:
        """What it found of results, in these runs or in those next to them."""
        return None

    def finds(self) -> type[msgspec.Struct] | None:
        """The type of what an outcome has for programs; None if there is never any."""
        return None

    def command(self, _results: Measured, _cells: Sequence[Any]) -> str:
        """What to type to try what is forecast of some cells (``explain.text.Explained``) of one workload;
        empty if it cannot be tried."""
        return ""

    def over(self, _axis: str, _first: str, _last: str) -> str:
        """The command that measures over a range of an axis; empty if it has none."""
        return ""


class AdaptiveSection(Section[T], abc.ABC):
    """One by which it becomes clear only during the run which cells are measured."""

    @abc.abstractmethod
    def amount(self, plan: Plan) -> str:
        """How much there is to measure: a line for ``--plan``."""

    @abc.abstractmethod
    def left(self, plan: Plan, records: Sequence[Record]) -> Rows:
        """What is measured already, and what is left."""


@functools.cache
def known() -> Mapping[str, Section[msgspec.Struct]]:
    """The sections that are here, by name."""
    questions = f"{__name__.partition('.')[0]}.questions"
    return {each.name: each for each in offered(questions, within="section")}


def of_plan(plan: Plan) -> Section[msgspec.Struct] | None:
    """The section of a plan, if it has one that is here."""
    return next((known()[name] for name in plan.sections if name in known()), None)


def over(axis: str, first: str, last: str) -> str:
    """The command that measures over a range of an axis; empty if no question does."""
    return next(filter(None, (each.over(axis, first, last) for each in known().values())), "")


def is_adaptive(plan: Plan) -> bool:
    """Whether it becomes clear only during the run which cells are measured."""
    return isinstance(of_plan(plan), AdaptiveSection)


def command(results: Measured, cells: Sequence[Any]) -> str:
    """What to type to try what is forecast of some cells of one workload; empty if it cannot be tried."""
    return next(filter(None, (each.command(results, cells) for each in known().values())), "")


def require(plan: Plan) -> None:
    """UsageError for a plan that needs a question which is not here."""
    for name in plan.sections:
        if name not in known():
            raise UsageError(f"expected a question that this harness has, found {shown(name)}")


def schedule(plan: Plan, records: Iterable[Record] = ()) -> Schedule:
    """What a plan measures next: what its section asks for, or all cells."""
    section = of_plan(plan)
    return Schedule(plan, records) if section is None else section.schedule(plan, records)
