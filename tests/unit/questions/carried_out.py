"""What the tests of several questions need: runs of networks and queues that are calculated, and options
that a command refuses."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from harness.model import Cell, Io, Latency, Plan, Record, Status
from harness.results import sections
from harness.results.axes import workloads
from tests.unit.command import harness

READS: dict[str, Any] = {"workloads": ("rand-read-4k",), "seed": 5, "lab_kernel": "debian"}


def measure(plan: Plan, cell: Cell, order: int, rate: float, status: Status = Status.OK) -> Record:
    io = Io(bytes=round(rate), ios=1, runtime_ns=10**9, latency=Latency()) if status is Status.OK else None
    fields: dict[str, Any] = {"run_id": plan.run_id, "setting": plan.setting, "column": cell.column}
    fields |= {"workload": workloads(plan.jobs)[cell.workload], "repeat": cell.repeat, "order": order}
    return Record(**fields, status=status, read=io, wall_ns=10**9)


Records = list[Record]
Trial = Callable[[Plan, Cell, int], Record]


def carried_out(plan: Plan, records: Sequence[Record] = (), *, most: int = 999, of: Trial) -> Records:
    """The records of a run that goes on after these."""
    todo, made = sections.schedule(plan, records), list(records)
    for order, cell in todo:
        if len(made) >= most:
            break
        made.append(of(plan, cell, order))
        todo.take(made[-1])
    return made


def assert_not_listed(words: str, refused: Iterable[str], folder: Path) -> None:
    """An option that a command refuses is not in its help."""
    listed = harness(words.split()[0], "--help", cwd=folder).stdout
    for option in refused:
        assert f"{option} " not in listed
        value = "5%" if option == "--confidence" else "3"
        done = harness(*words.split(), option, value, "--plan", cwd=folder)
        assert done.returncode == 2 and f"{option} is for harness run" in done.stderr, done
