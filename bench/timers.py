#!/usr/bin/env python3
"""What an emulated link costs with timers of the machine and with the lab's own (interrupts.c), in turns.

    python bench/timers.py [--kernel custom] [--rounds 5] [--runtime 1s]

Each run boots the lab and measures reads of 256K and 4K, one and eight at a time, over gigabit Ethernet and
over an unshaped link, without IPsec and with AES-GCM; iperf3 measures the link's goodput. Printed
are the medians of all cells with each kind of timers and their ratio, what a round trip over the emulated
link takes beyond its profile (``emulation_round_trip_ns``), and with each kind of timers two ratios of reads
of 256K, eight at a time: to the goodput of iperf3, and with AES-GCM to without.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from bench.in_turns import (
    Figures,
    argument_parser,
    in_turns,
    mb_s,
    print_table,
    ratio,
    records,
    round_trip_us,
)
from harness.analysis.stats import summarise
from harness.model.probing import TcpFigures
from harness.results.store import RunFolder

MACHINE, OWN = "the machine's", "the lab's own"
WORDS = (
    *("--link", "wired:unshaped", "--link", "wired", "--profile", "READS", "--probes"),
    *("--protect", "off", "--protect", "aes128gcm16", "--size", "32M", "--repeats", "1"),
)
GOODPUT = """\
title = "Goodput"
links = ["wired"]
view = "tcp"

[[probe]]
type = "tcp"
duration_s = 2
reverse = true
"""
LINK, ESP, DEEP = "wired", "wired+aes128gcm16", "256k-depth8"


@dataclass(frozen=True, kw_only=True)
class Round:
    figures: Figures
    round_trip_us: float
    goodput_mb_s: float


def traced(argv: list[str]) -> None:
    """`harness ARGV` with a lab whose kernel has the machine's timers, as in virtual time."""
    from harness.cli import main as cli
    from harness.testbeds.lab import boot

    boot.Kernel.has_virtual_time = property(lambda _: True)  # type: ignore[method-assign, assignment]
    sys.argv = ["harness", *argv]
    cli()


def goodput_mb_s(harness: list[str], kernel: str) -> float:
    """What iperf3 carries from the target to the initiator."""
    with tempfile.TemporaryDirectory() as folder:
        profile, results = Path(folder, "goodput.toml"), Path(folder, "results")
        profile.write_text(GOODPUT, encoding="utf-8")
        words = ["probe", "--profile", str(profile), "--lab-kernel", kernel, "--results", str(results)]
        done = subprocess.run([*harness, *words], capture_output=True, text=True, check=False)
        found = [one.figures for run in results.glob("*/") for one in RunFolder(run).load_probes()]
    if len(found) != 1 or not isinstance(found[0], TcpFigures) or found[0].received_bit_s is None:
        sys.exit(f"iperf3 measured nothing: {done.stderr[-1000:]}")
    return found[0].received_bit_s / 8e6


def main() -> int:
    parser = argument_parser(__doc__)
    parser.add_argument("--kernel", default="custom")
    options = parser.parse_args()

    def measure(timers: str) -> Round:
        harness = [sys.executable, "-m", "harness"]
        if timers == MACHINE:
            harness = [sys.executable, __file__, "--traced"]
        words = [*WORDS, "--lab-kernel", options.kernel, "--runtime", options.runtime]
        made = records(f"timers that are {timers}", words, harness)
        return Round(
            figures=mb_s(made),
            round_trip_us=round_trip_us(made, LINK),
            goodput_mb_s=goodput_mb_s(harness, options.kernel),
        )

    found = in_turns([MACHINE, OWN], options.rounds, measure)
    print_table([MACHINE, OWN], {name: [one.figures for one in rounds] for name, rounds in found.items()})
    for name, rounds in found.items():
        over = summarise([one.round_trip_us for one in rounds]).median
        plain, protected = ([one.figures[column, DEEP] for one in rounds] for column in (LINK, ESP))
        print(f"timers are {name}: a round trip takes {over:.0f} us beyond the profile,")
        print(f"  {DEEP} to iperf3: {ratio(plain, [one.goodput_mb_s for one in rounds])}")
        print(f"  {DEEP} with AES-GCM to without: {ratio(protected, plain)}")
    return 0


if __name__ == "__main__":
    if sys.argv[1:2] == ["--traced"]:
        traced(sys.argv[2:])
    else:
        sys.exit(main())
