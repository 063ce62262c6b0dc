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
import sys

from bench.in_turns import Figures, in_turns, mb_s, print_table, records

WORDS = (
    *("--link", "local", "--link", "wired:unshaped", "--link", "wired", "--profile", "READS"),
    *("--protect", "off", "--protect", "aes128gcm16", "--size", "32M", "--repeats", "1", "--no-probes"),
)


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("kernels", nargs="+")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--runtime", default="1s")
    options = parser.parse_args()

    def measure(kernel: str) -> Figures:
        return mb_s(records(kernel, [*WORDS, "--lab-kernel", kernel, "--runtime", options.runtime]))

    print_table(options.kernels, in_turns(options.kernels, options.rounds, measure))
    return 0


if __name__ == "__main__":
    sys.exit(main())
