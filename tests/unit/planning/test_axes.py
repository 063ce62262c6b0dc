"""Workloads at other depths and blocks, and with other numbers of jobs."""

from __future__ import annotations

import pytest

from harness.model import Job, Workload
from harness.model.errors import UsageError
from harness.parse import jobfile
from harness.parse.jobfile import described, load_jobs
from harness.planning.axes import varied

DOCUMENT = load_jobs("document")[1]
MODERN = load_jobs("modern")[1]


def test_every_combination_is_a_workload_with_numbers_and_a_name_that_says_them() -> None:
    reads = tuple(job for job in DOCUMENT if job.name.startswith("rand-read"))
    notes: list[str] = []
    made = varied(reads, depths=["1,16"], blocks=["64K", "1M,512"], numjobs=["4"], notes=notes)
    points = [described(job) for job in made]
    assert [(each.name, each.block_bytes, each.depth, each.numjobs) for each in points] == [
        (f"rand-read-{block}-qd{depth}-j4", block_bytes, depth, 4)
        for block, block_bytes in (("64k", 65536), ("1m", 1 << 20), ("512", 512))
        for depth in (1, 16)
    ]
    assert {each.base for each in points} == {"rand-read"}
    # The engine of the document does one at a time: at all depths another one takes its place, or none.
    assert {dict(job.options)["ioengine"] for job in made} == {"libaio"}
    assert notes == ["rand-read-4k, rand-read-256k: libaio, because their engines do one I/O at a time"]


def test_what_is_not_asked_for_stays() -> None:
    notes: list[str] = []
    assert varied(DOCUMENT, notes=notes) == DOCUMENT
    one = varied(DOCUMENT, depths=["1"], notes=notes)
    assert all(dict(job.options)["ioengine"] == "psync" for job in one) and notes == []
    deep = varied(MODERN, depths=["8"], notes=notes)
    names = ["seq-write-128k-qd8", "seq-read-128k-qd8", "rand-write-4k-qd8"]
    assert [described(job).name for job in deep][:3] == names
    assert notes == ["fsync-4k: libaio, because their engines do one I/O at a time"]
    for job in deep:
        jobfile.job_file(job, device="/dev/x", size_bytes=1 << 27, seed=1)


def test_impossible_values_are_refused() -> None:
    for asked, said in (
        ({"depths": ["0"]}, "--depth: expected a whole number from 1 to 65536, found '0'"),
        ({"depths": ["1,,2"]}, "--depth"),
        ({"depths": ["deep"]}, "--depth"),
        ({"blocks": ["4KB"]}, "--block: '4KB' could mean"),
        ({"blocks": ["0"]}, "--block: expected more than 0"),
        ({"numjobs": ["4097"]}, "--jobs: expected a whole number from 1 to 4096"),
    ):
        with pytest.raises(UsageError) as refused:
            varied(DOCUMENT, notes=[], **asked)
        assert said in refused.value.message and refused.value.hint


def test_two_workloads_never_share_a_name() -> None:
    plain = Job(name="log-4k", options=(("rw", "write"), ("bs", "4k")))
    durable = Job(name="log-8k", options=(("rw", "write"), ("bs", "8k"), ("fdatasync", "1")))
    with pytest.raises(UsageError, match="would both be called log-16k"):
        varied([plain, durable], blocks=["16K"], notes=[])
    assert [job.name for job in varied([plain, plain], blocks=["16K"], notes=[])] == ["log-16k"]


def test_a_curve_is_named_by_what_its_points_have_in_common() -> None:
    for workload, base in (
        (Workload(name="rand-read-4k", block_bytes=4096, depth=1, numjobs=1), "rand-read"),
        (Workload(name="rand-read-4k-qd32", block_bytes=4096, depth=32), "rand-read"),
        (Workload(name="rand-read-4k-qd32", block_bytes=4096, depth=1), "rand-read-qd32"),
        (Workload(name="4k", block_bytes=4096), "4k"),
        (Workload(name="mine"), "mine"),
    ):
        assert workload.base == base
