#!/usr/bin/env python3
"""How long does a report of 1 000 cells take, and how large is it?

    python bench/report_speed.py [--cells 1000] [--repeats 3] [--rounds 3]
    python bench/report_speed.py --sweep [--cells 500]

Writes runs like real ones into a scratch folder: 20 columns, as many workloads as the cells need, a plan,
and for each record fio's output with its histogram. Then ``harness report`` as a process of its own.
Prints the median time with its bounds and the page's size, and exits 1 above 5 s or 5 MB.

With ``--sweep`` the cells are points of a sweep over depth and block, 8 surfaces of 108 points each of a
network whose every point is known; a table is made as well, and each may take 2 s.
"""

from __future__ import annotations

import argparse
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import msgspec

from harness.analysis.stats import Summary, summarise
from harness.model import (
    Backing,
    BackingKind,
    Column,
    Io,
    Job,
    Latency,
    LinkProfile,
    Plan,
    Record,
    Status,
    TestbedKind,
)
from harness.parse.profiles import load_proposal
from harness.questions.sweep.plan import SweepRequest
from harness.questions.sweep.plan import make_plan as sweep_plan
from harness.results import bandwidth_series
from harness.results.axes import workloads
from harness.results.store import RunFolder, record_key
from tests import flat

BOUND_S, BOUND_MB = 5.0, 5.0
PROPOSALS = ("off", "null-sha256", "aes128gcm16", "aes128-sha256")
LINKS = ("wired", "wifi", "wan", "10g", "fast-ethernet")
COLUMNS = tuple(Column(link, () if name == "off" else (name,)) for link in LINKS for name in PROPOSALS)
SWEEP_BOUND_S = 2.0
BINS = 120
"""Different latencies in one output; a real one of half a second has 50 to 300."""
LOGGED = 60
"""Samples of bandwidth in one log: of six seconds."""
RAW = ("fio.json", "job.fio", bandwidth_series.LOG)


def made_plan(run_id: str, workloads: int, repeats: int) -> Plan:
    return flat.plan(
        run_id=run_id,
        testbed=TestbedKind.LAB,
        columns=COLUMNS,
        jobs=tuple(
            Job(
                name=f"rand-read-{4 << n % 7}k-qd{1 << n // 7}",
                options=(
                    ("rw", "randread"),
                    ("bs", f"{4 << n % 7}k"),
                    ("ioengine", "libaio"),
                    ("iodepth", str(1 << n // 7)),
                ),
            )
            for n in range(workloads)
        ),
        repeats=repeats,
        seed=1,
        backing=Backing(kind=BackingKind.RAMDISK, size_bytes=1 << 27),
        links={
            link: LinkProfile(
                name=link, title=link, emulated=True, rate_bit_s=10 ** (8 + n % 3), delay_us=50.0 * 4**n
            )
            for n, link in enumerate(LINKS)
        },
        proposals={name: load_proposal(name) for name in PROPOSALS[1:]},
    )


def write_run(root: Path, cells: int, repeats: int) -> int:
    source = random.Random(1)  # noqa: S311 -- no secret
    workloads = -(-cells // len(COLUMNS))
    plan = made_plan("20261121-000000-0001", workloads, repeats)
    folder = RunFolder(root / plan.run_id)
    folder.path.mkdir(parents=True)
    folder.save_plan(plan)
    written = 0
    places = [(w, c, r) for w in plan.jobs for c in COLUMNS for r in range(1, repeats + 1)]
    for order, (workload, column, repeat) in enumerate(places):
        middle_ns = round(1e6 * source.lognormvariate(0, 0.5))
        bins = {str(middle_ns + 1000 * n): 1 + (BINS - n) ** 2 for n in range(BINS)}
        ios = sum(bins.values())
        direction: dict[str, Any] = {
            "io_bytes": ios * 4096,
            "bw_bytes": ios * 4096,
            "runtime": 1000,
            "total_ios": ios,
            "lat_ns": {"min": middle_ns, "max": 2 * middle_ns, "mean": middle_ns, "stddev": 1.0},
        }
        direction["lat_ns"] |= {"percentile": {"50.000000": middle_ns}, "bins": bins}
        options = {"lat_percentiles": "1"}
        job = {"jobname": workload.name, "error": 0, "job options": options, "read": direction}
        output = {"fio version": "fio-3.33", "jobs": [job]}
        moved = Io(
            bytes=ios * 4096,
            ios=ios,
            runtime_ns=10**9,
            latency=Latency(mean_ns=middle_ns, p50_ns=middle_ns, p99_ns=2 * middle_ns),
        )
        record = flat.record(
            run_id=plan.run_id,
            testbed=TestbedKind.LAB,
            workload=workload.name,
            link=column.link,
            protection=column.protection,
            transport=column.transport,
            repeat=repeat,
            order=order,
            status=Status.OK,
            read=moved,
            started_unix_s=1.79e9 + order,
            block_bytes=4 << 10 + order % 7,
            emulated=True,
            link_title=column.link,
            session={"queue_depth": "32", "max_sectors_kb": "124"},
        )
        key = record_key(record)
        raw = folder.raw_folder(key)
        (raw / "fio.json").write_bytes(msgspec.json.encode(output))
        (raw / "job.fio").write_text("[job]\nlog_avg_msec=100\n", encoding="utf-8")
        kib_s = [round(ios * 4 * source.lognormvariate(0, 0.1)) for _ in range(LOGGED)]
        log = "".join(f"{100 * n}, {rate}, 0, 0, 0\n" for n, rate in enumerate(kib_s, 1))
        (raw / bandwidth_series.LOG).write_text(log, encoding="utf-8")
        cells_folder = folder.path / "cells"
        cells_folder.mkdir(exist_ok=True)
        whole = msgspec.structs.replace(record, raw=tuple(f"raw/{key}/{name}" for name in RAW))
        (cells_folder / f"{key}.json").write_bytes(msgspec.json.encode(whole))
        written += 1
    return written


def write_sweep(root: Path, cells: int) -> int:
    """A sweep that has measured so many of its points, chosen at random."""
    source = random.Random(1)  # noqa: S311 -- no secret
    asked = SweepRequest(
        over=("depth=1..64", "block=4K..1M"),
        links=("wired", "wired:rtt=5ms"),
        ipsec=("both",),
        workloads=("rand-read-4k", "rand-write-4k"),
    )
    plan = sweep_plan(asked)
    folder = RunFolder(root / plan.run_id)
    folder.path.mkdir(parents=True)
    folder.save_plan(plan)
    known = workloads(plan.jobs)
    chosen = source.sample([(column, name) for column in plan.columns for name in known], cells)
    for order, (column, name) in enumerate(chosen):
        of, link = known[name], plan.links[column.link]
        block, depth = of.block_bytes or 1, of.depth or 1
        alone_s = 160e-6 + 2 * link.path_delay_us / 1e6 + 17e-9 * block
        busy_s = 9e-6 + (8.7e-9 if column.protection else 8.5e-9) * block
        each_s = ((alone_s / min(depth, 32)) ** 4 + busy_s**4) ** 0.25 * source.lognormvariate(0, 0.005)
        ios, mean_ns = max(1, round(0.4 / each_s)), 1e9 * each_s * depth
        io = Io(
            bytes=ios * block,
            ios=ios,
            runtime_ns=400_000_000,
            latency=Latency(mean_ns=mean_ns, p50_ns=mean_ns, p99_ns=2 * mean_ns),
        )
        folder.save_record(
            Record(
                run_id=plan.run_id,
                setting=plan.setting,
                column=column,
                workload=of,
                repeat=1,
                order=order,
                status=Status.OK,
                read=io if of.direction == "read" else None,
                write=io if of.direction == "write" else None,
                started_unix_s=1.79e9 + order,
                emulated=True,
                link_title=link.title,
                session={"queue_depth": "32", "max_sectors_kb": "124"},
            )
        )
    return cells


def timed(rounds: int, *command: str) -> Summary:
    """How long a command of the harness takes, in s."""
    times = []
    for _ in range(rounds):
        began = time.perf_counter()
        subprocess.run([sys.executable, "-m", "harness", *command], check=True, capture_output=True)
        times.append(time.perf_counter() - began)
    return summarise(times)


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--sweep", action="store_true")
    parser.add_argument("--cells", type=int)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    bound_s = SWEEP_BOUND_S if options.sweep else BOUND_S
    with tempfile.TemporaryDirectory() as scratch:
        results, page = Path(scratch) / "results", Path(scratch) / "report.html"
        if options.sweep:
            cells = records = write_sweep(results, options.cells or 500)
        else:
            records = write_run(results, options.cells or 1000, options.repeats)
            cells = records // options.repeats
        found = {"report": timed(options.rounds, "report", str(results), "-o", str(page))}
        size = page.stat().st_size
        if options.sweep:
            found["table"] = timed(options.rounds, "table", str(results))
    print(f"{cells} cells, {records} records, {options.rounds} rounds:")
    for name, took in found.items():
        print(f"  {name} {took.median:.2f} s [{took.low:.2f}, {took.high:.2f}]  (at most {bound_s:g} s)")
    print(f"  page   {size / 1e6:.2f} MB  (at most {BOUND_MB:g} MB)")
    return 0 if max(each.median for each in found.values()) <= bound_s and size <= BOUND_MB * 1e6 else 1


if __name__ == "__main__":
    sys.exit(main())
