"""``python -m tests.fuzz``: the fuzzer by hand, for as long as one likes."""

from __future__ import annotations

import argparse
import sys

from tests.fuzz.doors import DOORS
from tests.fuzz.driver import fuzz


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=60.0, help="for all doors together")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--door", choices=sorted(DOORS), action="append", help="only this; again for more")
    parser.add_argument("--first", type=int, default=0, help="the number of the first case of each door")
    parser.add_argument("--most", type=int, help="at most so many cases of each door")
    words = parser.parse_args()
    names = words.door or list(DOORS)
    failures = 0
    for name in names:
        seconds = words.seconds / len(names)
        reported = fuzz(DOORS[name], seed=words.seed, seconds=seconds, first=words.first, most=words.most)
        sys.stdout.write(f"{reported}\n")
        sys.stdout.flush()
        failures += len(reported.findings)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
