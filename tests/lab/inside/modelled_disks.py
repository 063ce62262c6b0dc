"""The shipped disks in virtual time: each takes the time of its profile. Needs the custom kernel."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path

from harness.hosts import NamespaceHost
from harness.hosts.journal import Journal
from harness.parse.disks import load_disk
from harness.storage import disks

FOLDER = Path("/run/disks")
SIZE_BYTES = 64 << 20
EXPECTED = {
    "sata-ssd": {"read-4k": 101e-6, "read-256k": 510e-6, "randread-4k": 101e-6, "randwrite-256k": 510e-6},
    "nvme": {"read-4k": 53e-6, "read-256k": 115e-6, "randread-4k": 53e-6, "randwrite-256k": 115e-6},
    # In sequence 78 MB/s; at random half a turn of 8.3 ms, 0.9 ms of seek, and the transfer.
    "hdd-7200": {"read-4k": 53e-6, "read-256k": 3.38e-3, "randread-4k": 5.1e-3, "randwrite-256k": 8.5e-3},
}
"""Seconds for one I/O at a time."""

TOLERANCE = 0.1
OPTIONS = (
    *("direct=1", "ioengine=psync", "time_based=1", "runtime=200ms", f"size={SIZE_BYTES}", "randseed=1"),
    # Its own clock is the processor's, which virtual time does not hold.
    "clocksource=clock_gettime",
)


def seconds_each(path: str, workloads: Iterable[str]) -> dict[str, float]:
    """How long fio finds one I/O of each workload to take, by its name.

    All in one job file: every start of fio reads the clock so often that virtual time takes seconds for it.
    """
    lines = ["[global]", f"filename={path}", *OPTIONS]
    for workload in workloads:
        kind, _, block = workload.partition("-")
        lines += [f"[{workload}]", "stonewall", f"rw={kind}", f"bs={block}"]
    job = FOLDER / "job.fio"
    job.write_text("\n".join(lines), encoding="utf-8")
    argv = ["fio", "--output-format=json", str(job)]
    reported = json.loads(NamespaceHost("target").run(argv, timeout_s=60).stdout)
    done = {job["jobname"]: job["write" if "write" in job["jobname"] else "read"] for job in reported["jobs"]}
    return {name: way["runtime"] / 1000 / way["total_ios"] for name, way in done.items()}


def main() -> None:
    FOLDER.mkdir()
    host = NamespaceHost("target")
    journal = Journal(FOLDER / "journal.jsonl")
    wrong = []
    for name, expected in EXPECTED.items():
        profile, log = load_disk(name), FOLDER / f"{name}.log"
        with disks.bring_up(journal, host, profile, SIZE_BYTES, folder=FOLDER, log=log) as (path,):
            for workload, found_s in seconds_each(path, expected).items():
                wanted_s = expected[workload]
                print(f"{name} {workload}: {found_s * 1e6:.1f} of {wanted_s * 1e6:.1f} us")
                if abs(found_s / wanted_s - 1) > TOLERANCE:
                    wrong.append(f"{name} {workload}")
    assert not wrong, wrong
    assert not journal.leaks and not journal.open_entries(), journal.leaks
    modules = Path("/proc/modules").read_text(encoding="utf-8")
    assert "nbd" not in modules and "null_blk" not in modules, modules


if __name__ == "__main__":
    main()
