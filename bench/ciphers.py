#!/usr/bin/env python3
"""What the processor's instructions for ciphers are worth: runs with and without them, in turns.

    python bench/ciphers.py [--pairs 5] [--runtime 1s]

Each run boots the lab's own kernel and measures reads of 256K and 4K on a wired link, shaped and unshaped,
without protection, with AES-GCM (ESP) and with ChaCha20-Poly1305 (WireGuard). Of each cell it prints the
medians with both kinds of ciphers, and their ratio with its 95 % interval. The ratios without protection show
the noise: there is nothing to encrypt.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path

from harness.analysis.stats import summarise
from harness.model import Ciphers, Status
from harness.results.store import RunFolder

WORDS = (
    *("--lab-kernel", "own", "--link", "wired:unshaped", "--link", "wired", "--size", "32M"),
    *("--protect", "off", "--protect", "aes128gcm16", "--protect", "wireguard"),
    *("--workload", "seq-read-256k", "--workload", "seq-read-4k", "--repeats", "1", "--no-probes"),
)

Figures = dict[tuple[str, str], float]
"""MB/s of each cell, by label of the column and workload."""


def run(ciphers: Ciphers, runtime: str) -> Figures:
    """One run's figures; ends the program if a cell is not ok."""
    with tempfile.TemporaryDirectory() as results:
        subprocess.run(
            [
                *(sys.executable, "-m", "harness", "run", *WORDS, "--cipher-driver", ciphers),
                *("--runtime", runtime, "--results", results),
            ],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            check=False,
        )
        records = [
            record for folder in Path(results).iterdir() for record in RunFolder(folder).load_records()
        ]
    if not records:
        sys.exit(f"the run with {ciphers} ciphers measured nothing")
    figures: Figures = {}
    for record in records:
        if record.status is not Status.OK or record.read is None or record.ciphers is not ciphers:
            sys.exit(f"{record.column.label} {record.workload} is {record.status}: {record.reason}")
        figures[record.column.label, record.workload] = record.read.bytes_per_s / 1e6
    return figures


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--runtime", default="1s")
    options = parser.parse_args()
    found: dict[Ciphers, list[Figures]] = {Ciphers.MACHINE: [], Ciphers.PORTABLE: []}
    for pair in range(options.pairs):
        # ABBA: whatever drifts hits both alike.
        for ciphers in list(Ciphers)[:: 1 if pair % 2 == 0 else -1]:
            found[ciphers].append(run(ciphers, options.runtime))
    for cell in sorted(found[Ciphers.MACHINE][0]):
        machine, portable = ([run[cell] for run in found[ciphers]] for ciphers in Ciphers)
        ratio = summarise([one / other for one, other in zip(machine, portable, strict=True)])
        fast, slow = summarise(machine).median, summarise(portable).median
        print(
            f"{cell[0]:34} {cell[1]:14} {fast:9.2f} / {slow:9.2f} MB/s "
            f"= {ratio.median:6.3f} [{ratio.low:.3f}, {ratio.high:.3f}]"
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
