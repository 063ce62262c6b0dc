"""charon: what it is told by VICI, and what becomes of its answers; a socket here stands for its own."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from vici.protocol import Message, Packet, Transport

from harness.hosts import NamespaceHost
from harness.model.errors import CommandFailed, HostLost
from harness.protection.ipsec import charon
from harness.protection.ipsec.charon import Charon
from tests.unit.fakes import World

PATIENCE_S = 60.0


@dataclass(frozen=True)
class LostHost(NamespaceHost):
    """One that cannot be reached any more."""

    def read_files(self, paths: Sequence[str]) -> list[str]:
        del paths
        raise HostLost("the nas was lost")


Answer = Callable[[str], Iterator[bytes]]
"""What is answered to a command: packets."""


@dataclass
class Daemon:
    """What listens on a socket as charon does, and what it was asked."""

    socket: Path
    asked: list[tuple[str, Mapping[str, Any]]] = field(default_factory=list)

    def charon(self, host: NamespaceHost | None = None) -> Charon:
        return Charon(host=host or NamespaceHost("nas"), socket=self.socket)


@contextlib.contextmanager
def daemon(place: Path, answer: Answer) -> Iterator[Daemon]:
    """Answer one connection."""
    found = Daemon(place / "charon.vici")

    def serve() -> None:
        connection, _ = listener.accept()
        with connection, contextlib.suppress(OSError):
            connection.settimeout(PATIENCE_S)
            transport = Transport(connection)
            while True:
                kind, length, *rest = transport.receive()
                name, body = bytes(rest[:length]).decode(), bytes(rest[length:])
                if kind == Packet.EVENT_REGISTER:
                    transport.send(bytes([Packet.EVENT_CONFIRM]))
                    continue
                found.asked.append((name, Message.deserialize(_stream(body))))
                for packet in answer(name):
                    transport.send(packet)

    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(found.socket))
        listener.listen()
        listener.settimeout(PATIENCE_S)
        serving = threading.Thread(target=serve)
        serving.start()
        yield found
        serving.join()


def _stream(body: bytes) -> Any:
    return Packet.parse(bytes([Packet.CMD_RESPONSE]) + body).payload


def response(**message: Any) -> bytes:
    return bytes([Packet.CMD_RESPONSE]) + bytes(Message.serialize(message))


def log(text: str) -> bytes:
    name = b"control-log"
    body = bytes(Message.serialize({"group": "IKE", "level": "1", "msg": text}))
    return bytes([Packet.EVENT, len(name)]) + name + body


def test_a_command_reaches_charon_as_it_was_given(tmp_path: Path) -> None:
    connection = {"local_addrs": ["192.0.2.1"], "children": {"c": {"reqid": 7, "local_ts": ["a", "b"]}}}
    with daemon(tmp_path, lambda _: iter([log("loaded"), response(success="yes")])) as found:
        found.charon().ask("load-conn", {"c": connection})
    as_sent = {"local_addrs": [b"192.0.2.1"], "children": {"c": {"reqid": b"7", "local_ts": [b"a", b"b"]}}}
    assert found.asked == [("load-conn", {"c": as_sent})]


def test_an_answer_without_a_verdict_is_a_good_one(tmp_path: Path) -> None:
    with daemon(tmp_path, lambda _: iter([response(uptime={"running": "1 second"})])) as found:
        assert found.charon().answers()


def test_a_refusal_has_charons_reason_and_its_last_words(tmp_path: Path) -> None:
    words = [
        "initiating IKE_SA c[1] to 192.0.2.2",
        "generating IKE_SA_INIT request 0 [ SA KE No ]",
        "sending packet: from 192.0.2.1[4711] to 192.0.2.2[3264] (272 bytes)",
        "received packet: from 192.0.2.2[3264] to 192.0.2.1[4711] (36 bytes)",
        "parsed IKE_SA_INIT response 0 [ N(NO_PROP) ]",
        "received NO_PROPOSAL_CHOSEN notify error",
    ]
    refusal = response(success="no", errmsg="establishing CHILD_SA 'c' failed")
    with (
        daemon(tmp_path, lambda _: iter([*map(log, words), refusal])) as found,
        pytest.raises(CommandFailed) as refused,
    ):
        found.charon().ask("initiate", {"child": "c"})
    assert refused.value.message == (
        "charon on the nas did not carry out `initiate`: establishing CHILD_SA 'c' failed / "
        "initiating IKE_SA c[1] to 192.0.2.2 / received NO_PROPOSAL_CHOSEN notify error"
    )
    assert refused.value.hint is None


def test_a_peer_that_does_not_answer_may_be_behind_a_firewall(tmp_path: Path) -> None:
    packet = "sending packet: from 192.0.2.1[4711] to 192.0.2.2[3264] (272 bytes)"
    words = ["initiating IKE_SA c[1]", packet, "retransmit 1 of request with message ID 0", packet]
    refusal = response(success="no", errmsg="CHILD_SA 'c' not established after 15000ms")
    with (
        daemon(tmp_path, lambda _: iter([*map(log, words), refusal])) as found,
        pytest.raises(CommandFailed, match="not established after 15000ms") as refused,
    ):
        found.charon().ask("initiate", {"child": "c"})
    assert refused.value.hint == ("nothing came back from 192.0.2.2, UDP port 3264: does a firewall drop it?")
    assert "retransmit" not in refused.value.message


def test_a_command_that_charon_does_not_know_is_reported(tmp_path: Path) -> None:
    with (
        daemon(tmp_path, lambda _: iter([bytes([Packet.CMD_UNKNOWN])])) as found,
        pytest.raises(CommandFailed, match=r"answer `load-key`: it does not know `load-key`"),
    ):
        found.charon().ask("load-key")


def test_a_charon_that_says_nothing_is_not_waited_for_longer_than_asked(tmp_path: Path) -> None:
    with (
        daemon(tmp_path, lambda _: iter([log("at work")])) as found,
        pytest.raises(CommandFailed, match=r"expected charon on the nas to answer `stats`: timed"),
    ):
        found.charon().ask("stats", within_s=0.1)


def test_a_charon_that_is_not_there_does_not_answer(tmp_path: Path) -> None:
    absent = Charon(host=NamespaceHost("nas"), socket=tmp_path / "charon.vici")
    assert not absent.answers()
    with pytest.raises(CommandFailed, match="No such file"):
        absent.ask("stats")


def test_a_charon_on_a_host_that_is_lost_is_not_to_blame(tmp_path: Path) -> None:
    with pytest.raises(HostLost):
        Charon(host=LostHost("nas"), socket=tmp_path / "charon.vici").ask("stats")


def test_it_runs_with_another_ike_daemon_and_changes_nothing_of_the_machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = World(secret_files={charon.ACQUIRE_EXPIRES: "30\n"})
    monkeypatch.setattr(Charon, "ask", lambda asked, *words, **more: world.ask(asked, *words, **more))
    place = tmp_path / "charon-target"
    with charon.running(world.host("target"), place, log=tmp_path / "log", plugins="vici", port=3264):
        conf = world.secret_files[str(place / "charon.conf")].split("\n")
    settings = dict(line.strip().split(" = ") for line in conf if " = " in line)
    assert settings["port"] == "3264"
    assert settings["port_nat_t"] == "0", "not 4500"
    assert (settings["install_routes"], settings["routing_table"]) == ("no", "0")
    assert settings["xfrm_acq_expires"] == "30", "what was there"
    assert settings["socket"] == "unix:///run/charon.vici"
    (start,) = [c.argv for c in world.commands if c.argv[0] == "daemon"]
    assert start[1:3] == ("unshare", "--mount"), "the folder is /run for it alone"
    assert start[-2:] == (str(place), charon.PROGRAM)
    assert world.left == set()


# One that means harm


def raw(data: bytes) -> Answer:
    return lambda _name: iter([data])


NONSENSE = {
    "nothing": b"",
    "a kind that there is not": b"\xff",
    "an event without a name": bytes([Packet.EVENT]),
    "an event of another name": bytes([Packet.EVENT, 200]) + b"x",
    "a key that is no text": bytes([Packet.CMD_RESPONSE, 3, 2]) + b"\xff\xfe" + b"\0\1x",
    "an end of what has not begun": bytes([Packet.CMD_RESPONSE, 2, 6, 4]),
}


@pytest.mark.parametrize("data", NONSENSE.values(), ids=list(NONSENSE))
def test_what_is_no_vici_is_an_error_in_a_sentence(tmp_path: Path, data: bytes) -> None:
    with (
        daemon(tmp_path, raw(data)) as found,
        pytest.raises(CommandFailed, match="expected charon on the nas to answer `stats`: "),
    ):
        found.charon().ask("stats", within_s=1)


@pytest.mark.parametrize("reason", ["\x1b[2J", ["a", "b"], {"a": "b"}], ids=str)
def test_reasons_of_another_type_are_a_refusal_all_the_same(tmp_path: Path, reason: object) -> None:
    with (
        daemon(tmp_path, raw(response(success="no", errmsg=reason))) as found,
        pytest.raises(CommandFailed) as error,
    ):
        found.charon().ask("stats", within_s=1)
    assert error.value.message.isprintable()


def serving(place: Path, harm: Callable[[socket.socket], None]) -> tuple[Charon, threading.Thread]:
    """What accepts a connection and then does harm."""
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(place / "charon.vici"))
    listener.listen()

    def serve() -> None:
        with listener, listener.accept()[0] as connection, contextlib.suppress(OSError):
            harm(connection)

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    return Charon(host=NamespaceHost("nas"), socket=place / "charon.vici"), thread


def test_a_packet_larger_than_all_is_not_read(tmp_path: Path) -> None:
    def harm(connection: socket.socket) -> None:
        connection.sendall(b"\xff\xff\xff\xff")
        while True:
            connection.sendall(b"x" * 65536)

    asked, thread = serving(tmp_path, harm)
    with pytest.raises(CommandFailed, match="a packet of 4294967295 bytes"):
        asked.ask("stats")
    thread.join(PATIENCE_S)


def test_a_packet_that_does_not_go_on_is_not_waited_for(tmp_path: Path) -> None:
    def harm(connection: socket.socket) -> None:
        connection.sendall(b"\0\0\1\0x")
        connection.recv(1 << 16)
        time.sleep(PATIENCE_S)

    asked, _ = serving(tmp_path, harm)
    with pytest.raises(CommandFailed, match="timed out"):
        asked.ask("stats", within_s=0.3)


def test_events_without_end_are_not_listened_to_for_ever(tmp_path: Path) -> None:
    line = log("x" * 100)
    packet = len(line).to_bytes(4, "big") + line

    def harm(connection: socket.socket) -> None:
        while True:
            connection.sendall(packet)

    asked, thread = serving(tmp_path, harm)
    with pytest.raises(CommandFailed, match="timed out"):
        asked.ask("stats", within_s=0.5)
    thread.join(PATIENCE_S)
