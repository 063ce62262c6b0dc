"""Undoing what a killed run left: exactly what its journal names, newest first."""

from __future__ import annotations

import contextlib
from pathlib import Path

import msgspec

from harness.backing import BackingFile, Ramdisk, ScratchFilesystem
from harness.disks import FlashDisk, NbdModule
from harness.errors import HarnessError
from harness.hosts import Host, NamespaceHost
from harness.initiator import IscsiSession, iscsid
from harness.ipsec import Barrier, SecurityAssociations
from harness.journal import Journal
from harness.lab import ScratchFolder
from harness.links import NetworkNamespace, VethPair
from harness.target import Backstore, IscsiTarget
from harness.wifi import Radios

AnyResource = (
    NetworkNamespace
    | VethPair
    | Radios
    | Ramdisk
    | BackingFile
    | ScratchFilesystem
    | FlashDisk
    | NbdModule
    | Backstore
    | IscsiTarget
    | IscsiSession
    | Barrier
    | SecurityAssociations
    | ScratchFolder
)
"""Everything that a journal can name."""


def left_over(journal: Journal) -> list[tuple[NamespaceHost, AnyResource]]:
    """What a journal says was acquired and not released, newest first."""
    return [
        (
            msgspec.json.decode(host, type=NamespaceHost),
            msgspec.json.decode(resource, type=AnyResource),
        )
        for host, resource in journal.open_entries()
    ]


def recover(journal: Journal, *, log: Path) -> tuple[list[str], list[str]]:
    """Release what a journal names; returns (what was removed, what could not be), and deletes it if all was.

    Sessions need an iscsid to end them, so one is kept running meanwhile if there are any.
    """
    entries = left_over(journal)
    removed: list[str] = []
    failed: list[str] = []
    with contextlib.ExitStack() as stack:
        sessions = [resource for _, resource in entries if isinstance(resource, IscsiSession)]
        if sessions:
            name = sessions[0].initiator_iqn
            machine = NamespaceHost(name="initiator")
            stack.enter_context(iscsid(machine, initiator_iqn=name, chap_user="harness", secret="", log=log))
        for host, resource in entries:
            what = f"{type(resource).__name__} {next(iter(msgspec.structs.astuple(resource)))}"
            try:
                resource.release(_reachable(host))
                removed.append(what)
            except (HarnessError, OSError) as error:
                failed.append(f"{what}: {error}")
    if not failed:
        journal.path.unlink(missing_ok=True)
    return removed, failed


def _reachable(host: NamespaceHost) -> Host:
    """The host, or this machine in its place if its namespace went with the processes that were in it.

    LIO's objects are not of a namespace, and what was of one has gone with it.
    """
    if host.netns is not None and not Path(f"/run/netns/{host.netns}").exists():
        return NamespaceHost(name=host.name)
    return host
