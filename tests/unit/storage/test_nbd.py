"""NBD: what its ends send, the handshake, and what identifies a disk. The lab has the kernel's part."""

from __future__ import annotations

import dataclasses
import json
import socket
import struct
import subprocess
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from harness.analysis import theory, wire
from harness.hosts.journal import Journal
from harness.hosts.programs import netlink
from harness.hosts.programs.answering import NOT_REACHED
from harness.model import NBD, BackingKind, LinkProfile, ReachedTarget
from harness.model.errors import CellInvalid, RequirementError
from harness.storage import transports
from harness.storage.nbd import transport as nbd
from harness.storage.nbd.programs import initiator as program
from harness.storage.requests import Made
from harness.storage.transport import Export, Lun, NoAnswer, Sides
from harness.storage.untouched import UdevRule
from tests.unit.fakes import Command, World

LINK = LinkProfile(name="x", title="", emulated=True, rate_bit_s=10**9, delay_us=50)
AGREED = {"max_sectors_kb": "128", "nr_requests": "128", "connections": "1"}
LUN = Lun(serial="harness-beef-0", kind=BackingKind.BLOCK, path="/dev/ram0", size_bytes=262144 * 512)


def wanted(world: World, **more: Any) -> Export:
    fields: dict[str, Any] = {"name": "wired.off", "number": 0, "lun": LUN, "target": world.host("target")}
    fields |= {"address": "198.18.7.2", "port": nbd.PORT, "parameters": {}}
    return Export(**fields | more)


def sides(world: World, tmp_path: Path) -> Sides:
    return Sides(
        journal=Journal(tmp_path / "journal.jsonl"),
        tag="beef",
        target=world.host("target"),
        initiators=(world.host("initiator"),),
        luns=(LUN,),
        logs=tmp_path,
    )


def request_of(command: Command) -> dict[str, Any]:
    """What a program was asked, {} of any other command."""
    asked: dict[str, Any] = json.loads(command.input or "{}") if "python3" in command.argv[0] else {}
    return asked


def test_both_ends_are_reported_the_same_and_nothing_is_left(tmp_path: Path) -> None:
    world = World()
    with (
        transports.named(NBD).shared(sides(world, tmp_path)) as shared,
        shared.attach(wanted(world, bound_to="near0", read_only=True)) as session,
    ):
        assert session.disk.device == "/dev/nbd0"
        session.disk.check()
    export, connection = (
        next(found for command in world.commands if (found := request_of(command)).get("do") == do)
        for do in ("create", "connect")
    )
    for name in ("export", "address", "port", "read_only"):
        assert export[name] == connection[name], name
    assert (
        export["export"].startswith("net.storage-harness:beef.wired.off.") and export["path"] == "/dev/ram0"
    )
    assert connection["backend"] == "net.storage-harness:beef.wired.off:harness-beef-0"
    assert connection["bound_to"] == "near0"
    assert not world.left


@pytest.mark.parametrize(
    ("answers", "words"),
    [
        ({"backend": "another's\n"}, "found another's"),
        ({"pid": ""}, "expected the process of /dev/nbd0 to be there, found none"),
        ({"size": "8\n"}, "number of sectors of /dev/nbd0 to be 262144, found 8"),
    ],
)
def test_a_disk_that_is_another_is_found_out(tmp_path: Path, answers: Mapping[str, str], words: str) -> None:
    world = World()
    with (
        transports.named(NBD).shared(sides(world, tmp_path)) as shared,
        shared.attach(wanted(world)) as session,
    ):
        text_of = world.nbd.text_of

        def other(path: str) -> str | None:
            return answers.get(path.rpartition("/")[2], text_of(path))

        world.nbd.text_of = other  # type: ignore[method-assign]
        with pytest.raises(CellInvalid, match=words):
            session.disk.check()


def test_without_nbdkit_the_target_lacks_a_requirement(tmp_path: Path) -> None:
    def missing(command: Command) -> bool:
        if command.argv[0] == "nbdkit":
            raise RequirementError("expected the program nbdkit")
        return False

    world = World(broken=missing)
    up = nbd.NbdSides(sides(world, tmp_path), nonce="n")
    with pytest.raises(RequirementError, match="nbdkit"), up.export(wanted(world)):
        pass


def test_a_portal_that_does_not_answer_is_reported(tmp_path: Path) -> None:
    world = World(answers=[(("/usr/bin/python3",), (NOT_REACHED, "", "Connection refused\n"))])
    _, made = nbd.NbdSides(sides(world, tmp_path), nonce="n").connections(wanted(world))
    with pytest.raises(NoAnswer, match=r"^no NBD connection to 198\.18\.7\.2:10809: Connection refused"):
        made.acquire(world.host("initiator"))


@pytest.mark.parametrize(("read_only", "asked"), [(True, None), (False, False)])
def test_somebody_else_s_export_is_left_alone_by_others_and_takes_writes_if_that_is_meant(
    tmp_path: Path, read_only: bool, asked: bool | None
) -> None:
    world = World()
    reached = ReachedTarget(transport=NBD, typed="nbd://nas", address="192.0.2.2", port=10809, name="x")
    up = nbd.NbdSides(dataclasses.replace(sides(world, tmp_path), reached=reached), nonce="n")
    export = dataclasses.replace(wanted(world), read_only=read_only)
    rule, made = up.connections(export)
    assert isinstance(rule, UdevRule) and isinstance(made, Made)
    assert f'ATTRS{{backend}}=="{up.backend(export)}"' in rule.match
    assert json.loads(made.make.input or "")["read_only"] is asked


@pytest.mark.parametrize(("name", "do"), [("initiator", "disconnect"), ("target", "delete")])
def test_under_the_distributions_python_what_is_absent_needs_no_undoing(
    tmp_path: Path, name: str, do: str
) -> None:
    step = nbd.step(
        name, do, backend="nobody's", export="x", address="198.18.7.2", port=1, folder=str(tmp_path / "a/b")
    )
    done = subprocess.run(step.argv, input=step.input, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")


# The handshake, with a server of few words


REPLY_MAGIC, GO, ACK, INFO, UNKNOWN = 0x3E889045565A9, 7, 1, 3, (1 << 31) + 6


def serve(connection: socket.socket, replies: list[tuple[int, bytes]], asked: list[bytes]) -> None:
    connection.sendall(b"NBDMAGICIHAVEOPT" + struct.pack(">H", 3))
    assert connection.recv(4, socket.MSG_WAITALL) == struct.pack(">I", 3)
    magic, option, length = struct.unpack(">8sII", connection.recv(16, socket.MSG_WAITALL))
    assert (magic, option) == (b"IHAVEOPT", GO)
    asked.append(connection.recv(length, socket.MSG_WAITALL))
    for kind, said in replies:
        connection.sendall(struct.pack(">QIII", REPLY_MAGIC, option, kind, len(said)) + said)


def shake_hands(replies: list[tuple[int, bytes]]) -> tuple[dict[str, int], bytes]:
    ours, theirs = socket.socketpair()
    asked: list[bytes] = []
    with ours, theirs:
        server = threading.Thread(target=serve, args=(theirs, replies, asked))
        server.start()
        try:
            found = program.handshake(ours, "secret")
        finally:
            server.join()
    return found, asked[0]


def test_a_server_says_how_large_an_export_is_and_which_blocks_it_takes() -> None:
    found, asked = shake_hands(
        [
            (INFO, struct.pack(">HQH", 0, 1 << 26, 0b11)),
            (INFO, struct.pack(">HIII", 3, 4096, 4096, 1 << 25)),
            (ACK, b""),
        ]
    )
    assert found == {"size_bytes": 1 << 26, "flags": 0b11, "smallest_block_bytes": 4096}
    assert asked == struct.pack(">I6sHH", 6, b"secret", 1, 3)


def test_a_server_that_does_not_know_the_export_is_reported() -> None:
    with pytest.raises(ConnectionError, match="refused the export secret: no such name"):
        shake_hands([(UNKNOWN, b"no such name")])


def test_attributes_of_netlink_are_read_as_they_are_written() -> None:
    data = program.number(1, 5, "I") + netlink.attribute(10, b"name\0") + program.number(2, 1 << 40)
    assert list(netlink.attributes(data)) == [
        (1, struct.pack("=I", 5)),
        (10, b"name\0"),
        (2, struct.pack("=Q", 1 << 40)),
    ]


# What its ends send


def dialogue(direction: theory.IoDirection, block_bytes: int) -> list[tuple[str, int, bool]]:
    found = wire.transport(NBD).dialogue(AGREED, direction, 1 << 20)
    assert found is not None
    bursts = found.bursts(theory.Wire(link=LINK), direction, block_bytes)
    return [(burst.by, sum(burst.segments), burst.after_disk) for burst in bursts]


def test_what_nbd_sends_for_one_io() -> None:
    assert dialogue("read", 4096) == [("initiator", 28, False), ("target", 16 + 4096, True)]
    assert dialogue("write", 4096) == [("initiator", 28 + 4096, False), ("target", 16, True)]
    # The kernel makes two requests of it.
    assert dialogue("read", 1 << 18) == [("initiator", 2 * 28, False), ("target", 2 * 16 + (1 << 18), True)]
    assert wire.transport(NBD).dialogue({}, "read", 1 << 20) is None


def test_what_nbd_adds_at_least() -> None:
    nbd = wire.transport(NBD)
    assert (nbd.most_commands(AGREED), nbd.write_round_trips(AGREED, 1 << 20)) == (128, 1)
    assert nbd.header_bytes(AGREED, 1 << 20) == 16
    assert nbd.most_commands({}) == 0


def test_larger_requests_are_no_advice() -> None:
    """They save a header, and so next to nothing."""
    link = theory.Wire(link=LinkProfile(name="wired", title="wired", emulated=True, rate_bit_s=10**9))

    def time_s(largest_kb: int) -> float:
        found = wire.transport(NBD).dialogue({**AGREED, "max_sectors_kb": str(largest_kb)}, "read", 4 << 20)
        assert found is not None
        return theory.predict(link, found, direction="read", block_bytes=256 << 10, device_s=0.0).time_s

    assert 0.999 < time_s(1024) / time_s(128) < 1
    assert not wire.transport(NBD).remedy
