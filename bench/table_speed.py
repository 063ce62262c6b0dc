#!/usr/bin/env python3
"""How long does a table of 10 000 records take, against a bare json.loads of the same files?

    python bench/table_speed.py [--records 10000] [--rounds 7]

Writes records like those of real runs into a scratch folder, then in turn, so that what else the
machine does hits all alike: reading the files and json.loads, and a table. Prints the median of each
ratio over the rounds with its bounds, and exits 1 if the table takes more than 1.5 times the bare reading.
"""

from __future__ import annotations

import argparse
import gc
import json
import random
import resource
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import msgspec

from harness.analysis.stats import summarise
from harness.model import Io, IpsecMode, Latency, Proof, Record, Status, TestbedKind
from harness.results.store import RunFolder, open_environments, open_plans, open_results, record_key
from harness.table import Options, build, render
from tests import flat

COLUMNS = (
    ("local", "off"),
    ("wired", "off"),
    ("wifi", "off"),
    ("wired", "aes128gcm16"),
    ("wifi", "aes128gcm16"),
)
WORKLOADS = [f"{p}-{o}-{s}" for p in ("seq", "rand") for o in ("write", "read") for s in ("4k", "256k")]
REPEATS = 25
SESSION = {
    f"{name}{number}": "262144"
    for name in ("MaxBurstLength", "MaxRecvDataSegmentLength")
    for number in range(9)
}


def record(
    run_id: str, order: int, column: tuple[str, str], workload: str, repeat: int, moved: int
) -> Record:
    """A record with everything in it that a real one has."""
    link, ipsec = column
    latency = Latency(
        mean_ns=51676.90875,
        min_ns=39569,
        max_ns=241489,
        stddev_ns=10853.834966,
        p50_ns=48896,
        p99_ns=80384,
        p99_9_ns=240640,
    )
    io = Io(bytes=moved, ios=moved // 4096, runtime_ns=1_500_000_000, latency=latency)
    return flat.record(
        run_id=run_id,
        testbed=TestbedKind.LAB,
        workload=workload,
        link=link,
        protection=() if ipsec == "off" else (ipsec,),
        transport=None if link == "local" else "iscsi",
        repeat=repeat,
        order=order,
        status=Status.OK,
        read=io if "read" in workload else None,
        write=io if "write" in workload else None,
        started_unix_s=1.79e9 + 2.2 * order,
        wall_ns=2_222_222_222,
        fio_ns=1_500_000_000,
        block_bytes=4096,
        emulated=link != "local",
        link_title=link,
        ipsec_mode=None if ipsec == "off" else IpsecMode.TRANSPORT,
        proof=None
        if link == "local"
        else Proof(
            link_bytes_initiator=2 * moved,
            link_bytes_target=2 * moved,
            protected_bytes=moved,
            tcp_retransmits=0,
        ),
        session={} if link == "local" else SESSION,
        raw=tuple(f"raw/{link}+{ipsec}.{workload}.r{repeat}/{name}" for name in ("job.fio", "fio.json")),
    )


def write_runs(root: Path, records: int) -> None:
    source = random.Random(1)  # noqa: S311 -- no secret
    in_a_run = len(COLUMNS) * len(WORKLOADS) * REPEATS
    for run in range(-(-records // in_a_run)):
        run_id = f"20261121-{run:06}-3664"
        cells = RunFolder(root / run_id).path / "cells"
        cells.mkdir(parents=True)
        places = [(c, w, r) for r in range(1, REPEATS + 1) for c in COLUMNS for w in WORKLOADS]
        for order, (column, workload, repeat) in enumerate(places[: records - run * in_a_run]):
            made = record(run_id, order, column, workload, repeat, int(1e7 * source.lognormvariate(0, 0.05)))
            text = msgspec.json.format(msgspec.json.encode(made), indent=1) + b"\n"
            (cells / f"{record_key(made)}.json").write_bytes(text)


def seconds(action: Callable[[], object]) -> float:
    gc.collect()
    began = time.perf_counter()
    action()
    return time.perf_counter() - began


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--records", type=int, default=10_000)
    parser.add_argument("--rounds", type=int, default=7)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        return measure(Path(scratch), options.records, options.rounds)


def measure(scratch: Path, records: int, rounds: int) -> int:
    root = scratch / "results"
    write_runs(root, records)
    files = [file for run in root.iterdir() for file in (run / "cells").iterdir()]

    def bare() -> None:
        for file in files:
            json.loads(file.read_bytes())

    def made() -> str:
        paths = [root]
        return render(build(open_results(paths), Options(), open_plans(paths), open_environments(paths)))

    contents = [file.read_bytes() for file in files]
    figures: dict[str, list[float]] = {"bare": [], "loads": [], "table": []}
    for _ in range(rounds):
        figures["bare"].append(seconds(bare))
        figures["loads"].append(seconds(lambda: [json.loads(text) and None for text in contents]))
        figures["table"].append(seconds(made))
    size = sum(map(len, contents))
    print(f"{len(files)} records, {size / 1e6:.1f} MB, {rounds} rounds in turn; medians:")
    for name, what in (
        ("bare", "read and json.loads"),
        ("loads", "json.loads alone, texts in memory"),
        ("table", "table"),
    ):
        print(f"  {what:34} {1000 * summarise(figures[name]).median:8.1f} ms")
    good = True
    for name, above, below, bound in (
        ("table / read and json.loads", "table", "bare", 1.5),
        ("table / json.loads alone", "table", "loads", None),
    ):
        ratio = summarise([x / y for x, y in zip(figures[above], figures[below], strict=True)])
        asked = "" if bound is None else f"  (at most {bound:g})"
        print(f"  {name:34} {ratio.median:8.3f} [{ratio.low:.3f}, {ratio.high:.3f}]{asked}")
        good = good and (bound is None or ratio.median <= bound)
    print(f"  peak memory {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024:.0f} MiB")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
