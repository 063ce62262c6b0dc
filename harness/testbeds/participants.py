"""The machines that take part in a run: the role of each, and how it is reached."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from harness.storage import transports

if TYPE_CHECKING:
    from harness.hosts.remote import AgentHost
    from harness.parse.hosts import HostAddress


@dataclass(frozen=True, kw_only=True)
class Participant:
    """A machine that takes part: its role (``target``, ``initiator``), its name in a run, and its address."""

    role: str
    name: str
    address: HostAddress

    def reached(self, run_id: str, log: Path) -> contextlib.AbstractContextManager[AgentHost]:
        """The host with its agent, which first undoes what a killed one left; see ``remote.connect``."""
        from harness.hosts import remote  # here and below, because most runs are in the lab

        private = transports.private_folders(self.role)
        return remote.connect(
            self.address, role=self.role, name=self.name, run_id=run_id, log=log, private=private
        )


def names(role: str, count: int) -> list[str]:
    """The names of so many hosts of a role: ``initiator``, ``initiator2`` and so on."""
    return [role, *(f"{role}{number}" for number in range(2, count + 1))][:count]


def machines(target: str | None, initiators: Sequence[str]) -> list[Participant]:
    """The machines that ``--target`` and ``--initiator`` name. UsageError if an address is not valid."""
    from harness.parse.hosts import parse_address

    return [
        Participant(role=role, name=name, address=parse_address(text, role))
        for role, texts in (("target", [target] if target else []), ("initiator", initiators))
        for name, text in zip(names(role, len(texts)), texts, strict=True)
    ]
