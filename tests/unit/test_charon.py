"""charon: what it is told by VICI, and what becomes of its answers; a socket here stands for its own."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from vici.protocol import Message, Packet, Transport

from harness import charon
from harness.charon import Charon
from harness.errors import CommandFailed, HostLost
from harness.hosts import NamespaceHost
from tests.unit.fakes import World

PATIENCE_S = 10.0


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


def test_a_command_that_charon_does_not_know_is_told_of(tmp_path: Path) -> None:
    with (
        daemon(tmp_path, lambda _: iter([bytes([Packet.CMD_UNKNOWN])])) as found,
        pytest.raises(CommandFailed, match=r"answer `load-key`, but: it does not know `load-key`"),
    ):
        found.charon().ask("load-key")


def test_a_charon_that_says_nothing_is_not_waited_for_longer_than_asked(tmp_path: Path) -> None:
    with (
        daemon(tmp_path, lambda _: iter([log("at work")])) as found,
        pytest.raises(CommandFailed, match=r"charon on the nas was expected to answer `stats`, but: timed"),
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


def test_it_runs_beside_another_ike_daemon_and_changes_nothing_of_the_machine(
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
