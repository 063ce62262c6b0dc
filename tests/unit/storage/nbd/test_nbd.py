"""NBD: what its ends send, the handshake, and what identifies a disk. The lab has the kernel's part."""

from __future__ import annotations

import contextlib
import json
import socket
import struct
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from harness.analysis import theory, wire
from harness.explain.predicted import NetworkPath
from harness.hosts.journal import Journal
from harness.hosts.programs import netlink
from harness.hosts.programs.answering import NOT_REACHED
from harness.model import BlackBoxTarget, Column, LinkProfile
from harness.model.errors import CellInvalid, RequirementError
from harness.parse.hosts import parse_portal
from harness.parse.profiles import load_link
from harness.storage import transports
from harness.storage.nbd import transport as nbd
from harness.storage.nbd.programs import initiator as program
from harness.storage.requests import Made
from harness.storage.transport import Export, NoAnswer, Session
from harness.storage.udev import UdevRule
from tests.unit.explain.test_predicted import ENDS, job, one
from tests.unit.fakes import Command, World
from tests.unit.storage.exports import sides, undoes_nothing, wanted
from tests.unit.storage.test_udev import of_columns
from tests.unit.testbeds.test_doctor import require

AGREED = {"max_sectors_kb": "128", "nr_requests": "128", "connections": "1"}
REPLY_MAGIC, GO, ACK, INFO, UNKNOWN = 0x3E889045565A9, 7, 1, 3, (1 << 31) + 6
PROTOCOL = wire.transport(nbd.NAME)
LINK = theory.Wire(link=LinkProfile(name="x", title="", emulated=True, rate_bit_s=10**9))


def up(world: World, **more: Any) -> nbd.NbdSides:
    return nbd.NbdSides(sides(world, **more), nonce="n")


def exported(world: World, **more: Any) -> Export:
    return wanted(world, **{"name": "wired.off", "port": nbd.PORT} | more)


@contextlib.contextmanager
def attached(world: World, tmp_path: Path, **more: Any) -> Iterator[Session]:
    journal = Journal(tmp_path / "journal.jsonl")
    with (
        transports.named(nbd.NAME).shared(sides(world, journal=journal, logs=tmp_path)) as shared,
        shared.attach(exported(world, **more)) as session,
    ):
        yield session


def test_both_ends_are_reported_the_same_and_nothing_is_left(tmp_path: Path) -> None:
    world = World()
    with attached(world, tmp_path, bound_to="near0", read_only=True) as session:
        assert session.disk.device == "/dev/nbd0"
        session.disk.check()
    said = [json.loads(each.input or "{}") for each in world.commands if "python3" in each.argv[0]]
    export, connection = (next(one for one in said if one.get("do") == do) for do in ("create", "connect"))
    for name in ("export", "address", "port", "read_only"):
        assert export[name] == connection[name], name
    name = "net.storage-harness:beef.wired.off"
    assert export["export"].startswith(f"{name}.") and export["path"] == "/dev/ram0"
    assert (connection["backend"], connection["bound_to"]) == (f"{name}:harness-beef-0", "near0")
    assert not world.left


def test_a_disk_that_is_another_is_found_out(tmp_path: Path) -> None:
    world = World()
    with attached(world, tmp_path) as session:
        for file, answer, words in (
            ("backend", "another's\n", "found another's"),
            ("pid", "", "expected the process of /dev/nbd0 to be there, found none"),
            ("size", "8\n", "number of sectors of /dev/nbd0 to be 262144, found 8"),
        ):
            world.secret_files = {f"/sys/block/nbd0/{file}": answer}
            with pytest.raises(CellInvalid, match=words):
                session.disk.check()
        world.secret_files = {}


def test_without_nbdkit_the_target_lacks_a_requirement_and_a_portal_may_not_answer() -> None:
    def missing(command: Command) -> bool:
        if command.argv[0] == "nbdkit":
            raise RequirementError("expected the program nbdkit")
        return False

    world = World(broken=missing)
    with pytest.raises(RequirementError, match="nbdkit"), up(world).export(exported(world)):
        pass
    world = World(answers=[(("/usr/bin/python3",), (NOT_REACHED, "", "Connection refused\n"))])
    _, made = up(world).connections(exported(world))
    with pytest.raises(NoAnswer, match=r"^no NBD connection to 198\.18\.7\.2:10809: Connection refused"):
        made.acquire(world.host("initiator"))


def test_their_export_takes_writes_only_if_that_is_meant() -> None:
    world = World()
    reached = BlackBoxTarget(transport=nbd.NAME, typed="nbd://nas", address="192.0.2.2", port=10809, name="x")
    theirs = up(world, black_box=reached)
    for read_only, asked in ((True, None), (False, False)):
        export = exported(world, read_only=read_only)
        rule, made = theirs.connections(export)
        assert isinstance(rule, UdevRule) and isinstance(made, Made)
        assert f'ATTRS{{backend}}=="{theirs.backend(export)}"' in rule.match
        assert json.loads(made.make.input or "")["read_only"] is asked


def test_under_the_distributions_python_what_is_absent_needs_no_undoing(tmp_path: Path) -> None:
    undoes_nothing(nbd.step, {"backend": "nobody's", "export": "x", "folder": f"{tmp_path}/a/b"})


def serve(connection: socket.socket, replies: list[tuple[int, bytes]], asked: list[bytes]) -> None:
    connection.sendall(b"NBDMAGICIHAVEOPT" + struct.pack(">H", 3))
    assert connection.recv(4, socket.MSG_WAITALL) == struct.pack(">I", 3)
    magic, option, length = struct.unpack(">8sII", connection.recv(16, socket.MSG_WAITALL))
    assert (magic, option) == (b"IHAVEOPT", GO)
    asked.append(connection.recv(length, socket.MSG_WAITALL))
    for kind, said in replies:
        connection.sendall(struct.pack(">QIII", REPLY_MAGIC, option, kind, len(said)) + said)


def shake_hands(*replies: tuple[int, bytes]) -> tuple[dict[str, int], bytes]:
    ours, theirs = socket.socketpair()
    asked: list[bytes] = []
    with ours, theirs:
        (server := threading.Thread(target=serve, args=(theirs, [*replies], asked))).start()
        try:
            return program.handshake(ours, "secret"), asked[0]
        finally:
            server.join()


def test_a_server_says_how_large_an_export_is_and_which_blocks_it_takes() -> None:
    size, blocks = struct.pack(">HQH", 0, 1 << 26, 0b11), struct.pack(">HIII", 3, 4096, 4096, 1 << 25)
    found, asked = shake_hands((INFO, size), (INFO, blocks), (ACK, b""))
    assert found == {"size_bytes": 1 << 26, "flags": 0b11, "smallest_block_bytes": 4096}
    assert asked == struct.pack(">I6sHH", 6, b"secret", 1, 3)
    with pytest.raises(ConnectionError, match="refused the export secret: no such name"):
        shake_hands((UNKNOWN, b"no such name"))


def test_attributes_of_netlink_are_read_as_they_are_written() -> None:
    data = program.number(1, 5, "I") + netlink.attribute(10, b"name\0") + program.number(2, 1 << 40)
    written = [(1, struct.pack("=I", 5)), (10, b"name\0"), (2, struct.pack("=Q", 1 << 40))]
    assert list(netlink.attributes(data)) == written


def test_what_nbd_sends_for_one_io() -> None:
    def dialogue(direction: theory.IoDirection, block_bytes: int) -> list[tuple[str, int, bool]]:
        found = PROTOCOL.dialogue(AGREED, direction, 1 << 20)
        assert found is not None
        bursts = found.bursts(LINK, direction, block_bytes)
        return [(burst.by, sum(burst.segments), burst.after_disk) for burst in bursts]

    assert dialogue("read", 4096) == [("initiator", 28, False), ("target", 16 + 4096, True)]
    assert dialogue("write", 4096) == [("initiator", 28 + 4096, False), ("target", 16, True)]
    # The kernel makes two requests of it.
    assert dialogue("read", 1 << 18) == [("initiator", 2 * 28, False), ("target", 2 * 16 + (1 << 18), True)]
    assert PROTOCOL.dialogue({}, "read", 1 << 20) is None
    assert PROTOCOL.most_commands(AGREED) == 128
    assert (PROTOCOL.header_bytes(AGREED, 1 << 20), PROTOCOL.most_commands({})) == (16, 0)


def test_larger_requests_are_no_advice() -> None:
    """They save a header, and so next to nothing."""

    def time_s(largest_kb: int) -> float:
        found = PROTOCOL.dialogue({**AGREED, "max_sectors_kb": str(largest_kb)}, "read", 4 << 20)
        assert found is not None
        return theory.predict(LINK, found, direction="read", block_bytes=256 << 10, device_s=0.0).time_s

    assert 0.999 < time_s(1024) / time_s(128) < 1 and not PROTOCOL.remedy


def test_each_column_of_an_initiator_has_a_rule_of_its_own() -> None:
    of_columns(world := World(), up(world))


def test_a_portal_names_the_export_and_no_unit() -> None:
    found = parse_portal("nbd://nas/export")
    assert (found.transport, found.host, found.port, found.name) == (nbd.NAME, "nas", None, "export")
    named = BlackBoxTarget(transport=nbd.NAME, typed="nbd://nas", address="192.0.2.2", port=1, name="disk")
    assert named.unit == "disk" and msgspec.structs.replace(named, name="").unit == "nbd://nas"


def test_what_its_target_needs_is_asked_for() -> None:
    lacks = "absent program:nbdkit\n"
    require(lacks)  # of a target of another transport
    lacks += "absent module:iscsi_target_mod\n"
    with pytest.raises(RequirementError, match="packages are missing: nbdkit "):
        require(lacks, by=(nbd.NAME,))


def test_nothing_is_known_of_its_cpu_costs() -> None:
    path = NetworkPath(column=Column("wired", transport=nbd.NAME), link=load_link("wired"))
    assert "nbd has no CPU costs" in one(ENDS, path, job("4k")).why_not
