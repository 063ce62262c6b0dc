"""The journal: written before the act, crossed out after its undoing, readable after a SIGKILL."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from harness import recovery
from harness.errors import CommandFailed, DeviceRefused
from harness.hosts import Host, NamespaceHost
from harness.journal import Journal
from harness.links import NetworkNamespace, VethPair
from tests.unit.fakes import World

HOST = NamespaceHost(name="target", netns="harness-beef-0")
ACTS: list[str] = []


class Thing(msgspec.Struct, frozen=True, tag="thing"):
    """Notes what is done with it, and raises what it is told to: the name of an error for each act."""

    name: str
    acquire_raises: str = ""
    release_raises: str = ""

    def acquire(self, host: Host) -> None:
        ACTS.append(f"+{self.name}@{host.name}")
        self._raise(self.acquire_raises)

    def release(self, host: Host) -> None:
        ACTS.append(f"-{self.name}@{host.name}")
        self._raise(self.release_raises)

    def _raise(self, name: str) -> None:
        errors: dict[str, BaseException] = {
            "failed": CommandFailed(f"{self.name} failed"),
            "refused": DeviceRefused(f"{self.name} is yours"),
            "full": OSError(28, "No space left on device"),
        }
        if name in errors:
            raise errors[name]


@pytest.fixture(autouse=True)
def _fresh_acts() -> None:
    ACTS.clear()


@pytest.fixture
def journal(tmp_path: Path) -> Journal:
    return Journal(tmp_path / "journal.jsonl")


def names(journal: Journal) -> list[str]:
    """The names of what is open, newest first."""
    return [msgspec.json.decode(resource)["name"] for _, resource in journal.open_entries()]


def test_a_resource_is_open_from_before_its_acquisition_to_after_its_release(journal: Journal) -> None:
    seen: list[list[str]] = []

    class Watching(Thing, frozen=True, tag="watching"):
        def acquire(self, host: Host) -> None:
            del host
            seen.append(names(journal))

        def release(self, host: Host) -> None:
            del host
            seen.append(names(journal))

    with journal.hold(HOST, Watching("a")) as held:
        assert held == Watching("a")
    assert seen == [["a"], ["a"]]
    assert journal.open_entries() == []
    assert journal.leaks == []


def test_what_is_open_is_named_newest_first_with_its_host(journal: Journal) -> None:
    with journal.hold(HOST, Thing("a")), journal.hold(HOST, Thing("b")):
        with journal.hold(HOST, Thing("gone")):
            pass
        assert names(journal) == ["b", "a"]
        host, _ = journal.open_entries()[0]
        assert msgspec.json.decode(host, type=NamespaceHost) == HOST


def test_another_reader_sees_the_same_after_a_kill(journal: Journal) -> None:
    veth = VethPair("hbeefi0", "hbeeft0", "harness-beef-0", 1500)
    world = World()
    with (
        journal.hold(world.host("initiator"), NetworkNamespace("harness-beef-0")),
        journal.hold(world.host("initiator"), veth),
    ):
        found = recovery.left_over(Journal(journal.path))
    assert found == [
        (NamespaceHost(name="initiator"), veth),
        (NamespaceHost(name="initiator"), NetworkNamespace("harness-beef-0")),
    ]


def test_a_failed_acquisition_is_released(journal: Journal) -> None:
    with pytest.raises(CommandFailed, match="a failed"), journal.hold(HOST, Thing("a", "failed")):
        pytest.fail("it was not acquired")
    assert ACTS == ["+a@target", "-a@target"]
    assert journal.open_entries() == []


def test_what_is_somebody_elses_is_not_released(journal: Journal) -> None:
    with pytest.raises(DeviceRefused), journal.hold(HOST, Thing("a", "refused")):
        pytest.fail("it was not acquired")
    assert ACTS == ["+a@target"]
    assert journal.open_entries() == []


def test_a_refusal_within_releases_what_is_around_it(journal: Journal) -> None:
    with (
        pytest.raises(DeviceRefused),
        journal.hold(HOST, Thing("a")),
        journal.hold(HOST, Thing("b", "refused")),
    ):
        pytest.fail("it was not acquired")
    assert ACTS == ["+a@target", "+b@target", "-a@target"]


@pytest.mark.parametrize("kind", ["failed", "full"])
def test_a_failed_release_is_reported_and_stays_open(journal: Journal, kind: str) -> None:
    with journal.hold(HOST, Thing("a")), journal.hold(HOST, Thing("b", release_raises=kind)):
        pass
    assert ACTS[2:] == ["-b@target", "-a@target"]
    assert names(journal) == ["b"]
    (leak,) = journal.leaks
    assert leak.startswith("Thing was not undone: ")


def test_a_failed_release_does_not_hide_the_first_error(journal: Journal) -> None:
    with pytest.raises(CommandFailed, match="the first"), journal.hold(HOST, Thing("a", "", "failed")):
        raise CommandFailed("the first")
    assert len(journal.leaks) == 1


def test_an_interruption_waits_for_the_release_to_be_done(journal: Journal) -> None:
    class Interrupted(Thing, frozen=True, tag="interrupted"):
        def release(self, host: Host) -> None:
            super().release(host)
            if len(ACTS) == 2:
                raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt), journal.hold(HOST, Interrupted("a")):
        pass
    assert ACTS == ["+a@target", "-a@target", "-a@target"]
    assert journal.open_entries() == []


def test_a_torn_last_line_is_passed_over_wherever_it_was_cut(journal: Journal) -> None:
    with journal.hold(HOST, Thing("a")), journal.hold(HOST, Thing("b")):
        first, second = journal.path.read_bytes().splitlines(keepends=True)
        for length in range(len(second) - 1):
            journal.path.write_bytes(first + second[:length])
            assert names(journal) == ["a"]
        journal.path.write_bytes(first + second.rstrip(b"\n"))
        assert names(journal) == ["b", "a"]


def test_a_journal_is_gone_on_with_after_a_torn_line(journal: Journal) -> None:
    with journal.hold(HOST, Thing("a")), journal.hold(HOST, Thing("b")):
        whole = journal.path.read_bytes()
    journal.path.write_bytes(whole[:-5])
    again = Journal(journal.path)
    with again.hold(HOST, Thing("c")):
        assert names(again) == ["c", "a"]
    assert names(again) == ["a"]


def test_a_second_run_does_not_cross_out_what_the_first_left(journal: Journal) -> None:
    with journal.hold(HOST, Thing("a", release_raises="failed")):
        pass
    again = Journal(journal.path)
    with again.hold(HOST, Thing("b")):
        pass
    assert names(again) == ["a"]


def test_lines_of_something_else_are_not_passed_over(journal: Journal) -> None:
    journal.path.write_text('{"id": "one"}\n', encoding="utf-8")
    with pytest.raises(msgspec.ValidationError):
        journal.open_entries()


def test_without_a_file_nothing_is_open(journal: Journal) -> None:
    assert journal.open_entries() == []
    assert not journal.path.exists()


def test_no_two_kinds_of_resources_are_taken_for_each_other() -> None:
    kinds = recovery.AnyResource.__args__
    tags = [kind.__struct_config__.tag for kind in kinds]
    assert len(set(tags)) == len(tags) == 14
