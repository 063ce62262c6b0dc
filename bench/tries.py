#!/usr/bin/env python3
"""How soon does a try of one cell end in a lab that stays up?

    python bench/tries.py [--rounds 5] [--edited harness/runs/cells.py] [--of ../before]
    python bench/tries.py -- --transport nvme-tcp            # with other options of `harness run`

It starts a lab, and tries `harness run --smoke` of one cell: with code that has not changed, at once after a
file was edited, and some seconds after that, as a person types. It prints medians: the whole command, when
fio began in it, and the processor's time of the lab meanwhile and of the command. The last two depend less on
what else the machine does.
"""

from __future__ import annotations

import argparse
import os
import re
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from pathlib import Path

from bench.overhead import verbose
from harness.hosts.state import state_folder
from harness.testbeds.lab import persistent

HERE = Path(__file__).resolve()
TRY = ("--smoke", "--link", "wired", "--ipsec", "off", "--workload", "rand-read-4k", "--repeats", "1")
TYPING_S = 4.0
FIRST_FIO = re.compile(r"fio began ([\d.]+) s")


def processor_s(root: int) -> float:
    """The processor's time of a process, of all that it has started, and of theirs that have ended."""
    took, children = {}, defaultdict(list)
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            fields = (entry / "stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        took[int(entry.name)] = sum(map(int, fields[11:15]))
        children[int(fields[1])].append(int(entry.name))
    found, ticks = [root], 0
    while found:
        process = found.pop()
        ticks += took.get(process, 0)
        found += children[process]
    return ticks / os.sysconf("SC_CLK_TCK")


def tried(harness: Path, results: str, words: list[str], daemon: int) -> dict[str, float]:
    lab_s, own = processor_s(daemon), resource.getrusage(resource.RUSAGE_CHILDREN)
    began = time.monotonic()
    done = subprocess.run(
        [harness, "run", *words, *verbose(harness.parents[2]), "--results", results],
        check=False,
        capture_output=True,
        text=True,
    )
    whole_s, now = time.monotonic() - began, resource.getrusage(resource.RUSAGE_CHILDREN)
    first = FIRST_FIO.search(done.stderr)
    if done.returncode or first is None:
        raise SystemExit(f"a try failed: {done.stdout}{done.stderr}")
    return {
        "whole, s": whole_s,
        "fio began, s": float(first[1]),
        "lab's processor, s": processor_s(daemon) - lab_s,
        "command's processor, s": now.ru_utime + now.ru_stime - own.ru_utime - own.ru_stime,
    }


def main() -> None:
    own, _, more = " ".join(sys.argv[1:]).partition("-- ")
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--edited", default="harness/runs/cells.py")
    parser.add_argument("--of", type=Path, default=HERE.parents[1])
    asked = parser.parse_args(own.split())
    clone = asked.of.resolve()
    harness, edited = clone / ".venv/bin/harness", clone / asked.edited
    found: dict[str, list[dict[str, float]]] = defaultdict(list)
    with tempfile.TemporaryDirectory(prefix="tries-") as results:
        subprocess.run([harness, "lab", "start", "--results", results], check=True, capture_output=True)
        try:
            kept = persistent.ask(state_folder())
            assert kept is not None
            daemon = kept.pid
            tried(
                harness, results, [*TRY, *more.split()], daemon
            )  # the first one reads each program from the disk
            for _ in range(asked.rounds):
                for kind, is_edited, wait_s in (
                    ("the same code", False, TYPING_S),
                    ("edited just now", True, 0.0),
                    (f"edited {TYPING_S:g} s before", True, TYPING_S),
                ):
                    time.sleep(TYPING_S - wait_s)
                    if is_edited:
                        edited.touch()
                    time.sleep(wait_s)
                    found[kind].append(tried(harness, results, [*TRY, *more.split()], daemon))
        finally:
            subprocess.run([harness, "lab", "stop"], check=False, capture_output=True)
    names = list(found["the same code"][0])
    print(f"{'':24}" + "".join(f"{name:>24}" for name in names))
    for kind, tries in found.items():
        print(
            f"{kind:24}"
            + "".join(f"{statistics.median(each[name] for each in tries):24.2f}" for name in names)
        )


if __name__ == "__main__":
    main()
