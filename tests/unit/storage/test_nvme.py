"""NVMe/TCP: what is asked for, what is agreed on, and what its ends send for one I/O."""

from __future__ import annotations

import json
import subprocess
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

LINK = LinkProfile(name="wired", title="wired", emulated=True)
LUN = Lun(serial="serial", kind=BackingKind.BLOCK, path="/dev/ram0", size_bytes=1 << 27)


def up(world: World) -> nvme.NvmeSides:
    host = world.host("initiator")
    sides = Sides(
        journal=Journal(Path("unused")), tag="beef", target=host, initiators=(host,), luns=(), logs=Path()
    )
    return nvme.NvmeSides(sides, nonce="n")


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
    with pytest.raises(RequirementError, match="queues=2 was asked for, but the two ends agreed on 1"):
        nvme.negotiated({"queue_count": "2", "sqsize": "63"}, export)


@pytest.mark.parametrize(("status", "kind"), [(1, CommandFailed), (NOT_REACHED, NoAnswer)])
def test_a_portal_that_does_not_answer_is_distinguished_from_one_that_refuses(
    status: int, kind: type[CommandFailed]
) -> None:
    world = World(answers=[(("/usr/bin/python3",), (status, "", "Traceback\nConnection refused\n"))])
    (made,) = up(world).connections(wanted(world))
    with pytest.raises(CommandFailed) as refused:
        made.acquire(world.host("initiator"))
    assert type(refused.value) is kind
    assert refused.value.message == "no NVMe/TCP connection to 198.18.7.2:4420: Connection refused"


def test_an_export_is_undone_by_its_own_name_alone() -> None:
    world = World()
    (made,) = up(world).exports(wanted(world))
    (step,) = made.undo()
    assert json.loads(step.input) == {
        "do": "delete",
        "nqn": "nqn.2026-11.net.storage-harness:beef.x",
        "address": "198.18.7.2",
        "port": 4420,
        "host_nqn": "nqn.2026-11.net.storage-harness:beef.initiator1.n",
    }


NVME = NvmeDialogue(in_capsule_bytes=16384, window_bytes=1 << 20)


def dialogue(direction: theory.IoDirection, block_bytes: int) -> list[tuple[str, int]]:
    """Who sends how many bytes, burst by burst."""
    path = theory.Wire(link=LINK)
    return [(burst.by, sum(burst.segments)) for burst in NVME.bursts(path, direction, block_bytes)]


def test_what_nvme_tcp_sends_for_one_io() -> None:
    assert dialogue("read", 4096) == [("initiator", 72), ("target", 24 + 4096 + 24)]
    assert dialogue("write", 16384) == [("initiator", 72 + 16384), ("target", 24)]
    assert dialogue("write", 16385) == [
        ("initiator", 72),
        ("target", 24),
        ("initiator", 24 + 16385),
        ("target", 24),
    ]
    disk = [burst.after_disk for burst in NVME.bursts(theory.Wire(link=LINK), "write", 1 << 18)]
    assert disk == [False, False, False, True]


@pytest.mark.parametrize("disk", ["nvme0c0n1", "nvme0n1"])
def test_the_queue_of_a_multipath_disk_is_its_path_s(tmp_path: Path, disk: str) -> None:
    """Linux 6.12 shows no scheduler of the disk itself; without multipath it is below its controller."""
    for name in (f"{disk}/queue", "ng0n1", "hwmon0", "power"):
        (tmp_path / "nvme0" / name).mkdir(parents=True)
    assert program.queue(tmp_path / "nvme0") == tmp_path / "nvme0" / disk / "queue"


@pytest.mark.parametrize(("name", "do"), [("initiator", "disconnect"), ("target", "delete")])
def test_under_the_distributions_python_what_is_absent_needs_no_undoing(name: str, do: str) -> None:
    step = nvme.step(name, do, nqn="nqn.none", host_nqn="nqn.nobody", address="198.18.7.2", port=4420)
    done = subprocess.run(step.argv, input=step.input, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
