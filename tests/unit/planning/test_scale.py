"""Several initiators in one kernel: what a user may ask for, what fio is told, and what the table says."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from harness.analysis.stats import fairness
from harness.model import ClientPart, Clock, Io, LabKernel, Latency, Record, Status, TestbedKind
from harness.model.errors import UsageError
from harness.parse.jobfile import job_file, together
from harness.planning.plan import make_plan
from harness.planning.request import Kernels, RunRequest
from harness.results import rules
from harness.runs.measure import on_disk
from harness.table import TableFormat
from harness.table.views import build_scale, render
from tests import flat
from tests.unit.fakes import World
from tests.unit.results_folder import fio_json, made_plan

LAB: dict[str, Any] = {"testbed": "lab", "links": ("wired",), "workloads": ("rand-read-4k",)}
PER_HOST: dict[str, Any] = {"kernels": Kernels.PER_HOST}
BROKEN: dict[str, Any] = {"status": Status.INVALID, "reason": "a link broke"}


def io(mb_s: float, p99_us: float | None = 100) -> Io:
    p99_ns = None if p99_us is None else 1e3 * p99_us
    moved = int(mb_s * 1e6)
    return Io(bytes=moved, ios=moved // 4096, runtime_ns=10**9, latency=Latency(p99_ns=p99_ns))


def record(*each: Io, protection: Sequence[str] = (), total: Io | None = None, **changes: object) -> Record:
    parts = [ClientPart(initiator=f"i{n}", status=Status.OK, read=part) for n, part in enumerate(each)]
    lab = {"testbed": TestbedKind.LAB, "clock": Clock.VIRTUAL, "lab_kernel": LabKernel.CUSTOM}
    cell = {"run_id": "r1", "workload": "rand-read-4k", "repeat": 1, "order": 0, "status": Status.OK}
    where = {"link": "wired", "protection": tuple(protection), "transport": "iscsi"}
    facts: dict[str, Any] = {
        "initiators": len(each),
        "clients": tuple(parts) if len(parts) > 1 else (),
        "read": total or io(sum(part.bytes for part in each) / 1e6, each[0].latency.p99_ns and 100),
    }
    return flat.record(**lab | cell | where | facts | changes)


def rows(*records: Record) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(render(build_scale(records), TableFormat.JSON))["rows"]
    return found


def test_the_lab_has_up_to_64_initiators_in_one_kernel() -> None:
    plan = make_plan(RunRequest(lab_initiators=64, **LAB))
    plain = [column.initiators for column in plan.columns if not column.protection]
    assert plain == [1, 2, 4, 8, 16, 32, 64] and plan.machines is None
    rules.check(plan, "plan.json")
    for asked, expected in (
        (PER_HOST | {"testbed": "machines"}, "--kernels per-host is for the lab, found --testbed machines"),
        ({"testbed": "machines"}, "real machines need --target"),
        ({"lab_initiators": 65}, "expected 1 to 64 initiators with --testbed lab, found 65"),
        (
            PER_HOST | {"lab_initiators": 17},
            "expected 1 to 16 initiators with --kernels per-host, found 17",
        ),
        ({"lab_initiators": 64, "links": ("wired", "10g")}, "expected at most 256 paths"),
    ):
        with pytest.raises(UsageError, match=expected):
            make_plan(RunRequest(**LAB | asked))


def test_jobs_of_one_fio_are_reported_apart_each_an_initiator_s(tmp_path: Path) -> None:
    (workload,) = made_plan().jobs[:1]
    jobs = [job_file(workload, device=f"/dev/sd{x}", size_bytes=1 << 24, seed=1) for x in "ab"]
    lines = together(jobs).splitlines()
    assert lines.count(f"[{workload.name}]") == lines.count("new_group") == 2
    assert [line for line in lines if line.startswith("filename=")] == [f"filename=/dev/sd{x}" for x in "ab"]

    def answered(*jobs: dict[int, int]) -> Any:
        """A host whose fio reports jobs with these latencies in ns, and how many I/Os had each."""
        articles = [json.loads(fio_json("rand-read-4k", bins)) for bins in jobs]
        whole = articles[0] | {"jobs": [article["jobs"][0] for article in articles]}
        host = World(answers=[(("fio",), (0, json.dumps(whole), ""))]).host("initiator")
        return on_disk(host, "jobs", tmp_path, timeout_s=1, initiators=["initiator", "initiator2"])

    done = answered({1000: 10}, {1000: 30})
    found = {part.initiator: part.read and part.read.ios for part in done.parts}
    assert found == {"initiator": 10, "initiator2": 30}
    assert (done.reasons, done.warnings) == ([], [])
    done = answered({1000: 10})
    assert done.reasons == ["expected 2 jobs in fio's output, found 1"]
    assert [part.job for part in done.parts] == [None, None]


def test_what_each_further_initiator_costs() -> None:
    assert fairness([3, 3, 3]) == pytest.approx(1)
    assert fairness([1, 0, 0, 0]) == pytest.approx(1 / 4)
    with pytest.raises(ValueError, match="none above 0"):
        fairness([0, 0])
    one, two = rows(record(io(10, 200)), record(io(6, 300), io(9, 500), total=io(15)))
    names = ["initiators", "total_mb_s", "of_one_percent", "slowest_of_fastest_percent", "jain"]
    names += ["p99_median_us", "p99_worst_us"]
    for row, values in (
        (one, (1, 10, 100, 100, 1, 100, 100)),
        (two, (2, 15, 75, 100 * 6 / 9, 15**2 / (2 * (6**2 + 9**2)), 400, 500)),
    ):
        assert row["values"] == pytest.approx(dict(zip(names, values, strict=True)))
    assert (two["link"], two["protection"], two["transport"]) == ("wired", "off", "iSCSI")


def test_what_protection_adds_is_against_as_many_without() -> None:
    plain = [record(io(10, 200)), record(io(10, 200), io(10, 200))]
    protected = record(io(8, 300), io(8, 300), protection=["aes128gcm16"], encrypts=True)
    values = rows(*plain, protected)[-1]["values"]
    assert values["protection_total_percent"] == pytest.approx(-20)
    assert values["protection_p99_percent"] == pytest.approx(50)
    assert "'" not in render(build_scale([*plain, protected]), TableFormat.CSV)  # as before a formula
    assert "of_one_percent" not in values  # one alone was not measured with it


def test_medians_of_repeats_that_count() -> None:
    pairs = [record(io(mb_s), io(mb_s)) for mb_s in (1, 2, 9)]
    (row,) = rows(*pairs, record(io(70), io(70), **BROKEN))
    assert row["values"]["total_mb_s"] == pytest.approx(4)
    # A row without a repeat that counts says why.
    text = render(build_scale([record(io(1), io(1), **BROKEN)]), TableFormat.TEXT)
    assert "INVALID [1]" in text and "[1] a link broke" in text


def test_one_initiator_alone_has_no_scale_and_unknown_percentiles_are_not_guessed() -> None:
    assert rows(record(io(1))) == []
    assert rows(record(io(1)), record(io(1), io(1), link="10g"))[0]["link"] == "10g"
    (row,) = rows(record(io(1, None), io(1)))
    assert "p99_worst_us" not in str(row)
    # What all rows share is said once to people.
    text = render(build_scale([record(io(1), io(1))]), TableFormat.TEXT)
    assert "All rows: transport iSCSI; workload rand-read-4k, read; testbed lab, virtual time." in text
