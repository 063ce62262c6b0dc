"""The axes of workloads: queue depth, block size and number of jobs, for any profile.

A job of the profile is measured at each combination of what was typed, as a workload of its own, whose name
and numbers (``model.Workload``) say which.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence

import msgspec

from harness.model import Job, Workload, block_word
from harness.model.errors import UsageError
from harness.model.units import check_name, parse_size, shown
from harness.parse import jobfile

DEEP_ENGINE = "libaio"
"""Replaces engines that do one I/O at a time, at every depth: one label, one engine, whatever other depths
there are."""


def varied(
    jobs: Sequence[Job],
    *,
    depths: Sequence[str] = (),
    blocks: Sequence[str] = (),
    numjobs: Sequence[str] = (),
    notes: list[str],
) -> tuple[Job, ...]:
    """Each of ``jobs`` at each combination of the values typed; what was not typed stays as the job has it.

    Jobs that differ in nothing else become one. ``notes`` gets which engines were replaced. UsageError for
    values that fio cannot have, and for two different workloads of one name.
    """
    sizes = [parse_size(text, what="--block") for text in _listed(blocks)]
    counts = [_count(text, "--jobs", "numjobs") for text in _listed(numjobs)]
    deep = [_count(text, "--depth", "iodepth") for text in _listed(depths)]
    if not (sizes or counts or deep):
        return tuple(jobs)
    points = list(itertools.product(*(each or (None,) for each in (sizes, counts, deep))))
    found: dict[str, Job] = {}
    replaced: dict[str, None] = {}
    for job in jobs:
        for block_bytes, count, depth in points:
            changes: dict[str, str] = {}
            if block_bytes is not None:
                changes["bs"] = str(block_bytes)
            if count is not None:
                changes["numjobs"] = str(count)
            if depth is not None:
                changes["iodepth"] = str(depth)
                if jobfile.is_synchronous(job):
                    changes["ioengine"] = DEEP_ENGINE
                    replaced[job.name] = None
            made = _changed(job, changes)
            if found.setdefault(made.name, made) != made:
                raise UsageError(
                    f"two workloads would both be called {made.name}, and they differ in other options",
                    hint=f"choose one of the two, for instance with --workload {job.name}",
                )
    if replaced:
        notes.append(
            f"{', '.join(replaced)}: measured with {DEEP_ENGINE}, because their own engines do "
            f"one I/O at a time"
        )
    return tuple(found.values())


def _changed(job: Job, changes: dict[str, str]) -> Job:
    """The job with other options, and the name that says so."""
    left_out = {"bsrange", "bssplit"} if "bs" in changes else set()
    kept = {option: value for option, value in job.options if option not in left_out}
    made = msgspec.structs.replace(job, options=tuple({**kept, **changes}.items()))
    before, after = jobfile.described(job), jobfile.described(made)
    words = [before.base, *_words(before, after, changes)]
    made = msgspec.structs.replace(made, name=check_name("workload", "-".join(words)))
    jobfile.check_job(made)
    return made


def _words(before: Workload, after: Workload, changes: Iterable[str]) -> Iterator[str]:
    """What the name says beyond ``base``: what was changed, and what it said before."""
    for option, word_of in (("bs", block_word), ("iodepth", "qd{}".format), ("numjobs", "j{}".format)):
        value = {"bs": after.block_bytes, "iodepth": after.depth, "numjobs": after.numjobs}[option]
        if value is not None and (option in changes or word_of(value) in before.name.split("-")):
            yield word_of(value)


def _listed(texts: Sequence[str]) -> list[str]:
    """The values of a repeatable option, each a list with commas; each once."""
    return list(dict.fromkeys(word.strip() for text in texts for word in text.split(",")))


def _count(text: str, option: str, of_fio: str) -> int:
    if expected := jobfile.refusal(of_fio, text):
        raise UsageError(f"{option}: expected {expected}, found {shown(text)}", hint=f"try {option} 1,4,16")
    return int(text)
