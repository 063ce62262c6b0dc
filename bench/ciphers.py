#!/usr/bin/env python3
"""What the processor's instructions for ciphers are worth: runs with and without them, in turns.

    python bench/ciphers.py [--rounds 5] [--runtime 1s]

Each run boots the custom kernel and measures reads of 256K and 4K, one and eight at a time, on a wired
link, shaped and unshaped: without protection, with AES-GCM (ESP), that with segmentation offload, and with
ChaCha20-Poly1305 (WireGuard). Of each cell it prints the medians with generic ciphers and with the
processor's, and the ratio with its 95 % interval. The ratios without protection show the noise: there is
nothing to encrypt.
"""

from __future__ import annotations

import sys

from bench.in_turns import Figures, argument_parser, in_turns, mb_s, print_table, records
from harness.model import Ciphers

WORDS = (
    *("--lab-kernel", "custom", "--link", "wired:unshaped", "--link", "wired", "--size", "32M"),
    *("--protect", "off", "--protect", "aes128gcm16"),
    *("--protect", "aes128gcm16-gso", "--protect", "wireguard"),
    *("--profile", "READS", "--repeats", "1", "--no-probes"),
)


def main() -> int:
    options = argument_parser(__doc__).parse_args()

    def measure(ciphers: str) -> Figures:
        words = [*WORDS, "--cipher-driver", ciphers, "--runtime", options.runtime]
        made = records(f"{ciphers} ciphers", words)
        if others := {record.setting.ciphers for record in made} - {Ciphers(ciphers)}:
            sys.exit(f"expected {ciphers} ciphers, found {', '.join(map(str, others))}")
        return mb_s(made)

    names = [Ciphers.GENERIC.value, Ciphers.ACCELERATED.value]
    print_table(names, in_turns(names, options.rounds, measure))
    return 0


if __name__ == "__main__":
    sys.exit(main())
