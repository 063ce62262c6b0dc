#!/usr/bin/env python3
"""What emulated links carry in real time, compared with the same links in virtual time, whose timers are
exact.

    python bench/links.py [--link wired --link wifi] [--rounds 3] [--runtime 1s]

Each run boots the custom kernel and measures reads of 256K and 4K, one and eight at a time, without a
protection. Virtual time is measured once, because it repeats to the last digit; no disk and no processor
takes any of it. So the ratio of `256k-depth8`, for which a link is always full, shows whether the emulation
lets through what it should; the other ratios show what processors cost. Printed next to it is what a round
trip takes in real time beyond the link's profile (``emulation_round_trip_ns``).
"""

from __future__ import annotations

import sys

from bench.in_turns import Figures, argument_parser, mb_s, ratio, records, round_trip_us
from harness.analysis.stats import summarise

WORDS = (
    *("--lab-kernel", "custom", "--protect", "off", "--profile", "READS"),
    *("--size", "32M", "--repeats", "1"),
)


def main() -> int:
    parser = argument_parser(__doc__, rounds=3)
    parser.add_argument("--link", action="append")
    options = parser.parse_args()
    links: list[str] = options.link or ["wired", "wifi"]
    words = [*WORDS, *(word for link in links for word in ("--link", link))]
    exact = mb_s(records("virtual time", [*words, "--virtual-time", "--disk", "ram"]))
    found: list[Figures] = []
    beyond_us: dict[str, list[float]] = {link: [] for link in links}
    for _ in range(options.rounds):
        made = records("real time", [*words, "--runtime", options.runtime])
        found.append(mb_s(made))
        for link, all_us in beyond_us.items():
            all_us.append(round_trip_us(made, link))
    print(f"{'MB/s':24} {'virtual':>9} {'real':>9} {'ratio':>7}")
    for cell, figure in sorted(exact.items()):
        measured = [figures[cell] for figures in found]
        print(
            f"{cell[0]:10} {cell[1]:13} {figure:9.2f} {summarise(measured).median:9.2f}"
            f" {ratio(measured, [figure] * len(measured))}"
        )
    for link, all_us in beyond_us.items():
        print(f"{link}: a round trip takes {summarise(all_us).median:.0f} us beyond the profile")
    return 0


if __name__ == "__main__":
    sys.exit(main())
