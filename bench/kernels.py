#!/usr/bin/env python3
"""What the lab measures on each of several kernels, in turns: which of them is the best lab.

    python bench/kernels.py debian own KEY KEY:seccomp=on KEY:seccomp=on:ncpus=2 [--rounds 5] [--runtime 1s]

``debian`` is Debian's kernel, ``own`` the lab's, a KEY one that ``harness kernel build --source`` has built.
After a colon come words for its command line. With ``ncpus=2`` it has both processors of the machine.

Each round boots each of them once, in alternating order, and measures reads of 256K and 4K, one and eight at
a time: from the local disk, over an unshaped link and over gigabit Ethernet, without IPsec and with AES-GCM.
Of each cell it prints the median of each kernel, and its ratio to the first one with a 95 % interval.
"""

from __future__ import annotations

import contextlib
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

from bench.in_turns import HARNESS, Figures, argument_parser, in_turns, mb_s, print_table, records

WORDS = (
    *("--link", "local", "--link", "wired:unshaped", "--link", "wired", "--profile", "READS"),
    *("--protect", "off", "--protect", "aes128gcm16", "--size", "32M", "--repeats", "1", "--no-probes"),
)


def run_with(words: list[str], argv: list[str]) -> None:
    """`harness ARGV` with a lab whose kernel has these words on its command line."""
    from harness.cli import main as cli
    from harness.hosts import runner

    piped = runner.piped

    @contextlib.contextmanager
    def boot(argv: list[str], **options: Any) -> Iterator[subprocess.Popen[bytes]]:
        place = argv.index("--", argv.index("root=/dev/root"))
        argv[place:place] = words
        if is_smp:
            argv[argv.index("taskset") + 2] = "0-1"
        with piped(argv, **options) as process:
            yield process

    is_smp = any(word.startswith("ncpus=") for word in words)
    runner.piped = boot  # type: ignore[assignment]
    sys.argv = ["harness", *argv]
    cli()


def main() -> int:
    parser = argument_parser(__doc__)
    parser.add_argument("kernels", nargs="+")
    options = parser.parse_args()

    def measure(name: str) -> Figures:
        kernel, *words = name.split(":")
        program = f"from bench.kernels import run_with; import sys; run_with({words!r}, sys.argv[1:])"
        argv = [*WORDS, "--lab-kernel", kernel, "--runtime", options.runtime]
        return mb_s(records(name, argv, (sys.executable, "-c", program) if words else HARNESS))

    print_table(options.kernels, in_turns(options.kernels, options.rounds, measure))
    return 0


if __name__ == "__main__":
    sys.exit(main())
