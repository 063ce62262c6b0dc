"""fio outputs that others made: what they say stands in the table, and what they do not is named as
missing."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest

from harness.explain import explain
from harness.model import Status
from harness.model.errors import UsageError
from harness.parse import fio
from harness.results.metrics import Metric
from harness.results.store import open_results
from harness.table.matrix import build
from harness.table.options import Options, Table
from tests.unit.command import harness
from tests.unit.parsing import OUTPUTS, known
from tests.unit.results.test_results import fio_job, opened, write_fio

EXAMPLES = OUTPUTS / "fio-plot"
NORMAL = """4k: (g=0): rw=randread, bs=(R) 4096B-4096B, ioengine=libaio, iodepth=4
fio-3.33
4k: (groupid=0, jobs=1): err= 0: pid=4711: Sat Nov 21 10:00:00 2026
  read: IOPS=24.6k, BW=96.2MiB/s (101MB/s)(962MiB/10001msec)
"""
SLOWER = {"runtime": 2000, "iops": 500.0, "bw": 2000, "bw_bytes": 2048000}


def reading(name: str = "job1", *, read: dict[str, Any] | None = None, **changes: Any) -> dict[str, Any]:
    """A job whose reads differ in these figures."""
    job = fio_job(name, **changes)
    return job | {"read": job["read"] | (read or {})}


def with_percentiles(*kinds: str, **percentiles: float) -> dict[str, Any]:
    """A job that has these kinds of latency with percentiles of their own."""
    read = fio_job()["read"]
    return reading(read={kind: {**read[kind], "percentile": percentiles} for kind in kinds})


def table_of(*paths: Path, metric: Metric = Metric.MB_S) -> Table:
    return build(open_results(paths), Options(metric=metric))


def shown(*paths: Path) -> dict[str, list[float | None]]:
    table = table_of(*paths)
    return {
        row.name: [None if cell is None else cell.value for cell in line]
        for row, line in zip(table.rows, table.cells, strict=True)
    }


@pytest.mark.skipif(not EXAMPLES.is_dir(), reason="the collection of real outputs is not next to the project")
def test_the_figures_of_fio_plots_examples_are_fios_own() -> None:
    """Each cell was n/a: the one job name reads in half of the files, and writes in the others."""
    documents = {file.stem: json.loads(file.read_text("utf-8")) for file in EXAMPLES.glob("*.json")}
    assert len(documents) == 16
    # Of fio 2.18: KiB/s, and microseconds.
    percentiles = {Metric.P50: "50.000000", Metric.P99: "99.000000", Metric.P99_9: "99.900000"}
    for metric in (Metric.MB_S, Metric.IOPS, Metric.MEAN, *percentiles):
        table = table_of(EXAMPLES, metric=metric)
        assert [row.name for row in table.rows] == ["random-io (read)", "random-io (write)"]
        cells = {
            (column.column.link, str(row.direction)): cell
            for row, line in zip(table.rows, table.cells, strict=True)
            for column, cell in zip(table.columns, line, strict=True)
        }
        for stem, document in documents.items():
            does, other = ("read", "write") if stem.startswith("randread") else ("write", "read")
            side = document["jobs"][0][does]
            figures = {Metric.MB_S: side["bw"] * 1024 / 1e6, Metric.IOPS: side["iops"]}
            figures |= {each: side["clat"]["percentile"][name] for each, name in percentiles.items()}
            figures[Metric.MEAN] = side["lat"]["mean"]
            # fio rounds its bandwidth down to whole KiB/s, of which the slowest file has 292.
            value = known(cells[stem, does]).value
            assert value == pytest.approx(figures[metric], rel=0.005), (stem, metric)
            assert cells[stem, other] is None
        assert table.footnotes == ()


def test_a_name_that_reads_here_and_writes_there_has_two_rows(tmp_path: Path) -> None:
    read = fio_job()
    write = read | {"read": read["write"], "write": read["read"]}
    a, b = (write_fio(tmp_path / name, job) for name, job in (("a.json", read), ("b.json", write)))
    assert shown(tmp_path) == {"job1 (read)": [4.096, None], "job1 (write)": [None, 4.096]}
    # One that failed is reported in each row.
    failed = write_fio(tmp_path / "c.json", fio_job(error=5))
    statuses = [line[2] and line[2].status for line in table_of(tmp_path).cells]
    assert statuses == [Status.FAILED, Status.FAILED]
    failed.unlink()
    # Where both are done at once, in every file, their sum stands for the workload.
    a.unlink()
    write_fio(b, fio_job(write=read["read"]))
    assert shown(tmp_path) == {"job1 (read+write)": [8.192]}
    write_fio(a, read)
    assert shown(tmp_path) == {"job1 (read)": [4.096, 4.096], "job1 (write)": [None, 4.096]}


def test_jobs_of_one_name_that_ran_in_turn_are_not_added_up(tmp_path: Path) -> None:
    """As after ``stonewall``: 1.63 stood for 1.22 and 0.41."""

    def moved(ios: int) -> dict[str, Any]:
        rate = {"bw_bytes": 4096 * ios, "bw": 4 * ios, "iops": float(ios)}
        return {"io_bytes": 4096 * ios, "io_kbytes": 4 * ios, "total_ios": ios, **rate}

    jobs = [reading("4k", groupid=0, read=moved(298)), reading("4k", groupid=1, read=moved(100))]
    file = write_fio(tmp_path / "a.json", *jobs, jobs[1] | {"jobname": "other"})
    assert shown(file) == {"4k (group 0)": [1.220608], "4k (group 1)": [0.4096], "other": [0.4096]}
    # What fio itself runs in turn is not either.
    device = tmp_path / "device"
    device.write_bytes(bytes(1 << 20))
    job = f"--filename={device} --size=1M --bs=4k --ioengine=psync --number_ios={{}}"
    words = ["fio", "--output-format=json", f"--output={file}"]
    for count, more in ((256, "--numjobs=2"), (128, "--stonewall")):
        words += ["--name=4k", *job.format(count).split(), more]
    subprocess.run(words, check=True, capture_output=True, timeout=60)
    ios = {record.workload.name: record.read and record.read.ios for record in open_results([file])}
    assert ios == {"4k (group 0)": 512, "4k (group 1)": 128}


def test_a_sum_of_jobs_that_ran_for_unequal_times_is_doubted(tmp_path: Path) -> None:
    """As 453 for 852 MB/s: over the longest run time, as fio's own sums, of which nothing was said."""
    short = reading(read={"runtime": 500, "bw": 8000, "bw_bytes": 8192000, "iops": 2000.0})
    found, read = opened(tmp_path / "x.json", fio_job(), short)
    doubt = (
        "its jobs ran for 0.5 to 1 s: over the longest they make 8.192 MB/s, and each over its own 12.29 MB/s"
    )
    assert read.bytes_per_s == 8192000 and doubt in found.warnings
    even, _ = opened(tmp_path / "y.json", fio_job(), fio_job())
    assert even.warnings == ("2 jobs of this name added up",)


def test_percentiles_say_of_which_latency_they_are(tmp_path: Path) -> None:
    job = with_percentiles("clat_ns", **{"50.000000": 990000, "99.000000": 1090000})
    del job["read"]["lat_ns"]["percentile"]
    file = write_fio(tmp_path / "a.json", job)
    for metric in Metric:
        notes = table_of(file, metric=metric).notes
        words = f"{metric} of column a is completion latency (fio's clat), without submission time; "
        is_percentile = metric in (Metric.P50, Metric.P99, Metric.P99_9)
        assert any(note.startswith(words) for note in notes) is is_percentile, metric
    write_fio(tmp_path / "b.json", job)
    done = harness("compare", "a.json", "b.json", "--metric", "p99", cwd=tmp_path)
    assert "p99 of 2 columns (a, b) is completion latency" in " ".join(done.stdout.split()), done

    def exported() -> str:
        done = harness("export", str(file), "--to", "jsonl", cwd=tmp_path)
        return str(json.loads(done.stdout)["percentiles_of"])

    assert exported() == "clat"
    job["read"]["lat_ns"], job["read"]["clat_ns"] = job["read"]["clat_ns"], job["read"]["lat_ns"]
    write_fio(file, job)
    assert not any("clat" in note for note in table_of(file, metric=Metric.P99).notes)
    assert exported() == "lat"
    # Those that cannot be combined are not said to be missing: fio reported them, for each job.
    kinds = ("clat_ns", "lat_ns")
    combine = "fio reported p99 per job: only histograms (--output-format=json+) combine it"
    for job, footnote in (
        (with_percentiles(*kinds, **{"50.000000": 1000000, "99.000000": 1090000}), combine),
        (with_percentiles(*kinds), "fio reported no p99 in 1 of 1 repeats"),
    ):
        write_fio(file, job, job)
        assert table_of(file, metric=Metric.P99).footnotes == (footnote,)


def test_a_foreign_file_costs_itself_alone(tmp_path: Path) -> None:
    write_fio(tmp_path / "a.json", fio_job())
    cut = '{"fio version": "fio-3.33", "jobs": ['
    for name, text in {"package": '{"name": "left-pad"}', "cut": cut, "later": '{"schema": 99}'}.items():
        (tmp_path / f"{name}.json").write_text(text, "utf-8")
    with (tmp_path / "huge.json").open("wb") as huge:
        huge.truncate(1 << 40)
    for command in ("table", "explain", "export", "report"):
        done = harness(command, ".", cwd=tmp_path)
        assert done.returncode == 1, done
        for words in (
            "package.json is not a readable record",
            "later.json",
            "cut.json: expected the JSON output of fio, found a document that is cut",
            "huge.json: expected at most 256 MiB",
        ):
            assert words in done.stderr, done
    assert "4.10" in harness("table", ".", cwd=tmp_path).stdout


def test_sub_folders_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("disk-a/4k", "disk-b/4k", ".hidden", "disk-a/run/cells"):
        (tmp_path / name).mkdir(parents=True)
        write_fio(tmp_path / name / "randread.json", fio_job())
    found = [record.column.link for record in open_results([tmp_path])]
    assert found == ["disk-a/4k/randread", "disk-b/4k/randread"]
    # A table is not kept beyond a change far below.
    assert "4.10" in harness("table", ".", cwd=tmp_path).stdout
    write_fio(tmp_path / "disk-b" / "4k" / "randread.json", reading(read=SLOWER))
    assert "2.05" in harness("table", ".", cwd=tmp_path).stdout
    # Too many are refused; logs, of which a job may write four, do not count.
    monkeypatch.setattr("harness.results.store._MOST_FILES", 2)
    for number in range(8):
        (tmp_path / "disk-a" / f"randread_bw.{number}.log").write_text("100, 4096, 0, 4096\n")
    assert len(open_results([tmp_path])) == 2
    monkeypatch.setattr("harness.results.store._MOST_FILES", 1)
    with pytest.raises(UsageError, match="found more than 1 files"):
        open_results([tmp_path])


def test_fios_text_for_people_without_figures_costs_itself_alone(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text(NORMAL, "utf-8")
    for words in ("table a.txt", "table .", "explain a.txt", "parse fio a.txt"):
        done = harness(*words.split(), cwd=tmp_path)
        assert done.returncode == 2 and "--output-format=json" in done.stderr, done
        assert "expected figures in fio's output, found none" in done.stderr, done
    write_fio(tmp_path / "b.json", fio_job())
    done = harness("table", ".", cwd=tmp_path)
    assert done.returncode == 1 and "4.10" in done.stdout, done
    assert "a.txt: " in done.stderr and "--output-format=json" in done.stderr, done
    document = json.dumps({"fio version": "fio-3.33", "jobs": [fio_job()]})
    assert fio.parse(NORMAL + document).jobs == fio.parse(document).jobs, "with JSON it does no harm"


def test_depth_and_blocks_are_those_of_the_jobs_options(tmp_path: Path) -> None:
    file = tmp_path / "a.json"

    def evidence(*jobs: dict[str, Any]) -> tuple[int | None, int | None, str]:
        if jobs:
            write_fio(file, *jobs)
        (found,) = explain(open_results([file]), {})
        return found.evidence.block_bytes, found.evidence.depth, "; ".join(found.evidence.missing)

    def job(**options: str) -> dict[str, Any]:
        return fio_job() | {"job options": options}

    options = {"rw": "randread", "bs": "4k", "ioengine": "libaio", "iodepth": "08"}
    block, depth, missing = evidence(job(**options))
    assert (block, depth) == (4096, 8)
    assert not re.search("blocks is unknown|in flight is unknown", missing)
    # Each of four jobs of that name is reported, or all as one.
    assert evidence(*4 * [job(**options, numjobs="4")])[:2] == (4096, 32)
    # The global ones count, and a synchronous engine has one request at a time.
    given = {"fio version": "fio-3.33", "global options": {"bs": "4k", "iodepth": "8"}}
    file.write_text(json.dumps({**given, "jobs": [fio_job()]}))
    assert evidence()[:2] == (4096, 1)
    # What the counts contradict is not believed.
    assert evidence(job(bs="64k"))[0] is None
    assert evidence(job(bssplit="4k/50:8k/50"))[0] is None
    block, depth, missing = evidence(fio_job())
    assert (block, depth) == (4096, None), "fio's default, by the counts"
    assert "this fio did not report its job's options, so the number of I/Os in flight is unknown" in missing
