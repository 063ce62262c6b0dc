"""The folders of open-iscsi, and whether what a run asked for is what the two ends negotiated, which is read
back from the initiator's kernel.
"""

from __future__ import annotations

from collections.abc import Mapping

from harness.model.errors import RequirementError
from harness.parse.iscsi import KEYS

RECORDS = ("/etc/iscsi", "/var/lib/iscsi")
"""The folders of open-iscsi's configuration and, in Debian 13, of its records of nodes, with their
secrets."""


def require_agreed(asked: Mapping[str, str], negotiated: Mapping[str, str]) -> None:
    """RequirementError if the two ends agreed on anything other than what was asked for."""
    for name, value in asked.items():
        agreed = negotiated.get(KEYS[name].sysfs, "")
        wanted = {"Yes": "1", "No": "0"}.get(value, value)
        if agreed != wanted:
            raise RequirementError(
                f"expected {name}={value}, but the two ends agreed on {agreed or 'nothing'}",
                hint="leave it out, or ask for a value that both ends accept",
            )
