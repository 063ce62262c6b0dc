"""NVMe/TCP: what is asked for, what is agreed on, and what its ends send for one I/O."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from harness.analysis import theory
from harness.analysis.wire.nvme import NvmeDialogue
from harness.hosts.journal import Journal
from harness.hosts.programs.answering import NOT_REACHED
from harness.model import BackingKind, LinkProfile
from harness.model.errors import CommandFailed, RequirementError
from harness.storage.nvme import transport as nvme
from harness.storage.nvme.programs import initiator as program
from harness.storage.transport import Export, Lun, NoAnswer, Sides
from tests.unit.fakes import World
from tests.unit.storage.files import lines

LUN = Lun(serial="harness-beef-0", kind=BackingKind.BLOCK, path="/dev/ram0", size_bytes=1 << 27)


def sides(world: World, **more: Any) -> Sides:
    """Both ends of a run's exports, which write nothing down."""
    fields: dict[str, Any] = {"target": world.host("target"), "initiators": (world.host("initiator"),)}
    fields |= {"journal": Journal(Path("unused")), "tag": "beef", "luns": (LUN,), "logs": Path()}
    return Sides(**fields | more)


def up(world: World) -> nvme.NvmeSides:
    return nvme.NvmeSides(sides(world), nonce="n")


def wanted(world: World, **more: Any) -> Export:
    fields: dict[str, Any] = {"name": "x", "number": 0, "lun": LUN, "target": world.host("target")}
    return Export(**fields | {"address": "198.18.7.2", "port": nvme.PORT, "parameters": {}} | more)


def test_nvme_asks_for_what_was_asked_and_holds_the_target_to_it() -> None:
    asked = {"queues": "2", "queue_size": "64", "header_digest": "Yes", "data_digest": "No"}
    world = World()
    export = wanted(world, bound_to="near0", parameters=asked)
    words = up(world).options(export).split(",")
    name = "nqn=nqn.2026-11.net.storage-harness:beef.x"
    assert {"nr_io_queues=2", "queue_size=64", "hdr_digest", "host_iface=near0", name} <= set(words)
    assert "data_digest" not in words
    nvme.negotiated({"queue_count": "3", "sqsize": "63"}, export)
    with pytest.raises(RequirementError, match="expected queues=2, but the two ends agreed on 1"):
        nvme.negotiated({"queue_count": "2", "sqsize": "63"}, export)


def test_a_portal_that_does_not_answer_is_distinguished_from_one_that_refuses() -> None:
    for status, kind in ((1, CommandFailed), (NOT_REACHED, NoAnswer)):
        world = World(answers=[(("/usr/bin/python3",), (status, "", "Traceback\nConnection refused\n"))])
        _, made = up(world).connections(wanted(world))
        with pytest.raises(CommandFailed) as refused:
            made.acquire(world.host("initiator"))
        assert type(refused.value) is kind
        assert refused.value.message == "no NVMe/TCP connection to 198.18.7.2:4420: Connection refused"


def test_an_export_is_undone_by_its_own_name_alone() -> None:
    world = World()
    (step,) = up(world).exports(wanted(world))[0].undo()
    names = "nqn.2026-11.net.storage-harness:beef"
    asked = {"do": "delete", "nqn": f"{names}.x", "address": "198.18.7.2", "port": 4420}
    assert json.loads(step.input) == asked | {"host_nqn": f"{names}.initiator1.n"}


def test_what_nvme_tcp_sends_for_one_io() -> None:
    found = NvmeDialogue(in_capsule_bytes=16384, window_bytes=1 << 20)
    path = theory.Wire(link=LinkProfile(name="wired", title="wired", emulated=True))

    def dialogue(direction: theory.IoDirection, block_bytes: int) -> list[tuple[str, int]]:
        return [(burst.by, sum(burst.segments)) for burst in found.bursts(path, direction, block_bytes)]

    assert dialogue("read", 4096) == [("initiator", 72), ("target", 24 + 4096 + 24)]
    assert dialogue("write", 16384) == [("initiator", 72 + 16384), ("target", 24)]
    asked = [("initiator", 72), ("target", 24)]
    assert dialogue("write", 16385) == [*asked, ("initiator", 24 + 16385), ("target", 24)]
    assert [burst.after_disk for burst in found.bursts(path, "write", 1 << 18)] == [False] * 3 + [True]


def test_the_queue_of_a_multipath_disk_is_its_path_s(tmp_path: Path) -> None:
    """Linux 6.12 shows no scheduler of the disk itself; without multipath it is below its controller."""
    for disk in ("nvme0c0n1", "nvme0n1"):
        for name in (f"{disk}/queue", "ng0n1", "hwmon0", "power"):
            (tmp_path / disk / "nvme0" / name).mkdir(parents=True)
        assert program.queue(tmp_path / disk / "nvme0") == tmp_path / disk / "nvme0" / disk / "queue"


@pytest.fixture
def subsystem(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A controller of the user's and one of a run to the same subsystem, and its two namespaces."""
    for name, host_nqn in (("nvme0", "nqn.me"), ("nvme1", "nqn.run")):
        files = {"subsysnqn": "nqn.x", "hostnqn": host_nqn, "delete_controller": ""}
        lines(tmp_path / "class" / name, files)
    for number in (1, 2):
        lines(tmp_path / f"block/nvme1n{number}", {"hidden": 0, "nsid": number, "device/subsysnqn": "nqn.x"})
    monkeypatch.setattr(program, "CONTROLLERS", tmp_path / "class")
    monkeypatch.setattr(program, "DISKS", tmp_path / "block")
    return tmp_path


def test_a_controller_of_the_user_s_is_not_ours(subsystem: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(program, "wait_until", lambda *_: None)
    assert [each.name for each in program.controllers("nqn.x", "nqn.run")] == ["nvme1"]
    with pytest.raises(OSError, match="measure its disk with --volume"):
        program.connect({"nqn": "nqn.x", "host_nqn": "nqn.run"})
    program.disconnect({"nqn": "nqn.x", "host_nqn": "nqn.run"})
    ends = [(subsystem / f"class/nvme{n}/delete_controller").read_text(encoding="utf-8") for n in (0, 1)]
    assert ends == ["\n", "1"]
    assert program.only({"nqn": "nqn.x", "namespace": 2}) == subsystem / "block/nvme1n2"
    with pytest.raises(OSError, match=r"--lun\), found: 1, 2"):
        program.only({"nqn": "nqn.x", "namespace": 0})


def test_a_discovery_controller_tells_of_subsystems(subsystem: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def reported(_controller: Path, opcode: int, data: Any, *, words: tuple[int, ...]) -> None:
        assert (opcode, words[0] & 0xFF, words[0] >> 16) == (0x02, 0x70, len(data) // 4 - 1)
        log = bytearray(len(data))
        log[8] = 2
        for number, (kind, nqn_) in enumerate(((2, b"nqn.x"), (3, b"nqn.discovery")), 1):
            at = 1024 * number
            log[at + 2] = kind
            log[at + 32 : at + 36], log[at + 512 : at + 521] = b"4420", b"192.0.2.2"
            log[at + 256 : at + 256 + len(nqn_)] = nqn_
        data[:] = type(data)("B", bytes(log))

    monkeypatch.setattr(program, "opened", lambda _request: None)
    monkeypatch.setattr(program, "admin", reported)
    found = program.discover({"nqn": "nqn.x", "host_nqn": "nqn.run"})
    assert found == {"targets": {"nqn.x": ["192.0.2.2 4420"]}}
    assert (subsystem / "class/nvme1/delete_controller").read_text(encoding="utf-8") == "1"
