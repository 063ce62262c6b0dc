"""Tries on a small scale whether a machine can do its part in a run, and undoes everything.

A check finds what is missing (``harness.testbeds.requirements``). Only a trial finds what forbids it: an
AppArmor profile, an iscsid that answers to somebody else, a kernel without an algorithm.
"""

from __future__ import annotations

import contextlib
import functools
import secrets
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from harness.hosts import Host
from harness.hosts.journal import Journal
from harness.model import TRANSPORTS, BackingKind
from harness.model.errors import CommandFailed, HarnessError, HostLost, RequirementError
from harness.protection import xfrm
from harness.results.planned import default_file
from harness.storage import backing, transports
from harness.storage.transport import Export, Lun, NoAnswer, Sides, Transport
from harness.testbeds.requirements import Asked, modules

LOOPBACK = "127.0.0.1"
SIZE_BYTES = 4 << 20


@dataclass(frozen=True, kw_only=True)
class SelftestOutcome:
    """What was tried, as the end of a sentence, and why it failed; None if it went well."""

    what: str
    error: HarnessError | None = None


def of(host: Host, role: str, folder: Path, asked: Asked) -> Iterator[SelftestOutcome]:
    """Try all that is asked of a role, on a host that lacks nothing. HostLost if it is lost meanwhile.

    ``folder`` is for logs.
    """
    journal = Journal(folder / "journal.jsonl")
    tag = secrets.token_hex(2)

    def outcome(what: str, attempt: Callable[[], str | None]) -> SelftestOutcome:
        """Run ``attempt``, which may return a better description of what it tried."""
        try:
            return SelftestOutcome(what=attempt() or what)
        except HostLost:
            raise
        except (HarnessError, OSError) as error:
            return SelftestOutcome(
                what=what, error=error if isinstance(error, HarnessError) else CommandFailed(str(error))
            )

    for name in asked.transports:
        transport = transports.named(name)
        what, attempt = {
            "target": (transport.export_title, _export),
            "initiator": (transport.session_title, _connect),
        }[role]
        yield outcome(what, functools.partial(attempt, transport, journal, host, tag, folder))
    for kind in asked.kinds:
        for what, trial in kind.trials(host, role, folder):
            yield outcome(what, trial)
    for leak in journal.leaks:
        yield SelftestOutcome(what="to undo all that", error=CommandFailed(leak))


def _export(transport: Transport, journal: Journal, host: Host, tag: str, folder: Path) -> str:
    """Export a few MiB on loopback; nobody connects."""
    _load(host, "target", transport)
    with _image(journal, host, tag) as lun:
        sides = Sides(journal=journal, tag=tag, target=host, initiators=(), luns=(lun,), logs=folder)
        with transport.shared(sides) as up, up.export(_wanted(transport, host, lun)):
            return transport.export_title


def _connect(transport: Transport, journal: Journal, host: Host, tag: str, folder: Path) -> str:
    """Connect to a target on the machine itself, as a run does. If it cannot be one, to a port where nothing
    listens, which has to be missed."""
    _load(host, "initiator", transport)
    sides = functools.partial(Sides, journal=journal, tag=tag, target=host, initiators=(host,), logs=folder)
    if not _can_be_target(host, transport):
        lun = Lun(serial="", kind=BackingKind.FILE, path="", size_bytes=SIZE_BYTES)
        with contextlib.suppress(NoAnswer), transport.shared(sides(luns=())) as up:
            wanted = _wanted(transport, host, lun)
            with up.connect(wanted):
                pass
            raise CommandFailed(
                f"expected nobody at {LOOPBACK}:{wanted.port}, found a target that accepted the login"
            )
        title, whole = TRANSPORTS[transport.name], transport.session_title.partition(" ")[2]
        return (
            f"{title}, to a port where nothing listens "
            f"(a complete {whole} would need {transport.server} here)"
        )
    _load(host, "target", transport)
    with (
        _image(journal, host, tag) as lun,
        transport.shared(sides(luns=(lun,))) as up,
        up.attach(_wanted(transport, host, lun)) as session,
    ):
        return f"{transport.session_title} to itself, which appeared as {session.disk.device}"


def _load(host: Host, role: str, transport: Transport) -> None:
    for module in modules(role, transport.name):
        host.run(["modprobe", *module.split()])


def _can_be_target(host: Host, transport: Transport) -> bool:
    asked = transport.target_software
    try:
        if asked and host.run(asked, check=False).status != 0:
            return False
    except RequirementError:  # there is no such program
        return False
    return all(
        host.run(["modprobe", "--dry-run", "--quiet", *module.split()], check=False).status == 0
        for module in modules("target", transport.name)
    )


@contextlib.contextmanager
def _image(journal: Journal, host: Host, tag: str) -> Iterator[Lun]:
    """A file where a run has its own by default: a target may want one around the page cache, which not every
    kernel's memory can do."""
    path = default_file(f"trial-{tag}")
    with backing.new_file(journal, host, path, SIZE_BYTES):
        yield Lun(serial=f"harness-{tag}-0", kind=BackingKind.FILE, path=path, size_bytes=SIZE_BYTES)


def _wanted(transport: Transport, host: Host, lun: Lun) -> Export:
    """At the port of a run's first column. The machine's own targets use the one of the standard, perhaps on
    every address."""
    return Export(
        name="trial",
        number=0,
        lun=lun,
        target=host,
        address=LOOPBACK,
        port=transport.port + xfrm.PORTS_COVERED,
        parameters={},
    )
