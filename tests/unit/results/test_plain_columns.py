"""Which fio outputs of others are one column: repeats and rows are, disks and machines are not."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from harness.results.measured import Measured
from harness.results.store import open_results
from harness.table.curves import render
from tests.unit.command import harness
from tests.unit.results.test_plain_curves import job, moved
from tests.unit.results.test_results import write_fio


def columns(folder: Path) -> dict[str, dict[str, int]]:
    """How many samples each column has of each row."""
    found: dict[str, dict[str, int]] = {}
    for record in open_results([folder]):
        rows = found.setdefault(record.column.link, {})
        rows[record.workload.name] = rows.get(record.workload.name, 0) + 1
    return found


@pytest.mark.parametrize(
    "names",
    [
        ("run_01", "run_02", "run_10"),
        ("iter1", "iter2", "iter3"),
        ("4k-rep3", "4k-rep4", "4k-rep5"),
        ("randread-1", "randread-2", "randread-3"),
        ("run1/4k", "run2/4k", "run3/4k"),
    ],
)
def test_names_that_differ_in_a_repeat_s_number_are_repeats(tmp_path: Path, names: tuple[str, ...]) -> None:
    for number, name in enumerate(names):
        write_fio(tmp_path / f"{name}.json", job("a") | moved(1000 + number), job("b"))
    ((_, rows),) = columns(tmp_path).items()
    assert rows == {"a": 3, "b": 3}
    assert [record.repeat for record in open_results([tmp_path])] == [1, 1, 2, 2, 3, 3]
    said = harness("table", ".", cwd=tmp_path).stdout
    assert "median of 3 samples" in said and "\nRepeats: the names of 3 files" in said, said


@pytest.mark.parametrize(
    "names",
    [("sata-1", "sata-2"), ("node-1", "node-2"), ("bs4k", "bs8k"), ("qd1", "qd32"), ("jobs-1", "jobs-2")],
)
def test_names_that_may_be_of_disks_machines_or_parameters_are_not(
    tmp_path: Path, names: tuple[str, ...]
) -> None:
    """There is no median of two disks."""
    for name in names:
        write_fio(tmp_path / f"{name}.json", job("a"))
    assert columns(tmp_path) == {name: {"a": 1} for name in names}


@pytest.mark.parametrize(
    "unlike",
    [{"iodepth": 8}, {"bs": "8k"}, {"numjobs": 2}, {"filename": "/dev/sdb"}, {"directory": "/mnt/other"}],
)
def test_repeats_have_the_same_options(tmp_path: Path, unlike: dict[str, Any]) -> None:
    write_fio(tmp_path / "run_1.json", job("a"))
    write_fio(tmp_path / "run_2.json", job("a", **unlike))
    assert columns(tmp_path) == {"run_1": {"a": 1}, "run_2": {"a": 1}}


def test_repeats_used_the_same_disks_and_without_options_a_bare_number_is_none(tmp_path: Path) -> None:
    for number, disk in enumerate(("sda", "sdb")):
        file = write_fio(tmp_path / f"run_{number}.json", job("a"))
        article = json.loads(file.read_bytes()) | {"disk_util": [{"name": disk}]}
        file.write_text(json.dumps(article), "utf-8")
    assert len(columns(tmp_path)) == 2
    for file in tmp_path.iterdir():
        file.unlink()
    for number in (1, 2):
        bare = {name: value for name, value in job("a").items() if name != "job options"}
        write_fio(tmp_path / f"a-{number}.json", bare)
    assert columns(tmp_path) == {"a-1": {"a": 1}, "a-2": {"a": 1}}


def test_files_with_a_job_each_are_rows_of_one_column(tmp_path: Path) -> None:
    """130 of them were a table of 130 columns, of which each had one figure."""
    for name in ("randread", "randwrite", "seqread"):
        write_fio(tmp_path / f"fio-{name}.json", job(name, rw=name))
    assert columns(tmp_path) == {tmp_path.name: {"randread": 1, "randwrite": 1, "seqread": 1}}
    # What the names of files say besides stands in the rows.
    mixed = tmp_path / "mixed"
    for disk, name in (("ssd", "one"), ("hdd", "two"), ("nvme", "three")):
        write_fio(mixed / f"{disk}.json", job(name))
    assert columns(mixed) == {"mixed": {"hdd: two": 1, "nvme: three": 1, "ssd: one": 1}}
    # Where jobs of one name are in several files, each file is a column.
    write_fio(mixed / "again.json", job("one"))
    assert columns(mixed).keys() == {"again", "hdd", "nvme", "ssd"}


def test_rows_may_be_repeated_and_have_folders(tmp_path: Path) -> None:
    for run in (1, 2):
        for name in ("randread", "randwrite", "seqread"):
            (tmp_path / f"run{run}").mkdir(exist_ok=True)
            write_fio(tmp_path / f"run{run}" / f"{name}.json", job(name, rw=name))
    assert columns(tmp_path) == {tmp_path.name: {"randread": 2, "randwrite": 2, "seqread": 2}}


def test_of_repeats_a_curve_has_the_middle_one(tmp_path: Path) -> None:
    for run, factor in ((1, 10), (2, 30), (3, 11)):
        (tmp_path / f"run{run}").mkdir()
        for depth in (1, 4, 16):
            write_fio(
                tmp_path / f"run{run}" / f"randread-{depth}.json", job(iodepth=depth) | moved(factor * depth)
            )
    found = Measured.read([tmp_path])
    (curve,) = found.curves
    assert [round(rate / 4096) for rate in curve.rates.values()] == [11, 44, 176]
    assert found.rest.records == []
    said = render([curve])
    assert "Median of up to 3 repeats of a point." in said and "Repeats: the names of 9" in said


def test_curves_of_two_disks_are_told_apart(tmp_path: Path) -> None:
    """Both were "randread job1, block 4K", and in one picture."""
    for disk in ("disk-a", "disk-b"):
        (tmp_path / disk).mkdir()
        for depth in (1, 4, 16):
            write_fio(tmp_path / disk / f"randread-{depth}.json", job(iodepth=depth))
    names = [curve.curve.name for curve in Measured.read([tmp_path]).curves]
    assert names == ["randread (disk-a) job1, block 4K", "randread (disk-b) job1, block 4K"]
    explained = " ".join(harness("explain", ".", cwd=tmp_path).stdout.split())
    assert all(f"{name}: reaches 95 % of its peak" in explained for name in names)
    # In one folder by the options that differ.
    other = tmp_path / "other"
    for disk in "ab":
        for depth in (1, 4, 16):
            number = depth + 100 * (disk == "b")
            write_fio(other / f"x{number}.json", job(iodepth=depth, filename=f"/dev/sd{disk}"))
    links = [curve.curve.column.link for curve in Measured.read([other]).curves]
    assert links == ["x (filename=/dev/sda)", "x (filename=/dev/sdb)"]
