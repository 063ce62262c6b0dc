"""A report that is written again and again while a run goes on."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path

from harness.analysis.schedule import Schedule
from harness.cli.streams import tell
from harness.hosts.state import owner
from harness.model.errors import Interrupted
from harness.results.store import open_runs

PAUSE_S = 3.0
"""Between two looks at the folders."""

SHARE = 0.1
"""The most of a processor's time that pages may take away from a run that goes on."""


def watch(paths: Sequence[Path], write: Callable[[str], None]) -> None:
    """Calls ``write`` with how far the run in ``paths`` is, whenever it has a new record.

    The last call, once the run has ended or at an interruption, has no words: then the page is as usual.
    """
    seen = ""
    try:
        while words := going(paths):
            began = time.monotonic()
            if words != seen and _has_records(paths):
                write(words)
                tell(words)
                seen = words
            took_s = time.monotonic() - began
            time.sleep(max(PAUSE_S, took_s / SHARE))
    except Interrupted:
        if _has_records(paths):
            write("")
        raise
    write("")


def going(paths: Sequence[Path]) -> str:
    """How far the run is that this user's testbed is in use by; empty if none in ``paths`` goes on."""
    holder = owner()
    if holder is None:
        return ""
    for run in open_runs(paths):
        if run.has_plan and (plan := run.load_plan()).run_id == holder.run_id:
            records = run.load_records()
            left = Schedule(plan, records).expected
            about = "about " if plan.stop else ""
            done = len(records)
            return f"{run.run_id} goes on: {done} of {about}{done + left} cells" if left else ""
    return ""


def _has_records(paths: Sequence[Path]) -> bool:
    return any(run.record_files() for run in open_runs(paths))
