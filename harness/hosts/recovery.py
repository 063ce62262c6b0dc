"""Undoing what a killed run left: exactly what its journal names, newest first."""

from __future__ import annotations

from pathlib import Path

from harness.hosts import Host, NamespaceHost
from harness.hosts.journal import Journal, Unreadable
from harness.hosts.undo import Entry, undone


def recover(journal: Journal) -> tuple[list[str], list[str]]:
    """Undo what a journal names; returns (what was removed, what could not be), and deletes it if all was.

    A journal that cannot be read is renamed, so that it stops nobody, and is listed with what could not be
    removed.
    """
    removed: list[str] = []
    failed: list[str] = []
    try:
        entries = journal.open_entries()
    except Unreadable as error:
        return [], [f"{error.message}; {_aside(journal)}"]
    for number, entry in entries.items():
        problems, found = undone(entry.steps, reachable(entry).run)
        if problems:
            failed.append(f"{entry.what}: {'; '.join(problems)}")
        else:
            removed += [entry.what] * found
            # By the next try it could be somebody else's: a file of the same name, say.
            journal.close(number)
    journal.end()
    return removed, failed


def _aside(journal: Journal) -> str:
    try:
        return f"it is {journal.set_aside()} now, and what it names may still be there"
    except OSError as error:
        return f"remove it by hand, because it could not be renamed: {error.strerror}"


def reachable(entry: Entry) -> Host:
    """Where to undo it: in its namespace, or on this machine if the namespace ended with its processes.

    LIO's objects belong to no namespace, and whatever belonged to one has gone with it.
    """
    gone = entry.netns is not None and not Path(f"/run/netns/{entry.netns}").exists()
    return NamespaceHost(name="machine", netns=None if gone else entry.netns)
