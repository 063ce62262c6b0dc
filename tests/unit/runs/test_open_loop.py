"""The open loop: when requests are due, and from when their latency counts."""

from __future__ import annotations

import itertools
import json
import random
import subprocess
import sys
from pathlib import Path
from statistics import mean, stdev
from typing import Any

import pytest

from harness.hosts import programs
from harness.model import Clock
from harness.parse import fio, jobfile
from harness.parse.jobfile import load_jobs
from harness.parse.open_loop import at_rate
from harness.runs import fio_startup
from harness.runs.programs import open_loop

pytestmark = pytest.mark.thorough

SIZE = 1 << 24


def report(tmp_path: Path, workload: str, load: int, runtime_s: float = 0.5, **changes: str) -> fio.FioJob:
    """What the program reports of a job on a file."""
    (chosen,) = (job for name in ("basic", "modern") for job in load_jobs(name)[1] if job.name == workload)
    (device := tmp_path / "disk").write_bytes(bytes(SIZE))
    of: dict[str, Any] = {"device": str(device), "size_bytes": SIZE, "seed": 7, "runtime_s": runtime_s}
    text = jobfile.job_file(at_rate(chosen, load, runtime_s), **of, clock=Clock.VIRTUAL)
    lines = [line for line in text.splitlines() if line.partition("=")[0] not in {"direct", *changes}]
    given = "\n".join([*lines, *(f"{option}={value}" for option, value in changes.items())])
    argv = [sys.executable, *fio_startup.open_loop().argv[1:]]
    done = subprocess.run(argv, input=given, capture_output=True, text=True, check=True, timeout=60)
    (job,) = fio.parse(done.stdout).jobs
    assert not job.invalid
    return job


def test_a_report_is_read_as_fios(tmp_path: Path) -> None:
    job = report(tmp_path, "rand-read-4k", 2000)
    assert job.read is not None and job.write is None and job.percentiles_of == "lat"
    # 5 % of the time is not counted.
    assert job.read.ios == pytest.approx(950, rel=0.15) and job.read.iops == pytest.approx(2000, rel=0.25)
    assert job.read.bytes == 4096 * job.read.ios == 4096 * sum(job.read_bins.values())
    latency = job.read.latency
    assert latency.min_ns and latency.max_ns and latency.p50_ns and latency.p99_ns and latency.p99_9_ns
    assert latency.min_ns <= latency.p50_ns <= latency.p99_ns <= latency.p99_9_ns <= latency.max_ns
    # With one slot and far too many requests, what waits at the end has waited since it was due.
    job = report(tmp_path, "rand-read-4k", 300_000, 0.2, iodepth="1")
    assert job.read is not None
    assert (job.read.latency.p99_ns or 0) > 1e7 and (job.read.latency.p50_ns or 0) > 1e7


def test_it_writes_what_cannot_be_compressed(tmp_path: Path) -> None:
    job = report(tmp_path, "rand-write-4k", 500)
    assert job.write is not None and job.read is None
    written = (tmp_path / "disk").read_bytes()
    assert len(set(written)) == 256
    report(tmp_path, "rand-write-4k", 500, offset=str(SIZE // 2), size=str(SIZE // 4))
    written = (tmp_path / "disk").read_bytes()
    assert any(written[SIZE // 2 :]) and not any(written[: SIZE // 2]) and not any(written[3 * SIZE // 4 :])


def test_requests_are_due_as_of_a_poisson_process() -> None:
    first, second = (random.Random(1) for _ in range(2))  # noqa: S311
    due = open_loop.arrivals(1000, 50.0, first)
    between = [after - before for before, after in itertools.pairwise(due)]
    assert mean(between) == pytest.approx(1e6, rel=0.02) and stdev(between) == pytest.approx(1e6, rel=0.03)
    assert due == open_loop.arrivals(1000, 50.0, second)
    found = {part: open_loop.percentile(list(range(1, 101)), part) for part in (0.5, 0.99, 0.999, 0.001)}
    assert found == {0.5: 50, 0.99: 99, 0.999: 100, 0.001: 1}
    latencies = [37, 1_000_003, 5 * 10**9]
    reported = json.loads(json.dumps(open_loop.direction(latencies, 4096, 10**9, [50.0])))
    assert [int(key) for key in reported["lat_ns"]["bins"]] == pytest.approx(latencies, rel=0.01)


def test_it_needs_nothing_of_ours() -> None:
    argv = fio_startup.open_loop().argv
    imported = [line.split()[1] for line in argv[-1].splitlines() if line.startswith(("import ", "from "))]
    assert argv[0] == programs.PYTHON and "harness" not in imported
    assert len(argv[-1].encode()) < 1 << 17  # MAX_ARG_STRLEN
