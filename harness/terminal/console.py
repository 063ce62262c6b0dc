"""What all measuring commands share: how they show a plan and a run, and how they end it."""

from __future__ import annotations

import contextlib
import itertools
import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Annotated, TypeVar

import typer
from rich.text import Text

from harness.analysis.stats import FEWEST
from harness.hosts import NamespaceHost
from harness.hosts.journal import Journal
from harness.hosts.state import exclusive, lasting_folder
from harness.model import BackingKind, Plan, protections, unread
from harness.model.errors import HarnessError, Interrupted, UsageError
from harness.model.escape import printable
from harness.model.lines import wrapped
from harness.model.units import check_name, format_duration, format_size
from harness.parse.files import Room
from harness.parse.jobfile import described
from harness.parse.profiles import unknown_hops
from harness.planning import duration
from harness.planning.request import THE_RUN, PathRequest
from harness.results import planned, sections
from harness.results.store import RunFolder
from harness.storage.backing import require_device
from harness.terminal import options
from harness.terminal.progress import RunOutcome, follow
from harness.terminal.streams import NARROW, complain, err, say, tell
from harness.testbeds import testbed
from harness.testbeds.lab.kernels import kernel

T = TypeVar("T")

ResumeOption = Annotated[
    str | None,
    typer.Option(
        metavar="RUN", help="Continue RUN: measure what is missing or disturbed.", rich_help_panel=THE_RUN
    ),
]
PlanOption = Annotated[
    bool, typer.Option("--plan", help="Print what would run and for how long.", rich_help_panel=THE_RUN)
]
QuietOption = Annotated[
    bool, typer.Option("--quiet", help="Print only the result and errors.", rich_help_panel=THE_RUN)
]

VerboseOption = Annotated[
    bool, typer.Option("--verbose", help="Print at the end where the time went.", rich_help_panel=THE_RUN)
]

LEAST_FREE_BYTES = 64 << 20
"""The space that the results folder must have before a run starts: a matrix needs about 10 MB."""

LEAST_FREE_FILES = 1000
"""The number of files, likewise: a matrix has some 500, and most file systems limit them."""


def prepare_results(folder: Path) -> None:
    """Make the run's folder, and check that it can take a run's records before anything starts."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder) as probe:
            probe.write(b"\0" * 4096)
    except OSError as error:
        raise UsageError(
            f"expected a results folder that takes files, found {folder}: {error.strerror}",
            hint="choose another with --results",
        ) from error
    room = Room.of(folder)
    if room.free_bytes < LEAST_FREE_BYTES:
        wanted, found = f"{format_size(LEAST_FREE_BYTES)} of free space", format_size(room.free_bytes)
    elif room.files is not None and room.files < LEAST_FREE_FILES:
        wanted, found = f"room for {LEAST_FREE_FILES} files", f"{room.files} free inodes"
    else:
        return
    with contextlib.suppress(OSError):
        folder.rmdir()
    raise UsageError(
        f"expected {wanted} in {folder}, found {found}",
        hint="make room, or choose another folder with --results",
    )


def resumed(name: str, request: PathRequest, *, probing: bool) -> tuple[RunFolder, Plan]:
    """The run of that name and its plan. Options that reach outside the lab must be typed again."""
    folder = RunFolder(Path(name) if "/" in name else Path(request.results) / check_name("run", name))
    made = folder.load_plan()
    if bool(made.probing) is not probing:
        kinds = ("probes", "cells") if probing else ("cells", "probes")
        raise UsageError(
            f"expected a run of {kinds[0]}, found a run of {kinds[1]}: {folder.path}",
            hint=f"finish it with harness {'run' if probing else 'probe'} --resume",
        )
    sections.require(made)
    for protection in itertools.chain.from_iterable(column.protection for column in made.columns):
        protections.require(protection)
    for unknown in filter(None, map(unknown_hops, made.links.values())):
        raise unknown
    planned.require_typed(made, name, options.touching_real_hardware(request))
    return folder, made


def require_disk(made: Plan) -> None:
    """Ask the guard here too: from inside, the machine's other mount namespaces cannot be seen."""
    if made.storage.backing.kind is BackingKind.BLOCK and made.capabilities.is_users_kernel:
        require_device(NamespaceHost(name="machine"), made.storage.backing)


@contextlib.contextmanager
def measuring(made: Plan, folder: RunFolder, *, is_resumed: bool) -> Iterator[Path]:
    """Hold the testbed for a run, with its plan in its folder; yields the state folder.

    A new folder is removed if the run is refused before any record. An interruption says how to resume.
    """
    with holding(made.run_id) as state:
        tell_recovery(*testbed.recover(state))
        require_disk(made)
        is_the_first = not folder.path.parent.exists()
        if is_resumed:
            folder.require_plain()
        prepare_results(folder.path)
        if not is_resumed:
            folder.save_plan(made)
        try:
            yield state
        except Interrupted as interruption:
            interruption.hint = planned.resume_command(made, str(folder.path))
            raise
        except HarnessError as error:
            if not is_resumed and error.exit_code == HarnessError.exit_code and not folder.has_records():
                shutil.rmtree(folder.path, ignore_errors=True)
                tell(f"nothing was measured, so {folder.path} is removed again")
                if is_the_first:
                    with contextlib.suppress(OSError):
                        folder.path.parent.rmdir()
            raise


def tell_recovery(removed: Sequence[str], failed: Sequence[str], of: str = "") -> None:
    """Say what recovery removed, and what it could not, of a machine or of this one."""
    for line in removed:
        tell(f"removed, left by an earlier run: {of}{line}")
    for line in failed:
        complain(f"could not be removed: {of}{line}")


def measured_again(load: Callable[[], Sequence[T]]) -> Sequence[T]:
    """What ``load`` could read of a run that is about to go on. The rest is named, and measured again."""
    with unread.noted() as lost:
        found = load()
    for error in lost:
        complain(f"measured again: {error.message}")
    return found


def tell_start(made: Plan, folder: RunFolder, what: str) -> None:
    """Say what begins, where, and where its results go."""
    tell(f"run {made.run_id} in testbed {_setting(made)}: {what}, results in {folder.path}")
    for note in made.notes:
        tell(f"note: {note}")


def _setting(made: Plan) -> str:
    """Where a run is; and of generic ciphers why, if nobody asked for them."""
    lacking = kernel.lacking_instructions() if made.setting.has_generic else ()
    return made.setting.name + (f" (this processor lacks {', '.join(lacking)})" if lacking else "")


def machines_of(made: Plan) -> str:
    """The machines of a run, each with its role; empty if it has none."""
    if (machines := made.machines) is None:
        return ""
    initiators = (f"initiator {name}" for name in machines.initiators)
    black_box = made.storage.black_box
    target = machines.target or (
        f"a black box, by its portal {black_box.typed}" if black_box is not None else "none"
    )
    return ", ".join([f"target {target}", *initiators])


def print_plan(made: Plan, to: Callable[[str], None] = say) -> None:
    """Say what a plan of cells would do, where, and for how long."""
    backing, disk, local = made.storage.backing, made.storage.disk, made.storage.local_device
    storage = f"{disk.name} ({disk.title})" if disk is not None else str(backing.kind)
    portal = made.storage.black_box
    if portal is not None:
        storage = f"LUN {portal.lun} of {portal.name}"
    if made.storage.volume is not None:
        storage = made.storage.volume.title
    size = format_size(backing.size_bytes)
    to(f"testbed {_setting(made)}, storage {storage} of {size}, seed {made.seed}")
    section = sections.of_plan(made)
    found = {} if section is None else section.grids(made)
    on_curves = {column for surface in found.values() for column, _ in surface.grid}
    columns = [*map(made.shown, (column for column in made.columns if column not in on_curves))]
    columns += [curve.column.label for curve in found]
    # Names of open loops without their loads.
    workloads = [curve.workload for curve in found] or [
        job.name.removesuffix(f"-{described(job).rate_iops}iops") for job in made.jobs
    ]
    # Names of columns and workloads have no space to wrap at, but paths may.
    lines = (
        ("columns", ", ".join(dict.fromkeys(columns)), NARROW),
        ("machines", machines_of(made), None),
        ("storage", f"{backing.kind} {backing.path}" if backing.path else "", None),
        ("local", f"{local.kind} {local.path}" if local and local.path else "", None),
        ("hops", ", ".join(made.hops), None),
        ("workloads", ", ".join(dict.fromkeys(workloads)), NARROW),
        *((name, words, NARROW) for name, words in (section.axes(made) if section else {}).items()),
        *(("note", note, NARROW) for note in made.notes),
    )
    for name, words, width in lines:
        line = f"{name + ':':11}{words}"
        for each in (wrapped(line, width, " " * 11) if width else [line]) if words else ():
            to(each)
    block, rule = len(made.places), made.stop
    fewest = made.repeats if rule is None else max(made.repeats, FEWEST)
    counts = [fewest] if rule is None else [fewest, rule.max_repeats]
    if isinstance(section, sections.AdaptiveSection):
        time = " to ".join(dict.fromkeys(format_duration(round(each)) for each in duration.section_s(made)))
        to(f"{section.amount(made)}, about {time}")
        return
    times = [duration.run_s(made, repeats) for repeats in counts]
    if rule is not None and rule.max_s is not None:
        # No cell begins after that time, and each cell is measured at least once.
        least = duration.run_s(made, 1)
        times = [max(least, min(time_s, rule.max_s + duration.START_S)) for time_s in times]
    of_fio = (
        "" if rule or made.setting.is_virtual else f", fio {format_duration(round(duration.fio_s(made)))}"
    )
    cells = str(block) if made.cells else f"{len(made.columns)} columns x {len(made.jobs)} workloads"
    to(
        f"cells:     {cells} x "
        f"{' to '.join(map(str, counts))} repeats = {' to '.join(str(block * count) for count in counts)}, "
        f"about {' to '.join(dict.fromkeys(format_duration(round(time_s)) for time_s in times))}{of_fio}"
    )
    if rule is not None:
        to(f"until:     the 95 % interval of a cell's median is within {100 * rule.width:g} % of it")


def carry_out(made: Plan, folder: RunFolder, state: Path, started_s: float, cells: int) -> RunOutcome:
    """Run a plan in its testbed to its end, and show its progress. HarnessError if it cannot go on."""
    journal = Journal(state / f"journal-{made.run_id}.jsonl", lasting=lasting_folder())
    try:
        # Closing it ends the testbed, before the end is reported.
        with contextlib.closing(testbed.events(made, folder.path.resolve(), journal, state)) as events:
            outcome = follow(
                events,
                cells=cells,
                console=err(),
                started_s=started_s,
                virtual_time=made.setting.is_virtual,
            )
    except Interrupted as interruption:
        interruption.left = tuple(journal.leaks)
        raise
    except HarnessError:
        _tell_leaks(journal.leaks)
        raise
    finally:
        journal.end()
    outcome.leaks += tuple(journal.leaks)
    _tell_leaks(outcome.leaks)
    if outcome.failure is not None:
        error = HarnessError(outcome.failure.message, hint=outcome.failure.hint)
        error.exit_code = outcome.failure.exit_code
        raise error
    return outcome


@contextlib.contextmanager
def holding(run_id: str) -> Iterator[Path]:
    """Hold the testbed for one run or command; yields the state folder. An interruption reports what is
    left."""
    with exclusive(run_id) as state:
        try:
            yield state
        except Interrupted as interruption:
            interruption.left = testbed.left(state) or interruption.left
            raise


def _tell_leaks(leaks: Sequence[str]) -> None:
    for leak in leaks:
        err().print(Text.assemble(("left behind", "red"), f": {printable(leak)}"), soft_wrap=True)
