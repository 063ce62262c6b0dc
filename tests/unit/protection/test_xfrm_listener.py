"""Xfrm listeners: what a host's program makes of the kernel's messages, and how it is asked."""

from __future__ import annotations

import json
import signal
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from unittest import mock

import msgspec
import pytest

from harness.hosts import NamespaceHost, programs
from harness.hosts.programs import netlink
from harness.model.errors import CommandFailed
from harness.protection import xfrm_listener as module
from harness.protection.layer import Carried
from harness.protection.programs import watching
from harness.protection.programs import xfrm_listener as program
from harness.protection.xfrm_listener import (
    ConnectAttempt,
    ListenerReport,
    XfrmListener,
    listeners,
    received,
    sent,
)
from tests.unit.fakes import FakeDaemon, World
from tests.unit.fakes.ipsec import association
from tests.unit.fakes.paths import link_path

NEAR, FAR = "198.18.0.1", "198.18.0.2"


def algorithm(name: str, *bits: int, key_bytes: int) -> bytes:
    return name.encode().ljust(64, b"\0") + struct.pack(f"={len(bits)}I", *bits) + bytes(key_bytes)


GCM = {program.XFRMA_ALG_AEAD: algorithm("rfc4106(gcm(aes))", 160, 128, key_bytes=20)}
CBC = {
    program.XFRMA_ALG_AUTH: algorithm("hmac(sha256)", 256, key_bytes=32),
    program.XFRMA_ALG_CRYPT: algorithm("cbc(aes)", 128, key_bytes=16),
    program.XFRMA_ALG_AUTH_TRUNC: algorithm("hmac(sha256)", 256, 128, key_bytes=32),
}


def info(spi: int = 0xC0FFEE01, carried: int = 0, packets: int = 0, **changes: int) -> bytes:
    """struct xfrm_usersa_info of linux/xfrm.h, field by field."""
    whole = {"reqid": 7, "protocol": 50, "family": socket.AF_INET, "mode": 0, "is_back": False, **changes}
    source, destination = (socket.inet_aton(address) + bytes(12) for address in (NEAR, FAR))
    if whole["is_back"]:
        source, destination = destination, source
    selector, limits, stats, unused = bytes(56), bytes(64), bytes(12), bytes(7)
    identity = destination + struct.pack("!I", spi) + bytes([whole["protocol"], 0, 0, 0]) + source
    current = struct.pack("=QQQQ", carried, packets, 1, 2)
    last = struct.pack("=IIHBBB", 0, whole["reqid"], whole["family"], whole["mode"], 32, 0)
    return selector + identity + limits + current + stats + last + unused


def attributes(more: dict[int, bytes]) -> bytes:
    padded = ((len(data), kind, data + bytes(-len(data) % 4)) for kind, data in more.items())
    return b"".join(struct.pack("=HH", 4 + size, kind) + data for size, kind, data in padded)


def counted(sequence: int) -> dict[int, bytes]:
    return {program.XFRMA_REPLAY: struct.pack("=III", sequence, 0, 0)}


def made(state: bytes, more: dict[int, bytes]) -> tuple[int, bytes]:
    return program.NEW, state + attributes(more)


def deleted(state: bytes, more: dict[int, bytes]) -> bytes:
    return message(program.DELETED, bytes(24) + attributes({program.XFRMA_SA: state, **more}))


def expired(state: bytes, *, hard: bool) -> bytes:
    return message(program.EXPIRED, state + bytes([hard]) + bytes(7))


def message(kind: int, payload: bytes) -> bytes:
    data = struct.pack("=IHHII", 16 + len(payload), kind, 0, 1, 0) + payload
    return data + bytes(-len(data) % 4)


def at_work(spi: int, packets: int = 0, *, since: int = 0) -> tuple[int, bytes]:
    """An association whose packets have 100 bytes, and whose sequence is ahead of them by ``since``."""
    return made(info(spi, 100 * packets, packets), {**GCM, **counted(packets + since)})


def ended(spi: int, packets: int) -> bytes:
    return deleted(info(spi, 100 * packets, packets), {**GCM, **counted(packets)})


class Kernel:
    """A socket that answers dumps with the associations that there are, and one that tells of changes."""

    tell: Callable[[], list[program.State]]
    of: Callable[[bytes, dict[int, bytes]], program.State | None]
    """Both are of the ``Associations`` that ask it."""

    def __init__(self) -> None:
        self.there: list[tuple[int, bytes]] = []
        self.events: list[bytes | OSError] = []

    def send(self, data: bytes) -> int:
        assert struct.unpack_from("=IHH", data) == (16, program.GET, 0x301)
        return len(data)

    def recv(self, _size: int, flags: int = 0) -> bytes:
        if not flags:
            return b"".join(message(*each) for each in self.there) + message(netlink.NLMSG_DONE, bytes(4))
        event = self.events.pop(0) if self.events else BlockingIOError()
        if isinstance(event, OSError):
            raise event
        return event


@pytest.fixture
def kernel(monkeypatch: pytest.MonkeyPatch) -> Kernel:
    fake = Kernel()
    monkeypatch.setattr(program, "opened", lambda _groups: fake)
    monkeypatch.setattr(program, "PATIENCE_S", 0.02)
    watched = program.Associations(7)
    fake.tell, fake.of = watched.tell, watched.of
    return fake


def test_associations_are_reported_by_name_and_number(kernel: Kernel) -> None:
    back = info(0xC0FFEE02, 117_964_800, 81_920, is_back=True, mode=1)
    kernel.there = [
        made(info(0xC0FFEE01, 1_099_832, 21_153), {**GCM, **counted(0x52A1)}),
        made(back, {**CBC, **counted(0)}),
    ]
    first, second = msgspec.convert(kernel.tell(), list[module.SaCounters])
    wanted = association(0xC0FFEE01, NEAR, FAR, 1_099_832, packets=21_153, cipher_bits=(160,))
    assert first == wanted
    more: dict[str, Any] = {"sequence": 0, "algorithms": ("cbc(aes)", "hmac(sha256)"), "mode": "tunnel"}
    more |= {"packets": 81_920, "cipher_bits": (128,)}
    assert second == association(0xC0FFEE02, FAR, NEAR, 117_964_800, **more)
    # struct xfrm_replay_state_esn: bmp_len, oseq, seq, oseq_hi, seq_hi, replay_window.
    replay = {program.XFRMA_REPLAY_ESN: struct.pack("=6I", 1, 5, 6, 2, 0, 32) + bytes(4)}
    kernel.there = [made(info(9), {**GCM, **replay})]
    assert kernel.tell()[-1]["sequence"] == (2 << 32) + 5, "extended ones are whole"


def test_others_are_passed_over_and_keys_are_not_reported(kernel: Kernel) -> None:
    for other in (
        made(info(reqid=8), GCM),  # another path's
        made(info(reqid=0), GCM),
        made(info(protocol=51), GCM),  # AH
        made(info(family=socket.AF_INET6), GCM),
        made(info(), {}),  # waits for its keys
        made(info(spi=0), counted(0)),  # waits for an answer
    ):
        kernel.there = [other]
        kernel.events = [deleted(other[1][:224], {})]
        assert kernel.tell() == []
    secret = {program.XFRMA_ALG_AEAD: GCM[program.XFRMA_ALG_AEAD][:72] + b"\x42" * 20}
    kernel.there = [made(info(), secret)]
    reported = json.dumps(kernel.tell())
    assert "rfc4106" in reported
    assert not any(text in reported for text in ("BBBB", "42424242", "key"))


def packets_of(states: list[program.State]) -> int:
    """Of all, by both ends, with 100 bytes each."""
    found = msgspec.convert(states, list[module.SaCounters])
    out = sent(found, NEAR)
    assert out == received(found, FAR) and out.bytes == 100 * out.packets
    return out.packets


def test_what_ended_counts_with_what_it_had_carried_in_the_end(kernel: Kernel) -> None:
    """As in a rekey: another takes over, and the first is deleted later."""
    kernel.there = [at_work(1, 10)]
    assert packets_of(kernel.tell()) == 10
    kernel.there.append(at_work(2, 3))
    assert packets_of(kernel.tell()) == 13
    kernel.events = [ended(1, 14)]
    del kernel.there[0]
    reported = kernel.tell()
    stated = [(state["spi"], state["ended"], state["missing"]) for state in reported]
    assert stated == [(1, True, False), (2, False, False)]
    assert packets_of(reported) == packets_of(kernel.tell()) == 17, "also later"
    # And what came and went between two questions.
    kernel.events = [message(*made(info(5), GCM)) + ended(5, 7)]
    assert packets_of(kernel.tell()) == 24
    kernel.events = [ended(2, 14)]
    assert packets_of(kernel.tell()) == 35, "a dump that is older than the end does not count for it"


def test_what_reached_the_end_of_its_life_counts_as_well(kernel: Kernel) -> None:
    """The kernel's message has no sequence number; each packet since has had one."""
    kernel.there = [at_work(1, 10, since=2)]
    kernel.tell()
    kernel.events = [expired(info(1, 1100, 11), hard=False)]
    assert kernel.tell()[0]["ended"] is False
    kernel.there = []
    kernel.events = [expired(info(1, 1400, 14), hard=True)]
    (last,) = kernel.tell()
    assert (last["ended"], last["missing"]) == (True, False)
    assert (last["bytes"], last["packets"], last["sequence"]) == (1400, 14, 16)
    kernel.events = [expired(info(9, 1, 1), hard=True)]
    assert len(kernel.tell()) == 1, "one that is not ours"


def missing(kernel: Kernel) -> list[object]:
    return [state["missing"] for state in kernel.tell()]


def test_what_is_gone_without_a_word_is_missing_and_waited_for_once(
    kernel: Kernel, monkeypatch: pytest.MonkeyPatch
) -> None:
    kernel.there = [at_work(spi) for spi in (1, 2, 3)]
    assert missing(kernel) == [False, False, False]
    # Events that the kernel had to drop leave something missing.
    kernel.there, kernel.events = [], [OSError(105, "No buffer space available"), ended(3, 5)]
    assert missing(kernel) == [True, True, False]
    monkeypatch.setattr(program, "PATIENCE_S", 60.0)
    began = time.monotonic()
    for _ in range(20):
        kernel.tell()
    assert time.monotonic() - began < 60
    kernel.there = [at_work(2)]
    assert missing(kernel) == [True, False, False]
    # A last word that comes late is waited for.
    kernel.there = []
    monkeypatch.setattr(time, "sleep", lambda _seconds: kernel.events.append(ended(2, 5)))
    _, state, _ = kernel.tell()
    assert (state["ended"], state["missing"], state["bytes"]) == (True, False, 500)
    kernel.events = [OSError(9, "Bad file descriptor")]
    with pytest.raises(OSError, match="Bad file descriptor"):
        kernel.tell()


def test_messages_that_are_cut_short_are_left(kernel: Kernel) -> None:
    whole = message(*made(info(1), GCM))
    for data in (whole[:10], struct.pack("=IHHII", 0, 1, 0, 0, 0)):
        assert list(netlink.messages(data)) == []
    for data in (b"\0\0\0\0\0\0\0\0", b"ab"):
        assert list(netlink.attributes(data)) == []
    assert kernel.of(info()[:100], GCM) is None
    assert len(list(netlink.messages(whole + whole))) == 2


def test_sums_are_of_one_direction() -> None:
    states = [association(1, NEAR, FAR, 2800), association(2, FAR, NEAR, 14_000)]
    states.append(association(3, NEAR, FAR, 1400, sequence=44))
    # With segmentation offload 44 packets count as one.
    assert sent(states, NEAR) == Carried(packets=46, bytes=4200, repeated_headers=43)
    assert received(states, FAR) == Carried(packets=3, bytes=4200)
    assert sent(states, FAR) == received(states, NEAR) == Carried(packets=10, bytes=14_000)


ANY = ("127.0.0.1", 0)


def test_an_attempt_to_connect_tells_how_it_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(ANY) as server:
        portal = server.getsockname()
        assert program.try_connect(ANY, portal)["error"] == ""
    assert program.try_connect(ANY, portal)["error"] == "ECONNREFUSED"
    assert program.try_connect(("192.0.2.1", 0), portal)["error"] == "EADDRNOTAVAIL"
    counts = iter([3, 4, None, None])
    monkeypatch.setattr(program, "blocked", lambda: next(counts))
    assert [program.try_connect(ANY, portal)["blocked"] for _ in range(2)] == [1, None]
    # Nobody answers, for so long and no longer.
    monkeypatch.setattr(program, "blocked", lambda: None)
    monkeypatch.setattr(program, "CONNECT_S", 0.05)
    with socket.socket() as full:
        full.bind(ANY)
        full.listen(0)
        with socket.create_connection(full.getsockname()):
            assert program.try_connect(ANY, full.getsockname())["error"] == "ETIMEDOUT"


def test_what_policies_blocked_is_counted_where_the_kernel_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file, lines_of = tmp_path / "file", watching.lines_of
    monkeypatch.setattr(program, "lines_of", lambda _path, beginning: lines_of(str(file), beginning))
    assert program.blocked() is None
    file.write_text("XfrmInPolBlock          \t5\nXfrmOutPolBlock         \t17\n", encoding="utf-8")
    assert program.blocked() == 17
    file.write_text("XfrmOther 1\n", encoding="utf-8")
    assert program.blocked() is None
    file.write_text("  eth0: 1\n veth0: 2\neth0:3\n eth01: 4\n", encoding="utf-8")
    assert lines_of(str(file), "eth0:") == "  eth0: 1\neth0:3\n", "an interface's lines are its own"


def look(asked: XfrmListener) -> ListenerReport:
    asked.ask()
    return asked.report()


def test_of_an_end_that_has_booted_its_interfaces_say_what_they_have_counted_since(tmp_path: Path) -> None:
    listener = xfrm_listener(tmp_path, is_dead=True)
    with pytest.raises(CommandFailed, match="but it ended"):
        look(listener)
    listener.boots = 1
    assert " lo:" in (report := look(listener)).before == report.after and not report.states


def test_each_signal_is_answered_by_a_line(tmp_path: Path) -> None:
    """In a process of its own, with a kernel that has no associations."""
    text = programs.source("harness.protection", "xfrm_listener")
    pretend = "def opened(groups):\n    return socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)[0]\n"
    pretend += "Associations.look = lambda self: set()\n"
    begins = repr('if __name__ == "__main__":')[1:-1]
    assert begins in text
    text = text.replace(begins, repr(pretend)[1:-1] + begins)
    output = tmp_path / "answers"
    argv = [sys.executable, "-I", "-S", "-c", text, "lo", "7", "127.0.0.1", "0", "127.0.0.1", "1"]
    with output.open("wb") as out, subprocess.Popen(argv, stdout=out) as process, ExitStack() as stack:
        stack.callback(process.kill)
        daemon = mock.Mock(ended=lambda: process.poll() is not None, signal=process.send_signal)
        asked = XfrmListener(host=NamespaceHost("target"), daemon=daemon, file=output)
        first = asked.report()
        assert first.states == ()
        assert first.before.split()[0] == first.after.split()[0] == "lo:"
        assert "RetransSegs" in first.snmp and "FragCreates" in first.snmp
        assert [look(asked).states for _ in range(3)] == [()] * 3
        asked.ask(module.TRY_CONNECT)
        attempted = asked.attempted()
        assert attempted.error == "ECONNREFUSED" and attempted.blocked in (0, None)
        assert look(asked).states == ()
        assert output.read_bytes().count(b"\n") == 6


def xfrm_listener(
    tmp_path: Path, on_signal: Callable[[int], None] = lambda _number: None, *, is_dead: bool = False
) -> XfrmListener:
    file = tmp_path / "listener.jsonl"
    file.touch()
    file.with_suffix(".log").write_text("PermissionError: no\n", encoding="utf-8")
    daemon = mock.Mock(ended=lambda: is_dead, signal=on_signal)
    return XfrmListener(host=NamespaceHost("target"), daemon=daemon, file=file)


def test_an_answer_may_come_in_pieces(tmp_path: Path) -> None:
    line = b'{"error":"EPERM","blocked":1}\n'

    def answer(number: int) -> None:
        assert number == signal.SIGUSR2
        for part in (line[:9], line[9:]):
            with (tmp_path / "listener.jsonl").open("ab") as file:
                file.write(part)

    asked = xfrm_listener(tmp_path, answer)
    for _ in range(3):
        asked.ask(module.TRY_CONNECT)
        assert asked.attempted() == ConnectAttempt(error="EPERM", blocked=1)


def test_one_that_has_ended_or_does_not_answer_is_given_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(CommandFailed, match=r"the target's xfrm listener .*: PermissionError: no"):
        look(xfrm_listener(tmp_path, is_dead=True))
    monkeypatch.setattr(module, "ANSWER_DEADLINE_S", 0.05)
    with pytest.raises(CommandFailed, match=r"waited 0\.05 s in vain for the target to report what"):
        look(xfrm_listener(tmp_path))


def test_there_is_one_at_each_end_for_as_long_as_the_path_is_watched(tmp_path: Path) -> None:
    world = World()
    world.things |= {"link hbeefi3": (), "netns harness-beef-3": ()}
    path = link_path(world, initiator_address=NEAR, target_address=FAR)
    for number in (1, 2):
        with listeners(path, tmp_path) as both:
            assert [type(report) for report in both.look()] == [ListenerReport, ListenerReport]
            daemons = [each.daemon for each in both.ends]
            assert all(isinstance(daemon, FakeDaemon) for daemon in daemons)
            assert len(world.left) == 2 + 2
        assert (tmp_path / f"xfrm_listener-target-{number}.jsonl").read_bytes().count(b"\n") == 2
    reqid = str(module.REQID + 3)
    near, far = (command.argv[-6:] for command in world.commands[:2])
    assert near == ("hbeefi3", reqid, NEAR, "0", FAR, "3260")
    assert far == ("hbeeft3", reqid, FAR, "3260", NEAR, "9")
