"""The open loop: when requests are due, and from when their latency counts."""

from __future__ import annotations

import errno
import itertools
import json
import os
import random
import subprocess
import sys
import threading
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


def outlasting(tmp_path: Path, rate: int = 500, fault: str = "0.1", **changes: str) -> open_loop.Outlasting:
    """Writes on a file, around no fault at all."""
    (device := tmp_path / "disk").write_bytes(bytes(SIZE))
    options = {"filename": str(device), "bs": "4096", "iodepth": "64", "rw": "randwrite", "size": str(SIZE)}
    options |= {"randseed": "7", "rate_iops": str(rate)}
    load = open_loop.Outlasting(options | changes, "0.2", fault, "10")
    load.run()
    return load


def test_writes_around_a_fault_go_on_until_a_second_is_on_time(tmp_path: Path) -> None:
    load = outlasting(tmp_path)
    assert [row[0] for row in load.rows] == load.due[: len(load.rows)]
    # A busy machine may let this program wait, which then finds no room for what was due meanwhile, and goes
    # on for longer. Most of the time it does not, and what has been sent ends.
    assert {error for *_, error in load.rows} <= {0, errno.EAGAIN}
    assert all(latency >= 0 for _, latency, error in load.rows[: len(load.rows) // 2] if not error)
    # After the fault's end and a second.
    assert load.rows[-1][0] >= 1.2e9
    assert load.around()["lost"] == [] and 0 < load.around()["blocks"] <= len(load.rows)  # type: ignore[operator]


def test_a_fault_may_be_over_when_a_file_is_there(tmp_path: Path) -> None:
    told = tmp_path / "told"
    threading.Timer(0.5, told.touch).start()
    load = outlasting(tmp_path, fault=str(told), runtime="60000000us")
    assert load.end_ns >= 0.2e9 and load.rows[-1][0] >= load.end_ns + 0.9e9


def test_a_planted_lost_write_is_found(tmp_path: Path) -> None:
    """One that is as it was before, one that is of an earlier request, and one of which a part is."""
    load = outlasting(tmp_path, rate=3000, size=str(256 << 10), iodepth="8")
    disk, block = tmp_path / "disk", load.device.block
    done = [request for request, (_, latency, error) in enumerate(load.rows) if latency >= 0 and not error]
    newest = {request % load.window: request for request in done}
    assert len(newest) == load.window == 64 and newest[5] >= load.window
    with disk.open("r+b") as stream:

        def plant(number: int, data: bytes) -> None:
            stream.seek(number * block)
            stream.write(data)

        plant(3, bytes(block))
        unit = open_loop.UNIT.pack(open_loop.STAMP, 5, newest[5] - load.window, load.seed)
        plant(5, unit * (block // len(unit)))
        plant(9, bytes(512))
    lost = {number: (request, found) for number, request, found in load.read_back()["lost"]}  # type: ignore[attr-defined]
    assert lost == {3: (newest[3], -1), 5: (newest[5], newest[5] - load.window), 9: (newest[9], -1)}


def test_a_disk_that_the_kernel_has_removed_has_lost_nothing_that_could_be_seen(tmp_path: Path) -> None:
    """It is open, and ends at 0."""
    load = outlasting(tmp_path)
    os.truncate(tmp_path / "disk", 0)
    assert load.around().get("not_read_back") == "No such device"


def test_errors_and_requests_that_find_no_room_are_told(tmp_path: Path) -> None:
    """Writes that are too long for a file's limit fail; with one slot most of many find none."""
    load = outlasting(tmp_path, iodepth="1", rate=40_000)
    assert {error for *_, error in load.rows} <= {0, errno.EAGAIN}
    with pytest.raises(SystemExit, match="expected room for more than 64 blocks, found 64"):
        outlasting(tmp_path, size=str(256 << 10))
