"""Paths that are built on a fake host, and what is left of them."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from harness.hosts.journal import Journal
from harness.model.errors import CommandFailed, HarnessError
from harness.network import links, paths
from harness.network.links import Folders, LinkPath
from harness.parse.profiles import load_link
from tests.unit.fakes import Failure, World
from tests.unit.network.worlds import said


@contextlib.contextmanager
def brought_up(spec: str, world: World, place: Path, journal: Journal, **more: Any) -> Iterator[LinkPath]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("harness.hosts.packages.Package.installed", True)
        link = links.LinkPlace(journal, world.host("initiator"), load_link(spec), tag="beef", index=3, **more)
        with paths.bring_up(link, Folders(private=place / "private", logs=place)) as path:
            yield path


@contextlib.contextmanager
def built(spec: str, world: World, place: Path, **more: Any) -> Iterator[LinkPath]:
    """A path of which nothing is left."""
    journal = Journal(place / "journal.jsonl")
    with brought_up(spec, world, place, journal, **more) as path:
        yield path
    assert (world.left, journal.leaks, journal.open_entries()) == (set(), [], {})


def lines_of(spec: str, world: World, place: Path, *hosts: str, **more: Any) -> list[list[str]]:
    """What hosts were told while a path was up."""
    with built(spec, world, place, **more):
        return [said(world, host) for host in hosts]


def fails(spec: str, world: World, place: Path) -> str:
    """Why a path does not come up, after which nothing is left."""
    journal = Journal(place / "journal.jsonl")
    with pytest.raises(CommandFailed) as error, brought_up(spec, world, place, journal):
        pytest.fail("it came up")
    assert (world.left, journal.leaks) == (set(), [])
    return error.value.message


def assert_nothing_is_left(
    spec: str,
    failure: Failure,
    folder: Path,
    world_of: Callable[..., World] = lambda _, **more: World(**more),
) -> None:
    """Wherever it breaks. ``world_of`` makes a world in which it comes up, for the folder of its logs."""
    broken = 0
    for step in range(1, 200):
        place = folder / str(step)
        place.mkdir()
        world = world_of(place, fail_at=step, failure=failure)
        journal = Journal(place / "journal.jsonl")
        came_up = False
        with contextlib.suppress(HarnessError, OSError), brought_up(spec, world, place, journal) as path:
            came_up = bool(world.left)
            assert path.profile.hops is not None and len(path.hops) == path.profile.hops.count
            assert len({hop.netns for hop in path.hops} | {path.target.netns}) == len(path.hops) + 1
        # A step of the taking down that fails is reported, and what it was to remove stays written down.
        assert bool(journal.leaks) == bool(journal.open_entries())
        if not journal.leaks:
            assert world.left == set(), world.failed
        if world.failed is None:
            break
        broken += not came_up
    assert broken > 5 and came_up
