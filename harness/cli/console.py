"""What all commands that measure have in common: where they print, how a run is followed, how it is ended."""

from __future__ import annotations

import contextlib
import shutil
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from rich.console import Console

from harness import references, testbed
from harness.errors import HarnessError, UsageError
from harness.journal import Journal
from harness.model import LabKernel, Plan
from harness.probes import store
from harness.progress import Outcome, follow
from harness.results import RunFolder
from harness.state import lasting_folder
from harness.table import TableFormat
from harness.units import format_size
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
        probe = folder / ".probe"
        probe.write_bytes(b"\0" * 4096)
        probe.unlink()
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
