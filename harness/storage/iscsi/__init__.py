"""The folders of open-iscsi, and whether what a run asked for is what the two ends negotiated, which is read
back from the initiator's kernel.
"""

from __future__ import annotations

from collections.abc import Mapping

from harness.model import ISCSI
from harness.model.errors import RequirementError
from harness.parse import parameters

RECORDS = ("/etc/iscsi", "/var/lib/iscsi")
"""The folders of open-iscsi's configuration and, in Debian 13, of its records of nodes, with their
secrets."""


KEYS = parameters.KEYS[ISCSI]


def require_agreed(asked: Mapping[str, str], negotiated: Mapping[str, str]) -> None:
    """RequirementError if the two ends agreed on anything other than what was asked for."""
    for name, value in asked.items():
        agreed = negotiated.get(KEYS[name].sysfs, "")
        if agreed != KEYS[name].in_sysfs(value):
            raise RequirementError(
                f"expected {name}={value}, but the two ends agreed on {agreed or 'nothing'}",
                hint="leave it out, or ask for a value that both ends accept",
            )
