"""Virtual time by a CPU cost file: what the kernel charges, and what is refused."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path
from typing import Any

import msgspec
import pytest

from harness.analysis.cpu_costs import CpuCost, CpuCosts, Per, WhichEnd
from harness.explain.evidence import collect
from harness.hosts import Host
from harness.hosts.journal import Journal
from harness.model import ISCSI, KERNEL_TARGETS, TRANSPORTS, LabKernel, OtherKernel, Plan, Status
from harness.model.errors import HostLost, RequirementError, UsageError
from harness.parse import cpu_costs
from harness.planning import simulated_cpu_costs
from harness.planning.plan import make_plan
from harness.planning.request import Kernels, RunRequest
from harness.results import rules
from harness.results.store import RunFolder
from harness.runs import cells
from harness.runs.columns import Hosts
from harness.table import export
from harness.testbeds.lab.boot import Kernel
from harness.testbeds.lab.kernels import building, kernel, source, upstream
from tests import flat
from tests.unit.fakes import World

KERNEL_ONLY = f"expected --transport {' or '.join(KERNEL_TARGETS)} with --cpu-costs"

NS = {
    ("block layer", "system call", "read"): 6000,
    ("block layer", "wake-up", ""): 100,
    ("block layer", "byte", "read"): 0.2,
    ("block layer", "byte", "write"): 0.4,
    ("iscsi", "I/O", ""): 1000,
    ("iscsi", "byte", "read"): 0.4,
    ("iscsi", "byte", "write"): 0.6,
    ("iscsi", "packet", ""): 400,
    ("iscsi", "wake-up", ""): 5000,
    ("emulated link", "I/O", ""): 500,
    ("emulated link", "packet", ""): 1200,
    ("emulated link", "wake-up", ""): 4000,
    ("ESP", "packet", ""): 1600,
    ("aes128gcm16", "packet", "encrypt"): 70,
    ("aes128gcm16", "byte", "encrypt"): 0.1,
    ("aes128gcm16", "packet", "decrypt"): 80,
    ("aes128gcm16", "byte", "decrypt"): 0.2,
}


def costs_of(*ends: str) -> CpuCosts:
    found = [
        CpuCost(part=part, per=Per(per), at=WhichEnd(at), ns=ns, low=ns, high=ns, direction=direction)
        for at in ends
        for (part, per, direction), ns in NS.items()
    ]
    idle = CpuCost(part="emulated link", per=Per.ROUND_TRIP, at=WhichEnd.NONE, ns=900, low=0, high=1000)
    return CpuCosts(name="mine", version=1, title="Mine", costs=(*found, idle))


@pytest.fixture(autouse=True)
def custom_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    own = Kernel(binary=Path("/linux"), modules=Path("/modules"))
    monkeypatch.setattr(kernel, "custom_kernel", lambda *_key: own)
    built = OtherKernel(key="0123456789ab", release="6.1.192-harness")
    monkeypatch.setattr(kernel, "with_costs", lambda: built)


def planned(tmp_path: Path, known: CpuCosts, **changes: Any) -> Plan:
    (tmp_path / "mine.toml").write_text(cpu_costs.written(known))
    options: dict[str, Any] = {"links": ("local", "wired"), "ipsec": ("both",), "virtual_time": True}
    return make_plan(RunRequest(**(options | changes), cpu_costs=str(tmp_path / "mine.toml")))


def composer(made: Plan, folder: Path, host: Host) -> cells.CellComposer:
    """What measures the cells of a plan on a host that is both ends."""
    ends, journal = Hosts(target=host, initiators=(host,)), Journal(folder / "journal.jsonl")
    return cells.CellComposer(made, RunFolder(folder), print, hosts=ends, journal=journal, private=folder)


def of(made: Plan, column: str, end: str) -> dict[str, int]:
    return dict(
        zip(simulated_cpu_costs.PLACES, made.simulated_cpu_costs[column][f"{end} seq-read-4k"], strict=True)
    )


def test_one_kernel_with_both_ends_pays_half_as_it_sends_and_half_as_it_receives(tmp_path: Path) -> None:
    made = planned(tmp_path, costs_of("both"))
    assert re.fullmatch("mine [0-9a-f]{6}", made.setting.predicted_from)
    assert made.setting.name == f"lab, predicted from {made.setting.predicted_from}, sata-ssd"
    assert {*made.simulated_cpu_costs} == {"local", "wired", "wired+aes128gcm16"}
    local, plain, gcm = (of(made, column, "both") for column in made.simulated_cpu_costs)
    block = {"read_call": 6_000_000, "write_call": 6_000_000, "wake_up": 100_000}
    block |= {"read_byte": 200, "write_byte": 400}
    assert {name: ps for name, ps in local.items() if ps and name != "packet_bytes"} == block
    link = {"link_wake_up": 2_000_000, "link_delay": 450_000}
    command = {"command": 1_500_000, "command_wake_up": 5_000_000, "request": 0}
    xmit, rcv = {"xmit_packet": 800_000, "xmit_byte": 200}, {"rcv_packet": 800_000, "rcv_byte": 200}
    assert plain == {**block, **link, **command, **xmit, **rcv, "packet_bytes": 65535}
    xmit, rcv = {"xmit_packet": 1_670_000, "xmit_byte": 300}, {"rcv_packet": 1_680_000, "rcv_byte": 400}
    assert gcm == plain | xmit | rcv | {"packet_bytes": 0}
    # Bytes of writes are a transport's own.
    wired = made.simulated_cpu_costs["wired"]
    assert {*wired} == {f"both {job.name}" for job in made.jobs}
    byte = simulated_cpu_costs.PLACES.index("xmit_byte")
    assert [wired[f"both seq-{way}-4k"][byte] for way in ("read", "write")] == [200, 300]
    # A plan that was read has CPU costs for each column.
    assert msgspec.json.decode(msgspec.json.encode(made), type=Plan) == made
    unnamed = msgspec.structs.replace(made.setting, predicted_from="")
    for broken in ({"simulated_cpu_costs": {"wifi": wired}}, {"setting": unnamed}):
        with pytest.raises(UsageError):
            rules.check(msgspec.structs.replace(made, **broken))


def test_bytes_pay_for_their_acks_which_the_kernel_does_not_charge(tmp_path: Path) -> None:
    """LIO sends a page at a time, each with an ACK, unless earlier ones wait; open-iscsi 64 KiB."""
    agreed = {"initial_r2t": 0, "immediate_data": 1, "first_burst_len": 65536, "max_burst_len": 262144}
    agreed |= {"max_recv_dlength": 262144, "max_xmit_dlength": 262144, "max_sectors_kb": 124}
    known = msgspec.structs.replace(costs_of("both"), sessions={"iscsi": agreed})
    byte, workloads = simulated_cpu_costs.PLACES.index("xmit_byte"), ("seq-read-4k", "seq-write-4k")
    alone = planned(tmp_path, known, workloads=workloads).simulated_cpu_costs
    read, write = (alone["wired"][f"both {name}"][byte] for name in workloads)
    assert read == pytest.approx(200 + 800_000 / 4096, rel=0.02)
    assert 300 + 800_000 / 65536 <= write < 300 + 800_000 / 20_000
    deep = planned(tmp_path, known, workloads=workloads, depths=("8",)).simulated_cpu_costs["wired"]
    assert deep["both seq-read-4k-qd8"][byte] < 200 + 800_000 / 20_000
    cut_up = alone["wired+aes128gcm16"]["both seq-read-4k"][byte]
    assert cut_up == 300, "ACKs are packets there, of which each has a CPU cost"


def test_kernels_per_host_pay_their_own(tmp_path: Path) -> None:
    made = planned(tmp_path, costs_of("initiator", "target"), kernels=Kernels.PER_HOST)
    initiator, target = (of(made, "wired", end) for end in ("initiator", "target"))
    assert (initiator["request"], initiator["command"], initiator["wake_up"]) == (1_500_000, 0, 5_100_000)
    assert (target["request"], target["command"], target["command_wake_up"]) == (0, 1_500_000, 5_000_000)
    assert initiator["xmit_packet"] == target["rcv_packet"] == 1_600_000
    assert target["read_byte"] == 0, "its bytes are part of the transport's"
    assert of(made, "local", "target")["read_byte"] == 200, "where the disk itself is measured"


def test_what_has_no_cost_is_refused(tmp_path: Path) -> None:
    asked: tuple[tuple[dict[str, Any], tuple[str, ...], str], ...] = (
        ({"virtual_time": False}, ("both",), "--cpu-costs needs --virtual-time"),
        ({"virtual_time": False, "testbed": "host"}, ("both",), "--cpu-costs needs --virtual-time"),
        *(({"transports": (name,)}, ("both",), KERNEL_ONLY) for name in {*TRANSPORTS} - {*KERNEL_TARGETS}),
        *(
            ({"transports": (name,)}, ("both",), f"a CPU cost of {name} for each byte in mine")
            for name in KERNEL_TARGETS
            if name != ISCSI
        ),
        ({"ipsec": ("null-sha256",)}, ("both",), "a CPU cost of null-sha256 for each byte in mine"),
        ({"kernels": Kernels.PER_HOST}, ("both",), "were measured with both ends in one kernel"),
        ({}, ("initiator", "target"), "were measured with one kernel for each end"),
        ({}, ("none",), "expected CPU costs of the initiator"),
    )
    for changes, known, words in asked:
        with pytest.raises(UsageError) as refused:
            planned(tmp_path, costs_of(*known), **changes)
        assert words in refused.value.message and "\n" not in refused.value.message


def test_only_the_kernel_with_cpu_costs_has_the_patch(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.undo()
    monkeypatch.setattr(kernel, "cache_folder", lambda: tmp_path)
    monkeypatch.setattr(source, "of", lambda _: upstream.LINUX)
    monkeypatch.setattr(kernel, "compiler", lambda: "cc")
    assert {*kernel.recipe(simulated=True).files} - {*kernel.recipe().files} == {kernel.COSTED}
    with pytest.raises(RequirementError, match="with CPU costs, but it has not been built"):
        kernel.with_costs()
    newer = dataclasses.replace(upstream.LINUX, release="6.12.1")
    with pytest.raises(RequirementError, match=r"expected Linux 6\.1, the only version"):
        kernel.recipe(newer, simulated=True)


def test_the_order_is_that_of_the_patch() -> None:
    patch = (building.HERE / kernel.COSTED).read_text(encoding="utf-8")
    places = re.findall(r"^\+\tUM_([A-Z_]+),", patch, re.MULTILINE)
    assert places == [place.upper() for place in simulated_cpu_costs.PLACES]


def test_a_cell_charges_its_column_and_a_kernel_that_cannot_is_named(tmp_path: Path) -> None:
    made = planned(tmp_path, costs_of("both"))
    world = World()
    composing = composer(made, tmp_path, world.host("initiator"))
    file, where = str(cells.SIMULATED_CPU_COSTS), (made.columns[0], made.jobs[0])
    with composing._charged(*where):
        charged = ",".join(map(str, made.simulated_cpu_costs["local"][f"both {where[1].name}"]))
        assert world.secret_files == {file: charged}
    assert world.secret_files == {file: ",".join(["0"] * len(simulated_cpu_costs.PLACES))}, (
        "and nothing after it"
    )
    world.broken = lambda command: command.argv == ("write", file)
    with pytest.raises(RequirementError, match="in the initiator's kernel"):
        composing._charged(*where).__enter__()
    world.broken = lambda _: False
    with pytest.raises(HostLost, match="its kernel ended"), composing._charged(*where):
        world.broken = lambda _: True
        raise HostLost("its kernel ended")


def test_what_is_predicted_is_no_evidence() -> None:
    predicted = {"lab_kernel": LabKernel.CUSTOM, "clock": "virtual", "predicted_from": "mine 0123ab"}
    cell = {"workload": "x", "repeat": 1, "order": 0, "status": Status.OK, "link": "wired"}
    record = flat.record(run_id="r1", testbed="lab", **predicted, **cell)
    assert collect([record], {}) == []
    assert [row["clock"] for row in export.rows([record])] == ["predicted from mine 0123ab"]
