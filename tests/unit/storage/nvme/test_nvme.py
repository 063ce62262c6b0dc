"""NVMe/TCP: what is asked for, what is agreed on, and what its ends send for one I/O."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from harness.analysis import theory
from harness.analysis.wire.nvme import NvmeDialogue
from harness.hosts.programs.answering import NOT_REACHED
from harness.model import BlackBoxTarget, LabKernel, LinkProfile
from harness.model.errors import CommandFailed, RequirementError, UsageError
from harness.observe.kernellog import complaints
from harness.parse import parameters
from harness.parse.hosts import parse_portal
from harness.planning.plan import make_plan
from harness.planning.request import Kernels, RunRequest
from harness.results import again, rules
from harness.runs import modules
from harness.storage.nvme import transport as nvme
from harness.storage.nvme.programs import initiator as program
from harness.storage.transport import Export, NoAnswer
from tests import flat
from tests.unit.explain.test_explain import require_packets
from tests.unit.fakes import World
from tests.unit.observe.test_kernellog import TROUBLES
from tests.unit.planning.test_custom_kernel import is_built
from tests.unit.storage import exports
from tests.unit.storage.files import lines
from tests.unit.storage.test_udev import of_columns


def up(world: World) -> nvme.NvmeSides:
    return nvme.NvmeSides(exports.sides(world), nonce="n")


def wanted(world: World, **more: Any) -> Export:
    return exports.wanted(world, **{"port": nvme.PORT} | more)


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


def test_parameters_are_read_as_nvme_connect_has_them() -> None:
    found = parameters.parse(nvme.NAME, ["queue_size=64", "Header_Digest=yes"])
    assert found == {"queue_size": "64", "header_digest": "Yes"}
    for wrong in ("queue_size=8", "InitialR2T=No", "queues=0"):
        with pytest.raises(UsageError):
            parameters.parse(nvme.NAME, [wrong])


def test_parameters_are_those_of_the_plan_and_of_the_command_that_repeats_it() -> None:
    made = make_plan(RunRequest(links=("wired",), transports=(nvme.NAME,), nvme=("queue_size=64",)))
    assert made.parameters == {nvme.NAME: {"queue_size": "64"}}
    rules.check(made, "plan.json")
    assert "--nvme queue_size=64" in again.command(made)
    with pytest.raises(UsageError, match="--nvme queue_size=64 is for NVMe/TCP, found --transport iscsi"):
        make_plan(RunRequest(links=("wired",), nvme=("queue_size=64",)))
    wrong = flat.changed(made, parameters={nvme.NAME: {"queue_size": "8"}})
    with pytest.raises(UsageError, match="queue_size: expected 16 to 1024"):
        rules.check(wrong, "plan.json")


def test_each_column_of_an_initiator_has_a_rule_of_its_own() -> None:
    of_columns(world := World(), up(world))


def test_under_the_distributions_python_what_is_absent_needs_no_undoing() -> None:
    exports.undoes_nothing(nvme.step, {"nqn": "nqn.none", "host_nqn": "nqn.nobody"})


def test_a_portal_names_the_subsystem_and_a_namespace() -> None:
    for text, *parts in (
        ("nvme-tcp://nas:4420", nvme.NAME, "nas", 4420, ""),
        ("nvme-tcp://[fd00::2]:8009", nvme.NAME, "fd00::2", 8009, ""),
    ):
        found = parse_portal(text)
        assert [found.typed, found.transport, found.host, found.port, found.name] == [text, *parts]
    reached: dict[str, Any] = {"typed": "nas", "address": "192.0.2.2", "port": 4420, "lun": 1}
    assert BlackBoxTarget(transport=nvme.NAME, name="nqn.x", **reached).unit == "nqn.x:1"


def test_its_modules_are_loaded_and_the_custom_kernel_has_them(monkeypatch: pytest.MonkeyPatch) -> None:
    is_built(monkeypatch)
    made = make_plan(RunRequest(links=("wired",), transports=(nvme.NAME,)))
    modules_of = {"initiator": ("nvme_fabrics", "nvme_tcp"), "target": ("nvmet", "nvmet_tcp")}
    assert modules.of_transports(made) == {nvme.NAME: modules_of}
    apart = make_plan(RunRequest(links=("wired",), transports=(nvme.NAME,), kernels=Kernels.PER_HOST))
    assert apart.setting.lab_kernel is LabKernel.CUSTOM


def test_a_file_is_read_past_the_page_cache() -> None:
    def notes(*transports: str) -> str:
        asked = {"links": ("local", "wired=eth0"), "backing": "file:/tank/new", "target": "ssh://root@server"}
        return "".join(make_plan(RunRequest(transports=transports, **asked)).notes)  # type: ignore[arg-type]

    assert "--backing block:/dev/NAME or --transport nvme-tcp" in notes("iscsi", nvme.NAME)
    assert "page cache" not in notes(nvme.NAME)


def test_lines_of_the_kernel_that_are_trouble_are_told_from_ordinary_ones() -> None:
    name = "2026-11.net.storage-harness:beef.x"
    for kind, line in (
        ("the NVMe/TCP connection dropped", "nvme nvme0: starting error recovery"),
        ("nvmet error", "nvmet: ctrl 1 keep-alive timer (5 seconds) expired!"),
    ):
        assert complaints([line], TROUBLES) == [f"{kind}: {line}"]
    for line in (
        f'nvme nvme0: new ctrl: NQN "nqn.{name}", addr 198.18.1.2:4420',
        f'nvme nvme0: Removing ctrl: NQN "nqn.{name}"',
        "nvme nvme0: I/O 12 QID 3 timeout, aborting",  # of a disk on the machine's own bus
    ):
        assert complaints([line], TROUBLES) == []


def test_packets_are_those_that_interfaces_counted() -> None:
    """Of 256K over the link 10g, unshaped, and eight at a time over wired."""
    require_packets(nvme.NAME, "read", 10, 11, 189, command_bytes=1280 << 10)
