"""The plan for ``harness knee --p99 2ms``: trials at the loads of a grid, of which a run makes some."""

from __future__ import annotations

import math
from typing import Annotated

import msgspec

from harness.model import Goal, Job, Plan, Sweep
from harness.model.errors import UsageError
from harness.model.units import check_name, parse_duration_s, shown
from harness.parse import jobfile
from harness.planning import plan
from harness.planning.request import RunRequest, goal, require_not_given
from harness.results import rules
from harness.results.knee import FIGURES, RATIO, TRIALS

EXCEEDING = 800
"""The number of requests above the percentile in a full trial: near a knee they come in groups."""

FEWEST = 80_000
LEAST_S, MOST_S = 0.1, 30.0

IN_FLIGHT = 1024
"""The largest number: a longer queue has missed any goal."""

_KEPT = "direct buffered size rwmixread"
_LEFT_OUT = """
    rw bs ioengine iodepth iodepth_batch iodepth_batch_complete_min iodepth_batch_complete_max iodepth_low
    numjobs runtime time_based ramp_time loops number_ios io_size steadystate rate rate_min rate_iops
    rate_iops_min rate_process thinktime norandommap randrepeat refill_buffers scramble_buffers invalidate
    thread mem disk_util"""
KEPT, LEFT_OUT = frozenset(_KEPT.split()), frozenset(_LEFT_OUT.split())
"""Options that a load replaces, or that change nothing here. All others are refused."""


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
    typed = {of: getattr(request, of.replace(".", "_")) for of in FIGURES}
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
        sweep=Sweep(goals=goals, max_s=max_s),
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
    """The job as an open loop of so many requests a second."""
    options = dict(job.options)
    workload = jobfile.described(job)
    others = [option for option in options if option not in KEPT | LEFT_OUT]
    if workload.block_bytes is None or others or ":" in (options["rw"] or ""):
        raise UsageError(
            f"{job.name}: expected only reads and writes of one size, found {', '.join(others) or 'others'}",
            hint="choose other workloads with --workload",
        )
    parts = [1 - float(goal.metric[1:]) / 100 for goal in goals if goal.metric.startswith("p")]
    requests = max(FEWEST, *(EXCEEDING / part for part in parts), 0)
    time_s = min(most_s, max(LEAST_S, requests / load))
    kept = {option: value for option, value in options.items() if option in KEPT}
    changes = {
        "rw": ("rand" if workload.pattern == "random" else "")
        + str(workload.direction).replace("both", "rw"),
        "bs": str(workload.block_bytes),
        "ioengine": "libaio",
        "iodepth": str(IN_FLIGHT),
        "numjobs": "1",
        "io_submit_mode": "offload",
        "rate_process": "poisson",
        "rate_iops": str(load),
        "runtime": f"{round(time_s * 1e6)}us",
        "time_based": None,
    }
    made = msgspec.structs.replace(job, options=tuple({**kept, **changes}.items()))
    words = [word for word in job.name.split("-") if not word.startswith("qd")]
    made = msgspec.structs.replace(made, name=check_name("workload", "-".join((*words, f"{load}iops"))))
    jobfile.check_job(made)
    return made
