"""Folders of results for tests of what reads a whole folder: plan, environment, records, raw outputs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from harness import model
from harness.model import Column, Io, Latency, LinkProfile, Plan, Proposal, Record, Status, TestbedKind
from harness.planning.plan import make_plan
from harness.planning.request import RunRequest
from harness.results import bandwidth_series
from harness.results.columns import BASIC_WORKLOADS
from harness.results.store import RunFolder, record_key
from tests import flat

COLUMNS = (
    *(Column("local"), Column("wired"), Column("wifi")),
    *(Column("wired", ("aes128gcm16",)), Column("wifi", ("aes128gcm16",))),
)
WIRED = LinkProfile(name="wired", title="Gigabit Ethernet", emulated=True, rate_bit_s=10**9, delay_us=50)
WIFI = LinkProfile(
    name="wifi", title="802.11n", emulated=True, rate_bit_s=50_000_000, delay_us=700, frame_overhead_bytes=0
)
GCM = Proposal(name="aes128gcm16", title="AES-128-GCM", esp="aes128gcm16", ike="x", kernel_algorithms=("x",))
ENVIRONMENT: dict[str, Any] = {
    "hosts": {
        "initiator": {"kernel": "Linux version 6.1.176 (x)", "cpus": 1, "tools": {"fio": "fio-3.33"}},
        "target": {"kernel": "Linux version 6.1.176 (x)", "cpus": 1},
    },
    "column wired": {"link": [{"initiator_qdisc": "qdisc netem\n delay 50us"}]},
}


def made_plan(run_id: str = "r1", **changes: Any) -> Plan:
    """A plan of the article's rows with one request at a time."""
    jobs = (
        model.Job(name=name, options=(("bs", name.rpartition("-")[2]), ("ioengine", "psync")))
        for name in BASIC_WORKLOADS
    )
    whole: dict[str, Any] = {"run_id": run_id, "testbed": TestbedKind.LAB, "columns": COLUMNS}
    whole |= {"jobs": tuple(jobs), "repeats": 3, "seed": 1, "links": {"wired": WIRED, "wifi": WIFI}}
    whole["backing"] = model.Backing(kind=model.BackingKind.RAMDISK, size_bytes=1 << 27)
    return flat.plan(**whole | {"proposals": {"aes128gcm16": GCM}} | changes)


def fio_json(name: str, bins: dict[int, int], direction: str = "read", **options: str) -> bytes:
    """What fio prints of one job with so many I/Os of 4 KiB in one second."""
    ios = sum(bins.values())
    latency: dict[str, Any] = {"min": min(bins), "max": max(bins), "mean": 1.0, "stddev": 0.0, "bins": bins}
    latency["percentile"] = {"50.000000": min(bins)}
    moved = {"io_bytes": 4096 * ios, "bw_bytes": 4096 * ios, "runtime": 1000, "total_ios": ios}
    job = {"jobname": name, "error": 0, "job options": {"lat_percentiles": "1", **options}}
    job[direction] = {**moved, "lat_ns": latency}
    return msgspec.json.encode({"fio version": "fio-3.33", "jobs": [job]})


def write(
    root: Path,
    records: Sequence[Record],
    plan: Plan | None = None,
    environment: dict[str, Any] | None = None,
    bins: dict[int, int] | None = None,
    log_kib_s: Sequence[int] = (),
) -> Path:
    """A run's folder with ``records``; with ``bins`` each has a raw output with that histogram.

    ``log_kib_s`` is then the bandwidth that fio logged, one value for each half second.
    """
    folder = RunFolder(root / records[0].run_id)
    for record in records:
        if bins:
            key, direction = record_key(record), "read" if record.read else "write"
            held = {"fio.json": fio_json(record.workload.name, bins, direction).decode()}
            if log_kib_s:
                lines = [f"{500 * n}, {rate}, 0, 0, 0\n" for n, rate in enumerate(log_kib_s, 1)]
                held |= {bandwidth_series.LOG: "".join(lines), "job.fio": "[job]\nlog_avg_msec=500\n"}
            for name, text in held.items():
                (folder.raw_folder(key) / name).write_text(text)
            record = msgspec.structs.replace(record, raw=tuple(f"raw/{key}/{name}" for name in held))
        folder.save_record(record)
    if plan:
        folder.save_plan(plan)
    if environment:
        folder.save_environment(environment)
    return folder.path


def run_of_a_cell(results: Path, name: str | None = None, **more: Any) -> RunFolder:
    """A run of one cell that was measured, with its plan; its folder is of its own ``name``, or the run's."""
    made = make_plan(RunRequest(links=("local",), workloads=("rand-read-4k",), repeats=1))
    folder = RunFolder(results / (name or made.run_id))
    folder.save_plan(made)
    facts: dict[str, Any] = {"run_id": made.run_id, "testbed": made.setting.testbed, "status": Status.OK}
    facts |= {"workload": "rand-read-4k", "link": "local", "protection": (), "transport": None}
    read = Io(bytes=4096000, ios=1000, runtime_ns=10**9, latency=Latency(mean_ns=1e6))
    folder.save_record(flat.record(**facts, repeat=1, order=0, read=read, **more))
    return folder
