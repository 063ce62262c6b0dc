"""The journal: written before the act, crossed out after its undoing, readable after a SIGKILL."""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import ClassVar
from unittest.mock import ANY

import msgspec
import pytest

from harness.hosts import Host, NamespaceHost
from harness.hosts.journal import Journal, UnreadableJournal, left_on_disk, reachable
from harness.hosts.programs.here import LARGEST_JOURNAL_BYTES
from harness.hosts.undo import UndoEntry, UndoStep, carry_out
from harness.model.errors import CommandFailed, DeviceRefused, HostLost, Interrupted, RequirementError
from harness.network.links import NetworkNamespace, VethPair
from harness.testbeds import testbed
from tests.unit.fakes import Command, FakeHost, World


class Thing(msgspec.Struct, frozen=True):
    """``acquire_raises`` is the name of the error that its acquisition ends in, if any."""

    name: str
    acquire_raises: str = ""

    def acquire(self, host: Host) -> None:
        host.run(["make", self.name])
        errors: dict[str, BaseException] = {
            "failed": CommandFailed(f"{self.name} failed"),
            "refused": DeviceRefused(f"{self.name} is yours"),
            "lost": HostLost(f"{self.name} was too much"),
            "interrupted": Interrupted(),
        }
        if self.acquire_raises:
            raise errors[self.acquire_raises]

    def undo(self) -> tuple[UndoStep, ...]:
        return (
            UndoStep(("break", self.name)),
            UndoStep(("sweep", self.name), input="dust", absent=("is clean",)),
        )


@pytest.fixture
def world() -> World:
    return World(silent=frozenset({"make", "break", "sweep"}))


@pytest.fixture
def host(world: World) -> FakeHost:
    return world.host("target", "harness-beef-0")


@pytest.fixture
def journal(tmp_path: Path) -> Journal:
    return Journal(tmp_path / "journal.jsonl")


def names(journal: Journal) -> list[str]:
    """What is open, newest first."""
    return [entry.what for entry in journal.open_entries().values()]


def said(world: World) -> list[str]:
    return [" ".join(command.argv) for command in world.commands]


def test_a_resource_is_open_from_before_its_acquisition_to_after_its_undoing(
    journal: Journal, world: World, host: FakeHost
) -> None:
    seen: list[tuple[str, list[str]]] = []

    def watch(command: Command) -> bool:
        seen.append((command.argv[0], names(journal)))
        return False

    world.broken = watch
    with journal.hold(host, Thing("a")) as held:
        assert held == Thing("a")
    assert seen == [("make", ["Thing a"]), ("break", ["Thing a"]), ("sweep", ["Thing a"])]
    assert journal.open_entries() == {}
    assert journal.leaks == []


def test_what_is_open_is_named_newest_first_with_its_undoing_and_its_place(
    journal: Journal, world: World, host: FakeHost
) -> None:
    with journal.hold(host, Thing("a")), journal.hold(world.host("initiator"), Thing("b")):
        with journal.hold(host, Thing("gone")):
            pass
        assert list(journal.open_entries().values()) == [
            UndoEntry("Thing b", Thing("b").undo()),
            UndoEntry("Thing a", Thing("a").undo(), "harness-beef-0"),
        ]


def test_another_reader_sees_the_same_after_a_kill(journal: Journal, world: World) -> None:
    veth = VethPair("hbeefi0", "hbeeft0", "harness-beef-0", 1500)
    netns = NetworkNamespace("harness-beef-0")
    with journal.hold(world.host("initiator"), netns), journal.hold(world.host("initiator"), veth):
        assert list(Journal(journal.path).open_entries().values()) == [
            UndoEntry("VethPair hbeefi0", veth.undo()),
            UndoEntry("NetworkNamespace harness-beef-0", netns.undo()),
        ]


def test_what_is_undone_is_reported_its_input(journal: Journal, world: World, host: FakeHost) -> None:
    with journal.hold(host, Thing("a")):
        pass
    assert [(c.host, c.input) for c in world.commands if c.argv[0] == "sweep"] == [("target", "dust")]


def test_a_failed_acquisition_is_undone(journal: Journal, world: World, host: FakeHost) -> None:
    with pytest.raises(CommandFailed, match="a failed"), journal.hold(host, Thing("a", "failed")):
        pytest.fail("it was not acquired")
    assert said(world) == ["make a", "break a", "sweep a"]
    assert journal.open_entries() == {}


def test_an_interrupted_acquisition_is_undone(journal: Journal, world: World, host: FakeHost) -> None:
    with pytest.raises(Interrupted), journal.hold(host, Thing("a", "interrupted")):
        pytest.fail("it was not acquired")
    assert said(world) == ["make a", "break a", "sweep a"]
    assert journal.open_entries() == {}


def test_what_is_somebody_elses_is_not_undone(journal: Journal, world: World, host: FakeHost) -> None:
    with pytest.raises(DeviceRefused), journal.hold(host, Thing("a", "refused")):
        pytest.fail("it was not acquired")
    assert said(world) == ["make a"]
    assert journal.open_entries() == {}


def test_a_refusal_within_undoes_what_is_around_it(journal: Journal, world: World, host: FakeHost) -> None:
    with (
        pytest.raises(DeviceRefused),
        journal.hold(host, Thing("a")),
        journal.hold(host, Thing("b", "refused")),
    ):
        pytest.fail("it was not acquired")
    assert said(world) == ["make a", "make b", "break a", "sweep a"]


# Undoing that goes wrong


def full(command: Command) -> bool:
    if command.argv == ("break", "b"):
        raise OSError(28, "No space left on device")
    return False


def hangs(command: Command) -> bool:
    if command.argv == ("break", "b"):
        raise CommandFailed("`break b` did not end within 60 s")
    return False


@pytest.mark.parametrize(
    ("broken", "reason"),
    [
        (
            lambda command: command.argv == ("break", "b"),
            "`break b` ended with status 1: it was made to fail",
        ),
        (full, "[Errno 28] No space left on device"),
        (hangs, "`break b` did not end within 60 s"),
    ],
    ids=["fails", "full", "hangs"],
)
def test_what_was_not_undone_is_reported_and_stays_open_and_the_rest_is_undone(
    journal: Journal, world: World, host: FakeHost, broken: Callable[[Command], bool], reason: str
) -> None:
    world.broken = broken
    with journal.hold(host, Thing("a")), journal.hold(host, Thing("b")):
        pass
    assert said(world)[2:] == ["break b", "sweep b", "break a", "sweep a"]
    assert names(journal) == ["Thing b"]
    assert journal.leaks == [f"Thing was not undone: {reason}"]


def test_what_is_absent_needs_no_undoing(journal: Journal, world: World, host: FakeHost) -> None:
    world.answers = [(("sweep", "a"), (1, "", "sweep: a is clean already"))]
    with journal.hold(host, Thing("a")):
        pass
    assert journal.open_entries() == {}
    assert journal.leaks == []


def test_other_words_than_those_of_absence_are_a_failure(
    journal: Journal, world: World, host: FakeHost
) -> None:
    world.answers = [(("sweep", "a"), (1, "a is clean", "sweep: no broom"))]
    with journal.hold(host, Thing("a")):
        pass
    assert names(journal) == ["Thing a"]
    assert journal.leaks == ["Thing was not undone: `sweep a` ended with status 1: sweep: no broom"]


def test_a_failed_undoing_does_not_hide_the_first_error(
    journal: Journal, world: World, host: FakeHost
) -> None:
    world.broken = lambda command: command.argv[0] == "break"
    with pytest.raises(CommandFailed, match="the first"), journal.hold(host, Thing("a")):
        raise CommandFailed("the first")
    assert len(journal.leaks) == 1


def test_a_journal_that_cannot_be_written_is_reported_and_the_rest_is_undone(
    journal: Journal, world: World, host: FakeHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full_disk(_file: int) -> None:
        raise OSError(28, "No space left on device")

    with journal.hold(host, Thing("a")), journal.hold(host, Thing("b")):
        monkeypatch.setattr(os, "fsync", full_disk)
    assert said(world)[2:] == ["break b", "sweep b", "break a", "sweep a"]
    assert journal.leaks == ["Thing was not undone: [Errno 28] No space left on device"] * 2


def test_an_interruption_waits_for_the_undoing_to_be_done(
    journal: Journal, world: World, host: FakeHost
) -> None:
    def once(command: Command) -> bool:
        if command.argv[0] == "sweep" and said(world).count("sweep a") == 1:
            raise Interrupted
        return False

    world.broken = once
    with pytest.raises(Interrupted), journal.hold(host, Thing("a")):
        pass
    assert said(world) == ["make a", "break a", "sweep a", "break a", "sweep a"]
    assert journal.open_entries() == {}


# Hosts that undo things by themselves


class Ledger:
    """A host's own: numbers are written down and crossed out."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.entries: list[UndoEntry] = []
        self.lost = False

    def open(self, entry: UndoEntry) -> int:
        self.lines.append(f"+{entry.what}")
        self.entries.append(entry)
        return 40 + len(self.lines)

    def close(self, number: int) -> None:
        if self.lost:
            raise HostLost("it has gone")
        self.lines.append(f"-{number}")


class FarHost(FakeHost):
    @property
    def ledger(self) -> Ledger:
        return LEDGERS[self.name]


LEDGERS: dict[str, Ledger] = {}


@pytest.fixture
def far(world: World) -> FarHost:
    LEDGERS["nas"] = Ledger()
    return FarHost("nas", world=world)


def test_a_host_with_a_ledger_of_its_own_is_not_in_the_journal(
    journal: Journal, world: World, host: FakeHost, far: FarHost
) -> None:
    with journal.hold(host, Thing("a")), journal.hold(far, Thing("b")):
        assert names(journal) == ["Thing a"]
        assert LEDGERS["nas"].lines == ["+Thing b"]
    assert LEDGERS["nas"].lines == ["+Thing b", "-41"]
    assert said(world)[2:] == ["break b", "sweep b", "break a", "sweep a"]


def test_what_a_host_with_a_ledger_refuses_is_crossed_out_there(journal: Journal, far: FarHost) -> None:
    with pytest.raises(DeviceRefused), journal.hold(far, Thing("a", "refused")):
        pytest.fail("it was not acquired")
    assert LEDGERS["nas"].lines == ["+Thing a", "-41"]


def test_a_lost_host_undoes_its_own_and_is_no_leak_of_ours(
    journal: Journal, world: World, host: FakeHost, far: FarHost
) -> None:
    def gone(command: Command) -> bool:
        if command.host == "nas" and command.argv[0] != "make":
            raise HostLost("it has gone")
        return False

    world.broken = gone
    with journal.hold(host, Thing("a")), journal.hold(far, Thing("b")), contextlib.suppress(HostLost):
        raise HostLost("it has gone")
    assert said(world)[2:] == ["break b", "break a", "sweep a"], "one question to the lost host is enough"
    assert journal.leaks == []
    assert journal.open_entries() == {}
    assert LEDGERS["nas"].lines == ["+Thing b"]


def test_a_host_that_is_lost_while_something_is_crossed_out_is_no_leak(
    journal: Journal, far: FarHost
) -> None:
    with journal.hold(far, Thing("a")):
        LEDGERS["nas"].lost = True
    assert journal.leaks == []


def test_a_host_lost_during_an_acquisition_is_what_is_raised(journal: Journal, far: FarHost) -> None:
    with pytest.raises(HostLost, match="too much"), journal.hold(far, Thing("a", "lost")):
        pytest.fail("it was not acquired")


def test_a_lost_host_stops_the_steps(host: FakeHost) -> None:
    world = host.world

    def gone(_command: Command) -> bool:
        raise HostLost("it has gone")

    world.broken = gone
    with pytest.raises(HostLost):
        carry_out(Thing("a").undo(), host.run)
    assert len(world.commands) == 1


# The file


def test_a_torn_last_line_is_passed_over_wherever_it_was_cut(journal: Journal, host: FakeHost) -> None:
    with journal.hold(host, Thing("a")), journal.hold(host, Thing("b")):
        first, second = journal.path.read_bytes().splitlines(keepends=True)
        for length in range(len(second) - 1):
            journal.path.write_bytes(first + second[:length])
            assert names(journal) == ["Thing a"]
        journal.path.write_bytes(first + second.rstrip(b"\n"))
        assert names(journal) == ["Thing b", "Thing a"]


def test_a_journal_is_gone_on_with_after_a_torn_line(journal: Journal, host: FakeHost) -> None:
    with journal.hold(host, Thing("a")), journal.hold(host, Thing("b")):
        whole = journal.path.read_bytes()
    journal.path.write_bytes(whole[:-5])
    again = Journal(journal.path)
    with again.hold(host, Thing("c")):
        assert names(again) == ["Thing c", "Thing a"]
    assert names(again) == ["Thing a"]


def test_a_second_run_does_not_cross_out_what_the_first_left(
    journal: Journal, world: World, host: FakeHost
) -> None:
    world.broken = lambda command: command.argv == ("break", "a")
    with journal.hold(host, Thing("a")):
        pass
    again = Journal(journal.path)
    with again.hold(host, Thing("b")):
        pass
    assert names(again) == ["Thing a"]


FOREIGN = {
    "another type": b'{"id": "one"}',
    "an entry of another version": b'{"id":2,"entry":{"version":9,"undo":"x"}}',
    "a crossing-out of another version": b'{"undone":1}',
    "a field of another version": b'{"id":2,"x":1}',
    "something else": b"[1, 2]",
    "text": b"hello",
    "bytes": b"\xff\xfe\x1b[2J",
    "bytes in a name": b'{"id":2,"entry":{"what":"\xff","steps":[]}}',
    "brackets in brackets": b'{"id":2,"x":' + b"[" * 100_000 + b"]" * 100_000 + b"}",
    "a number beyond all": b'{"id":1e400}',
}


@pytest.mark.parametrize("line", FOREIGN.values(), ids=list(FOREIGN))
def test_lines_of_something_else_are_not_passed_over(journal: Journal, host: FakeHost, line: bytes) -> None:
    with journal.hold(host, Thing("a")):
        whole = journal.path.read_bytes()
    journal.path.write_bytes(whole + line + b"\n" + whole)
    for use in (Journal.open_entries, lambda found: found.open(UndoEntry("b", ()))):
        with pytest.raises(UnreadableJournal, match="line 2") as error:
            use(Journal(journal.path))
        assert str(journal.path) in error.value.message and "harness clean" in (error.value.hint or "")


def test_zeroes_that_a_power_cut_left_are_passed_over(
    journal: Journal, host: FakeHost, recovering: World
) -> None:
    del recovering
    with journal.hold(host, Thing("a")):
        whole = journal.path.read_bytes()
    for damage in (b"\0" * 512, whole[:9] + b"\0" * 500):
        journal.path.write_bytes(whole + damage)
        assert names(Journal(journal.path)) == ["Thing a"]
        assert Journal(journal.path).recover() == (["Thing a"], [])
        assert not journal.path.exists()


def test_without_a_file_nothing_is_open(journal: Journal) -> None:
    assert journal.open_entries() == {}
    assert not journal.path.exists()


def test_a_journal_goes_at_the_end_unless_something_is_open(journal: Journal, host: FakeHost) -> None:
    journal.end()
    with journal.hold(host, Thing("a")):
        journal.end()
        assert names(journal) == ["Thing a"]
    journal.end()
    assert not journal.path.exists()


# What outlives a reboot


class File(Thing, frozen=True):
    lasting: ClassVar[bool] = True


@pytest.fixture
def disk(tmp_path: Path) -> Path:
    return tmp_path / "disk"


def test_what_a_reboot_leaves_is_written_down_on_a_disk(tmp_path: Path, disk: Path, host: FakeHost) -> None:
    journal = Journal(tmp_path / "journal.jsonl", lasting=disk)
    assert not disk.exists(), "most runs have nothing to write there"
    with journal.hold(host, Thing("a")), journal.hold(host, File("b")):
        assert names(journal) == ["Thing a"]
        (written,) = disk.iterdir()
        assert names(Journal(written)) == ["File b"]
        assert disk.stat().st_mode & 0o777 == 0o700
        journal.end()
        assert written.exists(), "it names something"
    assert names(Journal(written)) == []
    journal.end()
    assert not disk.exists()


def test_a_journal_on_disk_is_left_alone_while_its_writer_lives(
    tmp_path: Path, disk: Path, host: FakeHost
) -> None:
    """Testbeds that are apart have a /run each, and one disk."""
    journal = Journal(tmp_path / "journal.jsonl", lasting=disk)
    with journal.hold(host, File("b")):
        assert list(left_on_disk(disk)) == []
        (written,) = disk.iterdir()
        orphan = disk / "journal-1-1.jsonl"
        orphan.write_bytes(written.read_bytes())
        assert [names(left) for left in left_on_disk(disk)] == [["File b"]]
        orphan.unlink()
    journal.end()
    assert list(left_on_disk(disk)) == []


def test_a_journal_on_disk_that_somebody_removes_is_made_again(
    tmp_path: Path, disk: Path, host: FakeHost
) -> None:
    journal = Journal(tmp_path / "journal.jsonl", lasting=disk)
    with journal.hold(host, File("a")):
        shutil.rmtree(disk)
        with journal.hold(host, File("b")):
            (written,) = disk.iterdir()
            assert names(Journal(written)) == ["File b", "File a"]
            assert list(left_on_disk(disk)) == [], "it is locked again"
            shutil.rmtree(disk)
        assert names(Journal(written)) == ["File a"]
    journal.end()
    assert journal.leaks == [] and not disk.exists()


def test_where_nothing_can_be_written_on_a_disk_all_is_in_one_place(tmp_path: Path, host: FakeHost) -> None:
    (tmp_path / "file").touch()
    journal = Journal(tmp_path / "journal.jsonl", lasting=tmp_path / "file" / "below")
    with journal.hold(host, File("b")):
        assert names(journal) == ["File b"]
    assert names(journal) == []


def test_a_folder_that_others_may_write_to_is_not_trusted(tmp_path: Path, disk: Path, host: FakeHost) -> None:
    disk.mkdir()
    disk.chmod(0o777)
    journal = Journal(tmp_path / "journal.jsonl", lasting=disk)
    with pytest.raises(RequirementError, match="only its owner"), journal.hold(host, File("b")):
        pytest.fail("it was acquired")
    with pytest.raises(RequirementError, match="only its owner"):
        list(left_on_disk(disk))


def test_in_another_user_s_folder_nothing_is_written_and_nothing_is_ours(
    tmp_path: Path, disk: Path, host: FakeHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk.mkdir(mode=0o700)
    (disk / "journal-1-1.jsonl").touch()
    monkeypatch.setattr(os, "geteuid", lambda: disk.stat().st_uid + 1)
    journal = Journal(tmp_path / "journal.jsonl", lasting=disk)
    with journal.hold(host, File("b")):
        assert names(journal) == ["File b"]
    assert list(left_on_disk(disk)) == []


def test_a_host_with_a_ledger_is_reported_what_outlives_a_reboot(journal: Journal, far: FarHost) -> None:
    with journal.hold(far, File("a")), journal.hold(far, Thing("b")):
        assert LEDGERS["nas"].entries == [UndoEntry("File a", File("a").undo(), lasting=True), ANY]
        assert not LEDGERS["nas"].entries[1].lasting


# Recovery


@pytest.fixture
def recovering(monkeypatch: pytest.MonkeyPatch, world: World) -> World:
    monkeypatch.setattr("harness.hosts.journal.NamespaceHost", world.host)
    return world


def test_what_a_killed_run_left_is_undone_newest_first(
    journal: Journal, host: FakeHost, recovering: World
) -> None:
    with journal.hold(host, Thing("a")), journal.hold(recovering.host("initiator"), Thing("b")):
        kept = journal.path.read_bytes()
    recovering.commands.clear()
    journal.path.write_bytes(kept)
    assert journal.recover() == (["Thing b", "Thing a"], [])
    assert said(recovering) == ["break b", "sweep b", "break a", "sweep a"]
    assert [c.input for c in recovering.commands] == ["", "dust", "", "dust"]
    assert not journal.path.exists()


def test_what_is_not_there_any_more_is_not_reported_to_have_been_removed(
    journal: Journal, host: FakeHost, recovering: World
) -> None:
    with journal.hold(host, Thing("a")), journal.hold(host, Thing("b")):
        kept = journal.path.read_bytes()
    steps = {"steps": [{"argv": ["sweep", "a"], "absent": ["is clean"]}]}
    line = {"id": 9, "entry": {"what": "Thing c", **steps}}
    journal.path.write_bytes(kept + msgspec.json.encode(line) + b"\n")
    recovering.answers = [(("sweep", "a"), (1, "", "sweep: a is clean"))]
    assert journal.recover() == (["Thing b", "Thing a"], [])


def test_what_cannot_be_undone_is_named_and_stays_written_down(
    journal: Journal, host: FakeHost, recovering: World
) -> None:
    with journal.hold(host, Thing("a")), journal.hold(host, Thing("b")):
        kept = journal.path.read_bytes()
    journal.path.write_bytes(kept)
    recovering.broken = lambda command: command.argv[1] == "b"
    removed, failed = journal.recover()
    assert removed == ["Thing a"]
    reasons = [f"`{verb} b` ended with status 1: it was made to fail" for verb in ("break", "sweep")]
    assert failed == [f"Thing b: {'; '.join(reasons)}"]
    assert names(journal) == ["Thing b"]
    recovering.commands.clear()
    recovering.broken = lambda _command: False
    assert Journal(journal.path).recover() == (["Thing b"], [])
    assert said(recovering) == ["break b", "sweep b"], "what is undone may be somebody else's by now"
    assert not journal.path.exists()


def test_a_namespace_that_has_gone_is_recovered_on_the_machine() -> None:
    assert reachable(UndoEntry("x", (), "harness-none-0")) == NamespaceHost("machine")
    assert reachable(UndoEntry("x", ())) == NamespaceHost("machine")


def make_folder(path: Path) -> None:
    path.mkdir()


def make_fifo(path: Path) -> None:
    os.mkfifo(path)


def make_link(path: Path) -> None:
    path.symlink_to("/dev/zero")


def make_huge(path: Path) -> None:
    with path.open("wb") as file:
        file.truncate(LARGEST_JOURNAL_BYTES + 1)


def make_foreign(path: Path) -> None:
    path.write_bytes(b'{"version":7}\n')


@pytest.mark.parametrize("make", [make_folder, make_fifo, make_link, make_huge, make_foreign])
def test_what_is_no_journal_is_set_aside_and_stops_nobody(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, make: Callable[[Path], None]
) -> None:
    disk = tmp_path / "disk"
    monkeypatch.setattr(testbed, "lasting_folder", lambda: disk)
    state = tmp_path / "state"
    state.mkdir()
    disk.mkdir(mode=0o700)
    foreign = [folder / "journal-20260101-000000-abcd.jsonl" for folder in (state, disk)]
    for path in foreign:
        make(path)
    removed, failed = testbed.recover(state)
    assert removed == []
    for path, line in zip(foreign, failed, strict=True):
        assert str(path) in line and "unreadable now" in line
    assert not any(path.exists() or path.is_symlink() for path in foreign)
    assert len(list(state.iterdir()) + list(disk.iterdir())) == len(foreign), "nothing of it is lost"
    assert testbed.recover(state) == ([], []), "the next run finds nothing in its way"


def test_what_cannot_be_set_aside_is_reported_too(
    journal: Journal, recovering: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    del recovering
    make_foreign(journal.path)

    def read_only(_path: Path, _to: Path) -> Path:
        raise OSError(30, "Read-only file system")

    monkeypatch.setattr(Path, "rename", read_only)
    removed, (reported,) = journal.recover()
    assert removed == [] and "remove it by hand" in reported and "Read-only file system" in reported
