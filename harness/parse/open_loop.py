"""Jobs as an open loop: requests due at random times, at a rate, whatever became of earlier ones.

``runs/programs/open_loop.py`` carries them out.
"""

from __future__ import annotations

import msgspec

from harness.model import Job
from harness.model.errors import UsageError
from harness.model.units import check_name
from harness.parse import jobfile

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

SHORT, FULL = 1, 2
"""A short trial and one of full length: the repeats of a cell."""

SHORTER = 8
"""So many times a full trial is as long as a short one."""


def trial_s(job: Job, repeat: int) -> float:
    """How long a trial is; the job says how long a full one is."""
    return jobfile.wall_estimate_s(job) / (SHORTER if repeat == SHORT else 1)


def at_rate(job: Job, rate_iops: int, time_s: float) -> Job:
    """The job with so many requests a second, for that time. UsageError if it does more than reads and writes
    of one size."""
    options = dict(job.options)
    workload = jobfile.described(job)
    others = [option for option in options if option not in KEPT | LEFT_OUT]
    if workload.block_bytes is None or others or ":" in (options["rw"] or ""):
        raise UsageError(
            f"{job.name}: expected only reads and writes of one size, found {', '.join(others) or 'others'}",
            hint="choose other workloads with --workload",
        )
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
        "rate_iops": str(rate_iops),
        "runtime": f"{round(time_s * 1e6)}us",
        "time_based": None,
    }
    made = msgspec.structs.replace(job, options=tuple({**kept, **changes}.items()))
    words = [word for word in job.name.split("-") if not word.startswith("qd")]
    made = msgspec.structs.replace(made, name=check_name("workload", "-".join((*words, f"{rate_iops}iops"))))
    jobfile.check_job(made)
    return made
