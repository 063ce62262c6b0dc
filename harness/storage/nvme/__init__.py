"""NVMe/TCP (NVM Express TCP Transport Specification): the kernel's nvmet, and the disk of its initiator.

Two small programs do it on the hosts, under the distribution's Python: ``programs/target.py`` makes exports
in configfs, ``programs/initiator.py`` connects through /dev/nvme-fabrics. Neither nvmetcli nor nvme-cli is
needed. Only objects whose names carry the run's id are made and removed.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping

from harness.model import NVME_TCP
from harness.model.errors import RequirementError
from harness.parse import parameters
from harness.storage import requests

PORT = 4420
"""IANA's for NVMe over fabrics."""

PREFIX = "nqn.2026-11.net.storage-harness"

TARGET_PARAMETERS = ("inline_data_bytes",)
"""Up to how many bytes of a write go with its command, and need no R2T (ICDOFF and IOCCSZ)."""

KEYS = parameters.KEYS[NVME_TCP]
"""What an initiator may ask for (drivers/nvme/host/fabrics.c). All else is up to the kernel: a queue for each
processor, 128 commands each, no digests, 16 KiB with a command."""


def nqn(tag: str, name: str) -> str:
    """An NVMe qualified name (NVM Express Base Specification 2.0, section 4.5)."""
    return f"{PREFIX}:{tag}.{name}"


step = functools.partial(requests.step, __package__)


def require_agreed(asked: Mapping[str, str], agreed: Mapping[str, str]) -> None:
    """RequirementError if the two ends agreed on less than was asked for."""
    # The kernel counts the admin queue as well.
    got = {"queues": int(agreed["queue_count"]) - 1, "queue_size": int(agreed["sqsize"]) + 1}
    for name, value in asked.items():
        if name in got and got[name] != int(value):
            raise RequirementError(
                f"{name}={value} was asked for, but the two ends agreed on {got[name]}",
                hint="leave it out, or ask for what both ends take",
            )
