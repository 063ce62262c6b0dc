"""How long I/O stands still around faults, beside what the settings alone say.

    python bench/stalls.py [--folder FOLDER] [HARNESS-OPTION...]

It measures each fault three times (default: real time, wired, with and without AES-GCM), prints a line for
each cell, and how many of those with bounds lie within them.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

from tabulate import tabulate

from bench.in_turns import measured
from harness.questions.fault.printed import grouped
from harness.questions.fault.theory import expected

FAULTS = ("link-down:5s", "loss-100:2s", "loss-100-to-target:2s", "target-down:5s", "rekey-child")
OPTIONS = ("--link", "wired", "--ipsec", "both", "--size", "32M", "--no-probes")
REPEATS = 3


def main() -> None:
    """See above."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--folder", type=Path, help="keep the run there, and use it if it is there")
    asked, options = parser.parse_known_args()
    folder = asked.folder or Path(tempfile.mkdtemp(prefix="stalls-"), "run")
    faults = [word for fault in FAULTS for word in ("--fault", fault)]
    run = measured(folder, "fault", *faults, "--repeats", str(REPEATS), *(options or OPTIONS))
    rows, within, bounded = [], 0, 0
    for repeats in grouped(run.load_records()):
        record, stall = repeats.middle
        bounds = expected(record, stall)
        if bounds is not None:
            bounded += len(repeats.stalls)
            within += sum(map(bounds.holds, repeats.stalls))
        rows.append([record.column.label, stall.fault, repeats.stall_s, bounds or "-"])
    print(tabulate(rows, ["column", "fault", "stall s", "by settings"], disable_numparse=True))
    print(f"{within} of {bounded} within their bounds")


if __name__ == "__main__":
    main()
