"""Predictions from CPU cost files: what limits, how sure, and that they are never taken for a measurement."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from harness.analysis.cpu_costs import CpuCost, CpuCosts, Fit, Operation, Per, WhichEnd
from harness.analysis.limit import Limit
from harness.explain import compared, demand, predicted
from harness.explain.predicted import Ends, NetworkPath, Predicted
from harness.model import Column, Job, Record
from harness.model.errors import UsageError
from harness.model.probing import CipherFigures
from harness.model.telemetry import ProcessorUse
from harness.parse.cpu_costs import written
from harness.parse.profiles import load_link, load_proposal
from harness.results.measured import Measured
from tests.unit.analysis.test_cpu_costs import cost
from tests.unit.command import harness
from tests.unit.explain.test_explain import SESSION, known

RUN = Path(__file__).parents[3] / "docs" / "figures" / "make-run"
GCM = load_proposal("aes128gcm16")
BOTH_ENDS = (WhichEnd.INITIATOR, WhichEnd.TARGET)


def job(bs: str, depth: int = 1, rw: str = "randread", **more: str) -> Job:
    engine = {"ioengine": "libaio", "iodepth": str(depth)} if depth > 1 else {"ioengine": "psync"}
    options = {"rw": rw, "bs": bs, "direct": "1", **engine, **more}
    return Job(name=f"{rw}-{bs}-qd{depth}", options=tuple(options.items()))


def costs_of(at: tuple[WhichEnd, ...] = (WhichEnd.BOTH,), scale: float = 1.0, **changes: Any) -> CpuCosts:
    """A machine that takes a few us for each operation; an ESP packet is dear."""
    ns = {Per.BYTE: 0.1, Per.CALL: 1000.0, Per.WAKE_UP: 2000.0, Per.IO: 5000.0, Per.PACKET: 3000.0}
    both, sealed = ("read", "write"), ("encrypt", "decrypt")
    operations = [
        *(Operation("block layer", each, d) for each in (Per.CALL, Per.BYTE) for d in both),
        Operation("block layer", Per.WAKE_UP),
        *(Operation("iscsi", each) for each in (Per.IO, Per.PACKET, Per.WAKE_UP)),
        *(Operation("iscsi", Per.BYTE, d) for d in both),
        *(Operation("emulated link", each) for each in (Per.IO, Per.PACKET, Per.WAKE_UP)),
        Operation("ESP", Per.PACKET),
        *(Operation("aes128gcm16", each, d) for each in (Per.PACKET, Per.BYTE) for d in sealed),
    ]
    simulated = [cost(each, scale * ns[each.per], 0.1 * scale * ns[each.per]) for each in operations]
    made = [replace(each, at=end) for end in at for each in simulated]
    session = {name: int(value) for name, value in SESSION.items()} | {"max_sectors_kb": 1024}
    whole: dict[str, Any] = {"fit": Fit(cells=40, repeats=2, error=0.03), "sessions": {"iscsi": session}}
    return CpuCosts(name="x", version=1, title="x", costs=tuple(made), **whole | changes)


ENDS = Ends(target=costs_of())


def network_path(link: str = "wired", *protection: str) -> NetworkPath:
    profile = load_link(link)
    return NetworkPath(column=Column(profile.name, protection), link=profile, proposals={"aes128gcm16": GCM})


def one(ends: Ends, of: NetworkPath, asked: Job) -> Predicted:
    (found,) = predicted.predict(ends, [of], [asked])
    assert found.why_not or (found.rate_mb_s and found.rate_mb_s.low and found.rate_mb_s.high)
    return found


def rate(ends: Ends, of: NetworkPath, asked: Job) -> float:
    return known(one(ends, of, asked).mb_s)


def test_what_limits_is_what_is_full() -> None:
    assert one(ENDS, network_path(), job("4k")).limited_by is Limit.LATENCY
    assert one(ENDS, network_path(), job("1m", 8)).limited_by is Limit.LINK
    assert one(ENDS, network_path("wired:unshaped", "aes128gcm16"), job("64k", 8)).limited_by is Limit.CPU
    # No more than the link carries, and more in flight is no slower.
    assert rate(ENDS, network_path(), job("4k", 32)) <= 1.001 * known(
        one(ENDS, network_path(), job("4k", 32)).bound_mb_s
    )
    assert (
        rate(ENDS, network_path(), job("4k", 32))
        > rate(ENDS, network_path(), job("4k", 8))
        > rate(ENDS, network_path(), job("4k"))
    )
    # A local disk takes what the core works: a system call, a wake-up and 4096 bytes.
    found = one(ENDS, NetworkPath(column=Column("local")), job("4k"))
    assert found.mb_s == pytest.approx(4096e3 / (1000 + 2000 + 409.6))
    assert found.limited_by is Limit.CPU and found.bound_mb_s is None
    mixed = rate(ENDS, network_path(), job("4k", 8, rw="randrw", rwmixread="70"))
    reads, writes = (rate(ENDS, network_path(), job("4k", 8, rw=rw)) for rw in ("randread", "randwrite"))
    # Each direction of the link has its own part.
    assert 1 / (0.7 / reads + 0.3 / writes) < mixed < min(reads / 0.7, writes / 0.3)


def test_a_link_between_two_machines_is_a_cable_and_needs_no_cost_of_emulation() -> None:
    of_both = costs_of(BOTH_ENDS)
    costs = tuple(cost for cost in of_both.costs if cost.part != "emulated link")
    costs += (CpuCost(part="link", per=Per.ROUND_TRIP, at=WhichEnd.NONE, ns=7000, low=7000, high=7000),)
    ends = Ends(target=replace(of_both, costs=costs))
    near, far = (
        4096e3 / rate(ends, network_path(link), job("4k"))
        for link in ("wired:unshaped", "wired:unshaped,rtt=300us")
    )
    assert far - near == pytest.approx(300_000)
    assert one(ends, network_path("wired:rtt=300us"), job("4k")).breakdown_ns["idle"] == 7000
    fast, slow = costs_of(BOTH_ENDS, 0.2), costs_of(BOTH_ENDS, 4.0)  # They have a core each.
    protected, asked = network_path("wired:unshaped", "aes128gcm16"), job("64k", 16)
    alike = rate(Ends(target=slow, initiator=slow), protected, asked)
    assert rate(Ends(target=slow, initiator=fast), protected, asked) == pytest.approx(alike, rel=0.3)
    assert rate(Ends(target=fast, initiator=fast), protected, asked) > 4 * alike
    found = one(Ends(target=fast, initiator=slow), protected, asked)
    assert found.breakdown_ns["initiator_cpu"] > 10 * found.breakdown_ns["target_cpu"]


def test_intervals_hold_the_figure_and_grow_with_what_costs_leave_open() -> None:
    vague = costs_of(fit=Fit(cells=40, repeats=2, error=0.3))
    sure, unsure = (one(Ends(target=each), network_path(), job("4k", 32)) for each in (ENDS.target, vague))
    for each in (sure, unsure):
        found = known(each.rate_mb_s)
        assert found.low < found.mid < found.high
    assert known(unsure.rate_mb_s).low < known(sure.rate_mb_s).low
    assert {name for name, part in sure.made_of.items() if part} == {"CPU costs", "fit", "model"}
    # CPU costs of one direction stand for both with a wider interval.
    whole = ENDS.target
    reads = replace(whole, costs=tuple(cost for cost in whole.costs if cost.direction != "write"))
    sure, borrowed = (
        one(Ends(target=each), network_path(), job("4k", 8, rw="randwrite")) for each in (whole, reads)
    )
    assert borrowed.mb_s == sure.mb_s and known(borrowed.rate_mb_s).low < known(sure.rate_mb_s).low
    assert borrowed.made_of["the other direction's CPU costs"] > 0


def test_lists_without_an_end_are_refused_and_those_of_a_busy_machine_doubted() -> None:
    with pytest.raises(UsageError, match="both ends in one kernel"):
        predicted.predict(Ends(target=costs_of(), initiator=costs_of()), [network_path()], [job("4k")])
    with pytest.raises(UsageError, match="single operations alone"):
        predicted.predict(Ends(target=costs_of(())), [network_path()], [job("4k")])
    busy = costs_of(fit=Fit(cells=40, repeats=2, error=0.03, taken=0.6))
    (doubt,) = predicted.doubts(Ends(target=busy, initiator=costs_of()))
    assert "60%" in doubt and "measure again" in doubt
    a = costs_of()
    lines, said = compared.of_lists(a, costs_of(scale=1.05))
    assert len(lines) == len(a.costs) and all(line[5] == "1.05" for line in lines)
    assert said.startswith(f"{len(lines)} of {len(lines)} CPU costs agree") and "1.05" in said
    lines, said = compared.of_lists(a, costs_of(scale=2.0))
    assert said.startswith("0 of") and all(line[6] == "differ" for line in lines)
    least, most = costs_of(scale=1e-320), costs_of(scale=1e5)
    for two in ((most, least), (least, most)):
        assert "a factor of" in compared.of_lists(*two)[1], "a CPU cost next to nothing"
    lines, said = compared.of_lists(a, costs_of(()))
    assert said.startswith("0 of 0") and all(line[4] == "" for line in lines)


def test_what_has_no_cost_says_why() -> None:
    for of, asked, why in (
        (network_path(), job("4k", rw="randwrite", fdatasync="1"), "flushes"),
        (network_path(), job("4k", bsrange="4k-64k"), "several sizes"),
        (network_path("wired", "aes256gcm16"), job("4k"), "over the wire is unknown"),
        (network_path("wired", "macsec"), job("4k"), "no CPU cost of MACsec"),
    ):
        found = one(ENDS, of, asked)
        assert why in found.why_not and found.mb_s is None


@pytest.fixture(scope="module")
def stored() -> Measured:
    return Measured.read([RUN])


def with_uses(run: Measured, change: Callable[[Record, ProcessorUse], list[ProcessorUse]]) -> list[Record]:
    """The run's records with other uses of processors than the one that each has."""
    found = []
    for record in run.records:
        seen = known(record.telemetry)
        (use,) = seen.processors
        found.append(replace(record, telemetry=replace(seen, processors=tuple(change(record, use)))))
    return found


def test_a_stored_run_gives_costs_that_predict_it(stored: Measured) -> None:
    found = demand.costs_of(stored)
    fit = known(found.fit)
    assert fit.cells == 40 and fit.error < 0.1
    assert 1000 < found.at(WhichEnd.BOTH)[Operation("ESP", Per.PACKET)].ns < 20_000
    assert {"iscsi", "block layer", "aes128gcm16"} <= {cost.part for cost in found.costs}
    said = one(Ends(target=found), network_path(), job("4k"))
    assert said.mb_s == pytest.approx(24, rel=0.1)  # the table of that run
    assert all(cost.rests_on for cost in found.costs)
    assert not any(text in written(found) for text in ("54c5", "ssh:", "make-run"))
    slower = []  # Disturbed repeats do not count where there are others.
    for record in with_uses(stored, lambda _, use: [replace(use, wall_ns=2 * use.wall_ns)]):
        others = tuple(replace(each, taken=0.5, slowed=0.5) for each in record.background_load)
        slower.append(replace(record, telemetry=replace(known(record.telemetry), background_load=others)))
    both = demand.costs_of(replace(stored, records=[*stored.records, *slower]))
    assert both.costs == found.costs != demand.costs_of(replace(stored, records=slower)).costs


def test_kernels_per_host_have_costs_of_each_end(stored: Measured) -> None:
    def apart(record: Record, both: ProcessorUse) -> list[ProcessorUse]:
        # Three quarters of the work is the initiator's; locally it has all.
        own = 1.0 if record.column.is_local else 0.75
        busy, parts = both.busiest_core or 0.0, {"initiator": own, "target": 1 - own}
        return [replace(both, hosts=(end,), busiest_core=busy * part) for end, part in parts.items()]

    probes = []
    for probe in stored.probes:
        if isinstance(probe.figures, CipherFigures):
            (kernel,) = probe.figures.kernels
            kernels = tuple(replace(kernel, ends=(end,)) for end in kernel.ends)
            probe = replace(probe, figures=replace(probe.figures, kernels=kernels))
        probes.append(probe)
    found = demand.costs_of(replace(stored, records=with_uses(stored, apart), probes=probes))
    assert {cost.at for cost in found.costs} == {WhichEnd.INITIATOR, WhichEnd.TARGET, WhichEnd.NONE}
    assert not any(cost.part == "block layer" for cost in found.at(WhichEnd.TARGET).values())
    said = one(Ends(target=found), network_path("wired", "aes128gcm16"), job("256k"))
    assert said.breakdown_ns["initiator_cpu"] > said.breakdown_ns["target_cpu"] > 0
    assert said.mb_s == pytest.approx(102, rel=0.1)  # the table of that run
    # Each end encrypts what it sends: the target most of what is read.
    assert found.at(WhichEnd.TARGET).keys() >= {Operation("aes128gcm16", Per.BYTE, "encrypt")}


def test_runs_without_costs_are_refused(stored: Measured) -> None:
    for folder, said in (("scale-virtual", "virtual time"), ("packet-rate", "no results")):
        with pytest.raises(UsageError, match=said):
            demand.costs_of(Measured.read([RUN.parent / folder]))

    def long(record: Record, use: ProcessorUse) -> list[ProcessorUse]:
        """As over a slow ssh, where counters are read for seconds around a short cell."""
        return [replace(use, wall_ns=round(demand.MOST_WATCHED * known(record.fio_ns)) + 1)]

    with pytest.raises(UsageError, match="at most 3 times fio's run time, found none") as refused:
        demand.costs_of(replace(stored, records=with_uses(stored, long)))
    assert "--runtime" in (refused.value.hint or "")


def test_the_command_makes_a_list_of_a_run_and_compares_two(tmp_path: Path) -> None:
    done = harness("cpu-cost", str(RUN), "-o", "a.toml", cwd=tmp_path)
    assert done.returncode == 0 and "off by" in done.stderr, done.stderr
    done = harness("cpu-cost", "a.toml", "a.toml", cwd=tmp_path)
    assert done.returncode == 0 and "CPU costs agree" in done.stdout, done.stderr
    assert harness("cpu-cost", "a.toml", "a.toml", "a.toml", cwd=tmp_path).returncode == 2
    assert harness("cpu-cost", "nowhere", cwd=tmp_path).returncode == 2
