"""What all commands that measure have in common: where they print, how a run is followed, how it is ended."""

from __future__ import annotations

import contextlib
import shutil
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from rich.console import Console

from harness import plan, references, testbed
from harness.errors import HarnessError, UsageError
from harness.journal import Journal
from harness.model import LabKernel, Plan
from harness.probes import store
from harness.progress import Outcome, follow
from harness.results import RunFolder
from harness.state import lasting_folder
from harness.stats import FEWEST
from harness.table import TableFormat
from harness.units import format_duration, format_size
from harness.views import View
from harness.views import build as build_view
from harness.views import render as render_view

PROBES_OF = {View.PPS: "pps", View.UDP_LATENCY: "udp-latency"} | dict.fromkeys(
    (View.LINK, View.PPPOE, View.OPENFLOW), "ping --probe tcp --probe udp"
)
"""The probes that a view shows, as options."""

LEAST_FREE_BYTES = 64 << 20
"""What the results folder has to have free before a run starts: a matrix needs about 10 MB."""

# No emoji: rich would make a picture of the `:x:` in somebody's file.
out = Console(highlight=False, emoji=False)
err = Console(stderr=True, highlight=False, emoji=False)


class Interrupted(BaseException):
    """Ctrl-C or SIGTERM. Not KeyboardInterrupt, which click would take for its own and say nothing of."""

    hint: str | None = None


def prepare_results(folder: Path) -> None:
    """Make the run's folder and be sure that it takes a run's records, before anything starts."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder) as probe:
            probe.write(b"\0" * 4096)
    except OSError as error:
        raise UsageError(
            f"the results folder {folder} was expected to take files, but: {error.strerror}",
            hint="choose another with --results",
        ) from error
    free = shutil.disk_usage(folder).free
    if free < LEAST_FREE_BYTES:
        with contextlib.suppress(OSError):
            folder.rmdir()
        raise UsageError(
            f"{format_size(LEAST_FREE_BYTES)} were expected to be free in {folder}, "
            f"but there are {format_size(free)}",
            hint="make room, or choose another folder with --results",
        )


@contextlib.contextmanager
def results_of(made: Plan, folder: RunFolder, *, resumed: bool) -> Iterator[None]:
    """The folder of a run, with its plan. A new one goes again if the run is refused before any record."""
    is_the_first = not folder.path.parent.exists()
    if resumed:
        folder.require_plain()
    prepare_results(folder.path)
    if not resumed:
        folder.save_plan(made)
    try:
        yield
    except HarnessError as error:
        if not resumed and error.exit_code == HarnessError.exit_code and not folder.has_records():
            shutil.rmtree(folder.path, ignore_errors=True)
            if is_the_first:
                with contextlib.suppress(OSError):
                    folder.path.parent.rmdir()
        raise


def tell_recovery(removed: list[str], failed: list[str]) -> None:
    for line in removed:
        err.print(f"removed, left by an earlier run: {line}", markup=False, soft_wrap=True)
    for line in failed:
        err.print(f"could not be removed: {line}", markup=False, soft_wrap=True)


def print_view(
    paths: Sequence[Path], view: View, reference: str | None, format: TableFormat = TableFormat.PLAIN
) -> None:
    """Print a view of the probes in ``paths``, with published figures of that view beside."""
    published = None
    if reference is not None:
        if references.view_of(reference) != view:
            raise UsageError(
                f"the reference {reference} is not for the view {view}",
                hint=f"it is for {references.view_of(reference) or 'the matrix: leave --view out'}",
            )
        published = references.load_path_reference(reference)
    found = build_view(view, store.open_probes(paths), published)
    if not any(not row.is_published for row in found.rows):
        raise UsageError(
            f"{', '.join(map(str, paths))}: there are no probes that the view {view} could show",
            hint=f"make some with: harness probe --probe {PROBES_OF[view]}",
        )
    sys.stdout.write(render_view(found, format).rstrip("\n") + "\n")


def tell_start(made: Plan, folder: RunFolder, what: str) -> None:
    """Say what begins, where, and where its results go."""
    err.print(
        f"run {made.run_id} in the {made.testbed} testbed"
        + (" on its own kernel" if made.lab_kernel is LabKernel.OWN else "")
        + (" in virtual time" if made.virtual_time else "")
        + f": {what}, results in {folder.path}",
        soft_wrap=True,
    )


def print_plan(made: Plan, console: Console = out) -> None:
    """Say what a plan of cells would do, where, and for how long."""
    storage = made.backing.kind if made.disk is None else f"{made.disk.name} ({made.disk.title})"
    kernel_name = "" if made.lab_kernel is None else f" with {plan.KERNEL_WORDS[made.lab_kernel]}"
    clock = ", virtual time" if made.virtual_time else ""
    console.print(
        f"testbed {made.testbed}{kernel_name}{clock}, storage {storage} "
        f"of {format_size(made.backing.size_bytes)}, seed {made.seed}",
    )
    console.print("columns:   " + ", ".join(map(made.shown, made.columns)), soft_wrap=True)
    if made.machines is not None:
        names = [
            f"target {made.machines.target}",
            *(f"initiator {name}" for name in made.machines.initiators),
        ]
        console.print("machines:  " + ", ".join(names), markup=False, soft_wrap=True)
    for what, backing in (("storage:   ", made.backing), ("local:     ", made.local_device)):
        if backing is not None and backing.path is not None:
            console.print(f"{what}{backing.kind} {backing.path}", markup=False, soft_wrap=True)
    if made.hops:
        console.print("hops:      " + ", ".join(made.hops), markup=False, soft_wrap=True)
    console.print("workloads: " + ", ".join(workload.name for workload in made.workloads), soft_wrap=True)
    block, rule = len(made.columns) * len(made.workloads), made.stop
    fewest = made.repeats if rule is None else max(made.repeats, FEWEST)
    counts = [fewest] if rule is None else [fewest, rule.max_repeats]
    times = [plan.estimate_s(made, repeats) for repeats in counts]
    if rule is not None and rule.max_s is not None:
        # No cell is begun after that, and each is measured once.
        least = plan.estimate_s(made, 1)
        times = [max(least, min(time_s, rule.max_s + plan.START_S)) for time_s in times]
    console.print(
        f"cells:     {len(made.columns)} columns x {len(made.workloads)} workloads x "
        f"{' to '.join(map(str, counts))} repeats = {' to '.join(str(block * count) for count in counts)}, "
        f"about {' to '.join(dict.fromkeys(format_duration(round(time_s)) for time_s in times))}",
        markup=False,
    )
    if rule is not None:
        console.print(
            f"until:     the 95 % interval of a cell's median is within {100 * rule.width:g} % of it",
            markup=False,
        )


def carry_out(
    made: Plan, folder: RunFolder, state: Path, started_unix_s: float, *, cells: int, cell_estimate_s: float
) -> Outcome:
    """Run a plan in its testbed to its end, shown as it goes on. HarnessError if it cannot go on."""
    journal = Journal(state / f"journal-{made.run_id}.jsonl", lasting=lasting_folder())
    try:
        outcome = follow(
            testbed.events(made, folder.path.resolve(), journal, state),
            cells=cells,
            cell_estimate_s=cell_estimate_s,
            console=err,
            started_unix_s=started_unix_s,
            virtual_time=made.virtual_time,
        )
    finally:
        journal.end()
    if outcome.failure is not None:
        error = HarnessError(outcome.failure.message, hint=outcome.failure.hint)
        error.exit_code = outcome.failure.exit_code
        raise error
    for leak in outcome.leaks:
        err.print(f"[red]left behind[/]: {leak}", markup=True)
    return outcome


def tell_error(error: HarnessError) -> None:
    err.print(f"harness: {error.message}", markup=False, soft_wrap=True)
    if error.hint:
        err.print(f"  hint: {error.hint}", markup=False, soft_wrap=True)
