"""How long a run takes, estimated before it begins: its run times, and what goes on around them.

The figures are of runs in the lab on a quiet machine with two processors (``tests/data/durations``). A busy
machine takes longer, and so do machines that are reached over SSH. Cells that other programs disturb are
measured again, and a run that waits for these to end takes up to a minute more; nobody knows that before.
"""

from __future__ import annotations

import math
from statistics import fmean

from harness.model import DEFAULT_TRANSPORT, Cell, Column, Job, Plan, kinds
from harness.model.probing import Tcp
from harness.parse.jobfile import described, is_open_loop, moved_bytes, wall_estimate_s
from harness.parse.open_loop import trial_s
from harness.probes import in_run
from harness.results import sections
from harness.storage import reread

START_S = 4.0
"""Until the first column: the lab's boot, the disk."""

FILL_BYTES_S = 100e6
"""Assumed for filling a volume with random data, 1M at a time: gigabit's rate, about."""

LOCAL_CELL_S, CELL_S = 0.18, 0.24
"""Around the measurement of one cell, by its column: fio's start, counters, the proof, the record."""

PROTECTED_COLUMN_S = 0.8
"""More for a protected one: keys, fail-closed policy, a canary."""

INITIATOR_CELL_S = 0.1
"""Around the measurement of one cell, for each further initiator: counters, the proof."""

TCP_S, CIPHER_S, COMMANDS_S = in_run.TCP_S + 0.2, 0.45, reread.COMMANDS_S + 0.1
"""A probe of a column between its cells: TCP, the cipher (``probes.in_run``), and commands that need no disk,
in the first rounds."""

ASSUMED_BYTES_S = 50e6
"""Of a job that ends with its size: between small random blocks and large sequential ones over gigabit."""

REAL_PER_VIRTUAL = 3.0
"""Real seconds for a virtual second, about: it depends on how much happens in it."""


def run_s(plan: Plan, repeats: int | None = None) -> float:
    """How long a run of so many repeats (default: the plan's) takes."""
    repeats = repeats or plan.repeats
    return left_s(plan, len(plan.places) * repeats, repeats)


def fio_s(plan: Plan) -> float:
    """How long fio measures in all the cells of a plan; in virtual time, of that."""
    return len(plan.places) * plan.repeats * fmean(_fio_s(plan, job) for job in plan.jobs)


def left_s(plan: Plan, cells: int, repeats: int | None = None) -> float:
    """How long a run takes that has so many cells left to measure; 0 for none.

    A column is brought up, and probed, once; a cell takes what its column and its workload do on average.
    """
    if not cells:
        return 0.0
    columns_s = sum(_column_s(plan, column, repeats or plan.repeats) for column in plan.columns)
    fio_s = fmean(_fio_s(plan, job) for job in plan.jobs)
    around_s = fmean(_around_s(plan, column) for column in plan.columns)
    return START_S + _fill_s(plan) + columns_s + cells * (around_s + _slower(plan) * fio_s)


def section_s(plan: Plan) -> tuple[float, float]:
    """How long a run with a section takes at least and at most: what it has to measure becomes clear while
    it does. 0 for both if there is nothing to measure."""
    todo = sections.schedule(plan)
    if not todo.expected:
        return 0.0, 0.0
    jobs = {job.name: job for job in plan.jobs}

    def cell_s(cell: Cell) -> float:
        job = jobs[cell.workload]
        measured_s = trial_s(job, cell.repeat) if is_open_loop(job) else _fio_s(plan, job)
        return _around_s(plan, cell.column) + measured_s * _slower(plan)

    fixed_s = START_S + _fill_s(plan) + sum(_column_s(plan, column, 1) for column in plan.columns)
    times = [fixed_s + time_s for time_s in todo.extremes_s(cell_s)]
    if todo.max_s is not None:
        times = [min(time_s, START_S + todo.max_s) for time_s in times]
    return times[0], times[1]


def _slower(plan: Plan) -> float:
    """Seconds of a machine for a second of the run's clock, about."""
    return REAL_PER_VIRTUAL if plan.setting.is_virtual else 1


def _fill_s(plan: Plan) -> float:
    """Once for a new file, and for a disk or LUN that is overwritten. A target of the run fills its own
    storage without a network."""
    is_filled = not (plan.sees_target or plan.only_reads)
    return plan.storage.backing.size_bytes / FILL_BYTES_S if is_filled else 0.0


def _fio_s(plan: Plan, job: Job) -> float:
    most_s = wall_estimate_s(job, plan.runtime_s)
    moved = moved_bytes(job, plan.storage.backing.size_bytes) if plan.runtime_s is None else None
    if moved is None:
        return most_s
    workload = described(job)
    most_bytes_s = (workload.rate_bytes_s or math.inf) * (workload.numjobs or 1)
    return min(most_s, moved / min(ASSUMED_BYTES_S, most_bytes_s))


def _around_s(plan: Plan, column: Column) -> float:
    if not column.has_path:
        return LOCAL_CELL_S
    radios = _radios(plan, column)
    return CELL_S + (radios.cell_s if radios else 0.0) + INITIATOR_CELL_S * (column.initiators - 1)


def _radios(plan: Plan, column: Column) -> kinds.RadioKind | None:
    """What the column's radios are simulated by, if it has any."""
    return kinds.RADIOS if plan.has_radio(plan.links.get(column.link)) else None


def _column_s(plan: Plan, column: Column, repeats: int) -> float:
    if not column.has_path:
        return 0.0
    found_s = kinds.transport(column.transport or DEFAULT_TRANSPORT).column_s
    radios = _radios(plan, column)
    found_s += radios.column_s if radios else 0.0
    found_s += PROTECTED_COLUMN_S if column.protection else 0.0
    found_s *= column.initiators  # one after another
    if plan.probes:
        made = {each for number in range(repeats) for each in in_run.due(plan, column, number + 1)}
        found_s += sum(TCP_S if isinstance(probe, Tcp) else CIPHER_S for probe, _ in made)
        if not plan.setting.is_virtual and not plan.capabilities.shares_kernel:
            found_s += COMMANDS_S * min(repeats, reread.COMMAND_REPEATS)
    return found_s
