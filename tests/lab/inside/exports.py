"""What scripts share that bring up storage by themselves: a journal, links, exports, and what they leave."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Collection, Iterator
from pathlib import Path

from harness.hosts import Host, NamespaceHost
from harness.hosts.journal import Journal
from harness.model import ENDS, BackingKind, LinkProfile
from harness.model.errors import CommandFailed
from harness.network import links
from harness.network.links import LinkPath, LinkPlace
from harness.parse.profiles import load_link
from harness.runs import executor
from harness.storage import transports
from harness.storage.transport import Export, Lun, Sides, Transport
from tests.lab.inside.kernel import modprobe

NEAR = NamespaceHost("initiator")


@contextlib.contextmanager
def journal_in(folder: Path) -> Iterator[Journal]:
    """A folder of the script's own and a journal in it, of which nothing is left at the end."""
    folder.mkdir()
    executor.mount_private()
    journal = Journal(folder / "journal.jsonl")
    yield journal
    assert not journal.leaks and not journal.open_entries(), journal.leaks


def load(name: str, backings: Collection[BackingKind] = ()) -> Transport:
    transport = transports.named(name)
    for role in ENDS:
        modprobe(*transport.modules(role, backings))
    return transport


def lun(tag: str, path: str, size_bytes: int, kind: BackingKind = BackingKind.BLOCK) -> Lun:
    return Lun(serial=f"harness-{tag}-0", kind=kind, path=path, size_bytes=size_bytes)


def sides(journal: Journal, tag: str, of: Lun, logs: Path, *, target: Host = NEAR) -> Sides:
    return Sides(journal=journal, tag=tag, target=target, initiators=(NEAR,), luns=(of,), logs=logs)


@contextlib.contextmanager
def link(
    journal: Journal, profile: str | LinkProfile, *, tag: str, index: int = 3, port: int | None = None
) -> Iterator[LinkPath]:
    profile = load_link(profile) if isinstance(profile, str) else profile
    with links.bring_up(LinkPlace(journal, NEAR, profile, tag=tag, index=index)) as path:
        yield path if port is None else dataclasses.replace(path, port=port)


def export(path: LinkPath, of: Lun, name: str = "t") -> Export:
    return Export(
        name=name,
        number=0,
        lun=of,
        target=path.target,
        address=path.target_address,
        port=path.port,
        parameters={},
    )


@contextlib.contextmanager
def refused(words: str, kind: type[CommandFailed] = CommandFailed) -> Iterator[None]:
    """What is done in the context fails, with an error of just this kind."""
    try:
        yield
    except CommandFailed as error:
        assert type(error) is kind and words in error.message, repr(error)
        print(error.message)
    else:
        raise AssertionError(f"expected to be refused: {words}")
