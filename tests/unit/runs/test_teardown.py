"""The composer on hosts that only record: what it brings up it takes down, whatever goes wrong."""

from __future__ import annotations

import base64
import contextlib
import functools
import json
import re
import secrets
import signal
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import pytest

from harness.analysis.schedule import Schedule
from harness.hosts import Host
from harness.hosts.journal import Journal
from harness.model import Backing, BackingKind, Cell, Column, IkeAuth, Job, Plan, Proof, Record, Status
from harness.model.errors import CellInvalid, HarnessError, HostLost, Interrupted, RequirementError
from harness.parse import open_loop
from harness.parse.profiles import data_folder, load_link, load_proposal
from harness.protection import proof
from harness.protection.capture import Capture
from harness.results.events import CellWithdrawn, Event
from harness.results.store import RunFolder
from harness.runs import around, fio_startup
from harness.runs.cells import CellComposer
from harness.runs.columns import Hosts
from harness.storage.iscsi import transport
from harness.storage.transport import Disk
from tests import flat
from tests.unit.fakes import IO_BYTES, USERS, Command, FakeDaemon, World, tcp
from tests.unit.fakes.answers import DONE, Answer
from tests.unit.fakes.iscsi import LIO

TAG = "beef"
CHAP_SECRET = "c0ffee11c0ffee11"  # noqa: S105 (of no target)
PSK_BYTES = b"0123456789abcdefghijklmnopqrstuv"
PSK_BASE64 = base64.b64encode(PSK_BYTES).decode()
IQN = f"iqn.2026-11.net.storage-harness:{TAG}"
SECURED = Column("wifi", ("aes128gcm16",))

LINKS = data_folder() / "profiles" / "links"
PLAN = flat.plan(
    run_id=f"20260101-000000-{TAG}",
    testbed="lab",
    columns=(Column("local"), Column("wired"), SECURED),
    jobs=tuple(
        Job(name=f"{name}-4k", options=(("rw", rw), ("bs", "4k"), ("runtime", "1")))
        for name, rw in (("seq-read", "read"), ("rand-write", "randwrite"))
    ),
    repeats=1,
    seed=1,
    backing=Backing(kind=BackingKind.RAMDISK, size_bytes=1 << 27),
    links={name: load_link(name, [LINKS]) for name in ("wired", "wifi")},
    proposals={"aes128gcm16": load_proposal("aes128gcm16", [data_folder() / "ipsec"])},
)

CLEAR = tcp(40000, 3260, "198.18.1.1", "198.18.1.2")
CLEARTEXT = "cleartext segments of the portal"
UNRELIABLE = "the capture of what the initiator sent is unreliable: "
AFTER = f"after the cell, {UNRELIABLE}"
LATE: dict[str, tuple[Callable[[FakeDaemon], None], str]] = {
    "clear": (lambda t: t.capture(CLEAR), f"1 {CLEARTEXT} were on the link after the cell"),
    "died": (lambda t: setattr(t, "has_ended", True), f"{AFTER}tcpdump has ended"),
    "dropped": (lambda t: setattr(t, "dropped", 2), f"{AFTER}the kernel dropped 2 frames"),
}
"""What a capture of a protected column may see when its cell has been judged, and the reason."""
MOMENTS = [*((moment, what) for moment in ("next cell", "finish") for what in LATE)]
MOMENTS += [("read_rest", "clear"), ("read_rest", "dropped")]


@dataclass
class Outcome:
    """What a run left behind. ``error`` is what ended it, None if it came to its end."""

    world: World
    journal: Journal
    folder: RunFolder
    events: list[Event]
    error: BaseException | None

    @property
    def records(self) -> list[Record]:
        return sorted(self.folder.load_records(), key=lambda record: record.order)

    @property
    def bad(self) -> list[Record]:
        return [record for record in self.records if record.status is not Status.OK]

    @property
    def secured(self) -> list[Record]:
        return [record for record in self.records if record.column == SECURED]

    @property
    def made(self) -> list[str]:
        return [thing for sign, thing in self.world.history if sign == "+"]

    @property
    def gone(self) -> list[str]:
        return [thing for sign, thing in self.world.history if sign == "-"]

    def assert_nothing_is_left(self) -> None:
        assert self.world.left == set() and self.journal.leaks == []
        assert self.journal.open_entries() == {}


def measure(
    world: World, place: Path, plan: Plan = PLAN, unavailable: Mapping[str, RequirementError] | None = None
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
    return Outcome(world, journal, folder, events, error)


@pytest.fixture(scope="module")
def usual(tmp_path_factory: pytest.TempPathFactory) -> Outcome:
    return measure(World(), tmp_path_factory.mktemp("usual") / "run")


def test_a_run_measures_and_proves_every_cell(usual: Outcome) -> None:
    assert usual.error is None and len(usual.secured) == 2
    assert [(record.status, record.reason) for record in usual.records] == [(Status.OK, None)] * 6
    for record in usual.secured:
        found = record.proof
        assert found is not None and found.protected_bytes >= IO_BYTES and found.packets_sampled > 0
        assert record.agreed["aes128gcm16"]["drivers"] == "rfc4106-gcm-aesni"


def late(patch: pytest.MonkeyPatch, moment: str, happen: Callable[[FakeDaemon], None]) -> None:
    """Have something happen to what captures the initiator of the protected column, before its second cell
    begins, before the last look, or after it."""
    seen: list[Capture] = []
    measure_usually, look_usually = CellComposer.measure, getattr(Capture, moment, None)

    def happens_to(captures: Capture, *signals: int) -> None:
        daemon = captures.taps[0].daemon
        assert isinstance(daemon, FakeDaemon)
        if "tcpflags" not in daemon.argv[-1]:
            happen(daemon)
            for number in signals:
                daemon.signal(number)

    def look(captures: Capture) -> None:
        assert look_usually is not None
        happens_to(captures, signal.SIGUSR1)  # tcpdump prints its counts when it ends
        look_usually(captures)

    def measure_cell(composer: CellComposer, cell: Cell, order: int) -> Record:
        up = composer._columns.get(cell.column)
        if up is not None and cell.column == SECURED and not seen:
            seen.append(up.connected_luns[0].up.watched[0].capture)
            happens_to(seen[0])
        return measure_usually(composer, cell, order)

    if look_usually is None:
        patch.setattr(CellComposer, "measure", measure_cell)
    else:
        patch.setattr(Capture, moment, look)


@pytest.mark.parametrize(("moment", "what"), MOMENTS)
def test_what_a_capture_tells_after_a_cell_withdraws_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, moment: str, what: str
) -> None:
    """When the column's next cell begins, when its protection is taken down, and until the capture ends."""
    happen, reason = LATE[what]
    late(monkeypatch, moment, happen)
    outcome = measure(World(), tmp_path / "run")
    first, last = outcome.secured
    victim, other = (first, last) if moment == "next cell" else (last, first)
    assert (victim.status, victim.reason) == (Status.INVALID, reason)
    assert victim.proof is not None, "what was measured is kept"
    withdrawn = [event for event in outcome.events if isinstance(event, CellWithdrawn)]
    assert withdrawn == [CellWithdrawn(f"{SECURED.label}.{victim.workload.name}.r1", reason)]
    # With the same capture the next cell cannot be proved either.
    is_blind = moment == "next cell" and what != "clear"
    assert other.status is (Status.INVALID if is_blind else Status.OK)
    assert {record.column for record in outcome.bad} == {SECURED}


def test_a_cell_that_ends_early_does_not_hide_what_was_seen_after_the_one_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    happen, reason = LATE["clear"]

    def gone(_disk: Disk) -> None:
        raise CellInvalid("the disk is gone")

    def leak_and_lose_the_disk(tcpdump: FakeDaemon) -> None:
        happen(tcpdump)
        monkeypatch.setattr(Disk, "check", gone)

    late(monkeypatch, "next cell", leak_and_lose_the_disk)
    found = [(record.status, record.reason) for record in measure(World(), tmp_path / "run").secured]
    assert found == [(Status.INVALID, reason), (Status.INVALID, "the disk is gone")]


def test_a_record_that_could_not_be_read_again_is_kept_without_figures(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    usual = proof.of_all

    def negative(proofs: Sequence[Proof]) -> Proof:
        found = usual(proofs)
        return msgspec.structs.replace(found, tcp_retransmits=-1) if found.protected_bytes else found

    monkeypatch.setattr(proof, "of_all", negative)
    for record in measure(World(), tmp_path / "run").secured:
        assert (record.status, record.proof, record.read, record.write) == (Status.FAILED, None, None, None)
        why = r"the cell has an impossible figure: Expected `int` >= 0.*\$\.proof\.tcp_retransmits"
        assert re.match(why, record.reason or "", re.DOTALL)


def test_a_column_whose_fail_closed_does_not_hold_is_not_measured(tmp_path: Path) -> None:
    outcome = measure(World(answers=[(("ip", "xfrm", "policy", "add"), DONE)]), tmp_path / "run")
    for record in outcome.secured:
        assert "expected the fail-closed policies to block and count a connection" in (record.reason or "")
    assert {record.column for record in outcome.bad} <= {SECURED}
    assert not any(c.argv[:2] == ("vici", "initiate") for c in outcome.world.commands), "no tunnel was made"


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

    (bad,) = measure(Dying(), tmp_path / "run").bad
    assert (bad.status, bad.column.ipsec != "off") == (Status.INVALID, protected)
    assert f"{UNRELIABLE}tcpdump has ended" in (bad.reason or "")


def test_a_figure_that_its_link_cannot_have_makes_the_cell_invalid(tmp_path: Path) -> None:
    far = msgspec.structs.replace(PLAN.links["wired"], delay_us=3000.0)
    outcome = measure(World(), tmp_path / "run", flat.changed(PLAN, links=PLAN.links | {"wired": far}))
    reasons = {r.column.link: (r.status, r.reason) for r in outcome.records if r.write is not None}
    why = "an I/O took 1900.0 us, but the link's round trip alone takes 6000 us"
    assert reasons.pop("wired") == (Status.INVALID, why)
    assert reasons == dict.fromkeys(("local", "wifi"), (Status.OK, None))


def test_what_is_brought_up_is_taken_down_in_reverse_and_the_journal_is_a_stack(usual: Outcome) -> None:
    made, gone = usual.made, usual.gone
    # charon makes states and policies all at once; the initiator's charon serves all columns to the end.
    charons = re.compile(r"state |policy \S+ src 198\S+ dst 198\S+ dir|daemon charon-systemd of initiator")
    assert [t for t in gone if not charons.match(t)] == [t for t in made if not charons.match(t)][::-1]
    assert set(gone) == set(made) and len(made) > 25 and set(usual.world.things) == set(USERS)
    usual.assert_nothing_is_left()
    # The iSCSI session ends before its target, and the target before its disk.
    kinds = [thing.split()[0] for thing in gone]
    assert kinds.index("session") < kinds.index("target") < kinds.index("link") < kinds.index("netns")
    assert kinds[-3:] == ["backstore", "discovery-login", "module"]
    lines = [msgspec.json.decode(line) for line in usual.journal.path.read_bytes().splitlines()]
    stack: list[int] = []
    for line in lines:
        if "entry" in line:
            stack.append(line["id"])
        else:
            assert stack.pop() == line["id"]
    assert stack == [] and len(lines) == 2 * len({line["id"] for line in lines})


def test_after_a_boot_a_target_is_watched_then_closed_then_protected_before_it_is_a_target(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The order in which its journal makes all again."""
    made, hold, each_boot = list[tuple[Host, str]](), Journal.hold, Journal.each_boot

    def held(journal: Journal, host: Host, resource: Any) -> Any:
        made.append((host, getattr(resource, "what", type(resource).__name__)))
        return hold(journal, host, resource)

    def acts(journal: Journal, host: Host, again: Any, *kept: Any) -> Any:
        made.append((host, "watch" if isinstance(again, functools.partial) else "load"))
        return each_boot(journal, host, again, *kept)

    monkeypatch.setattr(Journal, "hold", held)
    monkeypatch.setattr(Journal, "each_boot", acts)
    measure(World(), tmp_path / "run")
    (target,) = {host for host, name in made if name == "load"}
    names = [name for host, name in made if host is target]
    order = [names.index(name) for name in ("watch", "IpsecFailClosed", "load", "IscsiTarget")]
    assert order == sorted(order) and target.name == "target"


def test_the_fail_closed_stands_before_charon_and_falls_after_it(usual: Outcome) -> None:
    def places(sign: str, beginning: str) -> list[int]:
        history = enumerate(usual.world.history)
        return [number for number, (s, thing) in history if s == sign and re.match(beginning, thing)]

    fail_closed = r"policy .* proto 6 [sd]port 3260 dir (in|out)$"
    closed, opened = places("+", fail_closed), places("-", fail_closed)
    assert len(closed) == len(opened) == 4  # two directions at two ends
    for other in ("state ", re.escape(f"session {IQN}.wifi")):
        assert max(closed) < min(places("+", other))
        assert min(opened) > max(places("-", other))


def test_everything_made_carries_the_tag_of_the_run_and_is_journalled(usual: Outcome) -> None:
    by_kernel = ("daemon ", "module brd", "state ")  # no name of ours to give
    named = [thing for thing in usual.made if not thing.startswith(by_kernel)]
    others = [thing for thing in named if not thing.startswith("policy ")]
    # xfrm policies have no names; the addresses in them are those of the run's own links.
    ends = r"src 198\.18\.\d+\.[12]/32 dst 198\.18\.\d+\.[12]/32 "
    assert all(re.search(ends, thing) for thing in named if thing not in others)
    assert len(others) > 10 and all(TAG in thing for thing in others)
    journal = usual.journal.path.read_text(encoding="utf-8")
    # As a word of its own, in what it is called or in the steps that undo it.
    whole = [rf"(?<![\w.-]){re.escape(thing.split()[1])}(?![\w.-])" for thing in others]
    assert [name for name in whole if not re.search(name, journal)] == []


def test_a_target_has_a_name_that_lio_takes_whatever_its_link_is_called(tmp_path: Path) -> None:
    wired = msgspec.structs.replace(PLAN.links["wired"], name="my_link.2")
    plan = flat.changed(PLAN, columns=(Column("my_link.2"),), links={"my_link.2": wired})
    outcome = measure(World(), tmp_path / "run", plan)
    assert outcome.error is None
    # RFC 7143, section 4.2.7.2
    assert [t for t in outcome.made if t.startswith("target ")] == [f"target {IQN}.my-link.2.off"]


def test_what_runs_on_the_hosts_starts_saves_and_clears_nothing_by_itself(usual: Outcome) -> None:
    files = usual.world.secret_files
    settings = ("startup = manual", "session.auth.authmethod = CHAP", "session.initial_login_retry_max = 1")
    assert {f"node.{setting}" for setting in settings} <= {*files["/etc/iscsi/iscsid.conf"].splitlines()}
    name = f"InitiatorName={IQN}.initiator1.{CHAP_SECRET[:12]}\n"
    assert files["/etc/iscsi/initiatorname.iscsi"] == name
    programs = {c.argv[-1] for c in usual.world.commands if c.argv[0] == "/usr/bin/python3"}
    assert len(programs) == 2
    (logout,) = programs - {LIO}
    assert not re.search(r"clear_existing|restore|save|clearconfig|rmtree", LIO)
    assert not re.search(r"logoutall|\"-u\"|rmtree|unlink", re.sub(r'"""(?s:.*?)"""', "", logout))
    # The target learns the CHAP secret on standard input.
    creations = [c.input for c in usual.world.commands if c.input and '"create-target"' in c.input]
    assert len(creations) == 2 and all(CHAP_SECRET in request for request in creations)


def test_no_command_reaches_beyond_the_run(tmp_path: Path) -> None:
    for step in (0, *range(40, 200, 20)):  # 0: nothing fails
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
                assert "--interface harness-198.18." in line and f"--targetname {IQN}." in line
            if " delete " in line and "xfrm" in line:
                assert "198.18." in line
            if "deleteall" in line:
                ends = r"src 198\.18\.(\d+)\.[12](/32)? dst 198\.18\.\1\.[12](/32)? "
                policy = rf"xfrm policy deleteall {ends}priority 1000\d$"
                state = rf"xfrm state deleteall {ends}proto esp reqid 120795955\d$"
                assert re.search(policy, line) or re.search(state, line)


@pytest.mark.parametrize("auth", list(IkeAuth))
def test_no_secret_is_seen_in_arguments_journal_or_results(tmp_path: Path, auth: IkeAuth) -> None:
    world = World()
    for name in ("initiator.key", "initiator.crt", "target.key", "target.crt"):
        world.secret_files[f"{tmp_path}/run/private/certificates/{name}"] = f"PRIVATE {name}"
    outcome = measure(world, tmp_path / "run", flat.changed(PLAN, ike_auth=auth))
    assert outcome.error is None and outcome.bad == []
    kept = "".join([*world.secret_files.values(), *map(str, world.vici_messages)])
    known = [CHAP_SECRET, PSK_BYTES.decode() if auth is IkeAuth.PSK else "PRIVATE initiator.key"]
    assert all(secret in kept for secret in known)  # else the search below would find nothing anyway
    seen = [f.read_bytes().decode("utf-8", "replace") for f in (tmp_path / "run").rglob("*") if f.is_file()]
    assert len(seen) > 10
    seen += [*map(str, world.commands), *map(str, outcome.events)]
    for secret in (*known, PSK_BASE64, PSK_BYTES.hex()):
        assert not any(secret in text for text in seen)


def failing(pattern: str) -> World:
    """One in which all such commands fail."""
    return World(broken=lambda command: re.match(pattern, " ".join(command.argv)) is not None)


def test_a_column_that_never_comes_up_is_given_up_and_leaves_the_others_alone(tmp_path: Path) -> None:
    for repeats, broken, why in (
        (3, r"vici initiate$", "did not carry out `initiate`"),
        # So is one without room for its secrets.
        (2, r".*charon\.conf$", "No space left on device"),
    ):
        world = failing(broken)
        outcome = measure(world, tmp_path / str(repeats), flat.changed(PLAN, repeats=repeats))
        assert outcome.error is None
        good = [record.column for record in outcome.records if record.status is Status.OK]
        assert {*good} == {Column("local"), Column("wired")} and len(good) == 4 * repeats
        assert {(record.column, record.status) for record in outcome.bad} == {(SECURED, Status.FAILED)}
        reasons = [record.reason or "" for record in outcome.bad]
        assert all(why in reason for reason in reasons)
        given_up = [reason.startswith("given up after 2 attempts") for reason in reasons]
        assert given_up == [False] * 2 + [True] * (2 * repeats - 2)
        assert len([line for line in world.said if re.match(broken, line)]) == 2
        outcome.assert_nothing_is_left()


def test_a_session_that_does_not_log_out_is_reported_and_all_else_is_released(tmp_path: Path) -> None:
    world = World(broken=lambda command: '"disconnect"' in (command.input or ""))
    journal = measure(world, tmp_path / "run").journal
    why = "IscsiSession was not undone: `/usr/.*it was made to fail"
    assert [bool(re.match(why, leak, re.DOTALL)) for leak in journal.leaks] == [True] * 2
    assert {thing.split()[0] for thing in world.left} == {"session", "node"}
    assert {entry.what.split()[0] for entry in journal.open_entries().values()} == {"IscsiSession"}


def test_policies_and_states_that_stay_are_reported(tmp_path: Path) -> None:
    stubborn = r"ip xfrm (policy|state) delete"
    world = failing(stubborn)
    leaks = measure(world, tmp_path / "run").journal.leaks
    names = [leak.partition(" ")[0] for leak in leaks if "was not undone" in leak]
    assert names == ["SecurityAssociations"] * 8 + ["IpsecFailClosed"] * 2
    seen = [leak for leak in leaks if leak.endswith("is still there")]
    assert sum(leak.startswith("the ESP state src 198.18.1.") for leak in seen) == 2
    assert sum(leak.startswith("the IPsec policy src 198.18.1.") for leak in seen) == 3 + 2
    assert len(seen) + len(names) == len(leaks), "nothing of the user's"
    # Each of them was tried, though the first had failed.
    tried = [c for c in world.commands if c.host == "initiator" and re.match(stubborn, " ".join(c.argv))]
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

    outcome = measure(World(broken=gone), tmp_path / "run")
    *earlier, victim = outcome.records
    assert isinstance(outcome.error, HostLost) and outcome.bad == [victim]
    why = "the target was lost (it takes everything down by itself)"
    assert (victim.status, victim.reason) == (Status.FAILED, why)
    assert victim.order == len(earlier) < 5, "nothing more was measured"
    # What the initiator has is undone; what the target has it undoes by itself.
    assert not [t for t in outcome.world.left if t.startswith(("session", "node", "link"))]


def on_network(command: Command) -> bool:
    return command.argv[0] == "fio" and "/dev/sda" in (command.input or "")


def test_fio_that_fails_makes_the_cell_invalid_and_the_column_is_made_anew(tmp_path: Path) -> None:
    def first_fio(command: Command) -> bool:
        return on_network(command) and sum(map(on_network, world.commands)) == 1

    world = World(broken=first_fio)
    outcome = measure(world, tmp_path / "run")
    (bad,) = outcome.bad
    assert bad.status is Status.INVALID and "status 1: it was made to fail" in (bad.reason or "")
    column = f"session {IQN}.{'wired.off' if bad.column.link == 'wired' else 'wifi.aes128gcm16'}"
    assert [sign for sign, thing in world.history if thing == column] == [*"+-+-"] and not world.left


def test_a_column_that_cannot_be_taken_down_is_reported_and_the_others_are_measured(tmp_path: Path) -> None:
    outcome = measure(World(broken=on_network, undying="tcpdump"), tmp_path / "run")
    status = {record.column.link: record.status for record in outcome.records}
    assert status == {"local": Status.OK, "wired": Status.INVALID, "wifi": Status.INVALID}
    assert outcome.error is None and len(outcome.journal.leaks) == 4  # each column, after each of its cells
    assert "column wired was not taken down: process tcpdump could not be killed" in outcome.journal.leaks


def test_a_ramdisk_module_that_is_loaded_is_refused_and_not_unloaded(tmp_path: Path) -> None:
    world = World()
    world.things["module brd"] = ()
    outcome = measure(world, tmp_path / "before")
    assert isinstance(outcome.error, HarnessError) and "may be somebody else's" in str(outcome.error)
    assert "module brd" in world.things and not outcome.journal.path.exists()
    # It may come at the last moment as well.
    taken = (1, "", "modprobe: ERROR: could not insert 'brd': Module already in kernel")
    outcome = measure(World(answers=[(("modprobe", "--first-time"), taken)]), tmp_path / "late")
    assert "brd is already loaded, so its disks may be somebody else's" in str(outcome.error)
    assert not any(line.startswith("modprobe -r") for line in outcome.world.said)
    assert outcome.journal.open_entries() == {}


def test_a_file_of_the_users_is_refused_and_not_removed(tmp_path: Path) -> None:
    backing = Backing(kind=BackingKind.FILE, size_bytes=1 << 27, path="/srv/precious.img")
    came_late: list[tuple[tuple[str, ...], Answer]] = [
        (("sh", "-c", 'test -e "$1" || test -L "$1"'), (1, "", "")),
        (("sh", "-c", 'set -C; : > "$1"'), (2, "", "sh: 1: cannot create x: File exists")),
    ]
    for answers in ([], came_late):
        place = tmp_path / str(len(answers))
        outcome = measure(World(answers=answers), place, flat.changed(PLAN, backing=backing))
        assert "expected the backing file /srv/precious.img not to exist yet" in str(outcome.error)
        assert not any(command.argv[0] == "rm" for command in outcome.world.commands)
        assert outcome.journal.open_entries() == {}


def test_a_program_that_is_missing_skips_the_cells_that_need_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_tcpdump(*_: object, **__: object) -> None:
        raise RequirementError("expected the program tcpdump, but it is not installed", hint="install it")

    monkeypatch.setattr("harness.protection.capture.capture", no_tcpdump)
    outcome = measure(World(), tmp_path / "run", flat.changed(PLAN, repeats=2))
    found = {(record.column.link, record.status) for record in outcome.records}
    assert found == {("local", Status.OK), ("wired", Status.SKIPPED), ("wifi", Status.SKIPPED)}
    assert all("tcpdump" in (record.reason or "") for record in outcome.bad)
    assert outcome.error is None and outcome.journal.open_entries() == {}


class Own(around.Around):
    """Nothing around a cell."""

    def __init__(self, **parameters: str) -> None:
        self.program, self.parameters = fio_startup.Fio(), parameters

    def while_it_runs(self, *_: object) -> contextlib.AbstractContextManager[None]:
        return contextlib.nullcontext()

    def judged(self, record: Record, *_: object) -> Record:
        return record


def test_a_load_around_something_is_as_long_as_it_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a search the first load is a short one."""
    plan = msgspec.structs.replace(
        PLAN, columns=(Column("wired"),), jobs=(open_loop.at_rate(PLAN.jobs[1], 100, 800.0),)
    )
    monkeypatch.setattr(around, "of", lambda _plan, _cell: Own())
    outcome = measure(World(), tmp_path / "run", plan)
    (job,) = outcome.folder.path.glob("raw/*/job.fio")
    assert "runtime=800000000us" in job.read_text(encoding="utf-8").splitlines()


@pytest.mark.parametrize("breaks_off", [False, True])
def test_a_cell_with_parameters_of_its_own_has_a_session_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, breaks_off: bool
) -> None:
    """Neither one that is up, nor does another cell get its session. What fails with one value may work with
    the next."""
    agreed: list[str] = []

    def agree(asked: Mapping[str, str], _found: Mapping[str, str]) -> None:
        agreed.append(asked.get("replacement_timeout", "none"))
        if breaks_off and "15" in agreed[-1:]:
            raise RequirementError("expected another value")

    of_cells = {("rand-write-4k", 1): "15", ("rand-write-4k", 2): "15", ("rand-write-4k", 3): "5"}
    monkeypatch.setattr(transport, "require_agreed", agree)
    monkeypatch.setattr(
        around,
        "of",
        lambda _plan, cell: (
            Own(replacement_timeout=value) if (value := of_cells.get((cell.workload, cell.repeat))) else None
        ),
    )
    wired = msgspec.structs.replace(PLAN, columns=(Column("wired"),), repeats=3)
    outcome = measure(World(), tmp_path / "run", wired)
    outcome.assert_nothing_is_left()
    values = [of_cells.get((each.workload.name, each.repeat), "none") for each in outcome.records]
    # One session for those between that have none of their own.
    alike = [value for n, value in enumerate(values) if value != "none" or values[n - 1 : n] != ["none"]]
    assert agreed == alike and [each.status is Status.OK for each in outcome.records] == [
        not breaks_off or value != "15" for value in values
    ]
