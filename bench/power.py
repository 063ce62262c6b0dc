#!/usr/bin/env python3
"""How often does the comparison of two runs err? On generated runs: A against A, and against a slower one.

    python bench/power.py [--rounds 2000] [--repeats 6 10 20 30] [--throttle 10] [--seed 1]

First whole runs of 40 cells that scatter as default runs in the lab do (bench/compare_runs.py), for several
numbers of repeats: how many of 40 equal cells are said to differ, how many are judged, and how many of the 16
4K cells over links are said to be slower if they are throttled.

Then, for each kind of noise and number of repeats, "false / found" in percent: how often a difference is
shown where there is none, and how often the throttle is shown to be slower. Exits 1 if a difference that is
none is shown in more than 5 % of the rounds (beyond what chance in so many rounds explains), leaving out the
kinds marked with * (and fewer than 10 repeats), which are there to show the limits of the method; or if more
than one of 40 equal cells of whole runs is said to differ on average, unless these vary from run to run by
more than is assumed.
"""

from __future__ import annotations

import argparse
import itertools
import math
import random
import sys
from collections.abc import Callable, Iterator

from harness.analysis.ratios import BETWEEN_RUNS, Judgement, judge, ratio_of
from harness.analysis.stats import RANKS_FROM

PROMISED = 0.05
MOST_DIFFERENT = 1 / 40
WITHIN_A_REPEAT = 15
"""Samples of bandwidth in a repeat: 1.5 s of one each 100 ms."""

Noise = Callable[[random.Random, int], list[float]]
"""Logarithms of the values of so many repeats in the order they were measured; their median is not fixed."""


def lognormal(deviation: float) -> Noise:
    return lambda source, n: [source.gauss(0, deviation) for _ in range(n)]


def autocorrelated(rho: float, deviation: float = 0.04) -> Noise:
    """AR(1) from repeat to repeat: a machine that drifts back and forth."""

    step = deviation * math.sqrt(1 - rho * rho)

    def noise(source: random.Random, n: int) -> list[float]:
        gauss = source.gauss
        state = gauss(0, deviation)
        values = []
        for _ in range(n):
            values.append(state)
            state = rho * state + gauss(0, step)
        return values

    return noise


def traces(rho: float, deviation: float = 0.06, between: float = 0.03) -> Noise:
    """Each repeat is the mean of a trace that begins 30 % low and whose samples are AR(1)."""
    within = autocorrelated(rho, deviation)

    def repeat(source: random.Random) -> float:
        trace = [math.exp(value) for value in within(source, WITHIN_A_REPEAT)]
        trace[: WITHIN_A_REPEAT // 5] = [0.7 * value for value in trace[: WITHIN_A_REPEAT // 5]]
        return math.log(sum(trace) / len(trace)) + source.gauss(0, between)

    return lambda source, n: [repeat(source) for _ in range(n)]


def bimodal(share: float, depth: float, deviation: float = 0.015) -> Noise:
    """So large a share of the repeats falls into a mode that is slower by ``depth``."""
    return lambda source, n: [
        source.gauss(0, deviation) + (math.log1p(-depth) if source.random() < share else 0.0)
        for _ in range(n)
    ]


def warm_up(depth: float = 0.2, deviation: float = 0.03) -> Noise:
    """The first fifth of the repeats is slower."""
    return lambda source, n: [
        source.gauss(0, deviation) + (math.log1p(-depth) if i < max(1, n // 5) else 0.0) for i in range(n)
    ]


def outliers(share: float = 0.1) -> Noise:
    """Stalls: some repeats take up to thrice as long."""
    return lambda source, n: [
        source.gauss(0, 0.02) - (math.log(source.uniform(1, 3)) if source.random() < share else 0.0)
        for _ in range(n)
    ]


KINDS: dict[str, Noise] = {
    "lognormal, 3 %": lognormal(0.03),
    "lognormal, 5 %": lognormal(0.05),
    "traces: AR(1) 0.8, warm-up step": traces(0.8),
    "AR(1) 0.3 between repeats, 4 %": autocorrelated(0.3),
    "AR(1) 0.5 between repeats, 4 %": autocorrelated(0.5),
    "warm-up: first fifth 20 % slower": warm_up(),
    "bimodal: half of them 8 % slower": bimodal(0.5, 0.08),
    "bimodal: a tenth 25 % slower": bimodal(0.1, 0.25),
    "stalls: a tenth up to 3x": outliers(),
    "lognormal, 11 % *": lognormal(0.11),
    "AR(1) 0.8 between repeats, 4 % *": autocorrelated(0.8),
}


WHOLE = (3, 8, 12)
"""Repeats of whole runs."""

SCATTER = {
    "local": (0.010, 0.010),
    "wired": (0.004, 0.003),
    "wired+aes128gcm16": (0.005, 0.003),
    "wifi": (0.006, 0.002),
    "wifi+aes128gcm16": (0.006, 0.002),
}
"""Standard deviations of logarithms of a column's cells, with 4K and with 256K blocks: four of each. Measured
on a quiet machine."""

STALLED, STALL = 0.04, (0.03, 0.10)
"""How many of the repeats there are low, and by how much."""

BUSIER = 4
"""A machine on which all scatters by so much more."""


def whole_runs(
    repeats: int, apart: float, busier: float, *, rounds: int, throttle: float, seed: int
) -> tuple[float, float, float]:
    """Of pairs of whole runs whose cells differ by ``apart`` from run to run: the parts of equal cells that
    are said to differ, of equal cells that are judged, and of 4K cells over links that are said to be slower
    if they are. Their repeats scatter by ``busier`` times what they do on a quiet machine."""
    source = random.Random(f"{seed}/{repeats}/{apart}/{busier}")  # noqa: S311 -- no secret
    columns = [(name, kind, each) for name, both in SCATTER.items() for kind, each in enumerate(both)]
    small = [name != "local" and not kind for name, kind, _ in columns for _ in range(4)]
    deviations = [busier * each for *_, each in columns for _ in range(4)]

    def cell(deviation: float) -> list[float]:
        middle = source.gauss(0, apart)
        stalls = [source.uniform(*STALL) * (source.random() < STALLED) for _ in range(repeats)]
        return [math.exp(middle + source.gauss(0, deviation) - stall) for stall in stalls]

    def verdicts(a: list[list[float]], b: list[list[float]]) -> list[Judgement]:
        between = math.sqrt(2) * BETWEEN_RUNS
        found = [ratio_of(x, y, between=between) for x, y in zip(a, b, strict=True)]
        return [verdict for verdict, _ in judge(found, margin=0.05, higher_is_better=True)]

    differ = judged = found = 0
    for _ in range(rounds):
        a, b = (list(map(cell, deviations)) for _ in range(2))
        equal = verdicts(a, b)
        differ += sum(verdict in (Judgement.FASTER, Judgement.SLOWER) for verdict in equal)
        judged += sum(verdict is not Judgement.INCONCLUSIVE for verdict in equal)
        slow = [
            [value * (1 - throttle * slowed) for value in values]
            for values, slowed in zip(b, small, strict=True)
        ]
        reported = verdicts(a, slow)
        found += sum(reported[place] is Judgement.SLOWER for place, slowed in enumerate(small) if slowed)
    cells = rounds * len(deviations)
    return differ / cells, judged / cells, found / rounds / sum(small)


def _whole_lines(options: argparse.Namespace) -> Iterator[tuple[str, bool]]:
    yield "whole runs: of 40 equal cells differ / are judged; of 16 throttled 4K cells are slower", True
    for busier in (1, BUSIER):
        for apart in (0.5 * BETWEEN_RUNS, BETWEEN_RUNS, 2 * BETWEEN_RUNS):
            yield f"  repeats scatter {busier} times, runs by {apart:.1%} more", True
            for repeats in WHOLE:
                differ, judged, found = whole_runs(
                    repeats,
                    apart,
                    busier,
                    rounds=max(20, options.rounds // 10),
                    throttle=options.throttle / 100,
                    seed=options.seed,
                )
                line = f"    n = {repeats:<2}{40 * differ:8.2f} /{40 * judged:5.1f}{16 * found:8.2f}"
                yield line, differ <= MOST_DIFFERENT or apart > BETWEEN_RUNS


def rates(noise: Noise, repeats: int, *, rounds: int, throttle: float, seed: int) -> tuple[float, float]:
    """How often a difference is shown between A and A, and how often B is shown slower if throttled."""
    source = random.Random(f"{seed}/{repeats}")  # noqa: S311 -- no secret
    false = found = 0
    for _ in range(rounds):
        a, b = (list(map(math.exp, values)) for values in (noise(source, repeats) for _ in range(2)))
        false += _verdict(a, b) in (Judgement.FASTER, Judgement.SLOWER)
        found += _verdict(a, [value * (1 - throttle) for value in b]) is Judgement.SLOWER
    return false / rounds, found / rounds


def _verdict(a: list[float], b: list[float]) -> Judgement:
    ((verdict, _),) = judge([ratio_of(a, b)], margin=0.05, higher_is_better=True)
    return verdict


def _lines(options: argparse.Namespace) -> Iterator[tuple[str, bool]]:
    """Lines of the table, and whether each keeps what is promised."""
    chance = 3 * math.sqrt(PROMISED * (1 - PROMISED) / options.rounds)
    yield "", True
    yield f"{'':34}" + "".join(f"{f'n = {n}':>14}" for n in options.repeats), True
    for name, noise in KINDS.items():
        line, kept = f"  {name:32}", True
        for repeats in options.repeats:
            false, found = rates(
                noise, repeats, rounds=options.rounds, throttle=options.throttle / 100, seed=options.seed
            )
            line += f"{100 * false:7.1f} /{100 * found:4.0f} "
            few = repeats < RANKS_FROM
            kept = kept and (false <= PROMISED + chance or name.endswith("*") or few)
        yield line, kept


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rounds", type=int, default=2000)
    parser.add_argument("--repeats", type=int, nargs="+", default=[6, 10, 20, 30])
    parser.add_argument("--throttle", type=float, default=10.0, metavar="PERCENT")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    print(f"{options.rounds} rounds; false positives / {options.throttle:g} % throttle found, in percent")
    good = True
    for line, kept in itertools.chain(_whole_lines(options), _lines(options)):
        print(line if kept else f"{line}  more than {100 * PROMISED:.0f} % false", flush=True)
        good = good and kept
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
