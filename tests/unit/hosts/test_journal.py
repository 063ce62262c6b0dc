"""The journal: written before the act, crossed out after its undoing, readable after a SIGKILL."""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar
from unittest.mock import ANY, Mock

import msgspec
import pytest

from harness.hosts import Host, NamespaceHost
from harness.hosts.journal import Journal, UnreadableJournal, left_on_disk, reachable
from harness.hosts.programs.local_operations import LARGEST_JOURNAL_BYTES
from harness.hosts.undo import UndoEntry, UndoStep, carry_out
from harness.model.errors import CommandFailed, DeviceRefused, HostLost, Interrupted, RequirementError
from harness.network.links import NetworkNamespace, VethPair
from harness.testbeds import testbed
from tests.unit.fakes import Command, FakeHost, World


class Thing(msgspec.Struct, frozen=True):
    name: str
    acquire_raises: BaseException | None = None

    def acquire(self, host: Host) -> None:
        host.run(["make", self.name])
        if self.acquire_raises is not None:
            raise self.acquire_raises

    def undo(self) -> tuple[UndoStep, ...]:
        swept = UndoStep(("sweep", self.name), input="dust", absent=("is clean",))
        return UndoStep(("break", self.name)), swept


class File(Thing, frozen=True):
    lasting: ClassVar[bool] = True


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    """That of all hosts, also of those where something is recovered."""
    world = World(silent=frozenset({"make", "break", "sweep"}))
    monkeypatch.setattr("harness.hosts.journal.NamespaceHost", world.host)
    return world


@pytest.fixture
def host(world: World) -> FakeHost:
    return world.host("target", "harness-beef-0")


@pytest.fixture
def journal(tmp_path: Path) -> Journal:
    return Journal(tmp_path / "journal.jsonl")


def names(journal: Journal) -> list[str]:
    """What is open, newest first."""
    return [entry.what for entry in journal.open_entries().values()]


def test_a_resource_is_open_from_before_it_is_up_until_it_is_undone(journal: Journal, host: FakeHost) -> None:
    seen: list[tuple[str, list[str]]] = []

    def watch(command: Command) -> bool:
        seen.append((command.argv[0], names(journal)))
        return False

    host.world.broken = watch
    journal.end()
    assert journal.open_entries() == {} and not journal.path.exists()
    with journal.hold(host, Thing("a")) as held:
        assert held == Thing("a")
        journal.end()
        assert names(journal) == ["Thing a"], "it stays as long as something is open"
    assert seen == [("make", ["Thing a"]), ("break", ["Thing a"]), ("sweep", ["Thing a"])]
    assert [(c.host, c.input) for c in host.world.commands if c.argv[0] == "sweep"] == [("target", "dust")]
    assert (journal.open_entries(), journal.leaks) == ({}, [])
    journal.end()
    assert not journal.path.exists()


def test_what_is_open_is_named_newest_first_also_to_another_reader(journal: Journal, host: FakeHost) -> None:
    veth = VethPair("hbeefi0", "hbeeft0", "harness-beef-0", 1500)
    netns = NetworkNamespace("harness-beef-0")
    initiator = host.world.host("initiator")
    with journal.hold(initiator, netns), journal.hold(initiator, veth), journal.hold(host, Thing("a")):
        with journal.hold(host, Thing("gone")):
            pass
        for reader in (journal, Journal(journal.path)):
            assert list(reader.open_entries().values()) == [
                UndoEntry("Thing a", Thing("a").undo(), "harness-beef-0"),
                UndoEntry("VethPair hbeefi0", veth.undo()),
                UndoEntry("NetworkNamespace harness-beef-0", netns.undo()),
            ]


class Act(Thing, frozen=True):
    def undo(self) -> tuple[UndoStep, ...]:
        return ()


def test_what_a_reboot_took_is_made_again_in_its_order(journal: Journal, host: FakeHost) -> None:
    other = host.world.host("initiator")
    with (
        journal.hold(host, File("on disk")),
        journal.hold(host, Thing("a")),
        journal.hold(other, Thing("elsewhere")),
        journal.hold(host, Act("over")),
        journal.hold(host, Thing("b")),
    ):
        with journal.hold(host, Thing("gone")):
            pass
        host.world.commands.clear()
        journal.make_again(host)
        assert host.world.said == ["make a", "make b"]
        assert names(journal)[:2] == ["Thing b", "Thing a"]
        host.world.commands.clear()
    undone = [said for said in host.world.said if said.startswith("break")]
    assert undone == ["break b", "break elsewhere", "break a", "break on disk"]
    assert not journal.open_entries() and not journal.leaks


def test_what_is_no_resource_is_made_again_in_its_place(journal: Journal, host: FakeHost) -> None:
    def does(what: str) -> Callable[[], object]:
        return lambda: host.run([what])

    host.world.silent |= {"boot", "key", "elsewhere"}
    other = host.world.host("initiator")
    with (
        journal.hold(host, Thing("policy")),
        journal.each_boot(host, does("key"), File("kept")),
        journal.each_boot(other, does("elsewhere"), File("not kept")),
        journal.hold(host, Thing("portal")),
    ):
        with journal.each_boot(host, does("gone")):
            pass
        host.world.commands.clear()
        with journal.keeping(host):
            assert names(journal)[0] == "File kept"
            host.run(["boot"])
            journal.make_again(host)
        said = ["make kept", "boot", "make policy", "key", "make portal", "break kept", "sweep kept"]
        assert host.world.said == said
    assert not journal.open_entries() and not journal.leaks


def test_what_is_not_acquired_is_undone_unless_it_is_somebody_elses(journal: Journal, host: FakeHost) -> None:
    for error, undoing in (
        (CommandFailed("a failed"), ["break a", "sweep a"]),
        (Interrupted(), ["break a", "sweep a"]),
        (DeviceRefused("a is yours"), []),
    ):
        host.world.commands.clear()
        around = journal.hold(host, Thing("around"))
        with pytest.raises(type(error)) as raised, around, journal.hold(host, Thing("a", error)):
            pytest.fail("it was not acquired")
        assert raised.value is error
        assert host.world.said == ["make around", "make a", *undoing, "break around", "sweep around"]
        assert journal.open_entries() == {}


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (None, "`break b` ended with status 1: it was made to fail"),
        (OSError(28, "No space left on device"), "[Errno 28] No space left on device"),
        (CommandFailed("`break b` did not end within 60 s"), "`break b` did not end within 60 s"),
    ],
)
def test_what_was_not_undone(journal: Journal, host: FakeHost, error: Exception | None, reason: str) -> None:
    def broken(command: Command) -> bool:
        if command.argv == ("break", "b") and error is not None:
            raise error
        return command.argv == ("break", "b")

    host.world.broken = broken
    first = pytest.raises(ZeroDivisionError)  # it is not hidden
    with first, journal.hold(host, Thing("a")), journal.hold(host, Thing("b")):
        raise ZeroDivisionError
    assert host.world.said[2:] == ["break b", "sweep b", "break a", "sweep a"]
    assert names(journal) == ["Thing b"]
    assert journal.leaks == [f"Thing was not undone: {reason}"]


def test_what_is_absent_needs_no_undoing_and_all_else_does(journal: Journal, host: FakeHost) -> None:
    host.world.answers = [(("sweep", "a"), (1, "", "sweep: a is clean already"))]
    with journal.hold(host, Thing("a")):
        pass
    assert (journal.open_entries(), journal.leaks) == ({}, [])
    host.world.answers = [(("sweep", "a"), (1, "a is clean", "sweep: no broom"))]
    with journal.hold(host, Thing("a")):
        pass
    assert names(journal) == ["Thing a"]
    assert journal.leaks == ["Thing was not undone: `sweep a` ended with status 1: sweep: no broom"]


def test_a_journal_on_a_full_disk(journal: Journal, host: FakeHost, monkeypatch: pytest.MonkeyPatch) -> None:
    with journal.hold(host, Thing("a")), journal.hold(host, Thing("b")):
        monkeypatch.setattr(os, "fsync", Mock(side_effect=OSError(28, "No space left on device")))
    assert host.world.said[2:] == ["break b", "sweep b", "break a", "sweep a"]
    assert journal.leaks == ["Thing was not undone: [Errno 28] No space left on device"] * 2


def test_an_interruption_waits_for_the_undoing_to_be_done(journal: Journal, host: FakeHost) -> None:
    def once(command: Command) -> bool:
        if command.argv[0] == "sweep" and host.world.said.count("sweep a") == 1:
            raise Interrupted
        return False

    host.world.broken = once
    with pytest.raises(Interrupted), journal.hold(host, Thing("a")):
        pass
    assert host.world.said == ["make a", "break a", "sweep a", "break a", "sweep a"]
    assert journal.open_entries() == {}


@dataclass
class Ledger:
    """A host's own: numbers are written down and crossed out."""

    lines: list[str] = field(default_factory=list)
    entries: list[UndoEntry] = field(default_factory=list)
    lost: bool = False

    def open(self, entry: UndoEntry) -> int:
        self.lines.append(f"+{entry.what}")
        self.entries.append(entry)
        return 40 + len(self.lines)

    def close(self, number: int) -> None:
        if self.lost:
            raise HostLost("it has gone")
        self.lines.append(f"-{number}")


class FarHost(FakeHost):
    ledger = Ledger()


@pytest.fixture
def far(world: World) -> FarHost:
    FarHost.ledger = Ledger()
    return FarHost("nas", world=world)


def test_a_host_with_a_ledger_is_not_in_the_journal(journal: Journal, host: FakeHost, far: FarHost) -> None:
    ledger = far.ledger
    with journal.hold(host, Thing("a")), journal.hold(far, Thing("b")):
        assert names(journal) == ["Thing a"]
        assert ledger.lines == ["+Thing b"]
    assert ledger.lines == ["+Thing b", "-41"]
    assert host.world.said[2:] == ["break b", "sweep b", "break a", "sweep a"]
    with pytest.raises(DeviceRefused), journal.hold(far, Thing("a", DeviceRefused("a is yours"))):
        pytest.fail("it was not acquired")
    assert ledger.lines[2:] == ["+Thing a", "-43"]
    with journal.hold(far, File("a")):
        assert ledger.entries == [ANY, ANY, UndoEntry("File a", File("a").undo(), lasting=True)]
    assert not ledger.entries[0].lasting, "it is told what outlives a reboot"


def test_a_lost_host_undoes_its_own_and_is_no_leak(journal: Journal, host: FakeHost, far: FarHost) -> None:
    gone = Mock(side_effect=HostLost("it has gone"))
    host.world.broken = lambda command: command.host == "nas" and command.argv[0] != "make" and gone()
    with journal.hold(host, Thing("a")), journal.hold(far, Thing("b")), contextlib.suppress(HostLost):
        raise HostLost("it has gone")
    assert host.world.said[2:] == ["break b", "break a", "sweep a"], "one question to the lost host is enough"
    assert (journal.leaks, journal.open_entries(), far.ledger.lines) == ([], {}, ["+Thing b"])
    # Nor is it one if the host is lost on the way up or down.
    host.world.broken = lambda _: False
    with pytest.raises(HostLost, match="too much"), journal.hold(far, Thing("a", HostLost("too much"))):
        pytest.fail("it was not acquired")
    with journal.hold(far, Thing("a")):
        far.ledger.lost = True
    assert journal.leaks == []
    far.world.commands.clear()
    far.world.broken = gone
    with pytest.raises(HostLost):
        carry_out(Thing("a").undo(), far.run)
    assert len(far.world.commands) == 1, "it stops the steps"


def test_a_torn_line_is_passed_over_wherever_it_was_cut(journal: Journal, host: FakeHost) -> None:
    with journal.hold(host, Thing("a")), journal.hold(host, Thing("b")):
        first, second = journal.path.read_bytes().splitlines(keepends=True)
        for length in range(len(second) - 1):
            journal.path.write_bytes(first + second[:length])
            assert names(journal) == ["Thing a"]
            # A second run goes on with it, and does not cross out what the first left.
            again = Journal(journal.path)
            with again.hold(host, Thing("c")):
                assert names(again) == ["Thing c", "Thing a"]
            assert names(again) == ["Thing a"]
        journal.path.write_bytes(first + second.rstrip(b"\n"))
        assert names(journal) == ["Thing b", "Thing a"]


def test_lines_of_something_else_are_not_passed_over(journal: Journal, host: FakeHost) -> None:
    foreign = [
        *(b'{"id": "one"}', b'{"id":2,"entry":{"version":9,"undo":"x"}}', b'{"undone":1}', b'{"id":2,"x":1}'),
        *(b"[1, 2]", b"hello", b"\xff\xfe\x1b[2J", b'{"id":1e400}'),
        b'{"id":2,"entry":{"what":"\xff","steps":[]}}',
        b'{"id": 2, "entry": {"what": "x", "steps": 7}}',
        b'{"id": 2, "entry": {"what": "x", "steps": ["rm"]}}',
        b'{"id": 2, "entry": {"what": "x", "steps": [{"argv": [1]}]}}',
        b'{"id":2,"x":' + b"[" * 100_000 + b"]" * 100_000 + b"}",
    ]
    with journal.hold(host, Thing("a")):
        whole = journal.path.read_bytes()
    for line in foreign:
        journal.path.write_bytes(whole + line + b"\n" + whole)
        for use in (Journal.open_entries, lambda found: found.open(UndoEntry("b", ()))):
            with pytest.raises(UnreadableJournal, match="line 2") as error:
                use(Journal(journal.path))
            assert str(journal.path) in error.value.message and "harness clean" in (error.value.hint or "")


def test_zeroes_that_a_power_cut_left_are_passed_over(journal: Journal, host: FakeHost) -> None:
    with journal.hold(host, Thing("a")):
        whole = journal.path.read_bytes()
    for damage in (b"\0" * 512, whole[:9] + b"\0" * 500):
        journal.path.write_bytes(whole + damage)
        assert names(Journal(journal.path)) == ["Thing a"]
        assert Journal(journal.path).recover() == (["Thing a"], [])
        assert not journal.path.exists()


@pytest.fixture
def disk(tmp_path: Path) -> Path:
    return tmp_path / "disk"


@pytest.fixture
def on_disk(tmp_path: Path, disk: Path) -> Journal:
    return Journal(tmp_path / "journal.jsonl", lasting=disk)


def test_what_a_reboot_leaves_is_written_down_on_a_disk(on_disk: Journal, disk: Path, host: FakeHost) -> None:
    assert not disk.exists(), "most runs have nothing to write there"
    with on_disk.hold(host, Thing("a")), on_disk.hold(host, File("b")):
        assert names(on_disk) == ["Thing a"]
        (written,) = disk.iterdir()
        assert names(Journal(written)) == ["File b"]
        assert disk.stat().st_mode & 0o777 == 0o700
        on_disk.end()
        assert written.exists(), "it names something"
    assert names(Journal(written)) == []
    on_disk.end()
    assert not disk.exists()


def test_a_journal_on_disk_is_its_living_writer_s(on_disk: Journal, disk: Path, host: FakeHost) -> None:
    """Testbeds that are apart have a /run each, and one disk."""
    with on_disk.hold(host, File("b")):
        assert list(left_on_disk(disk)) == []
        (written,) = disk.iterdir()
        orphan = disk / "journal-1-1.jsonl"
        orphan.write_bytes(written.read_bytes())
        assert [names(left) for left in left_on_disk(disk)] == [["File b"]]
        orphan.unlink()
    on_disk.end()
    assert list(left_on_disk(disk)) == []


def test_a_journal_that_somebody_removes_is_made_again(on_disk: Journal, disk: Path, host: FakeHost) -> None:
    with on_disk.hold(host, File("a")):
        shutil.rmtree(disk)
        with on_disk.hold(host, File("b")):
            (written,) = disk.iterdir()
            assert names(Journal(written)) == ["File b", "File a"]
            assert list(left_on_disk(disk)) == [], "it is locked again"
            shutil.rmtree(disk)
        assert names(Journal(written)) == ["File a"]
    on_disk.end()
    assert on_disk.leaks == [] and not disk.exists()


def test_a_folder_of_others_is_not_trusted_and_where_none_can_be_made_all_is_in_one_place(
    on_disk: Journal, disk: Path, host: FakeHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk.touch()
    below = Journal(on_disk.path, lasting=disk / "below")
    with below.hold(host, File("b")):
        assert names(below) == ["File b"]
    disk.unlink()
    disk.mkdir()
    disk.chmod(0o777)
    with pytest.raises(RequirementError, match="only its owner"), on_disk.hold(host, File("b")):
        pytest.fail("it was acquired")
    with pytest.raises(RequirementError, match="only its owner"):
        list(left_on_disk(disk))
    # In another user's nothing is written, and nothing is ours.
    disk.chmod(0o700)
    (disk / "journal-1-1.jsonl").touch()
    monkeypatch.setattr(os, "geteuid", lambda: disk.stat().st_uid + 1)
    with on_disk.hold(host, File("b")):
        assert names(on_disk) == ["File b"]
    assert list(left_on_disk(disk)) == []


@pytest.fixture
def left(journal: Journal, host: FakeHost) -> bytes:
    """A journal of a killed run, as its bytes as well."""
    with journal.hold(host, Thing("a")), journal.hold(host.world.host("initiator"), Thing("b")):
        kept = journal.path.read_bytes()
    host.world.commands.clear()
    journal.path.write_bytes(kept)
    return kept


def test_what_a_killed_run_left_is_undone_newest_first(journal: Journal, world: World, left: bytes) -> None:
    assert journal.recover() == (["Thing b", "Thing a"], [])
    assert world.said == ["break b", "sweep b", "break a", "sweep a"]
    assert [c.input for c in world.commands] == ["", "dust", "", "dust"]
    assert not journal.path.exists()
    # What has gone is not reported as removed.
    steps = {"steps": [{"argv": ["sweep", "a"], "absent": ["is clean"]}]}
    line = {"id": 9, "entry": {"what": "Thing c", **steps}}
    journal.path.write_bytes(left + msgspec.json.encode(line) + b"\n")
    world.answers = [(("sweep", "a"), (1, "", "sweep: a is clean"))]
    assert journal.recover() == (["Thing b", "Thing a"], [])


@pytest.mark.usefixtures("left")
def test_what_cannot_be_undone_is_named_and_stays_written_down(journal: Journal, world: World) -> None:
    world.broken = lambda command: command.argv[1] == "b"
    removed, failed = journal.recover()
    assert removed == ["Thing a"]
    reasons = [f"`{verb} b` ended with status 1: it was made to fail" for verb in ("break", "sweep")]
    assert failed == [f"Thing b: {'; '.join(reasons)}"]
    assert names(journal) == ["Thing b"]
    world.commands.clear()
    world.broken = lambda _command: False
    assert Journal(journal.path).recover() == (["Thing b"], [])
    assert world.said == ["break b", "sweep b"], "what is undone may be somebody else's by now"
    assert not journal.path.exists()


def test_a_namespace_that_has_gone_is_recovered_on_the_machine() -> None:
    for netns in (None, "harness-none-0"):
        assert reachable(UndoEntry("x", (), netns)) == NamespaceHost("machine")


MAKE: dict[str, Callable[[Path], object]] = {
    "folder": Path.mkdir,
    "fifo": os.mkfifo,
    "link": lambda path: path.symlink_to("/dev/zero"),
    "huge": lambda path: path.write_bytes(bytes(LARGEST_JOURNAL_BYTES + 1)),
    "foreign": lambda path: path.write_bytes(b'{"version":7}\n'),
}


@pytest.mark.parametrize("make", MAKE.values(), ids=list(MAKE))
def test_what_is_no_journal_is_set_aside_and_stops_nobody(
    tmp_path: Path, disk: Path, monkeypatch: pytest.MonkeyPatch, make: Callable[[Path], object]
) -> None:
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


def test_what_cannot_be_set_aside_is_reported_too(journal: Journal, monkeypatch: pytest.MonkeyPatch) -> None:
    MAKE["foreign"](journal.path)
    monkeypatch.setattr(Path, "rename", Mock(side_effect=OSError(30, "Read-only file system")))
    removed, (reported,) = journal.recover()
    assert removed == [] and "remove it by hand" in reported and "Read-only file system" in reported
