"""What a volume keeps over a path: the sum, what is said of it, and where nothing is."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from bench import volumes as score
from harness import report
from harness.explain.volumes import COMPUTED, DISKS, OWN, VolumeOverPath, lines, volumes
from harness.model import Backing, BackingKind, Column, Job, Plan
from harness.parse.disks import load_disk
from harness.report import LoadedResults
from tests.unit.command import harness

FIGURES = Path(__file__).parents[3] / "docs" / "figures"
MAKE_RUN = FIGURES / "make-run"
READS = ("seq-read-4k", "seq-read-256k", "rand-read-4k", "rand-read-256k")


def loaded(
    folder: str = "make-run", job: tuple[tuple[str, str | None], ...] = (), **storage: Any
) -> LoadedResults:
    """A stored run; with other storage, or with options that its jobs have besides."""
    found = report.load([FIGURES / folder])

    def changed(plan: Plan) -> Plan:
        jobs = tuple(Job(name=each.name, options=(*each.options, *job)) for each in plan.jobs)
        return replace(plan, jobs=jobs, storage=replace(plan.storage, **storage))

    return replace(found, plans={run: changed(plan) for run, plan in found.plans.items()})


def of(found: list[VolumeOverPath], disk: str, column: str, workload: str) -> VolumeOverPath:
    (one,) = (e for e in found if (e.disk, e.column.label, e.workload) == (disk, column, workload))
    return one


def test_each_disk_over_each_column_is_the_paths_time_and_then_the_disks() -> None:
    found = loaded()
    made = found.volumes
    columns = ("wired", "wifi", "wired+aes128gcm16", "wifi+aes128gcm16")
    assert {(e.disk, e.column.label, e.workload) for e in made} == {
        (disk, column, workload) for disk in DISKS for column in columns for workload in READS
    }
    assert len(made) == 3 * 4 * 4 and {each.mark for each in made} == {COMPUTED}
    rates = {(cell.evidence.column.label, cell.evidence.workload): cell.mb_s for cell in found.explained}
    for column in columns:
        for workload, block_bytes, disk_us in (("rand-read-4k", 4096, 100), ("seq-read-256k", 1 << 18, 500)):
            rate = rates[column, workload]
            assert rate is not None
            one = of(made, "sata-ssd", column, workload)
            assert one.disk_mb_s == pytest.approx(block_bytes / disk_us)
            assert one.over_mb_s == pytest.approx(block_bytes / (block_bytes / rate + disk_us))
            assert one.over_mb_s is not None and not one.is_read_ahead
            assert one.kept == pytest.approx(one.over_mb_s / one.disk_mb_s)
            assert one.low_mb_s <= one.over_mb_s <= one.high_mb_s < min(rate, one.disk_mb_s)
    one = of(made, "hdd-7200", "wired", "seq-read-256k")
    assert one.over_mb_s == pytest.approx(78) and one.kept == pytest.approx(1) and one.is_read_ahead
    assert of(made, "hdd-7200", "wifi", "rand-read-256k").is_read_ahead is False


def test_nothing_is_said_of_one_name_for_reads_in_sequence_and_at_random() -> None:
    found = loaded()
    ((run, plan),) = found.plans.items()
    swapped = [
        replace(
            job, options=tuple((k, "randread" if (k, v) == ("rw", "read") else v) for k, v in job.options)
        )
        for job in plan.jobs
    ]
    both = replace(
        found,
        records=[*found.records, *(replace(each, run_id="other") for each in found.records)],
        plans={run: plan, "other": replace(plan, run_id="other", jobs=tuple(swapped))},
    )
    assert {each.workload for each in both.volumes} == {"rand-read-4k", "rand-read-256k"}


def test_it_is_what_the_disk_gave_in_virtual_time() -> None:
    computed = report.load([FIGURES / "protections-virtual"]).volumes
    measured = {
        (cell.evidence.column, cell.evidence.workload): cell.mb_s
        for cell in report.load([FIGURES / "iscsi-ipsec-virtual"]).explained
    }
    same = [
        (each, rate)
        for each in computed
        if each.disk == "hdd-7200" and (rate := measured.get((each.column, each.workload)))
    ]
    assert len(same) == 8, "wired and wifi, each with AES-GCM and without, two workloads"
    for each, rate in same:
        assert each.over_mb_s == pytest.approx(rate, rel=0.05), (each.column.label, each.workload)


def test_the_answer_has_three_lines_below_their_headings_and_says_once_that_they_are_computed() -> None:
    said = lines(loaded().volumes, 80)
    assert said == [
        "MB/s over wired, computed  seq. 256K reads   random 4K reads     seq. 4K reads",
        "HDD 7200 rpm, reads ahead  78 of 78, all     0.76 of 0.78, 97 %  19 of 78, 24 %",
        "SATA SSD                   88 of 524, 17 %   15 of 41, 37 %      15 of 41, 37 %",
        "NVMe SSD                   102 of 2492, 4 %  18 of 78, 24 %      18 of 78, 24 %",
    ]
    assert max(map(len, said)) <= 80
    assert [line.count("  ") > 0 for line in lines(loaded().volumes, 50)] == [True] * 4
    assert max(map(len, lines(loaded().volumes, 50))) <= 50, "workloads are left out"
    assert "\n".join(said) in harness("explain", "--summary", str(MAKE_RUN), cwd=FIGURES).stdout
    reported = json.loads(harness("explain", "--format", "json", str(MAKE_RUN), cwd=FIGURES).stdout)
    assert len(reported["volumes"]) == 48 and reported["volumes"][0]["mark"] == COMPUTED


def test_a_protected_column_is_shown_if_there_is_no_other_and_what_the_lab_limits_is_not() -> None:
    made = loaded().volumes
    protected = [each for each in made if each.column.protection]
    assert lines(protected, 80)[0].startswith("MB/s over wired+aes128gcm16, computed")
    assert lines([replace(each, is_lab_limited=True) for each in made], 80) == []
    slower = [replace(each, is_lab_limited=each.column.link == "wired") for each in made]
    assert lines(slower, 80)[0].startswith("MB/s over wifi, computed")


def test_nothing_is_said_where_the_sum_is_not_right() -> None:
    block = Backing(kind=BackingKind.BLOCK, size_bytes=1 << 27, path="/dev/sdz")
    assert loaded("iscsi-ipsec-virtual").volumes == [], "the disk is in the figure"
    assert loaded(disk=load_disk("nvme")).volumes == []
    assert loaded(backing=block).volumes == [], "a real one, or that of a portal"
    assert len(loaded(disk=load_disk("ram")).volumes) == 48
    for option in (("direct", "0"), ("thinktime", "5"), ("size", "1m"), ("random_distribution", "zipf:1.1")):
        assert loaded(job=(option,)).volumes == [], option
    found = loaded()
    deep = [replace(each, evidence=replace(each.evidence, depth=8)) for each in found.explained]
    unknown = [replace(each, evidence=replace(each.evidence, time_ns=None)) for each in found.explained]
    for cells in (deep, unknown):
        assert volumes(found, cells) == [] and lines([], 80) == []
    assert volumes(replace(found, plans={}), found.explained) == []


def test_of_the_initiators_own_disk_writes_are_known_and_of_sequences_bounds() -> None:
    own = Backing(kind=BackingKind.BLOCK, size_bytes=1 << 27, path="/dev/sdz")
    found = loaded(local_device=own)
    times = {
        (cell.evidence.column.label, cell.evidence.workload): cell.evidence.time_ns
        for cell in found.explained
    }
    made = found.volumes
    assert len([each for each in made if each.disk == OWN]) == 4 * 8, "reads and writes"
    for workload, block_bytes in (("rand-write-4k", 4096), ("seq-write-256k", 1 << 18)):
        local, path = times["local", workload], times["wired", workload]
        assert local is not None and path is not None
        one = of(made, OWN, "wired", workload)
        assert one.disk_mb_s == pytest.approx(block_bytes / local.mid * 1e3)
        assert one.low_mb_s == pytest.approx(block_bytes / (local.high + path.high) * 1e3)
        if one.is_random:
            assert one.over_mb_s == pytest.approx(block_bytes / (local.mid + path.mid) * 1e3)
        else:
            assert one.high_mb_s == pytest.approx(block_bytes / max(local.low, path.low) * 1e3)
            assert (one.over_mb_s, one.kept) == (None, None)
    said = lines(made, 80)
    assert len(said) == 7 and said[4].startswith("The initiator's disk")
    assert said[5].startswith("MB/s over wired, computed  seq. 256K writes") and " to " in said[6]
    memory = Backing(kind=BackingKind.RAMDISK, size_bytes=1 << 27)
    assert not any(each.disk == OWN for each in loaded(local_device=memory).volumes)


def test_the_score_counts_what_is_near_its_profile() -> None:
    found = [
        score.Tried("nvme", Column("wired"), name, computed, 100.0, local)
        for name, computed, local in (
            ("seq-read-256k", 104.0, 0.0),
            ("rand-read-256k", 94.0, -0.05),
            ("seq-read-4k", 200.0, 0.5),
        )
    ]
    said = [score.summary(found, clock) for clock in (score.VIRTUAL, score.REAL)]
    assert said[0] == "virtual time: 1 of 3 cells within 5 %, worst by 100.0 %"
    assert "real time: 2 of 2 cells within 15 %, worst by 6.0 %; 1 of 3 left out" in said[1]
    (row,) = score.table(found, score.REAL)
    assert "104 / 100 (+4.0 %)" in row and "local +50 %" in row
    assert "rw=randread\nbs=4k\nruntime=10s" in score.jobs(score.VIRTUAL, "hdd-7200")
    assert not any("10s" in score.jobs(*of) for of in ((score.VIRTUAL, "nvme"), (score.REAL, "hdd-7200")))
