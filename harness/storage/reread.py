"""What reads alone tell of a volume (``programs/reread.py``), asked on the host that has it."""

from __future__ import annotations

import msgspec

from harness.hosts import Host
from harness.model.errors import CommandFailed
from harness.model.reread import Samples
from harness.storage import requests

SECONDS = 10.0
"""The longest that it may read; on a path without a hard disk it takes a tenth of that."""


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
    answer = requests.ask(
        host,
        requests.step(__package__, "reread", "sample", **wanted),
        f"{path} on {host.name} could not be sampled",
        timeout_s=3 * seconds + 30,
    )
    try:
        return msgspec.json.decode(answer, type=Samples)
    except msgspec.DecodeError as error:
        raise CommandFailed(f"the samples of {path} on {host.name} cannot be understood: {error}") from error
