"""The re-read test of a run: once, before its first cell reads a volume of unknown storage."""

from __future__ import annotations

import contextlib
from pathlib import Path

import msgspec

from harness.hosts import Host
from harness.model import Plan
from harness.model.errors import CommandFailed
from harness.model.reread import Reread, Samples
from harness.model.telemetry import RoundTrips
from harness.parse.jobfile import repeat_seed
from harness.results.events import Emit, Phase
from harness.results.store import write_atomically
from harness.storage import reread

SAMPLES = "reread.json"
"""In a run's folder; a resumed run finds its cells' reads in the target's memory, and takes these."""


def of_volume(host: Host, path: str, plan: Plan, folder: Path, emit: Emit) -> Reread:
    """What reads reveal about the volume at ``path`` on an initiator."""
    from harness.analysis import reread as rule  # here, because it is for volumes that are there

    region_bytes = plan.storage.backing.size_bytes
    file = folder / SAMPLES
    try:
        return rule.judge(msgspec.json.decode(file.read_bytes(), type=Samples), region_bytes)
    except (OSError, msgspec.DecodeError):
        emit(Phase("reading single blocks twice: does a disk answer, or memory?"))
    # Other blocks in each run, as the target may still have those of the last one; in virtual time there was
    # none, and runs are the same.
    salt = "" if plan.setting.is_virtual else plan.run_id
    try:
        samples = reread.sample(
            host,
            path,
            start=plan.storage.backing.offset_bytes,
            region_bytes=region_bytes,
            seed=repeat_seed(plan.seed, 0, f"reread {salt}"),
        )
    except CommandFailed as error:
        emit(Phase(error.message))
        return rule.judge(Samples(block_bytes=0), region_bytes)
    write_atomically(file, msgspec.json.encode(samples))
    return rule.judge(samples, region_bytes)


def of_commands(host: Host, path: str) -> RoundTrips | None:
    """What commands to a volume take that need no disk; None where nobody answers them."""
    with contextlib.suppress(CommandFailed):
        return reread.commands(host, path)
    return None
