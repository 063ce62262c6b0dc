#!/usr/bin/env python3
"""What an initiator more costs the lab: memory of its kernel, time to bring it up, time of a cell besides
fio.

    python bench/scale.py [--initiators 16] [--protect off --protect wireguard] [--transport nvme-tcp]
                          [--most-mib 32] [--most-s 10] [--results FOLDER]

For each transport and protection one run in the lab, in real time, with columns of 1, 2, 4 … initiators. Its
inside is this file's, which notes MemAvailable of /proc/meminfo and the clock around each column that is
brought up: link, protection, captures, xfrm listeners, target, session. What the kernel can have back (its
page cache) does not count as memory. The figures of one initiator are a column's, divided by their number.
Times of a busy machine are of use only as ratios. Exits 1 if one initiator of the largest column takes more
memory than the lab sets aside for it (``PATH_BYTES``), or more time than ``--most-s``.
"""

from __future__ import annotations

import argparse
import functools
import importlib
import json
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve()
NOTES = "scale.jsonl"
MIB = 1 << 20


# In the lab


def available_bytes() -> int:
    """What /proc/meminfo says that new programs could have without swapping (proc(5))."""
    found = re.search(r"^MemAvailable:\s+(\d+) kB", Path("/proc/meminfo").read_text(encoding="ascii"), re.M)
    return 1024 * int(found[1]) if found else 0


def inside(argv: list[str]) -> int:
    """``harness.runs.executor``, with a note of each column: ``run FOLDER JOURNAL``."""
    cells: Any = importlib.import_module("harness.runs.cells")
    run_inside: Any = importlib.import_module("harness.runs.executor")
    notes = Path(argv[1]) / NOTES
    real = cells.CellComposer.column

    @functools.wraps(real)
    def noted(self: Any, column: Any) -> Any:
        if column in self._columns:
            return real(self, column)
        before, began = available_bytes(), time.monotonic()
        up = real(self, column)
        note = {
            "initiators": column.initiators,
            "seconds": time.monotonic() - began,
            "bytes": before - available_bytes(),
        }
        with notes.open("a", encoding="ascii") as file:
            file.write(json.dumps(note) + "\n")
        return up

    cells.CellComposer.column = noted
    return int(run_inside.main(argv))


# Outside


def traced(argv: list[str]) -> None:
    """`harness ARGV`, whose inside is this file's."""
    from harness.testbeds import entry_points

    entry_points.command = lambda _module, *words: [sys.executable, str(HERE), "--inside", *words]
    from harness.cli import main as cli

    sys.argv = ["harness", *argv]
    cli()


def measure(transport: str, protect: str, initiators: int, results: Path) -> list[dict[str, float]]:
    """The notes of one run, by their number of initiators, with the seconds besides fio of each one's
    cell."""
    before = set(results.iterdir()) if results.is_dir() else set()
    words = ["--lab-initiators", str(initiators), "--link", "wired", "--transport", transport]
    words += ["--protect", protect, "--workload", "rand-read-4k", "--runtime", "1s", "--repeats", "2"]
    words += ["--retries", "0", "--size", "16M", "--no-probes", "--results", str(results)]
    done = subprocess.run(
        [sys.executable, str(HERE), "--traced", "run", *words], check=False, capture_output=True, text=True
    )
    found = set(results.iterdir()) - before if results.is_dir() else set()
    if len(found) != 1 or not (next(iter(found)) / NOTES).exists():
        raise SystemExit(f"no figures of {transport} with {protect}: {(done.stdout + done.stderr)[-2000:]}")
    (folder,) = found
    around: dict[int, float] = {}
    for file in sorted((folder / "cells").glob("*.json")):
        record = json.loads(file.read_bytes())
        if record["status"] != "ok":
            raise SystemExit(f"{file}: {record['status']}, {record.get('reason')}")
        # The first cell of a column brings it up, and the others take less.
        count, took_s = record.get("initiators", 1), (record["wall_ns"] - record["fio_ns"]) / 1e9
        around[count] = min(took_s, around.get(count, took_s))
    notes = [json.loads(line) for line in (folder / NOTES).read_text(encoding="ascii").splitlines()]
    by_count = sorted(notes, key=lambda note: float(note["initiators"]))
    return [{**note, "around_s": around[note["initiators"]]} for note in by_count]


def main() -> int:
    from harness.testbeds.lab import boot

    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--initiators", type=int, default=16)
    parser.add_argument("--transport", action="append")
    parser.add_argument("--protect", action="append")
    parser.add_argument("--most-mib", type=float, default=2 * boot.LAYER_BYTES / MIB)
    parser.add_argument("--most-s", type=float, default=10.0)
    parser.add_argument("--results", type=Path)
    options = parser.parse_args()
    good = True
    print(f"{'transport':10}{'protection':14}{'initiators':>10}{'MiB each':>10}{'s each':>8}{'s a cell':>10}")
    with tempfile.TemporaryDirectory(prefix="scale-") as made:
        for transport in options.transport or ["iscsi", "nvme-tcp"]:
            for protect in options.protect or ["off", "aes128gcm16", "wireguard"]:
                rows = measure(transport, protect, options.initiators, options.results or Path(made))
                for row in rows:
                    count = int(row["initiators"])
                    mib, seconds = row["bytes"] / MIB / count, row["seconds"] / count
                    figures = f"{count:10}{mib:10.1f}{seconds:8.2f}{row['around_s']:10.2f}"
                    print(f"{transport:10}{protect:14}{figures}", flush=True)
                good = good and mib <= options.most_mib and seconds <= options.most_s
    return 0 if good else 1


if __name__ == "__main__":
    if sys.argv[1:2] == ["--inside"]:
        sys.exit(inside(sys.argv[2:]))
    if sys.argv[1:2] == ["--traced"]:
        traced(sys.argv[2:])
    else:
        sys.exit(main())
