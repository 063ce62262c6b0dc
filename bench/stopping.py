#!/usr/bin/env python3
"""What does it cost to repeat a cell until its interval is narrow? On generated repeats.

    python bench/stopping.py [--rounds 1500] [--width 0.05] [--max-repeats 30]

For repeats that vary by so much (lognormal): how many it takes, how often the interval becomes narrow before
the limit of repeats, and how often the interval at which the rule stopped misses the true median. A
fixed number of repeats misses it in 5 % at most. Exits 1 if any misses it in more than 10 %.
"""

from __future__ import annotations

import argparse
import random
import sys

from harness.analysis.stats import Decision, decide, summarise
from harness.model import StoppingRule

SPREADS = (0.02, 0.03, 0.05, 0.07, 0.11)
MOST_MISSED = 0.10


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rounds", type=int, default=1500)
    parser.add_argument("--width", type=float, default=0.05)
    parser.add_argument("--max-repeats", type=int, default=30)
    options = parser.parse_args()
    rule = StoppingRule(width=options.width, max_repeats=options.max_repeats)
    source = random.Random(1)  # noqa: S311 -- no secret
    good = True
    print(f"{options.rounds} rounds; interval within {rule.width:.0%}, at most {rule.max_repeats} repeats:")
    print(f"  {'repeats vary by':>16}{'repeats':>10}{'narrow':>10}{'missed':>10}")
    for spread in SPREADS:
        made = narrow = missed = 0
        for _ in range(options.rounds):
            samples: list[float] = []
            while (decision := decide(samples, rule)) is Decision.GO_ON:
                samples.append(source.lognormvariate(0, spread))
            summary = summarise(samples)
            made += len(samples)
            narrow += decision is Decision.NARROW
            missed += not summary.low <= 1 <= summary.high
        rates = [made / options.rounds, narrow / options.rounds, missed / options.rounds]
        print(f"  {spread:16.0%}{rates[0]:10.1f}{rates[1]:10.0%}{rates[2]:10.1%}")
        good = good and rates[2] <= MOST_MISSED
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
