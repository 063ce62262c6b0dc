"""What reads reveal about a volume, and commands that need no disk (``programs/reread.py``)."""

from __future__ import annotations

import statistics

import msgspec

from harness.hosts import Host
from harness.model.errors import CommandFailed
from harness.model.reread import Samples
from harness.model.telemetry import RoundTrips
from harness.storage import requests

SECONDS = 10.0
"""The longest that it may read; on a path without a hard disk it takes a tenth of that."""

COMMANDS_S, COMMAND_REPEATS = 0.2, 5
"""For so long commands are sent that need no disk, once for a column in each of so many rounds of a run."""


def sample(
    host: Host, path: str, *, region_bytes: int, seed: int, start: int = 0, seconds: float = SECONDS
) -> Samples:
    """Reads single blocks all over a block device or a file, of which cells will read ``region_bytes`` from
    the byte ``start`` on, and nothing twice of what the run has read before. CommandFailed if it cannot be
    read.

    What is read depends on ``seed`` alone: with the same one, a second run would find what the first one has
    brought into the target's memory.
    """
    wanted = {"path": path, "start": start, "region_bytes": region_bytes, "seed": seed, "seconds": seconds}
    return _asked(host, "sample", wanted, 3 * seconds + 30)


def commands(host: Host, path: str) -> RoundTrips | None:
    """Times of commands that need no disk, one after another; None where the transport has none.
    CommandFailed if the disk cannot be opened."""
    found = _asked(host, "commands", {"path": path, "seconds": COMMANDS_S}, 60)
    if not (taken := found.none_ns):
        return None
    return RoundTrips(
        interval_ns=0,
        payload_bytes=found.none_bytes,
        sent=len(taken),
        received=len(taken),
        min_ns=min(taken),
        mean_ns=statistics.fmean(taken),
        p50_ns=statistics.median(taken),
        max_ns=max(taken),
    )


def _asked(host: Host, do: str, wanted: dict[str, object], timeout_s: float) -> Samples:
    request = requests.step(__package__, "reread", do, **wanted)
    answer = requests.ask(
        host, request, f"{wanted['path']} on {host.name} could not be sampled", timeout_s=timeout_s
    )
    try:
        return msgspec.json.decode(answer, type=Samples)
    except msgspec.DecodeError as error:
        raise CommandFailed(
            f"the samples of {wanted['path']} on {host.name} cannot be understood: {error}"
        ) from error
