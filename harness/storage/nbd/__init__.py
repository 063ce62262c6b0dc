"""NBD (doc/proto.md of NetworkBlockDevice/nbd): nbdkit's file plugin, and the disk of the kernel's client.

Two small programs do it on the hosts, under the distribution's Python: ``programs/target.py`` has nbdkit serve
exports, ``programs/initiator.py`` does the handshake and hands the connection to the kernel. nbd-client is not
needed. Only objects whose names carry the run's id are made and removed.
"""

from __future__ import annotations

from harness.hosts import Host, programs
from harness.hosts.undo import Step
from harness.model.errors import CommandFailed
from harness.storage.transport import NoAnswer

import msgspec

PORT = 10809
"""IANA's for NBD."""

NOT_REACHED = 4
"""Exit status of ``programs/initiator.py``: nobody answered at the portal."""


def step(program: str, do: str, **request: object) -> Step:
    """A request that one of the programs carries out."""
    text = msgspec.json.encode({"do": do, **request}).decode()
    return Step((programs.PYTHON, "-I", "-S", "-c", programs.source(__package__, program)), input=text)


def ask(host: Host, request: Step, what: str) -> str:
    """The answer to a request; ``what`` begins the sentence that says that there is none."""
    done = host.run(request.argv, input=request.input, timeout_s=60, check=False)
    if done.status != 0:
        words = done.stderr.strip().splitlines() or ["it said nothing"]
        kind = NoAnswer if done.status == NOT_REACHED else CommandFailed
        raise kind(f"{what}: {words[-1]}", hint="the kernel log of both hosts says more")
    return done.stdout
