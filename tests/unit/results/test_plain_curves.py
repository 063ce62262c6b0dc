"""fio outputs of others that differ in depth, block or jobs alone are points of a curve."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import pytest

from harness.explain.curves import sentences
from harness.report import load, surfaces
from harness.report import render as render_page
from harness.results.measured import Measured
from harness.table.curves import render
from tests.unit.command import harness
from tests.unit.parsing import OUTPUTS
from tests.unit.results.test_results import fio_job, write_fio

EXAMPLES = OUTPUTS / "fio-plot"


def job(name: str = "job1", **options: Any) -> dict[str, Any]:
    given = {"rw": "randread", "bs": "4k", "ioengine": "libaio", "iodepth": "1", **options}
    return fio_job(name, **{"job options": {key: str(value) for key, value in given.items()}})


@pytest.mark.skipif(not EXAMPLES.is_dir(), reason="the collection of real outputs is not next to the project")
def test_the_files_of_fio_plot_are_two_curves_over_depth() -> None:
    found = Measured.read([EXAMPLES])
    names = ["randread random-io, block 4K", "randwrite random-io, block 4K"]
    assert [each.curve.name for each in found.curves] == names
    depths = [1, 2, 4, 8, 16, 32, 64, 128]
    assert [each.values("depth") for each in found.curves] == [depths, depths]
    assert found.rest.records == []
    assert "  64   1.968\n" in render(found.curves)
    assert next(sentences(found.curves)).startswith(f"{names[0]}: still rising at")


def test_of_files_without_a_plan_nothing_is_said_that_their_curves_do_not_show(tmp_path: Path) -> None:
    for depth in (1, 4, 16):
        write_fio(tmp_path / f"a-{depth}.json", job(iodepth=depth))
    done = harness("explain", ".", cwd=tmp_path)
    assert "of its peak (4.096 MB/s) at depth 1" in " ".join(done.stdout.split())
    assert "no verdict" not in done.stdout
    # Of one sample each nobody knows how far another would be.
    for depth, rate in ((4, 3900), (16, 4100)):
        read = fio_job()["read"] | {"bw": rate, "bw_bytes": 1024 * rate, "io_bytes": 1024 * rate}
        read |= {"io_kbytes": rate, "total_ios": rate // 4, "iops": rate / 4}
        write_fio(tmp_path / f"a-{depth}.json", job(iodepth=depth) | {"read": read})
    found = load([tmp_path])
    (curve,) = found.curves
    (said,) = sentences([curve])
    assert said.endswith("reaches 95 % of its peak (4.198 MB/s) at depth 1.")
    (chart,) = surfaces.curves([curve], found.places)
    assert not any("[" in figure for line in chart.lines for figure in line)
    # The table has curves, and then the matrix of the rest.
    write_fio(tmp_path / "other.json", job("lone", rw="write"))
    said = harness("table", str(tmp_path), cwd=tmp_path).stdout
    assert said.startswith("a job1, block 4K\n") and "~" not in said
    assert said.index("MB/s (10^6") > said.index("16") and "lone" in said and "a-4 " not in said
    assert "a-4" in harness("table", str(tmp_path), "--metric", "p99", cwd=tmp_path).stdout


def test_other_options_and_other_names_are_other_curves(tmp_path: Path) -> None:
    for depth in (1, 4, 16):
        devices: dict[str, dict[str, Any]] = {f"nvme{n}": {"filename": f"/dev/nvme{n}n1"} for n in (0, 1)}
        others: dict[str, dict[str, Any]] = {"after": {"write_bw_log": f"log{depth}"}, "before": {}}
        for name, more in (devices | others | {"sized": {"size": depth}}).items():
            write_fio(tmp_path / f"{name}-{depth}.json", job(iodepth=depth, **more))
    found = Measured.read([tmp_path])
    assert sorted(each.curve.column.link for each in found.curves) == ["after", "before", "nvme0", "nvme1"]
    assert {record.column.link for record in found.rest.records} == {"sized-1", "sized-4", "sized-16"}


def test_jobs_of_one_file_are_a_surface(tmp_path: Path) -> None:
    jobs = [job(f"r-{b}k-qd{d}", bs=f"{b}k", iodepth=d) for b in (4, 64) for d in (1, 8)]
    file = write_fio(tmp_path / "all.json", *jobs, job("other"))
    # fio moved 4K I/Os in each, so blocks of 64K are not what was measured.
    assert Measured.read([file]).curves == []
    moved = {"io_bytes": 65536000, "io_kbytes": 64000, "bw_bytes": 65536000, "bw": 64000}
    for each in jobs[2:]:
        each["read"] |= moved
    found = Measured.read([write_fio(file, *jobs, job("other"))])
    assert [(each.curve.name, each.axes) for each in found.curves] == [("all r", ("depth", "block"))]
    assert [record.workload.name for record in found.rest.records] == ["other"]
    # Two points or two at one place are none.
    file.unlink()
    for depths in ((1, 4), (1, 4, 4)):
        for number, depth in enumerate(depths):
            write_fio(tmp_path / f"a{number}.json", job(iodepth=depth))
        assert Measured.read([tmp_path]).curves == [], depths


def test_of_an_output_of_fio_nothing_is_said_that_it_does_not_know(tmp_path: Path) -> None:
    """Neither that it was over iSCSI, nor the same sentence for each of a thousand cells."""
    for number in range(3):
        write_fio(tmp_path / f"sata-{number}.json", job("one", bs="4k"), job("other", rw="write"))
    said = " ".join(harness("explain", ".", "--summary", cwd=tmp_path).stdout.split())
    assert said.startswith("fio output (path not recorded):") and "sata-1 4.10 1000" in said
    assert "iSCSI" not in said
    (line,) = harness("explain", ".", cwd=tmp_path).stdout.splitlines()
    assert line.startswith("3 outputs of fio: what limits 6 cells is unknown")


def moved(rate: int, runtime_ms: int = 1000) -> dict[str, Any]:
    """Reads of 4K, so many a second for so long."""
    ios = rate * runtime_ms // 1000
    bandwidth = {"bw_bytes": 4096 * rate, "bw": 4 * rate, "iops": float(rate)}
    counts = {"io_bytes": 4096 * ios, "io_kbytes": 4 * ios, "total_ios": ios, "runtime": runtime_ms}
    return {"read": fio_job()["read"] | bandwidth | counts}


def test_a_grid_has_the_warnings_of_its_points(tmp_path: Path) -> None:
    """It showed 863 MB/s of jobs that ran for unequal times, of which the table alone said so."""
    for depth in (1, 4, 16):
        for count in (1, 2, 4):
            jobs = [job(iodepth=depth, numjobs=count) | moved(1000 * depth) for _ in range(count)]
            if depth == 16 and count > 1:
                jobs[1] |= moved(1000 * depth, 500)
            write_fio(tmp_path / f"randread-{depth}-{count}.json", *jobs)
    said = harness("table", ".", cwd=tmp_path).stdout
    assert "  1  4.096  8.192   16.38\n" in said and " 16  65.54  98.3*  229.4*\n" in said
    (marked,) = (line for line in said.splitlines() if line.startswith("*: "))
    assert marked.startswith("*: Warning (2 of 9 points, the first randread job1, block 4K at depth 16 and ")
    assert marked.endswith("each over its own 131.1 MB/s (figures of the first)")
    # How a sum was made is no doubt.
    assert "\nWarning (6 of 9 points, " in said and "2 jobs of this name added up (figures of" in said
    assert "the testbed is unknown" in said
    explained = " ".join(harness("explain", ".", cwd=tmp_path).stdout.split())
    assert "job1, block 4K: 2 of 9 points have warnings ('harness table' lists them)" in explained
    page = render_page(load([tmp_path]))
    assert "98.3*" in page and "<li>*: Warning (2 of 9 points" in page
    # In the matrix warnings that differ in figures alone are one as well.
    cells = harness("table", ".", "--metric", "IOPS", cwd=tmp_path).stdout
    assert cells.count("its jobs ran for") == 1 and cells.count("added up") == 1


def test_what_all_points_have_is_not_marked_and_both_directions_are_named(tmp_path: Path) -> None:
    for depth in (1, 4, 16):
        mixed = job(iodepth=depth, rw="randrw") | moved(1000 * depth)
        write_fio(tmp_path / f"mix-{depth}.json", mixed | {"write": mixed["read"]}, before="a text\n")
    said = harness("table", ".", cwd=tmp_path).stdout
    assert said.startswith("mix job1 (read+write), block 4K\n") and "8.192\n" in said and "*" not in said
    assert "\nWarning (3 of 3 points): text before the JSON (7 characters): 'a text'\n" in said


def surface(folder: Path) -> Path:
    """Outputs of fio at six depths and three block sizes."""
    for depth, block in itertools.product((1, 2, 4, 8, 16, 32), (1, 4, 16)):
        read = fio_job()["read"]
        moves = {name: block * read[name] for name in ("io_bytes", "io_kbytes", "bw_bytes", "bw")}
        made = job(bs=f"{4 * block}k", iodepth=depth) | {"read": read | moves}
        write_fio(folder / f"a-{4 * block}k-{depth}.json", made)
    return folder
