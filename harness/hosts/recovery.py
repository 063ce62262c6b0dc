"""Undoing what a killed run left: exactly what its journal names, newest first."""

from __future__ import annotations

from pathlib import Path

import msgspec

from harness.hosts import Host, NamespaceHost
from harness.hosts.journal import Journal
from harness.hosts.programs import here
from harness.hosts.undo import UndoEntry, Undone, carry_out


def recover(journal: Journal) -> tuple[list[str], list[str]]:
    """Undo what a journal names; returns (what was removed, what could not be), and deletes it if all was."""

    def undo(entry: here.Message) -> Undone:
        found = msgspec.convert(entry, UndoEntry)
        return carry_out(found.steps, reachable(found).run)

    return here.recover(journal.path, undo)


def reachable(entry: UndoEntry) -> Host:
    """Where to undo it: in its namespace, or on this machine if the namespace ended with its processes.

    LIO's objects belong to no namespace, and whatever belonged to one has gone with it.
    """
    gone = entry.netns is not None and not Path(f"/run/netns/{entry.netns}").exists()
    return NamespaceHost(name="machine", netns=None if gone else entry.netns)
