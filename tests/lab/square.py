"""Some cells of a matrix for CI: each row and each column has one at least. All of them are for `-m long`."""

from __future__ import annotations

from collections.abc import Container, Sequence
from pathlib import Path
from typing import TypeVar

from harness.analysis.schedule import order_of_cells
from harness.model import Cell, Column, Io, Latency, Plan, Record, Status, Workload
from harness.results.store import RunFolder
from tests.lab.cli import Measured, harness

Row = TypeVar("Row")
Col = TypeVar("Col")


def square(rows: Sequence[Row], columns: Sequence[Col]) -> list[tuple[Row, Col]]:
    """As in a Latin square: with each row the next column, and both from the front again when they end."""
    most = max(len(rows), len(columns))
    return [(rows[index % len(rows)], columns[index % len(columns)]) for index in range(most)]


def measure_cells(results: Path, plan: Plan, chosen: Container[tuple[Column, str]]) -> Measured:
    """Only these cells of a plan, by column and workload: a run is resumed that has the others already."""
    folder = RunFolder(results / plan.run_id)
    folder.path.mkdir(parents=True)
    folder.save_plan(plan)
    there = [
        folder.save_record(nothing_measured(plan, cell, place))
        for place, cell in enumerate(order_of_cells(plan))
        if (cell.column, cell.workload) not in chosen
    ]
    done = harness("run", "--resume", plan.run_id, "--results", str(results))
    for file in there:
        file.unlink()
    return Measured(done=done, folder=folder.path)


def nothing_measured(plan: Plan, cell: Cell, place: int) -> Record:
    """The record of a cell that a run need not measure any more."""
    return Record(
        run_id=plan.run_id,
        setting=plan.setting,
        column=cell.column,
        workload=Workload(name=cell.workload),
        repeat=cell.repeat,
        order=place,
        status=Status.OK,
        read=Io(bytes=1, ios=1, runtime_ns=1, latency=Latency()),
    )
