"""What a question does around the load of a cell, such as a fault in the middle of it."""

from __future__ import annotations

import abc
import functools
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from pathlib import Path

from harness.hosts.journal import Journal
from harness.model import Cell, Plan, Record
from harness.model.kinds import offered
from harness.runs.fio_startup import Fio
from harness.runs.measure import ConnectedLun, Meanwhile


class Around(abc.ABC):
    """What differs in such a cell: what its kernels say is no reason against it, and its column is taken down
    after it, as it may not be what others begin with."""

    program: Fio
    """The load, in place of fio."""

    may = Meanwhile(reconnects=True)
    """What may happen to its path."""

    parameters: Mapping[str, str] = {}
    """Of the session, in place of the plan's or besides them."""

    @abc.abstractmethod
    def while_it_runs(
        self, lun: ConnectedLun, journal: Journal, folder: Path
    ) -> AbstractContextManager[None]:
        """What is done meanwhile; it begins with the load."""

    @abc.abstractmethod
    def judged(self, record: Record, lun: ConnectedLun, raw: Path) -> Record:
        """The record, with what ``raw`` has of it."""


@functools.cache
def _known() -> tuple[Callable[[Plan, Cell], Around | None], ...]:
    return tuple(offered(f"{__name__.partition('.')[0]}.questions", within="around"))


def of(plan: Plan, cell: Cell) -> Around | None:
    """None for a cell as any other."""
    return next(filter(None, (each(plan, cell) for each in _known())), None) if plan.sections else None
