"""The composer on hosts that only record: what it brings up it takes down, whatever goes wrong."""

from __future__ import annotations

import base64
import json
import re
import secrets
import signal
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec
import pytest

from harness.analysis.schedule import Schedule
from harness.hosts.journal import Journal
from harness.model import (
    Backing,
    BackingKind,
    Cell,
    Column,
    IkeAuth,
    Job,
    Plan,
    Proof,
    Record,
    Status,
    TestbedKind,
)
from harness.model.errors import CellInvalid, HarnessError, HostLost, Interrupted, RequirementError
from harness.parse.profiles import data_folder, load_link, load_proposal
from harness.protection import proof
from harness.protection.capture import Capture
from harness.results.events import CellWithdrawn, Event
from harness.results.store import RunFolder
from harness.runs import fio_startup
from harness.runs.cells import CellComposer
from harness.runs.columns import Hosts
from harness.storage.transport import Disk
from tests import flat
from tests.unit.fakes import IO_BYTES, USERS, Command, Failure, FakeDaemon, World, tcp
from tests.unit.fakes.answers import DONE, Answer
from tests.unit.fakes.iscsi import LIO

TAG = "beef"
CHAP_SECRET = "c0ffee11c0ffee11"  # noqa: S105 (of no target)
PSK_BYTES = b"0123456789abcdefghijklmnopqrstuv"
PSK_BASE64 = base64.b64encode(PSK_BYTES).decode()
SECURED = Column("wifi", ("aes128gcm16",))

LINKS = data_folder() / "profiles" / "links"
PLAN = flat.plan(
    run_id=f"20260101-000000-{TAG}",
    testbed=TestbedKind.LAB,
    columns=(Column("local"), Column("wired"), SECURED),
    jobs=(
        Job(name="seq-read-4k", options=(("rw", "read"), ("bs", "4k"), ("runtime", "1"))),
        Job(name="rand-write-4k", options=(("rw", "randwrite"), ("bs", "4k"), ("runtime", "1"))),
    ),
    repeats=1,
    seed=1,
    backing=Backing(kind=BackingKind.RAMDISK, size_bytes=1 << 27),
    links={name: load_link(name, [LINKS]) for name in ("wired", "wifi")},
    proposals={"aes128gcm16": load_proposal("aes128gcm16", [data_folder() / "ipsec"])},
)


@dataclass
class Outcome:
    """What a run left behind. ``error`` is what ended it, None if it came to its end."""

    journal: Journal
    folder: RunFolder
    events: list[Event]
    error: BaseException | None

    @property
    def records(self) -> list[Record]:
        return self.folder.load_records()


def measure(
    world: World,
    place: Path,
    plan: Plan = PLAN,
    unavailable: Mapping[str, RequirementError] | None = None,
) -> Outcome:
    """One whole run of ``plan`` on the hosts of ``world``."""
    place.mkdir(parents=True)
    folder = RunFolder(place / plan.run_id)
    folder.save_plan(plan)
    journal = Journal(place / "journal.jsonl")
    events: list[Event] = []
    error: BaseException | None = None
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(secrets, "token_hex", lambda count: CHAP_SECRET[: 2 * count])
        patch.setattr(secrets, "token_bytes", lambda _count: PSK_BYTES)
        # Hundreds of runs are made here, and fio's test of the processor's clock takes 0.1 s.
        patch.setattr(fio_startup, "fio", lambda: fio_startup.Fio(has_tested_clock=True))
        patch.setattr(
            "harness.protection.ipsec.charon.Charon.ask",
            lambda charon, *words, **more: world.ask(charon, *words, **more),
        )
        hosts = Hosts(target=world.host("target"), initiators=(world.host("initiator"),))
        composer = CellComposer(
            plan, folder, events.append, hosts=hosts, journal=journal, private=place / "private"
        )
        composer.unavailable = unavailable or {}
        try:
            composer.execute(Schedule(plan, folder.load_records()))
        except (HarnessError, OSError, Interrupted) as raised:
            error = raised
    return Outcome(journal, folder, events, error)


def journal_steps(journal: Journal) -> list[tuple[int, bool]]:
    """The journal's lines: number of the resource, and whether the line opens it."""
    lines = [msgspec.json.decode(line) for line in journal.path.read_bytes().splitlines()]
    return [(line["id"], "entry" in line) for line in lines]


# A run in which nothing goes wrong


def test_a_run_measures_and_proves_every_cell(tmp_path: Path) -> None:
    outcome = measure(World(), tmp_path / "run")
    assert outcome.error is None
    assert len(outcome.records) == 6
    assert {(record.status, record.reason) for record in outcome.records} == {(Status.OK, None)}
    secured = [record for record in outcome.records if record.column.ipsec == SECURED.ipsec]
    for record in secured:
        assert record.proof is not None
        assert record.proof.protected_bytes >= IO_BYTES
        assert record.proof.packets_sampled > 0
        assert record.agreed["aes128gcm16"]["drivers"] == "rfc4106-gcm-aesni"


LATE: dict[str, tuple[Callable[[FakeDaemon], None], str]] = {
    "clear": (
        lambda tcpdump: tcpdump.capture(tcp(40000, 3260, "198.18.1.1", "198.18.1.2")),
        "1 cleartext segments of the portal were on the link after the cell",
    ),
    "died": (
        lambda tcpdump: setattr(tcpdump, "has_ended", True),
        "after the cell, the capture of what the initiator sent cannot be relied on: tcpdump has ended",
    ),
    "dropped": (
        lambda tcpdump: setattr(tcpdump, "dropped", 2),
        "after the cell, the capture of what the initiator sent cannot be relied on: "
        "the kernel dropped 2 frames",
    ),
}
"""What a capture of a protected column may see when its cell has been judged, and the reason."""


def secured_records(outcome: Outcome) -> list[Record]:
    """In their order."""
    return sorted((r for r in outcome.records if r.column == SECURED), key=lambda record: record.order)


def near_capture(captures: Capture) -> FakeDaemon | None:
    """The initiator's, of a protected column."""
    daemon = captures.taps[0].daemon
    assert isinstance(daemon, FakeDaemon)
    return None if "tcpflags" in daemon.argv[-1] else daemon


def late(monkeypatch: pytest.MonkeyPatch, moment: str, happen: Callable[[FakeDaemon], None]) -> None:
    """Have something happen to the protected column's capture before its second cell begins, before the last
    look, or after it."""
    seen: list[FakeDaemon] = []
    looks: dict[str, Callable[[Capture], None]] = {
        name: getattr(Capture, name) for name in ("finish", "read_rest")
    }
    measure_usually = CellComposer.measure

    def look(captures: Capture) -> None:
        daemon = near_capture(captures)
        if daemon is not None:
            happen(daemon)
            daemon.signal(signal.SIGUSR1)  # tcpdump prints its counts when it ends
        looks[moment](captures)

    def measure_cell(composer: CellComposer, cell: Cell, order: int) -> Record:
        up = composer._columns.get(cell.column)
        if up is not None and cell.column == SECURED and not seen:
            daemon = near_capture(up.nexuses[0].up.watched[0].capture)
            assert daemon is not None
            happen(daemon)
            seen.append(daemon)
        return measure_usually(composer, cell, order)

    if moment in looks:
        monkeypatch.setattr(Capture, moment, look)
    else:
        monkeypatch.setattr(CellComposer, "measure", measure_cell)


@pytest.mark.parametrize(
    ("moment", "what"),
    [
        *((moment, what) for moment in ("next cell", "finish") for what in LATE),
        ("read_rest", "clear"),
        ("read_rest", "dropped"),
    ],
)
def test_what_a_capture_tells_after_a_cell_withdraws_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, moment: str, what: str
) -> None:
    """When the column's next cell begins, when its protection is taken down, and until the capture ends."""
    happen, reason = LATE[what]
    late(monkeypatch, moment, happen)
    outcome = measure(World(), tmp_path / "run")
    first, last = secured_records(outcome)
    victim, other = (first, last) if moment == "next cell" else (last, first)
    assert (victim.status, victim.reason) == (Status.INVALID, reason)
    assert victim.proof is not None, "what was measured is kept"
    key = f"{SECURED.label}.{victim.workload.name}.r1"
    withdrawn = [event for event in outcome.events if isinstance(event, CellWithdrawn)]
    assert withdrawn == [CellWithdrawn(key, reason)]
    # With the same capture the next cell cannot be proved either.
    is_blind = moment == "next cell" and what != "clear"
    assert other.status is (Status.INVALID if is_blind else Status.OK)
    assert {record.status for record in outcome.records if record.column != SECURED} == {Status.OK}


def test_a_cell_that_ends_early_does_not_hide_what_was_seen_after_the_one_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    happen, reason = LATE["clear"]

    def leak_and_lose_the_disk(tcpdump: FakeDaemon) -> None:
        happen(tcpdump)
        monkeypatch.setattr(Disk, "check", gone)

    def gone(_disk: Disk) -> None:
        raise CellInvalid("the disk is gone")

    late(monkeypatch, "next cell", leak_and_lose_the_disk)
    first, last = secured_records(measure(World(), tmp_path / "run"))
    assert (first.status, first.reason) == (Status.INVALID, reason)
    assert (last.status, last.reason) == (Status.INVALID, "the disk is gone")


def test_a_record_that_could_not_be_read_again_is_kept_without_figures(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    usual = proof.of_all

    def negative(proofs: Sequence[Proof]) -> Proof:
        found = usual(proofs)
        return msgspec.structs.replace(found, tcp_retransmits=-1) if found.protected_bytes else found

    monkeypatch.setattr(proof, "of_all", negative)
    for record in secured_records(measure(World(), tmp_path / "run")):
        assert (record.status, record.proof, record.read, record.write) == (Status.FAILED, None, None, None)
        assert record.reason is not None
        assert record.reason.startswith("the cell has an impossible figure: Expected `int` >= 0")
        assert "$.proof.tcp_retransmits" in record.reason


def test_a_column_whose_barrier_does_not_hold_is_not_measured(tmp_path: Path) -> None:
    world = World()
    world.answers.append((("ip", "xfrm", "policy", "add"), DONE))
    outcome = measure(world, tmp_path / "run")
    reasons = {record.reason or "" for record in outcome.records if record.column.ipsec == SECURED.ipsec}
    assert all("expected the barrier to stop and count a connection" in reason for reason in reasons)
    assert {record.status for record in outcome.records if record.column.ipsec != SECURED.ipsec} == {
        Status.OK
    }
    assert not any(c.argv[:2] == ("vici", "initiate") for c in world.commands), "no tunnel was made"


@pytest.mark.parametrize("protected", [True, False])
def test_a_capture_that_dies_under_a_cell_makes_it_invalid(tmp_path: Path, protected: bool) -> None:
    class Dying(World):
        is_due = True

        def _fio(self, job: str) -> Answer:
            for captured in self.captures:
                if self.is_due and protected is ("tcpflags" not in captured.argv[-1]):
                    captured.has_ended = True
                    self.is_due = False
            return super()._fio(job)

    outcome = measure(Dying(), tmp_path / "run")
    (bad,) = (record for record in outcome.records if record.status is not Status.OK)
    assert (bad.status, bad.column.ipsec != "off") == (Status.INVALID, protected)
    assert bad.reason is not None
    assert "the capture of what the initiator sent cannot be relied on: tcpdump has ended" in bad.reason


def test_a_figure_that_its_link_cannot_have_makes_the_cell_invalid(tmp_path: Path) -> None:
    far = msgspec.structs.replace(PLAN.links["wired"], delay_us=3000.0)
    plan = msgspec.structs.replace(PLAN, links=PLAN.links | {"wired": far})
    outcome = measure(World(), tmp_path / "run", plan)
    writes = [record for record in outcome.records if record.write is not None]
    found = {record.column.link: (record.status, record.reason) for record in writes}
    assert found["local"] == found["wifi"] == (Status.OK, None)
    assert found["wired"] == (
        Status.INVALID,
        "an I/O took 1900.0 us, but the link's round trip alone takes 6000 us",
    )


def test_what_is_brought_up_is_taken_down_in_reverse(tmp_path: Path) -> None:
    world = World()
    outcome = measure(world, tmp_path / "run")
    made = [thing for sign, thing in world.history if sign == "+"]
    gone = [thing for sign, thing in world.history if sign == "-"]
    # charon makes states and policies all at once; the initiator's charon serves all columns to the end.
    charons = re.compile(r"state |policy \S+ src 198\S+ dst 198\S+ dir|daemon charon-systemd of initiator")
    assert [t for t in gone if not charons.match(t)] == [t for t in made if not charons.match(t)][::-1]
    assert set(gone) == set(made)
    assert len(made) > 25
    assert set(world.things) == set(USERS)
    assert outcome.journal.leaks == []


def test_the_journal_is_a_stack_and_ends_empty(tmp_path: Path) -> None:
    outcome = measure(World(), tmp_path / "run")
    steps = journal_steps(outcome.journal)
    stack: list[int] = []
    for number, opens in steps:
        if opens:
            stack.append(number)
        else:
            assert stack.pop() == number
    assert stack == []
    assert len(steps) == 2 * len({number for number, _ in steps})
    assert outcome.journal.open_entries() == {}


def test_the_barrier_stands_before_charon_and_falls_after_it(tmp_path: Path) -> None:
    world = World()
    measure(world, tmp_path / "run")

    def place(sign: str, beginning: str) -> list[int]:
        return [n for n, (s, thing) in enumerate(world.history) if s == sign and thing.startswith(beginning)]

    barrier = re.compile(r"policy .* proto 6 [sd]port 3260 dir (in|out)$")
    closed = [n for n, (sign, thing) in enumerate(world.history) if sign == "+" and barrier.match(thing)]
    opened = [n for n, (sign, thing) in enumerate(world.history) if sign == "-" and barrier.match(thing)]
    assert len(closed) == len(opened) == 4  # two directions at two ends
    assert max(closed) < min(place("+", "state "))
    assert min(opened) > max(place("-", "state "))
    secured = f"session iqn.2026-11.net.storage-harness:{TAG}.wifi"
    assert max(closed) < min(place("+", secured))
    assert min(opened) > max(place("-", secured))


def test_the_iscsi_session_ends_before_its_target_and_the_target_before_its_disk(tmp_path: Path) -> None:
    world = World()
    measure(world, tmp_path / "run")
    gone = [thing.split()[0] for sign, thing in world.history if sign == "-"]
    for early, late in (("session", "target"), ("target", "link"), ("link", "netns")):
        assert gone.index(early) < gone.index(late)
    assert gone[-3:] == ["backstore", "discovery-login", "module"]


# Scope: nothing but the run's own


def test_everything_made_carries_the_tag_of_the_run_and_is_journalled(tmp_path: Path) -> None:
    world = World()
    outcome = measure(world, tmp_path / "run")
    by_kernel = ("daemon ", "module brd", "state ")  # no name of ours to give
    named = [thing for sign, thing in world.history if sign == "+" and not thing.startswith(by_kernel)]
    # xfrm policies have no names; the addresses in them are those of the run's own links.
    policies = [thing for thing in named if thing.startswith("policy ")]
    assert all(re.search(r"src 198\.18\.\d+\.[12]/32 dst 198\.18\.\d+\.[12]/32 ", p) for p in policies)
    others = [thing for thing in named if thing not in policies]
    assert len(others) > 10
    assert [thing for thing in others if TAG not in thing] == []
    journal = outcome.journal.path.read_text(encoding="utf-8")
    # As a word of its own, in what it is called or in the steps that undo it.
    whole = [rf"(?<![\w.-]){re.escape(thing.split()[1])}(?![\w.-])" for thing in others]
    assert [name for name in whole if not re.search(name, journal)] == []


def test_a_target_has_a_name_that_lio_takes_whatever_its_link_is_called(tmp_path: Path) -> None:
    wired = msgspec.structs.replace(PLAN.links["wired"], name="my_link.2")
    plan = msgspec.structs.replace(PLAN, columns=(Column("my_link.2"),), links={"my_link.2": wired})
    world = World()
    assert measure(world, tmp_path / "run", plan).error is None
    (name,) = {thing for _, thing in world.history if thing.startswith("target ")}
    # RFC 7143, section 4.2.7.2
    assert re.fullmatch(rf"target iqn\.2026-11\.net\.storage-harness:{TAG}\.my-link\.2\.off", name)


def test_the_initiator_starts_no_session_by_itself_and_gives_up_soon(tmp_path: Path) -> None:
    world = World()
    measure(world, tmp_path / "run")
    conf = world.secret_files["/etc/iscsi/iscsid.conf"].splitlines()
    assert "node.startup = manual" in conf
    assert "node.session.auth.authmethod = CHAP" in conf
    assert "node.session.initial_login_retry_max = 1" in conf
    name = f"InitiatorName=iqn.2026-11.net.storage-harness:{TAG}.initiator1.{CHAP_SECRET[:12]}\n"
    assert world.secret_files["/etc/iscsi/initiatorname.iscsi"] == name


@pytest.mark.parametrize("failure", [None, Failure.STATUS])
def test_no_command_reaches_beyond_the_run(tmp_path: Path, failure: Failure | None) -> None:
    for step in range(40, 200, 20) if failure else [0]:
        world = World(fail_at=step)
        measure(world, tmp_path / str(step))
        said = [line for line in world.said if not line.startswith("/usr/bin/python3 ")]
        asked = [json.loads(c.input or "") for c in world.commands if c.argv[0] == "/usr/bin/python3"]
        for request in asked:
            assert TAG in (request.get("name") or request.get("serial") or request["iqn"])
        for line in said:
            assert not re.search(r"clearconfig|saveconfig|xfrm (state|policy) flush", line)
            assert not re.search(r"netns del(ete)?$|link del(ete)?$|rmmod|pkill|killall", line)
            if "iscsiadm --mode iface" in line:
                assert line.split("\n")[-1].startswith(" sh harness-198.18.")
            elif line.startswith("iscsiadm"):
                assert "--interface harness-198.18." in line
                assert f"--targetname iqn.2026-11.net.storage-harness:{TAG}." in line
            if " delete " in line and "xfrm" in line:
                assert "198.18." in line
            if "deleteall" in line:
                ends = r"src 198\.18\.(\d+)\.[12](/32)? dst 198\.18\.\1\.[12](/32)? "
                assert re.search(rf"xfrm policy deleteall {ends}priority 1000\d$", line) or re.search(
                    rf"xfrm state deleteall {ends}proto esp reqid 120795955\d$", line
                )


def test_what_runs_on_the_hosts_saves_and_clears_nothing(tmp_path: Path) -> None:
    world = World()
    measure(world, tmp_path / "run")
    programs = {c.argv[-1] for c in world.commands if c.argv[0] == "/usr/bin/python3"}
    assert len(programs) == 2
    (logout,) = programs - {LIO}
    assert not re.search(r"clear_existing|restore|save|clearconfig|rmtree", LIO)
    assert not re.search(r"logoutall|\"-u\"|rmtree|unlink", re.sub(r'"""(?s:.*?)"""', "", logout))


# Secrets


@pytest.mark.parametrize("auth", list(IkeAuth))
def test_no_secret_is_seen_in_arguments_journal_or_results(tmp_path: Path, auth: IkeAuth) -> None:
    world = World()
    for end in ("initiator", "target"):
        for kind in ("key", "crt"):
            path = tmp_path / "run" / "private" / "certificates" / f"{end}.{kind}"
            world.secret_files[str(path)] = f"PRIVATE {end} {kind}"
    plan = msgspec.structs.replace(PLAN, ike_auth=auth)
    outcome = measure(world, tmp_path / "run", plan)
    assert outcome.error is None
    assert {record.status for record in outcome.records} == {Status.OK}

    kept = "".join([*world.secret_files.values(), *map(str, world.vici_messages)])
    known = [CHAP_SECRET, PSK_BYTES.decode() if auth is IkeAuth.PSK else "PRIVATE initiator key"]
    assert all(secret in kept for secret in known)  # else the search below would find nothing anyway
    files = [file for file in (tmp_path / "run").rglob("*") if file.is_file()]
    assert len(files) > 10
    seen = [str(command) for command in world.commands]
    seen += [str(event) for event in outcome.events]
    seen += [file.read_bytes().decode("utf-8", "replace") for file in files]
    for secret in (*known, PSK_BASE64, PSK_BYTES.hex()):
        assert not any(secret in text for text in seen)


def test_the_target_learns_the_chap_secret_on_standard_input(tmp_path: Path) -> None:
    world = World()
    measure(world, tmp_path / "run")
    creations = [c.input for c in world.commands if c.input and '"create-target"' in c.input]
    assert len(creations) == 2
    assert all(CHAP_SECRET in request for request in creations)


# Failures that stay


def test_a_column_that_never_comes_up_is_given_up_and_leaves_the_others_alone(tmp_path: Path) -> None:
    world = World(broken=lambda command: command.argv == ("vici", "initiate"))
    plan = msgspec.structs.replace(PLAN, repeats=3)
    outcome = measure(world, tmp_path / "run", plan)
    assert outcome.error is None
    good = [record for record in outcome.records if record.status is Status.OK]
    bad = [record for record in outcome.records if record.status is not Status.OK]
    assert {record.column for record in good} == {Column("local"), Column("wired")}
    assert len(good) == 12
    assert {record.column for record in bad} == {SECURED}
    assert {record.status for record in bad} == {Status.FAILED}
    reasons = [record.reason or "" for record in sorted(bad, key=lambda record: record.order)]
    assert all("did not carry out `initiate`" in reason for reason in reasons)
    assert [reason.startswith("given up after 2 attempts") for reason in reasons] == [False] * 2 + [True] * 4
    assert sum(command.argv == ("vici", "initiate") for command in world.commands) == 2
    assert world.left == set()
    assert outcome.journal.leaks == []


def test_a_column_without_room_for_its_secrets_is_given_up_as_well(tmp_path: Path) -> None:
    world = World(broken=lambda command: command.argv[-1].endswith("charon.conf"))
    outcome = measure(world, tmp_path / "run", msgspec.structs.replace(PLAN, repeats=2))
    reasons = [record.reason or "" for record in outcome.records if record.status is Status.FAILED]
    assert len(reasons) == 4
    assert all("No space left on device" in reason for reason in reasons)
    assert sum(reason.startswith("given up after 2 attempts") for reason in reasons) == 2
    assert world.left == set()


def test_a_session_that_does_not_log_out_is_reported_and_all_else_is_released(tmp_path: Path) -> None:
    def logs_out(command: Command) -> bool:
        return '"disconnect"' in (command.input or "")

    world = World(broken=logs_out)
    outcome = measure(world, tmp_path / "run")
    assert len(outcome.journal.leaks) == 2
    assert all(leak.startswith("IscsiSession was not undone: `/usr/") for leak in outcome.journal.leaks)
    assert all("it was made to fail" in leak for leak in outcome.journal.leaks)
    assert {thing.split()[0] for thing in world.left} == {"session", "node"}
    left_over = outcome.journal.open_entries().values()
    assert {entry.what.split()[0] for entry in left_over} == {"IscsiSession"}


def test_policies_and_states_that_stay_are_reported(tmp_path: Path) -> None:
    stubborn = re.compile(r"ip xfrm (policy|state) delete")
    world = World(broken=lambda command: stubborn.match(" ".join(command.argv)) is not None)
    outcome = measure(world, tmp_path / "run")
    names = [leak.partition(" ")[0] for leak in outcome.journal.leaks if "was not undone" in leak]
    assert names == ["SecurityAssociations"] * 8 + ["IpsecBarrier"] * 2
    seen = [leak for leak in outcome.journal.leaks if leak.endswith("is still there")]
    assert sum(leak.startswith("the ESP state src 198.18.1.") for leak in seen) == 2
    assert sum(leak.startswith("the IPsec policy src 198.18.1.") for leak in seen) == 3 + 2
    assert len(seen) + len(names) == len(outcome.journal.leaks), "nothing of the user's"
    # Each of them was tried, though the first had failed.
    tried = [c for c in world.commands if c.host == "initiator" and stubborn.match(" ".join(c.argv))]
    assert len({c.argv for c in tried}) == 2 + 2 + 2


@pytest.mark.parametrize("moment", ["create-target", "fio", "vici"])
def test_a_host_that_is_lost_ends_the_run_and_is_not_asked_again(tmp_path: Path, moment: str) -> None:
    lost: list[Command] = []

    def gone(command: Command) -> bool:
        due = moment in f"{command.argv[0]} {command.input}"
        if command.host == "target" and (lost or due):
            lost.append(command)
            raise HostLost("the target was lost", hint="it takes everything down by itself")
        return False

    world = World(broken=gone)
    outcome = measure(world, tmp_path / "run")
    assert isinstance(outcome.error, HostLost)
    *earlier, victim = sorted(outcome.records, key=lambda record: record.order)
    assert {record.status for record in earlier} <= {Status.OK}
    assert (victim.status, victim.reason) == (
        Status.FAILED,
        "the target was lost (it takes everything down by itself)",
    )
    assert victim.order == len(earlier) < 5, "nothing more was measured"
    # What the initiator has is undone; what the target has it undoes by itself.
    assert not [thing for thing in world.left if thing.startswith(("session", "node", "link"))]


def test_fio_that_fails_makes_the_cell_invalid_and_the_column_is_made_anew(tmp_path: Path) -> None:
    wired = f"session iqn.2026-11.net.storage-harness:{TAG}.wired.off"
    fios: list[str] = []

    def second_fio(command: Command) -> bool:
        if command.argv[0] == "fio":
            fios.append("filename=/dev/sda" if "/dev/sda" in (command.input or "") else "")
        return command.argv[0] == "fio" and bool(fios[-1]) and sum(map(bool, fios)) == 1

    world = World(broken=second_fio)
    outcome = measure(world, tmp_path / "run")
    (bad,) = [record for record in outcome.records if record.status is not Status.OK]
    assert bad.status is Status.INVALID
    assert bad.reason is not None
    assert "fio ended with status 1: it was made to fail" in bad.reason
    column = wired if bad.column.link == "wired" else wired.replace("wired.off", "wifi.aes128gcm16")
    assert [sign for sign, thing in world.history if thing == column] == ["+", "-", "+", "-"]
    assert world.left == set()


def test_a_column_that_cannot_be_taken_down_is_reported_and_the_others_are_measured(tmp_path: Path) -> None:
    unmeasurable = World(
        broken=lambda command: command.argv[0] == "fio" and "/dev/sda" in (command.input or ""),
        undying="tcpdump",
    )
    outcome = measure(unmeasurable, tmp_path / "run")
    assert outcome.error is None
    status = {record.column.link: record.status for record in outcome.records}
    assert status == {"local": Status.OK, "wired": Status.INVALID, "wifi": Status.INVALID}
    assert len(outcome.journal.leaks) == 4  # each column, after each of its two cells
    assert "column wired was not taken down: process tcpdump could not be killed" in outcome.journal.leaks


# What was there before


def test_a_ramdisk_module_in_use_is_refused_and_not_unloaded(tmp_path: Path) -> None:
    world = World()
    world.things["module brd"] = ()
    outcome = measure(world, tmp_path / "run")
    assert isinstance(outcome.error, HarnessError)
    assert "may be somebody else's" in str(outcome.error)
    assert "module brd" in world.things
    assert not outcome.journal.path.exists()


def test_a_ramdisk_module_loaded_at_the_last_moment_is_not_unloaded(tmp_path: Path) -> None:
    taken = (1, "", "modprobe: ERROR: could not insert 'brd': Module already in kernel")
    world = World(answers=[(("modprobe", "--first-time"), taken)])
    outcome = measure(world, tmp_path / "run")
    assert "brd is already loaded, so its disks may be somebody else's" in str(outcome.error)
    assert not any(command.argv[:2] == ("modprobe", "-r") for command in world.commands)
    assert outcome.journal.open_entries() == {}


@pytest.mark.parametrize("late", [False, True])
def test_a_file_of_the_users_is_refused_and_not_removed(tmp_path: Path, late: bool) -> None:
    """``late``: it came into being after it had been looked for."""
    backing = Backing(kind=BackingKind.FILE, size_bytes=1 << 27, path="/srv/precious.img")
    plan = flat.changed(PLAN, backing=backing)
    world = World()
    if late:
        world.answers = [
            (("sh", "-c", 'test -e "$1" || test -L "$1"'), (1, "", "")),
            (("sh", "-c", 'set -C; : > "$1"'), (2, "", "sh: 1: cannot create x: File exists")),
        ]
    outcome = measure(world, tmp_path / "run", plan)
    assert "expected the backing file /srv/precious.img not to exist yet" in str(outcome.error)
    assert [command for command in world.commands if command.argv[0] == "rm"] == []
    assert outcome.journal.open_entries() == {}


def test_a_program_that_is_missing_skips_the_cells_that_need_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_tcpdump(*_: object, **__: object) -> None:
        raise RequirementError("expected the program tcpdump, but it is not installed", hint="install it")

    monkeypatch.setattr("harness.protection.capture.capture", no_tcpdump)
    outcome = measure(World(), tmp_path / "run", msgspec.structs.replace(PLAN, repeats=2))
    assert outcome.error is None
    assert {(record.column.link, record.status) for record in outcome.records} == {
        ("local", Status.OK),
        ("wired", Status.SKIPPED),
        ("wifi", Status.SKIPPED),
    }
    assert all(
        "tcpdump" in (record.reason or "") for record in outcome.records if record.column.link != "local"
    )
    assert outcome.journal.open_entries() == {}
