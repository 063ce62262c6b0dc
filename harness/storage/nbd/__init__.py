"""NBD (doc/proto.md of NetworkBlockDevice/nbd): nbdkit's file plugin, and the disk of the kernel's client.

Two small programs do it on the hosts, under the distribution's Python: ``programs/target.py`` has nbdkit
serve exports, ``programs/initiator.py`` does the handshake and hands the connection to the kernel. nbd-client
is not needed. Only objects whose names carry the run's id are made and removed.
"""

from __future__ import annotations

import functools

from harness.storage import requests

PORT = 10809
"""IANA's for NBD."""

PREFIX = "net.storage-harness"


def qualified(tag: str, name: str) -> str:
    """What the run ``tag`` calls one of its exports; NBD itself asks for no form of names."""
    return f"{PREFIX}:{tag}.{name}"


step = functools.partial(requests.step, __package__)
