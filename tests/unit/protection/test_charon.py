"""charon: what it is told by VICI, and what becomes of its answers; a socket here stands for its own."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from vici.protocol import Message, Packet, Transport

from harness.hosts import NamespaceHost
from harness.model.errors import CommandFailed, HostLost
from harness.protection.ipsec import charon
from harness.protection.ipsec.charon import Charon
from tests.unit.fakes import World

PATIENCE_S = 60.0


Asked = list[tuple[str, Mapping[str, Any]]]
"""What charon was asked: commands and their messages."""


@contextlib.contextmanager
def serving(place: Path, serve: Callable[[socket.socket], None]) -> Iterator[Charon]:
    """What listens on a socket as charon does, for one connection."""

    def accept() -> None:
        with listener.accept()[0] as connection, contextlib.suppress(OSError):
            connection.settimeout(PATIENCE_S)
            serve(connection)

    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(place / "charon.vici"))
        listener.listen()
        listener.settimeout(PATIENCE_S)
        thread = threading.Thread(target=accept, daemon=True)
        thread.start()
        yield Charon(host=NamespaceHost("nas"), socket=place / "charon.vici", log=place / "log")
        thread.join(PATIENCE_S)
        (place / "charon.vici").unlink()


@contextlib.contextmanager
def daemon(place: Path, *packets: bytes) -> Iterator[tuple[Charon, Asked]]:
    """Answer each command with these packets."""
    asked: Asked = []

    def serve(connection: socket.socket) -> None:
        transport = Transport(connection)
        while True:
            kind, length, *rest = transport.receive()
            if kind == Packet.EVENT_REGISTER:
                transport.send(bytes([Packet.EVENT_CONFIRM]))
                continue
            name, body = bytes(rest[:length]).decode(), bytes([Packet.CMD_RESPONSE, *rest[length:]])
            asked.append((name, Message.deserialize(Packet.parse(body).payload)))
            for packet in packets:
                transport.send(packet)

    with serving(place, serve) as charon:
        yield charon, asked


def refused(
    place: Path, command: str, *packets: bytes, match: str = "charon", within_s: float = 15
) -> CommandFailed:
    """What is said of a command that is answered like this."""
    with daemon(place, *packets) as (asked, _), pytest.raises(CommandFailed, match=match) as error:
        asked.ask(command, within_s=within_s)
    return error.value


def response(**message: Any) -> bytes:
    return bytes([Packet.CMD_RESPONSE]) + bytes(Message.serialize(message))


def log(text: str) -> bytes:
    body = bytes(Message.serialize({"group": "IKE", "level": "1", "msg": text}))
    return bytes([Packet.EVENT, 11]) + b"control-log" + body


def test_a_command_reaches_charon_as_it_was_given(tmp_path: Path) -> None:
    connection = {"local_addrs": ["192.0.2.1"], "children": {"c": {"reqid": 7, "local_ts": ["a", "b"]}}}
    with daemon(tmp_path, log("loaded"), response(success="yes")) as (charon, asked):
        charon.ask("load-conn", {"c": connection})
    as_sent = {"local_addrs": [b"192.0.2.1"], "children": {"c": {"reqid": b"7", "local_ts": [b"a", b"b"]}}}
    assert asked == [("load-conn", {"c": as_sent})]
    # An answer without a verdict is a good one.
    with daemon(tmp_path, response(uptime={"running": "1 second"})) as (charon, _):
        assert charon.answers()


def test_what_charon_has_of_a_connection(tmp_path: Path) -> None:
    has = {"c": {"version": "IKEv2", "dpd_delay": "10", "children": {"c": {"dpd_action": "trap"}}}}
    event = bytes([Packet.EVENT, 9]) + b"list-conn" + bytes(Message.serialize(has))
    with daemon(tmp_path, event, response()) as (charon, asked):
        assert charon.settings("c") == {"version": "IKEv2", "dpd_delay": "10", "dpd_action": "trap"}
    assert asked == [("list-conns", {"ike": b"c"})]
    with daemon(tmp_path, response()) as (charon, _):
        assert charon.settings("c") == {}


SENDING = "sending packet: from 192.0.2.1[4711] to 192.0.2.2[3264] (272 bytes)"


def test_a_refusal_has_charons_reason_and_its_last_words(tmp_path: Path) -> None:
    words = ["initiating IKE_SA c[1] to 192.0.2.2", "generating IKE_SA_INIT request 0 [ SA KE No ]", SENDING]
    words += ["received packet: from 192.0.2.2[3264] to 192.0.2.1[4711] (36 bytes)"]
    words += ["parsed IKE_SA_INIT response 0 [ N(NO_PROP) ]", "received NO_PROPOSAL_CHOSEN notify error"]
    refusal = response(success="no", errmsg="establishing CHILD_SA 'c' failed")
    error = refused(tmp_path, "initiate", *map(log, words), refusal)
    assert error.message == (
        "charon on the nas did not carry out `initiate`: establishing CHILD_SA 'c' failed / "
        "initiating IKE_SA c[1] to 192.0.2.2 / received NO_PROPOSAL_CHOSEN notify error"
    )
    assert error.hint is None
    # A peer that does not answer may be behind a firewall.
    words = ["initiating IKE_SA c[1]", SENDING, "retransmit 1 of request with message ID 0", SENDING]
    refusal = response(success="no", errmsg="CHILD_SA 'c' not established after 15000ms")
    error = refused(tmp_path, "initiate", *map(log, words), refusal, match="not established after 15000ms")
    assert error.hint == "nothing came back from 192.0.2.2, UDP port 3264: does a firewall drop it?"
    assert "retransmit" not in error.message


def test_a_command_that_charon_does_not_know_or_answer_is_reported(tmp_path: Path) -> None:
    unknown = bytes([Packet.CMD_UNKNOWN])
    refused(tmp_path, "load-key", unknown, match=r"answer `load-key`: it does not know `load-key`")
    silent = r"expected charon on the nas to answer `stats`: timed"
    refused(tmp_path, "stats", log("at work"), match=silent, within_s=0.1)


def test_a_charon_that_is_not_there_does_not_answer_and_a_lost_host_is_to_blame(tmp_path: Path) -> None:
    absent = Charon(host=NamespaceHost("nas"), socket=tmp_path / "charon.vici", log=tmp_path / "log")
    assert not absent.answers()
    with pytest.raises(CommandFailed, match="No such file"):
        absent.ask("stats")
    lost = mock.Mock(read_files=mock.Mock(side_effect=HostLost("the nas was lost")))
    with pytest.raises(HostLost):
        Charon(host=lost, socket=absent.socket, log=absent.log).ask("stats")


def test_it_runs_with_another_ike_daemon_and_changes_nothing_of_the_machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = World(secret_files={charon.ACQUIRE_EXPIRES: "30\n"})
    monkeypatch.setattr(Charon, "ask", lambda asked, *words, **more: world.ask(asked, *words, **more))
    place = tmp_path / "charon-target"
    log, tries = tmp_path / "log", {"retransmit_tries": "2"}
    with charon.running(
        world.host("target"), place, log=log, plugins="vici", port=3264, timers=tries
    ) as running:
        conf = world.secret_files[str(place / "charon.conf")].split("\n")
    settings = dict(line.strip().split(" = ") for line in conf if " = " in line)
    wanted = {"port": "3264", "port_nat_t": "0", "install_routes": "no", "routing_table": "0"}
    # The last is what was there.
    wanted |= {"socket": "unix:///run/charon.vici", "xfrm_acq_expires": "30"}
    # What nobody changes is strongSwan's; lines of the log begin with the time in ms.
    wanted |= {
        "retransmit_timeout": "4.0",
        "retransmit_tries": "2",
        "time_format": "%s",
        "time_add_ms": "yes",
    }
    assert settings == settings | wanted
    assert running.configured.items() <= wanted.items() | {("retransmit_base", "1.8")}
    (start,) = [c.argv for c in world.commands if c.argv[0] == "daemon"]
    assert start[1:3] == ("unshare", "--mount"), "the folder is /run for it alone"
    assert start[-2:] == (str(place), charon.PROGRAM)
    assert world.left == set()


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
    refused(tmp_path, "stats", data, match="expected charon on the nas to answer `stats`: ", within_s=1)


def test_reasons_of_another_type_are_a_refusal_all_the_same(tmp_path: Path) -> None:
    for reason in ("\x1b[2J", ["a", "b"], {"a": "b"}):
        error = refused(tmp_path, "stats", response(success="no", errmsg=reason), within_s=1)
        assert error.message.isprintable()


LINE = log("x" * 100)


@pytest.mark.parametrize(
    ("once", "again", "reason"),
    [
        (b"\xff\xff\xff\xff", b"x" * 65536, "a packet of 4294967295 bytes"),
        (b"\0\0\1\0x", b"", "timed out"),
        (b"", len(LINE).to_bytes(4, "big") + LINE, "timed out"),
    ],
    ids=["a packet larger than all", "one that does not go on", "events without end"],
)
def test_what_has_no_end_is_not_waited_for(tmp_path: Path, once: bytes, again: bytes, reason: str) -> None:
    def harm(connection: socket.socket) -> None:
        connection.sendall(once)
        while again:
            connection.sendall(again)
        while connection.recv(1 << 16):
            pass

    with serving(tmp_path, harm) as charon, pytest.raises(CommandFailed, match=reason):
        charon.ask("stats", within_s=0.5 if reason == "timed out" else 15)
