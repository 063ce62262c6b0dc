"""Witnesses: what a host's program makes of the kernel's messages, and how it is asked."""

from __future__ import annotations

import json
import signal
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest

from harness.hosts import programs
from harness.hosts.programs import netlink
from harness.model.errors import CommandFailed
from harness.protection import witness as module
from harness.protection.layer import Carried
from harness.protection.programs import watching
from harness.protection.programs import witness as program
from harness.protection.witness import (
    REQID,
    ConnectAttempt,
    Witness,
    WitnessReport,
    received,
    sent,
    witnesses,
)
from tests.unit.fakes import FakeDaemon, World
from tests.unit.fakes.ipsec import association
from tests.unit.fakes.paths import link_path

NEAR, FAR = "198.18.0.1", "198.18.0.2"
GCM = {
    program.XFRMA_ALG_AEAD: b"rfc4106(gcm(aes))".ljust(64, b"\0") + struct.pack("=II", 160, 128) + bytes(20)
}
CBC = {
    program.XFRMA_ALG_AUTH: b"hmac(sha256)".ljust(64, b"\0") + struct.pack("=I", 256) + bytes(32),
    program.XFRMA_ALG_CRYPT: b"cbc(aes)".ljust(64, b"\0") + struct.pack("=I", 128) + bytes(16),
    program.XFRMA_ALG_AUTH_TRUNC: b"hmac(sha256)".ljust(64, b"\0") + struct.pack("=II", 256, 128) + bytes(32),
}


def info(
    spi: int = 0xC0FFEE01,
    carried: int = 0,
    packets: int = 0,
    *,
    source: str = NEAR,
    destination: str = FAR,
    reqid: int = 7,
    protocol: int = 50,
    family: int = socket.AF_INET,
    mode: int = 0,
) -> bytes:
    """struct xfrm_usersa_info of linux/xfrm.h, field by field."""
    selector = bytes(56)
    identity = socket.inet_aton(destination) + bytes(12) + struct.pack("!I", spi) + bytes([protocol, 0, 0, 0])
    limits = bytes(64)
    current = struct.pack("=QQQQ", carried, packets, 1, 2)
    stats = bytes(12)
    last = struct.pack("=IIHBBB", 0, reqid, family, mode, 32, 0)
    return (
        selector
        + identity
        + socket.inet_aton(source)
        + bytes(12)
        + limits
        + current
        + stats
        + last
        + bytes(7)
    )


def attributes(more: dict[int, bytes]) -> bytes:
    return b"".join(
        struct.pack("=HH", 4 + len(data), kind) + data + bytes(-len(data) % 4) for kind, data in more.items()
    )


def counted(sequence: int) -> dict[int, bytes]:
    return {program.XFRMA_REPLAY: struct.pack("=III", sequence, 0, 0)}


def made(state: bytes, more: dict[int, bytes]) -> tuple[int, bytes]:
    return program.NEW, state + attributes(more)


def deleted(state: bytes, more: dict[int, bytes]) -> tuple[int, bytes]:
    return program.DELETED, bytes(24) + attributes({program.XFRMA_SA: state, **more})


def expired(state: bytes, *, hard: bool) -> tuple[int, bytes]:
    return program.EXPIRED, state + bytes([hard]) + bytes(7)


def message(kind: int, payload: bytes) -> bytes:
    data = struct.pack("=IHHII", 16 + len(payload), kind, 0, 1, 0) + payload
    return data + bytes(-len(data) % 4)


class Kernel:
    """A socket that answers dumps with the associations that there are, and one that tells of changes."""

    def __init__(self) -> None:
        self.there: list[tuple[int, bytes]] = []
        self.events: list[bytes | OSError] = []
        self.asked = 0

    def send(self, data: bytes) -> int:
        assert struct.unpack_from("=IHH", data) == (16, program.GET, 0x301)
        self.asked += 1
        return len(data)

    def recv(self, size: int, flags: int = 0) -> bytes:
        del size
        if not flags:
            return b"".join(message(*each) for each in self.there) + message(netlink.NLMSG_DONE, bytes(4))
        if not self.events:
            raise BlockingIOError
        event = self.events.pop(0)
        if isinstance(event, OSError):
            raise event
        return event


@pytest.fixture
def kernel(monkeypatch: pytest.MonkeyPatch) -> Kernel:
    fake = Kernel()
    monkeypatch.setattr(program, "opened", lambda _groups: fake)
    monkeypatch.setattr(program, "PATIENCE_S", 0.02)
    return fake


def test_associations_are_reported_by_name_and_number(kernel: Kernel) -> None:
    kernel.there = [
        made(info(0xC0FFEE01, 1_099_832, 21_153), {**GCM, **counted(0x52A1)}),
        made(
            info(0xC0FFEE02, 117_964_800, 81_920, source=FAR, destination=NEAR, mode=1), {**CBC, **counted(0)}
        ),
    ]
    found = msgspec.convert(program.Associations(7).tell(), list[module.SaCounters])
    assert found == [
        msgspec.structs.replace(
            association(0xC0FFEE01, NEAR, FAR, 1_099_832, packets=21_153), cipher_bits=(160,)
        ),
        msgspec.structs.replace(
            association(0xC0FFEE02, FAR, NEAR, 117_964_800, packets=81_920),
            sequence=0,
            algorithms=("cbc(aes)", "hmac(sha256)"),
            mode="tunnel",
            cipher_bits=(128,),
        ),
    ]


def test_extended_sequence_numbers_are_whole(kernel: Kernel) -> None:
    """struct xfrm_replay_state_esn: bmp_len, oseq, seq, oseq_hi, seq_hi, replay_window."""
    replay = {program.XFRMA_REPLAY_ESN: struct.pack("=6I", 1, 5, 6, 2, 0, 32) + bytes(4)}
    kernel.there = [made(info(), {**GCM, **replay})]
    assert program.Associations(7).tell()[0]["sequence"] == (2 << 32) + 5


@pytest.mark.parametrize(
    "other",
    [
        made(info(reqid=8), GCM),
        made(info(reqid=0), GCM),
        made(info(protocol=51), GCM),
        made(info(family=socket.AF_INET6), GCM),
        made(info(), {}),
        made(info(spi=0), counted(0)),
    ],
    ids=["another path's", "no reqid", "AH", "IPv6", "waits for its keys", "waits for an answer"],
)
def test_others_are_passed_over(kernel: Kernel, other: tuple[int, bytes]) -> None:
    kernel.there = [other]
    kernel.events = [message(*deleted(other[1][:224], {}))]
    assert program.Associations(7).tell() == []


def test_keys_are_not_reported(kernel: Kernel) -> None:
    key = b"\x42" * 20
    secret = {program.XFRMA_ALG_AEAD: GCM[program.XFRMA_ALG_AEAD][:72] + key}
    kernel.there = [made(info(), secret)]
    reported = json.dumps(program.Associations(7).tell())
    assert "rfc4106" in reported
    assert not any(text in reported for text in ("BBBB", "42424242", "key"))


def totals(states: list[program.State]) -> tuple[Carried, Carried]:
    found = msgspec.convert(states, list[module.SaCounters])
    return sent(found, NEAR), received(found, FAR)


def test_what_ended_counts_with_what_it_had_carried_in_the_end(kernel: Kernel) -> None:
    """As in a rekey: another takes over, and the first is deleted later."""
    watched = program.Associations(7)
    kernel.there = [made(info(1, 1000, 10), {**GCM, **counted(10)})]
    assert totals(watched.tell()) == (Carried(packets=10, bytes=1000),) * 2
    kernel.there.append(made(info(2, 300, 3), {**GCM, **counted(3)}))
    assert totals(watched.tell()) == (Carried(packets=13, bytes=1300),) * 2
    kernel.events = [message(*deleted(info(1, 1400, 14), {**GCM, **counted(14)}))]
    del kernel.there[0]
    reported = watched.tell()
    assert totals(reported) == (Carried(packets=17, bytes=1700),) * 2
    assert [(state["spi"], state["ended"], state["missing"]) for state in reported] == [
        (1, True, False),
        (2, False, False),
    ]
    assert totals(watched.tell()) == (Carried(packets=17, bytes=1700),) * 2, "also later"


def test_what_came_and_went_between_two_questions_counts(kernel: Kernel) -> None:
    watched = program.Associations(7)
    kernel.events = [message(*made(info(1), GCM)) + message(*deleted(info(1, 700, 7), {**GCM, **counted(7)}))]
    assert totals(watched.tell()) == (Carried(packets=7, bytes=700),) * 2


def test_a_dump_that_is_older_than_the_end_does_not_count_for_it(kernel: Kernel) -> None:
    watched = program.Associations(7)
    kernel.there = [made(info(1, 1000, 10), {**GCM, **counted(10)})]
    watched.tell()
    kernel.events = [message(*deleted(info(1, 1400, 14), {**GCM, **counted(14)}))]
    assert totals(watched.tell()) == (Carried(packets=14, bytes=1400),) * 2


def test_what_reached_the_end_of_its_life_counts_as_well(kernel: Kernel) -> None:
    """The kernel's message has no sequence number; each packet since has had one."""
    watched = program.Associations(7)
    kernel.there = [made(info(1, 1000, 10), {**GCM, **counted(12)})]
    watched.tell()
    kernel.events = [message(*expired(info(1, 1100, 11), hard=False))]
    assert watched.tell()[0]["ended"] is False
    kernel.there = []
    kernel.events = [message(*expired(info(1, 1400, 14), hard=True))]
    (last,) = watched.tell()
    assert (last["ended"], last["missing"]) == (True, False)
    assert (last["bytes"], last["packets"], last["sequence"]) == (1400, 14, 16)
    kernel.events = [message(*expired(info(9, 1, 1), hard=True))]
    assert len(watched.tell()) == 1, "one that is not ours"


def test_what_is_gone_without_a_word_is_missing_and_waited_for_once(
    kernel: Kernel, monkeypatch: pytest.MonkeyPatch
) -> None:
    watched = program.Associations(7)
    kernel.there = [made(info(1, 1000, 10), GCM), made(info(2), GCM)]
    watched.tell()
    kernel.there = []
    assert [state["missing"] for state in watched.tell()] == [True, True]
    monkeypatch.setattr(program, "PATIENCE_S", 60.0)
    began = time.monotonic()
    for _ in range(20):
        watched.tell()
    assert time.monotonic() - began < 60
    kernel.there = [made(info(2), GCM)]
    assert [state["missing"] for state in watched.tell()] == [True, False]


def test_a_last_word_that_comes_late_is_waited_for(kernel: Kernel, monkeypatch: pytest.MonkeyPatch) -> None:
    watched = program.Associations(7)
    kernel.there = [made(info(1), GCM)]
    watched.tell()
    kernel.there = []

    def comes(_seconds: float) -> None:
        kernel.events.append(message(*deleted(info(1, 500, 5), {**GCM, **counted(5)})))

    monkeypatch.setattr(time, "sleep", comes)
    (state,) = watched.tell()
    assert (state["ended"], state["missing"], state["bytes"]) == (True, False, 500)


def test_events_that_the_kernel_had_to_drop_leave_something_missing(kernel: Kernel) -> None:
    watched = program.Associations(7)
    kernel.there = [made(info(1), GCM), made(info(2), GCM)]
    watched.tell()
    kernel.there = []
    kernel.events = [OSError(105, "No buffer space available"), message(*deleted(info(2, 5, 5), GCM))]
    assert [state["missing"] for state in watched.tell()] == [True, False]
    kernel.events = [OSError(9, "Bad file descriptor")]
    with pytest.raises(OSError, match="Bad file descriptor"):
        watched.tell()


def test_messages_that_are_cut_short_are_left(kernel: Kernel) -> None:
    whole = message(*made(info(1), GCM))
    for data in (whole[:10], struct.pack("=IHHII", 0, 1, 0, 0, 0)):
        assert list(netlink.messages(data)) == []
    for data in (b"\0\0\0\0\0\0\0\0", b"ab"):
        assert list(netlink.attributes(data)) == []
    assert program.Associations(7).of(info()[:100], GCM) is None
    assert len(list(netlink.messages(whole + whole))) == 2
    del kernel


def test_sums_are_of_one_direction() -> None:
    states = [association(1, NEAR, FAR, 2800), association(2, FAR, NEAR, 14_000)]
    states.append(msgspec.structs.replace(association(3, NEAR, FAR, 1400), sequence=44))
    assert sent(states, NEAR) == Carried(packets=46, bytes=4200, repeated_headers=43), (
        "with segmentation offload 44 packets count as one"
    )
    assert received(states, FAR) == Carried(packets=3, bytes=4200)
    assert sent(states, FAR) == received(states, NEAR) == Carried(packets=10, bytes=14_000)


# Attempts to connect


def test_a_knock_tells_how_it_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        assert program.try_connect(("127.0.0.1", 0), ("127.0.0.1", port))["error"] == ""
    assert program.try_connect(("127.0.0.1", 0), ("127.0.0.1", port))["error"] == "ECONNREFUSED"
    assert program.try_connect(("192.0.2.1", 0), ("127.0.0.1", port))["error"] == "EADDRNOTAVAIL"
    counts = iter([3, 4])
    monkeypatch.setattr(program, "blocked", lambda: next(counts))
    assert program.try_connect(("127.0.0.1", 0), ("127.0.0.1", port))["blocked"] == 1
    monkeypatch.setattr(program, "blocked", lambda: None)
    assert program.try_connect(("127.0.0.1", 0), ("127.0.0.1", port))["blocked"] is None


def test_nobody_answers_for_so_long_and_no_longer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(program, "KNOCK_S", 0.05)
    with socket.socket() as full:
        full.bind(("127.0.0.1", 0))
        full.listen(0)
        port = full.getsockname()[1]
        with socket.create_connection(("127.0.0.1", port)):
            assert program.try_connect(("127.0.0.1", 0), ("127.0.0.1", port))["error"] == "ETIMEDOUT"


def test_what_policies_blocked_is_counted_where_the_kernel_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "xfrm_stat"
    monkeypatch.setattr(program, "lines_of", lambda _path, beginning: LINES_OF(str(file), beginning))
    assert program.blocked() is None
    file.write_text("XfrmInPolBlock          \t5\nXfrmOutPolBlock         \t17\n", encoding="utf-8")
    assert program.blocked() == 17
    file.write_text("XfrmOther 1\n", encoding="utf-8")
    assert program.blocked() is None


LINES_OF = watching.lines_of


def test_the_lines_of_an_interface_are_its_own(tmp_path: Path) -> None:
    file = tmp_path / "dev"
    file.write_text("  eth0: 1\n veth0: 2\neth0:3\n eth01: 4\n", encoding="utf-8")
    assert LINES_OF(str(file), "eth0:") == "  eth0: 1\neth0:3\n"


# The program as it is started


@pytest.fixture
def started(tmp_path: Path) -> Iterator[tuple[subprocess.Popen[bytes], Path]]:
    """It, in a process of its own, with a kernel that has no associations."""
    text = programs.source("harness.protection", "witness")
    pretend = "def opened(groups):\n    return socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)[0]\n"
    pretend += "Associations.look = lambda self: set()\n"
    begins = repr('if __name__ == "__main__":')[1:-1]
    assert begins in text
    text = text.replace(begins, repr(pretend)[1:-1] + begins)
    output = tmp_path / "answers"
    argv = [sys.executable, "-I", "-S", "-c", text, "lo", "7", "127.0.0.1", "0", "127.0.0.1", "1"]
    with output.open("wb") as out, subprocess.Popen(argv, stdout=out) as process:
        yield process, output
        process.kill()


class Child:
    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self.process = process

    def ended(self) -> bool:
        return self.process.poll() is not None

    def signal(self, number: int) -> None:
        self.process.send_signal(number)


def look(asked: Witness) -> WitnessReport:
    asked.ask()
    return asked.report()


def test_each_signal_is_answered_by_a_line(started: tuple[subprocess.Popen[bytes], Path]) -> None:
    process, output = started
    asked = Witness(name="target", daemon=Child(process), file=output)
    first = asked.report()
    assert first.states == ()
    assert first.before.split()[0] == "lo:" and first.after.split()[0] == "lo:"
    assert "RetransSegs" in first.snmp and "FragCreates" in first.snmp
    for _ in range(3):
        assert look(asked).states == ()
    asked.ask(module.TRY_CONNECT)
    attempted = asked.attempted()
    assert attempted.error == "ECONNREFUSED" and attempted.blocked in (0, None)
    assert look(asked).states == ()
    assert output.read_bytes().count(b"\n") == 6


# How it is asked


def witness(tmp_path: Path, on_signal: Callable[[int], None] = lambda _number: None) -> Witness:
    class Daemon:
        is_dead = False

        def ended(self) -> bool:
            return self.is_dead

        def signal(self, number: int) -> None:
            on_signal(number)

    file = tmp_path / "witness.jsonl"
    file.touch()
    file.with_suffix(".log").write_text("PermissionError: no\n", encoding="utf-8")
    return Witness(name="target", daemon=Daemon(), file=file)


def test_an_answer_may_come_in_pieces(tmp_path: Path) -> None:
    line = b'{"error":"EPERM","blocked":1}\n'

    def answer(number: int) -> None:
        assert number == signal.SIGUSR2
        for part in (line[:9], line[9:]):
            with (tmp_path / "witness.jsonl").open("ab") as file:
                file.write(part)

    asked = witness(tmp_path, answer)
    for _ in range(3):
        asked.ask(module.TRY_CONNECT)
        assert asked.attempted() == ConnectAttempt(error="EPERM", blocked=1)


def test_one_that_has_ended_is_reported(tmp_path: Path) -> None:
    asked = witness(tmp_path)
    asked.daemon.is_dead = True  # type: ignore[attr-defined]
    with pytest.raises(CommandFailed, match=r"the target's witness .*: PermissionError: no"):
        look(asked)


def test_one_that_does_not_answer_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "ANSWER_DEADLINE_S", 0.05)
    with pytest.raises(CommandFailed, match=r"waited 0\.05 s in vain for the target to report what"):
        look(witness(tmp_path))


def test_there_is_one_at_each_end_for_as_long_as_the_path_is_watched(tmp_path: Path) -> None:
    world = World()
    world.things |= {"link hbeefi3": (), "netns harness-beef-3": ()}
    path = link_path(world, initiator_address=NEAR, target_address=FAR)
    for number in (1, 2):
        with witnesses(path, tmp_path) as both:
            assert [type(report) for report in both.look()] == [WitnessReport, WitnessReport]
            daemons = [each.daemon for each in both.ends]
            assert all(isinstance(daemon, FakeDaemon) for daemon in daemons)
            assert len(world.left) == 2 + 2
        assert (tmp_path / f"witness-target-{number}.jsonl").read_bytes().count(b"\n") == 2
    arguments = [command.argv[-6:] for command in world.commands[:2]]
    assert arguments == [
        ("hbeefi3", str(REQID + 3), NEAR, "0", FAR, "3260"),
        ("hbeeft3", str(REQID + 3), FAR, "3260", NEAR, "9"),
    ]
