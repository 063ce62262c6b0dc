"""Plans that test the forecasts of a stored run's cells.

A plan has each of these cells with its change and without, so that both are measured in turns.
"""

from __future__ import annotations

import shlex
import time
from collections.abc import Sequence

import msgspec

from harness.analysis.limit import ChangeKind, ChangeStep
from harness.explain.text import Explained
from harness.model import Column, DiskProfile, Job, LinkProfile, Plan
from harness.model.errors import UsageError
from harness.model.lines import counted
from harness.model.units import check_name
from harness.parse import modifiers
from harness.parse.jobfile import described, is_open_loop
from harness.parse.profiles import load_link
from harness.planning import axes
from harness.planning.plan import new_run_id
from harness.questions.trial.section import SECTION, Forecast, Forecasts
from harness.results import archive, rules
from harness.results.measured import Measured
from harness.results.planned import default_file
from harness.version import __version__


def make_plans(plan: Plan, cells: Sequence[Explained]) -> list[Plan]:
    """The plans that test the forecasts of these cells of a run; none for what cannot be set up there.

    A disk cannot change between two cells, so its changes have a plan of their own. UsageError as for any
    plan.
    """
    jobs, links = {job.name: job for job in plan.jobs}, dict(plan.links)
    disk = plan.storage.disk and _faster_disk(plan.storage.disk)
    found: dict[bool, list[Forecast]] = {}
    for cell in cells:
        change, column, name = cell.verdict.change, cell.evidence.column, cell.evidence.workload
        if change is None or not cell.mb_s or (column, name) not in plan.places:
            continue
        if is_open_loop(jobs[name]):  # its rate is fixed by the workload
            continue
        changed, workload = column, name
        if change.step.kind is ChangeKind.DEPTH:
            job = _deeper(jobs[name], change.step)
            if job is None or jobs.setdefault(job.name, job) != job:
                continue
            workload = job.name
        elif change.step.kind is ChangeKind.RATE:
            link = _faster_link(plan, plan.links[column.link], change.step)
            if link is None or links.setdefault(link.name, link) != link:
                continue
            changed = msgspec.structs.replace(column, link=link.name)
        elif disk is None:
            continue
        rate = cell.rates(change.each_ns)
        found.setdefault(change.step.kind is ChangeKind.DEVICE, []).append(
            Forecast(
                run_id=plan.run_id,
                step=change.step,
                column=column,
                workload=name,
                changed_column=changed,
                changed_workload=workload,
                before_mb_s=cell.mb_s,
                said_mb_s=rate.mid,
                least_mb_s=rate.low,
                most_mb_s=rate.high,
            )
        )
    return [
        _plan(plan, forecasts, jobs, links, disk if is_of_disk else plan.storage.disk)
        for is_of_disk, forecasts in found.items()
    ]


def _plan(
    plan: Plan,
    forecasts: Sequence[Forecast],
    jobs: dict[str, Job],
    links: dict[str, LinkProfile],
    disk: DiskProfile | None,
) -> Plan:
    places = {place: None for each in forecasts for place in (each.unchanged, each.changed) if place}
    columns: tuple[Column, ...] = tuple(dict.fromkeys(column for column, _ in places))
    run_id, storage = new_run_id(), plan.storage
    if storage.backing.path == default_file(plan.run_id):
        backing = msgspec.structs.replace(storage.backing, path=default_file(run_id))
        storage = msgspec.structs.replace(storage, backing=backing)
    made = msgspec.structs.replace(
        plan,
        run_id=run_id,
        setting=msgspec.structs.replace(plan.setting, disk=disk.name if disk is not None else ""),
        columns=columns,
        jobs=tuple(jobs[name] for name in dict.fromkeys(name for _, name in places)),
        storage=msgspec.structs.replace(storage, disk=disk),
        links={column.link: links[column.link] for column in columns},
        cells=tuple(places),
        sections=SECTION.within(Forecasts(forecasts=tuple(forecasts))),
        notes=(*plan.notes, f"it tries {counted(len(forecasts), 'forecast')} of {plan.run_id}"),
        created_unix_s=time.time(),
        harness_version=__version__,
    )
    rules.check(made)
    return made


def _deeper(job: Job, step: ChangeStep) -> Job | None:
    """The job with so many I/Os in flight; None if its number of jobs does not divide that."""
    depth, rest = divmod(round(step.value), described(job).numjobs or 1)
    return None if rest else axes.varied([job], depths=[str(depth)], notes=[])[0]


def _faster_link(plan: Plan, link: LinkProfile, step: ChangeStep) -> LinkProfile | None:
    """None for a real interface, and for radios, whose rate is their standard's."""
    if link.rate_bit_s is None or link.interface or (link.radio and plan.setting.is_custom):
        return None
    faster = modifiers.modify(link, link.name, [f"rate={round(step.value * link.rate_bit_s)}"], load_link)
    return msgspec.structs.replace(faster, base="")


def _faster_disk(disk: DiskProfile) -> DiskProfile | None:
    """A disk of chips that take half the time; None for others."""
    if disk.flash is None:
        return None
    flash = msgspec.structs.replace(disk.flash, page_us=disk.flash.page_us / 2)
    name = check_name("disk", f"{disk.name}-half")
    return msgspec.structs.replace(disk, name=name, title=f"{disk.title}, half the time", flash=flash)


def command(results: Measured, cells: Sequence[Explained]) -> str:
    """What to type to try the forecasts of these cells of one workload; empty if no run's plan can be changed
    so."""
    for run_id, folder in results.folders.items():
        try:
            is_known = run_id in results.plans and not archive.is_unpacked(folder)
            is_made = is_known and make_plans(results.plans[run_id], cells)
        except UsageError:
            continue
        if is_made:
            named = dict.fromkeys(cell.evidence.workload for cell in cells)
            return shlex.join(["harness", "explain", str(folder), "--try", "--cell", *named])
    return ""
