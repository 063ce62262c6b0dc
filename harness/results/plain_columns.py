"""Which of the fio outputs of others are one column of a table: repeats, and files with a job each.

What is not the same disk, machine or job for certain is not: the names of files and jobs, and fio's options,
are all that there is to go by.
"""

from __future__ import annotations

import os
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from harness.model import Column, Record

FEWEST = 3
"""Files with a job each that are a column together; two stand side by side."""

_NUMBERED = re.compile(
    r"(?<![a-z])(?:run|rep|repeat|repetition|iter|iteration|trial|try|attempt|pass|round|sample|take)"
    r"[-_. #]*\d+(?![a-z0-9])",
    re.IGNORECASE,
)
"""A repeat that is called one: ``run_01``, ``iter3``."""

_BARE = re.compile(r"(?:^|[-_. ])\d+$")
"""A number behind a name, which is a repeat if the name is the job's: ``randread-2``."""

_NEUTRAL = frozenset({"fio", "result", "results", "output", "out", "test", "bench", "benchmark", "job"})
"""Words of names that say of no disk, machine or parameter."""

_LONG = 3
"""Letters of a word that is looked for within others."""

Asked = tuple[str | None, tuple[str, ...], tuple[tuple[str, frozenset[tuple[str, str]]], ...]]
"""fio's version, the disks, and the jobs with their options, but those that only name what fio writes."""


@dataclass(frozen=True)
class Output:
    """A plain output of fio: a record of each of its jobs, and what they were asked to do."""

    file: Path
    records: Sequence[Record]
    asked: Asked

    @property
    def words(self) -> frozenset[str]:
        """Those of its jobs' names and options' values."""
        jobs = self.asked[2]
        return frozenset(word for name, _ in jobs for word in (name.casefold(), *_words(name))) | frozenset(
            value.casefold() for _, options in jobs for _, value in options
        )

    def is_said(self, word: str) -> bool:
        """Whether a word of the file's name says what its jobs say as well."""
        is_long = len(word) >= _LONG
        return word in _NEUTRAL or word in self.words or (is_long and any(word in of for of in self.words))


@dataclass(frozen=True)
class _Unit:
    """What is certainly one column: an output, or repeats of it. ``path`` is without their number."""

    path: Path
    repeats: list[Output]

    @property
    def jobs(self) -> list[str]:
        return [record.workload.name for record in self.repeats[0].records]


def in_columns(outputs: Sequence[Output]) -> list[Record]:
    """The records of all outputs, each in its column and with the number of its repeat."""
    units = _units(outputs)
    paths = [unit.path for unit in units]
    columns: dict[Path, list[_Unit]] = defaultdict(list)
    if _are_rows(units):
        folder = Path(os.path.commonpath([path.parent for path in paths]))
        columns[folder] = units
    else:
        folders: dict[Path, list[_Unit]] = defaultdict(list)
        for unit in units:
            folders[unit.path.parent].append(unit)
        for folder, found in folders.items():
            is_one = _are_rows(found) and folder not in paths
            for unit in found:
                columns[folder if is_one else unit.path].append(unit)
    names = _names([*columns])
    return [
        record
        for path, found in columns.items()
        for unit, row in zip(found, _rows(found, path), strict=True)
        for record in _records(unit, names[path], row)
    ]


def _units(outputs: Sequence[Output]) -> list[_Unit]:
    """Outputs of the same jobs whose paths differ in the number of a repeat alone are its repeats: first by
    numbers that are called one, then by bare ones."""
    units = [_Unit(output.file.absolute(), [output]) for output in outputs]
    for without in (_without_number, _without_bare):
        same: dict[Path, list[_Unit]] = defaultdict(list)
        for unit in units:
            same[without(unit)].append(unit)
        units = []
        for path, found in same.items():
            repeats = [output for unit in found for output in unit.repeats]
            is_one = len(found) > 1 and len({output.asked for output in repeats}) == 1
            units += [_Unit(path, repeats)] if is_one else found
    for unit in units:
        unit.repeats.sort(key=lambda output: _natural(output.file))
    return sorted(units, key=lambda unit: _natural(unit.path))


def _without_number(unit: _Unit) -> Path:
    """A path without the numbers of repeats; the folder's if nothing else is left."""
    *folders, stem = (_NUMBERED.sub("", part).strip("-_. ") for part in unit.path.with_suffix("").parts[1:])
    parts = [*filter(None, (*folders, stem))]
    return Path(unit.path.anchor, *parts).with_suffix(unit.path.suffix) if parts else unit.path


def _without_bare(unit: _Unit) -> Path:
    """A path without the number at its end, if the rest is said by the jobs as well."""
    name = _BARE.sub("", unit.path.stem)
    output = unit.repeats[0]
    if not (all(options for _, options in output.asked[2]) and all(map(output.is_said, _words(name)))):
        return unit.path
    path = unit.path.parent / f"{name}{unit.path.suffix}" if name else unit.path.parent
    return path if path.name else unit.path


def _are_rows(units: Sequence[_Unit]) -> bool:
    """Whether they have one job each, all of other names: as columns they would fill a diagonal."""
    jobs = [name for unit in units for name in unit.jobs]
    return FEWEST <= len(units) == len(jobs) == len(set(jobs))


def _rows(found: Sequence[_Unit], column: Path) -> list[str]:
    """What stands before the job's name in each row: the file's, if that says what its job and the other
    files do not."""
    if len(found) == 1:
        return [""]
    names = [str(unit.path.relative_to(column).with_suffix("")) for unit in found]
    shared = frozenset.intersection(*(frozenset(_words(name)) for name in names))
    rows = []
    for unit, name in zip(found, names, strict=True):
        own = [word for word in _words(name) if word not in shared and not word.isdecimal()]
        rows.append("" if all(map(unit.repeats[0].is_said, own)) else f"{name}: ")
    return rows


def _records(unit: _Unit, link: str, row: str) -> Iterable[Record]:
    for repeat, output in enumerate(unit.repeats, start=1):
        for record in output.records:
            workload = msgspec.structs.replace(record.workload, name=f"{row}{record.workload.name}")
            yield msgspec.structs.replace(
                record, column=Column(link, transport=None), link_title=link, workload=workload, repeat=repeat
            )


def _names(paths: Sequence[Path]) -> dict[Path, str]:
    """A name for each column: the file's or folder's, with the folders that tell it from its like."""
    by_name: dict[str, list[Path]] = defaultdict(list)
    for path in paths:
        by_name[path.stem if path.suffix else path.name or "fio"].append(path)
    shown = {}
    for name, alike in by_name.items():
        common = os.path.commonpath([path.parent for path in alike])
        short = {path: path.relative_to(common).with_suffix("") for path in alike}
        count = Counter(short.values())
        for path in alike:
            longer = short[path] if count[short[path]] == 1 else path.relative_to(common)
            shown[path] = name if len(alike) == 1 else str(longer)
    return shown


def _words(name: str) -> list[str]:
    return [word.casefold() for word in re.split(r"[^a-zA-Z0-9]+", name) if word]


def _natural(path: Path) -> list[tuple[int, str]]:
    """By numbers as numbers: ``run_2`` before ``run_10``."""
    return [(int(part), "") if part.isdecimal() else (-1, part) for part in re.split(r"(\d+)", str(path))]
