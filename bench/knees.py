"""How right knees are, how well they repeat, and what they cost, against queueing theory.

    python bench/knees.py [--folder FOLDER] [--seeds N] [HARNESS-OPTION...]

First it lets the search look for the knee of a simulated M/M/1 queue, for the lab has no server with
exponential times. Then it looks for the knee over a link in virtual time, with several seeds. There the
server is the link, which takes the same time for the answer to each read: an M/D/1 queue.
"""

from __future__ import annotations

import argparse
import math
import random
import subprocess
import sys
import tempfile
from collections.abc import Callable
from decimal import Decimal, localcontext
from pathlib import Path
from statistics import mean

from harness.analysis import path_demands, theory
from harness.model import Plan, Record
from harness.parse.jobfile import repeat_seed
from harness.parse.open_loop import FULL, SHORT, trial_s
from harness.questions.knee import search as knee
from harness.questions.knee.section import SECTION
from harness.results.store import RunFolder
from harness.runs.programs import open_loop

OPTIONS = (
    *("--virtual-time", "--link", "wired", "--protect", "off", "--workload", "rand-read-4k", "--disk", "ram"),
    *("--size", "32M", "--load", "5000..50000", "--p99", "1ms"),
)
GRID = 20
"""Trials of a grid that it is compared with, all of full length."""

DIGITS = 120
"""The terms of the sum cancel."""

SIMULATED_S, SIMULATED_GOAL_NS = 1e-4, 2_000_000
REQUESTS = {SHORT: 10_000, FULL: 80_000}


def below(load: float, service_s: float, wait_s: float) -> float:
    """M/D/1: the part of requests that wait no longer (A. K. Erlang 1909; C. D. Crommelin 1932)."""
    with localcontext() as context:
        context.prec = DIGITS
        rate, service, wait = Decimal(load), Decimal(service_s), Decimal(wait_s)
        total = Decimal(0)
        for number in range(int(wait_s / service_s) + 1):
            left = rate * (number * service - wait)
            total += (left**number if number else 1) / Decimal(math.factorial(number)) * (-left).exp()
        return float((1 - rate * service) * total)


def bisected(is_high: Callable[[float], bool], low: float, high: float) -> float:
    """Where a function becomes true."""
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (low, middle) if is_high(middle) else (middle, high)
    return low


def wait_s(part: float, load: float, service_s: float) -> float:
    """M/D/1: the wait that so large a part of requests does not exceed."""
    return bisected(lambda wait: below(load, service_s, wait) >= part, 0, 120 * service_s)


def queued(plan: Plan, record: Record, service_s: float, alone_s: float) -> float:
    """The p99 in seconds of a queue with one server that takes the same time for each request, if the very
    requests of a trial arrive there: what that trial would have measured without any error."""
    load, job = record.workload.rate_iops or 0, next(j for j in plan.jobs if j.name == record.workload.name)
    seconds = trial_s(job, record.repeat)
    seed = repeat_seed(plan.seed, record.repeat, record.workload.name)
    free_ns, found = 0.0, []
    for due in open_loop.arrivals(load, seconds, random.Random(seed)):  # noqa: S311
        free_ns = max(free_ns, due) + 1e9 * service_s
        if due >= open_loop.SETTLING * seconds * 1e9:
            found.append(round(free_ns - 1e9 * service_s + 1e9 * alone_s - due))
    return open_loop.percentile(sorted(found), 0.99) / 1e9


def lab(folder: Path, seeds: int, words: list[str]) -> None:
    """Lines for each seed: the search, its knees and its trials."""
    harness = str(Path(sys.executable).parent / "harness")
    loads: dict[knee.Goal, list[float]] = {}
    for seed in range(1, seeds + 1):
        results = folder / f"seed-{seed}"
        if not results.is_dir():
            command = [harness, "knee", *words, "--seed", str(seed), "--results", str(results)]
            subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        (run,) = [RunFolder(each) for each in results.iterdir() if (each / "plan.json").is_file()]
        plan, records = run.load_plan(), run.load_records()
        jobs = {job.name: job for job in plan.jobs}
        spent_s = [trial_s(jobs[each.workload.name], each.repeat) for each in records]
        full_s = mean(s for s, each in zip(spent_s, records, strict=True) if each.repeat == FULL)
        sys.stdout.write(
            f"seed {seed}: {len(records)} trials, {sum(spent_s):.1f} s; {GRID} full ones: "
            f"{GRID * full_s:.1f} s ({sum(spent_s) / full_s / GRID:.0%})\n"
        )
        service_s, alone_s = server(plan, records[0])
        for found in SECTION.found(plan, records):
            by_theory = exact(found, service_s, alone_s)
            loads.setdefault(found.goal, []).append(found.load)
            sys.stdout.write(
                f"  {found.goal.metric}: {found.load:.0f} IOPS ({found.low} to {found.high}), "
                f"M/D/1 {by_theory:.0f} ({found.load / by_theory - 1:+.1%})\n"
            )
        for record in sorted(records, key=lambda each: (each.workload.rate_iops or 0, each.repeat)):
            load = record.workload.rate_iops or 0
            if load * service_s < 1 and record.read is not None:
                measured_s = (record.read.latency.p99_ns or 0) / 1e9
                of_both = (queued(plan, record, service_s, alone_s), alone_s + wait_s(0.99, load, service_s))
                shown = ", ".join(
                    f"{name} {1e3 * s:.3f} ({measured_s / s - 1:+.1%})"
                    for name, s in zip(("the same arrivals", "M/D/1"), of_both, strict=True)
                )
                sys.stdout.write(
                    f"  {load} IOPS, {load * service_s:.3f} busy, {record.read.ios} requests: "
                    f"p99 {1e3 * measured_s:.3f} ms; {shown}\n"
                )
    for goal, found_loads in loads.items():
        spread = max(abs(load / mean(found_loads) - 1) for load in found_loads)
        sys.stdout.write(f"{goal.metric}: {mean(found_loads):.0f} IOPS, all seeds within {spread:.1%}\n")


def server(plan: Plan, record: Record) -> tuple[float, float]:
    """What the link takes for the answer to a read, and a read that is alone takes, in s (docs/theory.md)."""
    link = plan.links[record.column.link]
    dialogue = path_demands.dialogue_of(record.column.transport or "", record.session, "read")
    assert dialogue is not None and link.rate_bit_s is not None and record.workload.block_bytes is not None
    found = theory.predict(
        theory.Wire(link=link),
        dialogue,
        direction="read",
        block_bytes=record.workload.block_bytes,
        device_s=0.0,
    )
    return 8 * found.to_initiator.wire_bytes / link.rate_bit_s, found.time_s


def exact(found: knee.Knee, service_s: float, alone_s: float) -> float:
    """The knee of a percentile by M/D/1."""
    part, left_s = float(found.goal.metric[1:]) / 100, found.goal.at_most_ns / 1e9 - alone_s

    def is_too_high(load: float) -> bool:
        return below(load, service_s, left_s) < part

    return bisected(is_too_high, 0, 0.999 / service_s)


def simulated(seed: int) -> tuple[float, int, float]:
    """The knee of an M/M/1 queue by the same search, its trials, and its part of a grid's requests."""
    generator = random.Random(seed)  # noqa: S311
    goal = knee.Goal("p99", SIMULATED_GOAL_NS)
    loads = sorted({round(10 * knee.RATIO**step) for step in range(237)})
    trials: dict[tuple[int, int], float] = {}
    while (trial := knee.next_trial(knee.bracket(trials, goal), len(loads))) is not None:
        wait, responses = 0.0, []
        for _ in range(REQUESTS[trial[1]]):
            response = wait + generator.expovariate(1 / SIMULATED_S)
            responses.append(response)
            wait = max(0.0, response - generator.expovariate(loads[trial[0]]))
        trials[trial] = 1e9 * sorted(responses)[math.ceil(0.99 * len(responses)) - 1]
    found = knee.bracket(trials, goal)
    requests = sum(REQUESTS[length] for _, length in trials)
    load = knee.between(found, goal, loads)
    return load, len(trials), requests / REQUESTS[FULL] / GRID


def main() -> None:
    """See above."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--folder", type=Path, help="keep the runs there, and use those that are")
    parser.add_argument("--seeds", type=int, default=4)
    asked, options = parser.parse_known_args()
    found = [simulated(seed) for seed in range(1, 21)]
    by_theory = 1 / SIMULATED_S - math.log(100) / (SIMULATED_GOAL_NS / 1e9)
    errors = sorted(abs(load / by_theory - 1) for load, _, _ in found)
    sys.stdout.write(
        f"simulated M/M/1, 20 seeds: {by_theory:.0f} IOPS by theory; errors {errors[10]:.1%} (median), "
        f"{errors[-1]:.1%} (most); {mean(each[2] for each in found):.0%} of a grid's requests\n"
    )
    lab(asked.folder or Path(tempfile.mkdtemp(prefix="knees-")), asked.seeds, options or [*OPTIONS])


if __name__ == "__main__":
    main()
