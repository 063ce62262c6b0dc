#!/usr/bin/env python3
"""Is a figure of the harness's the figure fio gives by hand? Both on one disk, in turn, in one testbed.

    python bench/by_hand.py [--pairs 10] [--link wired] [--ipsec off] [--workload rand-read-4k]

Boots the lab, brings up one column as `harness run` does, then alternates: one cell through the
harness's own path (its job file, its proofs), and fio with a plain command line typed by hand. Prints both
medians and the ratio with its 95 % interval; exits 1 if that lies wholly more than 5 % away from 1.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import subprocess
import sys
import tempfile
from pathlib import Path

from harness.analysis.stats import summarise
from harness.hosts import PRIVATE
from harness.hosts.journal import Journal
from harness.model import LINK_LOCAL, Cell, Status
from harness.planning import plan
from harness.planning.request import RunRequest
from harness.results.store import RunFolder
from harness.runs.cells import CellComposer
from harness.runs.executor import hosts, mount_private, prepare

TOLERANCE = 0.05
RUNTIME_S = 1.5


def by_hand(device: str, workload: str, size_bytes: int) -> float:
    """Bytes per second of one fio run as a person would type it."""
    pattern, direction, block = workload.split("-")
    rw = ("rand" if pattern == "rand" else "") + direction
    done = subprocess.run(
        ["fio", "--name=hand", f"--filename={device}", f"--rw={rw}", f"--bs={block}", "--direct=1"]
        + ["--ioengine=psync", "--time_based", f"--runtime={round(RUNTIME_S * 1000)}ms"]
        + [f"--size={size_bytes}", "--refill_buffers", "--output-format=json"],
        capture_output=True,
        text=True,
        check=True,
    )
    side = json.loads(done.stdout)["jobs"][0][direction]
    return float(side["io_bytes"]) / float(side["runtime"]) * 1000


def inside(options: argparse.Namespace) -> int:
    """In the lab: measure the pairs and print the comparison."""
    request = RunRequest(
        links=(options.link,), ipsec=(options.ipsec,), workloads=(options.workload,), runtime=f"{RUNTIME_S}s"
    )
    made = plan.make_plan(request)
    mount_private()
    column = made.columns[0]
    with tempfile.TemporaryDirectory() as scratch, contextlib.ExitStack() as stack:
        folder = RunFolder(Path(scratch))
        taking_part = stack.enter_context(hosts(made, folder, lambda _: None))
        prepare(made, taking_part)
        journal = Journal(Path(scratch) / "journal")
        composer = CellComposer(
            made, folder, lambda _: None, hosts=taking_part, journal=journal, private=PRIVATE
        )
        stack.enter_context(composer.shared())
        harness_mb_s, hand_mb_s, ratios = [], [], []
        for pair in range(1, options.pairs + 1):
            figures = {}
            # ABBA: whatever drifts hits both alike.
            for who in ("harness", "hand") if pair % 2 else ("hand", "harness"):
                if who == "harness":
                    record = composer.measure(Cell(column, options.workload, pair), pair)
                    if record.status is not Status.OK:
                        sys.exit(f"cell {pair} is {record.status}: {record.reason}")
                    figures[who] = sum(io.bytes_per_s for io in (record.read, record.write) if io)
                else:
                    (connected_lun,) = composer.column(column).connected_luns
                    device = connected_lun.disk.device
                    figures[who] = by_hand(device, options.workload, made.storage.backing.size_bytes)
            harness_mb_s.append(figures["harness"] / 1e6)
            hand_mb_s.append(figures["hand"] / 1e6)
            ratios.append(figures["harness"] / figures["hand"])
    ratio = summarise(ratios)
    print(
        f"{column.label} {options.workload}, {options.pairs} pairs: "
        f"harness {summarise(harness_mb_s).median:.2f} MB/s, by hand {summarise(hand_mb_s).median:.2f} MB/s, "
        f"ratio {ratio.median:.3f} [{ratio.low:.3f}, {ratio.high:.3f}]"
    )
    return int(ratio.low > 1 + TOLERANCE or ratio.high < 1 - TOLERANCE)


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--pairs", type=int, default=10)
    parser.add_argument("--link", default="wired")
    parser.add_argument("--ipsec", default="off")
    parser.add_argument("--workload", default="rand-read-4k")
    parser.add_argument("--inside", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.link == LINK_LOCAL:
        parser.error("--link: expected a link with a session, found local")
    if options.inside:
        return inside(options)
    command = [sys.executable, str(Path(__file__).resolve()), *sys.argv[1:], "--inside"]
    return subprocess.run(
        [sys.executable, "-m", "harness", "lab", "exec", "--", *command], check=False
    ).returncode


if __name__ == "__main__":
    sys.exit(main())
