#!/usr/bin/env python3
"""What the lab measures on each of several kernels, in turns: which of them is the best lab.

    python bench/kernels.py debian own KEY... [--rounds 5] [--runtime 1s]

``debian`` is Debian's kernel, ``own`` the lab's, a KEY one that ``harness kernel build --source`` has built.
Each round boots each of them once, in alternating order, and measures reads of 256K and 4K, one and eight at
a time: from the local disk, over an unshaped link and over gigabit Ethernet, without IPsec and with AES-GCM.
Of each cell it prints the median of each kernel, and its ratio to the first one with a 95 % interval.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path

from harness.analysis.stats import summarise
from harness.model import Status
from harness.results.store import RunFolder

WORDS = (
    *("--link", "local", "--link", "wired:unshaped", "--link", "wired", "--size", "32M"),
    *("--protect", "off", "--protect", "aes128gcm16", "--repeats", "1", "--retries", "0", "--no-probes"),
)
JOBS = """\
[global]
ioengine=libaio
direct=1
rw=read

[256k-depth1]
bs=256k
iodepth=1

[256k-depth8]
bs=256k
iodepth=8

[4k-depth1]
bs=4k
iodepth=1

[4k-depth8]
bs=4k
iodepth=8
"""

Figures = dict[tuple[str, str], float]
"""MB/s of each cell, by label of the column and workload."""


def run(kernel: str, runtime: str) -> Figures:
    """One run's figures; ends the program if a cell is not ok."""
    with tempfile.TemporaryDirectory() as folder:
        jobs, results = Path(folder, "reads.fio"), Path(folder, "results")
        jobs.write_text(JOBS, encoding="utf-8")
        subprocess.run(
            [
                *(sys.executable, "-m", "harness", "run", *WORDS, "--lab-kernel", kernel),
                *("--profile", str(jobs), "--runtime", runtime, "--results", str(results)),
            ],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            check=False,
        )
        records = [record for made in results.iterdir() for record in RunFolder(made).load_records()]
    if not records:
        sys.exit(f"the run on {kernel} measured nothing")
    figures: Figures = {}
    for record in records:
        if record.status is not Status.OK or record.read is None:
            sys.exit(f"{kernel}: {record.column.label} {record.workload} is {record.status}: {record.reason}")
        figures[record.column.label, record.workload] = record.read.bytes_per_s / 1e6
    return figures


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("kernels", nargs="+")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--runtime", default="1s")
    options = parser.parse_args()
    found: dict[str, list[Figures]] = {kernel: [] for kernel in options.kernels}
    for number in range(options.rounds):
        # ABBA: whatever drifts hits all alike.
        for kernel in options.kernels[:: 1 if number % 2 == 0 else -1]:
            found[kernel].append(run(kernel, options.runtime))
    first, *others = options.kernels
    print(f"{'MB/s':38}", *(f"{kernel:>24}" for kernel in options.kernels))
    for cell in sorted(found[first][0]):
        theirs = {kernel: [figures[cell] for figures in found[kernel]] for kernel in options.kernels}
        line = f"{cell[0]:26} {cell[1]:11} {summarise(theirs[first]).median:24.1f}"
        for kernel in others:
            ratio = summarise([one / base for one, base in zip(theirs[kernel], theirs[first], strict=True)])
            line += f" {summarise(theirs[kernel]).median:6.1f}"
            line += f" {ratio.median:5.2f} [{ratio.low:.2f}, {ratio.high:.2f}]"
        print(line)
    return 0


if __name__ == "__main__":
    sys.exit(main())
