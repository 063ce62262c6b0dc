"""fio outputs that the harness did not make: each job a record; ``plain_columns`` has their columns.

fio's ``numjobs`` makes jobs of one name that run at the same time, and reports each unless it is told to
group them: they make one record. Jobs of one name that ran one after another make one each.
"""

from __future__ import annotations

import contextlib
import functools
import os
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import msgspec

from harness.analysis.schedule import Place, throughput_bytes_s
from harness.model import FIO_SOURCE, Column, Io, Job, Record, Setting, Status, TestbedKind, Workload
from harness.model.errors import UsageError
from harness.model.units import positive
from harness.parse import fio
from harness.parse.files import read_bytes, shown_path
from harness.parse.fio import FioJob
from harness.parse.jobfile import described
from harness.results.axes import AXES, Curve
from harness.results.curves import MeasuredCurve, Surface
from harness.results.plain_columns import Output

NEARLY = 0.02
"""How much two figures may differ that should be the same."""


def opened(file: Path) -> Output:
    """A plain output of fio, with its jobs as records; their column has yet to be found (``in_columns``).

    UsageError if the file is not fio's output.
    """
    try:
        output = fio.parse(read_bytes(file))
    except UsageError as error:
        raise UsageError(f"{shown_path(file)}: {error.message}", hint=error.hint) from error
    found: list[Record] = []
    named = _by_name(output.jobs, file)
    for name, jobs in named.items():
        doubts = dict.fromkeys(reason for job in jobs for reason in job.invalid)
        failed = any(job.error for job in jobs)
        reads = [job.read for job in jobs if job.read]
        writes = [job.write for job in jobs if job.write]
        read, write = fio.total(jobs)
        reported = (*output.warnings, *_added_up(jobs, reads), *_added_up(jobs, writes))
        found.append(
            Record(
                run_id=str(file),
                setting=Setting(testbed=TestbedKind.HOST, source=FIO_SOURCE),
                column=Column(file.stem, transport=None),
                workload=_workload(name, jobs, reads + writes),
                repeat=1,
                order=len(found),
                status=Status.FAILED if failed else Status.INVALID if doubts else Status.OK,
                reason="; ".join(doubts) or None,
                warnings=tuple(dict.fromkeys(reported)),
                read=read,
                write=write,
                sync_latency=jobs[0].sync_latency if len(jobs) == 1 else None,
                fio_ns=max((io.runtime_ns for io in reads + writes), default=0),
                raw=(str(file),),
            )
        )
    asked = tuple((name, _asked(job, ())) for name, jobs in named.items() for job in jobs)
    return Output(file, found, (output.version, output.disks, asked))


def _asked(job: FioJob, but: Collection[str]) -> frozenset[tuple[str, str]]:
    """A job's options but these, and but those that name its logs."""
    return frozenset(
        (name, value)
        for name, value in job.options.items()
        if name not in but and not re.fullmatch("write_.*_log", name)
    )


def jobs_of(record: Record) -> list[FioJob]:
    """The jobs that a record was made of; none if its file is not there any more."""
    for file in record.raw:
        with contextlib.suppress(UsageError, OSError, IndexError):
            name, jobs = _jobs(file, Path(file).stat().st_mtime_ns)[record.order]
            if record.workload.name.endswith(name):  # the file's may stand before it
                return jobs
    return []


@functools.lru_cache(1)  # of the file as it is
def _jobs(file: str, _mtime_ns: int) -> list[tuple[str, list[FioJob]]]:
    return [*_by_name(fio.parse(read_bytes(Path(file))).jobs, Path(file)).items()]


AXES_OF_JOBS = frozenset({"iodepth", "bs", "numjobs"})
"""Options in which the points of a curve may differ; and in the names of the logs that they write."""

FEWEST = 3
"""Points of a curve."""


_Asked = frozenset[tuple[str, str]]


def curves(records: Sequence[Record]) -> list[MeasuredCurve]:
    """The curves in fio outputs that the harness did not make: jobs that differ in ``AXES_OF_JOBS`` alone,
    and in the numbers within the names of files and jobs."""
    places: dict[Place, list[Record]] = {}
    for record in records:
        if record.setting.source == FIO_SOURCE:
            places.setdefault((record.column, record.workload.name), []).append(record)
    named: dict[tuple[Path, str, str], list[Place]] = {}
    for place, repeats in places.items():
        if all(throughput_bytes_s(record) > 0 for record in repeats):
            file = Path(repeats[0].run_id)
            key = (file.parent, _without_numbers(file.stem), _without_numbers(place[1]))
            named.setdefault(key, []).append(place)
    groups: dict[tuple[tuple[Path, str, str], _Asked], dict[Place, list[Record]]] = {}
    for key, found in named.items():
        for place in found if len(found) >= FEWEST else ():
            repeats = places[place]
            job = next(iter(jobs_of(repeats[0])), None)
            if job and job.options and all(record.status is Status.OK for record in repeats):
                groups.setdefault((key, _asked(job, AXES_OF_JOBS)), {})[place] = repeats
    made = {key: curve for key, group in groups.items() if (curve := _curve(group)) is not None}
    return _distinguished([(folder, asked, curve) for ((folder, *_), asked), curve in made.items()])


def _curve(group: Mapping[Place, Sequence[Record]]) -> MeasuredCurve | None:
    """The curve of records that differ in nothing else; None if there are too few, or two at one point. Of
    repeats of a point the middle one counts."""
    ranked = {place: sorted(repeats, key=throughput_bytes_s) for place, repeats in group.items()}
    chosen = {place: repeats[(len(repeats) - 1) // 2] for place, repeats in ranked.items()}
    read = {name: axis.of_workload for name, axis in AXES.items() if axis.of_workload is not None}
    points = {
        place: {name: float(of(record.workload) or 0) for name, of in read.items()}
        for place, record in chosen.items()
    }
    axes = tuple(name for name in read if len({point[name] for point in points.values()}) > 1)
    grid = {place: {name: point[name] for name in axes} for place, point in points.items()}
    is_known = all(point[name] for point in points.values() for name in axes)
    if len({tuple(point.values()) for point in grid.values()}) < max(FEWEST, len(grid)) or not is_known:
        return None
    (column, name), *_ = group
    stems = [Path(record.run_id).stem for record in chosen.values()]
    common = os.path.commonprefix(stems)  # noqa: RUF071 -- of characters
    if len(set(stems)) > 1:
        common = re.sub(r"[^-_. ]*$", "", common).rstrip("-_. ")
    fixed = tuple((axis, value) for axis, value in points[column, name].items() if axis not in axes and value)
    workload = next(iter(chosen.values())).workload
    both = any(record.read and record.write for record in chosen.values())
    title = f"{workload.base} (read+write)" if both else workload.base
    of = Curve(Column(common or _without_numbers(stems[0]), transport=None), title, fixed)
    others = {place: tuple(repeats) for place, repeats in ranked.items() if len(repeats) > 1}
    return MeasuredCurve(of, Surface(grid, dict(fixed)), chosen, scatter=0.0, repeats=others)


def _distinguished(found: Sequence[tuple[Path, _Asked, MeasuredCurve]]) -> list[MeasuredCurve]:
    """Curves that have one name by chance, such as those of two disks, are named by what differs: folder,
    options, or else the first file."""
    alike: dict[Curve, list[tuple[Path, _Asked, MeasuredCurve]]] = {}
    for each in found:
        alike.setdefault(each[2].curve, []).append(each)
    curves = []
    for of in alike.values():
        top = os.path.commonpath([folder for folder, _, _ in of])
        same = frozenset.intersection(*(asked for _, asked, _ in of))
        folders = [str(folder.relative_to(top)) for folder, _, _ in of]
        options = [", ".join(f"{name}={value}" for name, value in sorted(asked - same)) for _, asked, _ in of]
        both = [", ".join(filter(None, each)) for each in zip(folders, options, strict=True)]
        first = [next(iter(curve.records.values())) for _, _, curve in of]
        files = [f"{Path(record.run_id).stem} {record.workload.name}" for record in first]
        words = next((each for each in (folders, options, both, files) if len({*each}) == len(of)), files)
        for (_, _, curve), word in zip(of, words if len(of) > 1 else [""], strict=True):
            column = curve.curve.column
            link = f"{column.link} ({word})" if word else column.link
            stated = msgspec.structs.replace(curve.curve, column=msgspec.structs.replace(column, link=link))
            curves.append(replace(curve, curve=stated))
    return curves


def _without_numbers(name: str) -> str:
    return re.sub(r"\d+[kKmM]?", "", name).strip("-_. ")


def _by_name(jobs: Sequence[FioJob], file: Path) -> dict[str, list[FioJob]]:
    """Jobs that ran at the same time under one name. If others of that name ran before or after them
    (``stonewall``), the number of their group is part of it."""
    groups: dict[str, dict[int | None, list[FioJob]]] = {}
    for job in jobs:
        groups.setdefault(job.name.strip() or file.stem, {}).setdefault(job.group, []).append(job)
    found: dict[str, list[FioJob]] = {}
    for name, of_name in groups.items():
        for group, members in of_name.items():
            called = name if len(of_name) == 1 else f"{name} (group {group})"
            found.setdefault(called, []).extend(members)
    return found


def _workload(name: str, jobs: Sequence[FioJob], ios: Sequence[Io]) -> Workload:
    """By the options, if fio reports them. The size of every I/O is the one that they say, if the counts say
    it too."""
    options: Mapping[str, str] = jobs[0].options
    # Without group_reporting each job is reported, and its options say how many there are as well.
    count = max(len(jobs), positive(options, "numjobs"))
    found = described(Job(name=name, options=tuple({**options, "numjobs": str(count)}.items())))
    size = found.block_bytes
    fits = size and all(abs(io.bytes - io.ios * size) <= NEARLY * io.bytes for io in ios)
    if not options:
        found = Workload(name=name, block_bytes=size)
    return found if fits else msgspec.structs.replace(found, block_bytes=None)


def _added_up(jobs: Sequence[FioJob], ios: Sequence[Io]) -> list[str]:
    """What to doubt about a sum: it is over the longest run time, as fio's own."""
    if len(jobs) < 2:
        return []
    words = [f"{len(jobs)} {fio.ADDED_UP}"]
    longest_ns = max((io.runtime_ns for io in ios), default=0)
    total = sum(io.bytes for io in ios) * 1e9 / longest_ns if longest_ns else 0.0
    rates = sum(io.bytes_per_s for io in ios)
    if rates > (1 + NEARLY) * total:
        shortest_ns = min(io.runtime_ns for io in ios)
        words.append(
            f"its jobs ran for {shortest_ns / 1e9:.3g} to {longest_ns / 1e9:.3g} s: over the longest they "
            f"make {total / 1e6:.4g} MB/s, and each over its own {rates / 1e6:.4g} MB/s"
        )
    return words
