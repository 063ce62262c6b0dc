"""The plan for ``harness knee --p99 2ms``: trials at the loads of a grid, of which a run makes some."""

from __future__ import annotations

import math
from typing import Annotated

import msgspec

from harness.model import LATENCIES, Job, Plan
from harness.model.errors import UsageError
from harness.model.units import parse_duration_s, shown
from harness.parse import open_loop
from harness.planning import plan
from harness.planning.request import RunRequest, goal, require_not_given
from harness.questions.knee.search import RATIO, TRIALS, Goal, Goals
from harness.questions.knee.section import SECTION
from harness.results import rules

EXCEEDING = 800
"""The number of requests above the percentile in a full trial: near a knee they come in groups."""

FEWEST = 80_000
LEAST_S, MOST_S = 0.1, 30.0

WITH_LOADS = {
    "confidence": "--confidence",
    "repeats": "--repeats",
    "max_repeats": "--max-repeats",
    "depths": "--depth",
    "numjobs": "--jobs",
    "lab_initiators": "--lab-initiators",
}
"""Options that set the load, or who sends it, in another way; a search refuses them."""


class KneeRequest(RunRequest, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What ``harness knee`` is asked for."""

    p99: Annotated[str | None, goal(metavar="TIME", help="Target p99 latency, e.g. 2ms.")] = None
    p99_9: Annotated[str | None, goal(flag="--p99.9", metavar="TIME", help="Target p99.9 latency.")] = None
    p50: Annotated[str | None, goal(metavar="TIME", help="Target p50 (median) latency.")] = None
    mean: Annotated[str | None, goal(metavar="TIME", help="Target mean latency.")] = None
    load: Annotated[str, goal(metavar="LOW..HIGH", help="Range of loads to search, in IOPS.")] = "10..1000000"


def make_plan(request: KneeRequest) -> Plan:
    """Check and resolve a request. UsageError for the first thing that is wrong."""
    typed = {of: getattr(request, of.replace(".", "_")) for of in LATENCIES}
    goals = tuple(
        Goal(of, round(1e9 * parse_duration_s(text, what=f"--{of}")))
        for of, text in typed.items()
        if text is not None
    )
    if not goals:
        raise UsageError("expected a goal, found none", hint="try --p99 2ms")
    loads = _loads(request.load)
    require_not_given(
        request,
        WITH_LOADS,
        found="a search for a knee",
        hint="the load sets how many requests there are per second; leave it out",
    )
    most_s = MOST_S if request.runtime is None else parse_duration_s(request.runtime, what="runtime")
    max_s = None if request.max_time is None else parse_duration_s(request.max_time, what="--max-time")
    made = plan.make_plan(msgspec.structs.replace(request, runtime=None, max_time=None, repeats=1))
    if any(column.initiators > 1 for column in made.columns):
        raise UsageError("expected one initiator, found several", hint="leave all but one --initiator out")
    made = msgspec.structs.replace(
        made,
        jobs=tuple(_at(job, load, goals, most_s) for job in made.jobs for load in loads),
        repeats=TRIALS,
        sections=SECTION.within(Goals(goals=goals, max_s=max_s)),
    )
    rules.check(made)
    return made


def _loads(text: str) -> list[int]:
    """The grid from ``100..20000``."""
    low, _, high = text.partition("..")
    if not (low.isascii() and low.isdecimal() and high.isascii() and high.isdecimal()):
        raise UsageError(f"--load: expected a range, found {shown(text)}", hint="try --load 100..100000")
    if not 0 < int(low) < int(high) <= 10_000_000:
        raise UsageError(
            f"--load: expected a range from less to more, up to 10000000, found {shown(text)}",
            hint="try --load 100..100000",
        )
    steps = math.ceil(math.log(int(high) / int(low)) / math.log(RATIO))
    return sorted({round(int(low) * (int(high) / int(low)) ** (step / steps)) for step in range(steps + 1)})


def _at(job: Job, load: int, goals: tuple[Goal, ...], most_s: float) -> Job:
    """The job as an open loop of so many requests a second, in a trial of full length."""
    parts = [1 - float(goal.metric[1:]) / 100 for goal in goals if goal.metric.startswith("p")]
    requests = max(FEWEST, *(EXCEEDING / part for part in parts), 0)
    return open_loop.at_rate(job, load, min(most_s, max(LEAST_S, requests / load)))
