"""Links in a ``World``, and what its hosts were told of them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from harness.hosts.journal import Journal
from harness.model import LinkProfile
from harness.network.links import LinkPlace
from harness.parse.profiles import data_folder, load_link
from tests.unit.fakes import USERS, World


def shipped(spec: str) -> LinkProfile:
    return load_link(spec, [data_folder() / "profiles" / "links"])


@contextmanager
def link_place(world: World, place: Path, profile: LinkProfile, **more: Any) -> Iterator[LinkPlace]:
    """Where a link is made, of which nothing may be left in the end."""
    journal = Journal(place / "journal.jsonl")
    yield LinkPlace(journal, world.host("initiator"), profile, tag="beef", **{"index": 3, **more})
    assert (set(world.things), journal.leaks, journal.open_entries()) == (set(USERS), [], {})


def said(world: World, host: str) -> list[str]:
    """The commands of a host, each followed by the lines of its batch."""
    return [
        line
        for command in world.commands
        if command.host == host
        for line in (" ".join(command.argv), *(command.input or "").splitlines())
    ]
