"""fio's output for people: the same figures as in its JSON, as far as it has them."""

from __future__ import annotations

import subprocess
import time
from pathlib import Path

import pytest

from harness.parse import fio, fio_text
from harness.results.store import open_results
from tests.unit.command import harness
from tests.unit.parsing import OUTPUTS, Says, has, known, refused

NEW = """\
seq: (g=0): rw=rw, bs=(R) 64.0KiB-64.0KiB, (W) 4096B-4096B, (T) 4096B-4096B, ioengine=libaio, iodepth=8
...
rand: (g=1): rw=randread, bs=(R) 4096B-4096B, (W) 4096B-4096B, (T) 4096B-4096B, ioengine=psync, iodepth=1
fio-3.28
Starting 3 processes

seq: (groupid=0, jobs=2): err= 0: pid=6613: Wed Jul 31 08:34:17 2024
  read: IOPS=16.4k, BW=1024MiB/s (1074MB/s)(10.0GiB/10000msec)
    slat (nsec): min=1, max=2, avg= 1.50, stdev= 0.10
    clat (usec): min=70, max=12k, avg=400.00, stdev=30.00
     lat (usec): min=71, max=12k, avg=401.50, stdev=30.50
    clat percentiles (usec):
     |  1.00th=[  100], 50.00th=[  390], 99.00th=[  900],
     | 99.90th=[ 5000], 99.99th=[12000]
   bw (  MiB/s): min=    1, max=   90, per=99.76%, avg=86.13, stdev= 3.78, samples=23
  write: IOPS=1000, BW=4000KiB/s (4096kB/s)(39.1MiB/10000msec); 0 zone resets
     lat (msec): min=2, max=3, avg= 2.50, stdev= 0.50
  lat (msec)   : 50=0.29%, 100=99.71%
  cpu          : usr=0.39%, sys=1.27%, ctx=1027, majf=0, minf=2058
     issued rwts: total=163840,10000,0,0 short=0,0,0,0 dropped=0,0,0,0
rand: (groupid=1, jobs=1): err= 0: pid=6615: Wed Jul 31 08:34:17 2024
  read: IOPS=85, BW=341KiB/s (349kB/s)(3410KiB/10000msec)
     issued rwts: total=851,0,0,0 short=0,0,0,0 dropped=0,0,0,0

Run status group 0 (all jobs):
   READ: bw=1024MiB/s (1074MB/s), 1024MiB/s-1024MiB/s (1074MB/s-1074MB/s), io=10.0GiB (10.7GB)
"""
OLD = """\
w: (g=0): rw=write, bs=8K-8K/8K-8K/8K-8K, ioengine=libaio, iodepth=1024
fio-2.1.11
Starting 1 thread

w: (groupid=0, jobs=1): err= 0: pid=1: Thu Sep  8 14:03:14 2016
  write: io=1752.1MB, bw=59809KB/s, iops=7476, runt= 30000msec
     lat (msec): min=756553K, max=756583K, avg=756568215.18, stdev=8664.24
     issued    : total=r=0/w=224280/d=0, short=r=0/w=0/d=0
"""


def test_both_forms_have_what_their_json_has() -> None:
    output = fio.parse(NEW)
    assert (output.version, output.warnings) == ("fio-3.28", (fio_text.ROUNDED,))
    seq, rand = output.jobs
    has(seq, name="seq", group=0, error=0, invalid=(), percentiles_of="clat")
    assert seq.options == {"rw": "rw", "ioengine": "libaio", "iodepth": "8", "numjobs": "2"}
    has(seq.read, bytes=163840 * 65536, ios=163840, runtime_ns=10**10)
    has(known(seq.read).latency, mean_ns=401_500, max_ns=12e6, p50_ns=390_000, p99_ns=900_000, p99_9_ns=5e6)
    has(seq.write, bytes=10000 * 4096, ios=10000)
    has(known(seq.write).latency, mean_ns=2.5e6, p99_ns=None)
    has(rand.read, bytes=3410 * 1024, ios=851)  # 851 blocks are 3404 KiB: some were longer
    assert rand.options["bs"] == "4096" and rand.write is None
    (old,) = fio.parse(OLD.replace("\n", "\r\n")).jobs
    has(old.write, bytes=224280 * 8192, ios=224280, runtime_ns=30_000_000_000)
    has(known(old.write).latency, mean_ns=None)
    assert fio_text.IMPOSSIBLE in fio.parse(OLD).warnings


def test_what_contradicts_itself_is_invalid_and_what_is_cut_has_no_figures() -> None:
    (job, _) = fio.parse(NEW.replace("BW=1024MiB", "BW=924MiB")).jobs
    assert job.invalid == Says("read: the rate is")
    (job, _) = fio.parse(NEW.replace("err= 0: pid=6613", "err= 5: pid=6613")).jobs
    has(job, error=5, invalid=("fio reports error 5",))
    for end in ("  read: IOPS", "  write: IOPS", "     issued"):
        assert "found none" in str(refused(fio.parse, NEW[: NEW.index(end)]))
    (_, job) = fio.parse(NEW[: NEW.index("     issued", NEW.index("rand: (groupid"))]).jobs
    has(job, read=None, invalid=("no reads or writes were completed, or the text is cut",))
    # Of a hostile text, too.
    began = time.process_time()
    for many in ("\n" * 500_000, " |" * 200_000, "a: " * 200_000, "  lat (usec): min=" + "1" * 500_000):
        fio.parse(NEW + many)
    assert time.process_time() - began < 5


def test_bytes_without_an_io_and_times_beyond_a_number_are_no_figures() -> None:
    (job, _) = fio.parse(NEW.replace("total=163840,", "total=0,")).jobs
    has(job, read=None, invalid=("read: 10737418240 bytes, but no I/O was issued",))
    long = "9223372036854775808"
    output = fio.parse(NEW.replace("max=12k, avg=401.50", f"max={long}, avg=401.50"))
    has(known(output.jobs[0].read).latency, mean_ns=None, max_ns=None, p50_ns=None)
    assert fio_text.IMPOSSIBLE in output.warnings
    output = fio.parse(NEW.replace("50.00th=[  390]", f"50.00th=[{long}]"))
    has(known(output.jobs[0].read).latency, mean_ns=401_500, p50_ns=None, p99_ns=None)
    assert fio_text.IMPOSSIBLE in output.warnings


def test_the_same_run_has_the_same_figures_in_both_forms(tmp_path: Path) -> None:
    words = ["--name=a", "--rw=randrw", "--ioengine=null", "--size=8M", "--bs=4k", "--lat_percentiles=1"]
    argv = ["fio", *words, "--filename=x", "--thread", "--output-format=json,normal"]
    text = subprocess.run(argv, capture_output=True, text=True, check=True, cwd=tmp_path).stdout
    end = text.rindex("\n}") + 3
    (from_text,), (from_json,) = fio.parse(text[: text.index("{")] + text[end:]).jobs, fio.parse(text).jobs
    for way in ("read", "write"):
        shown, exact = known(getattr(from_text, way)), known(getattr(from_json, way))
        assert (shown.bytes, shown.ios, shown.runtime_ns) == (exact.bytes, exact.ios, exact.runtime_ns)
        for name in ("mean_ns", "p50_ns", "p99_ns", "p99_9_ns", "max_ns"):
            of_text, of_json = getattr(shown.latency, name), getattr(exact.latency, name)
            assert of_text == pytest.approx(of_json, rel=0.06), name


def test_it_is_a_column_like_json_and_other_texts_are_told_as_what_they_are(tmp_path: Path) -> None:
    (tmp_path / "old.txt").write_text(OLD, encoding="utf-8")
    (found,) = open_results([tmp_path])
    assert found.write is not None and fio_text.ROUNDED in found.warnings
    (tmp_path / "error.json").write_text("fio: job global dropped\n", encoding="utf-8")
    done = harness("table", "error.json", cwd=tmp_path)
    assert done.returncode == 2 and "an output of fio, found a text that begins with 'fio: job" in done.stderr
    assert "restore" not in done.stderr
    fast = NEW.replace("IOPS=85, BW=341KiB/s (349kB/s)(3410KiB", "IOPS=391k, BW=1526MiB/s (1600MB/s)(14.9GiB")
    (tmp_path / "new.txt").write_text(fast.replace("total=851,", "total=3906250,"), encoding="utf-8")
    assert "new   1600  391000 " in harness("explain", "--summary", "new.txt", cwd=tmp_path).stdout


def _again(text: str, pid: int, seconds: int) -> str:
    """The report of a later time, or of another process."""
    more = text.replace("280.0MB", f"{28 * seconds}.0MB").replace(
        "total=r=0/w=35840", f"total=r=0/w={3584 * seconds}"
    )
    return more.replace("runt= 10000msec", f"runt= {seconds}000msec").replace("pid=1:", f"pid={pid}:")


RUN = """\
w: (g=0): rw=write, bs=8K-8K/8K-8K/8K-8K, ioengine=libaio, iodepth=4
fio-2.2.10
Starting 1 process
"""
REPORT = """\

w: (groupid=0, jobs=1): err= 0: pid=1: Thu Sep  8 14:03:14 2016
  write: io=280.0MB, bw=28672KB/s, iops=3584, runt= 10000msec
     issued    : total=r=0/w=35840/d=0, short=r=0/w=0/d=0

Run status group 0 (all jobs):
  WRITE: io=280.0MB, aggrb=28672KB/s
"""


def test_of_several_reports_the_last_of_the_first_run_counts(tmp_path: Path) -> None:
    whole = RUN + REPORT
    further = fio.further_runs(1)
    other = _again(REPORT, 2, 20)
    for text, ios, reported in (
        (RUN + _again(REPORT, 1, 5) + REPORT, 35840, [fio.interim_reports(1)]),
        (whole + RUN.replace("8K", "4K") + other, 35840, [further]),
        (whole + other, 35840, [further]),  # people kept the figures alone
        ("fio-2.2.10\nfio: engine libaio not loadable\n" + whole, 35840, []),
        (RUN + _again(REPORT, 1, 5) + REPORT + RUN + other, 35840, [further, fio.interim_reports(1)]),
    ):
        output = fio.parse(text)
        assert [(known(job.write).ios, job.options.get("bs")) for job in output.jobs] == [(ios, "8192")]
        assert output.warnings == (*reported, fio_text.ROUNDED)
    # They are repeats, and not jobs that ran at the same time.
    (tmp_path / "twice.txt").write_text(whole + whole, encoding="utf-8")
    (record,) = open_results([tmp_path])
    assert known(record.write).bytes == 35840 * 8192


def test_digits_that_fio_lost_are_found_again() -> None:
    """Figures of outputs that others published: fio 3.1, 3.7, 3.16 and 2.2.10."""
    found = []
    for version, way, count, line in (
        ("3.1", "read", 6550034, "IOPS=109k, BW=426MiB/s (447MB/s)(24.0GiB/60001msec)"),
        ("3.7", "write", 99701, "IOPS=3318, BW=12.0MiB/s (13.6MB/s)(389MiB/30048msec)"),
        ("3.16", "write", 262144, "IOPS=5373, BW=20.0MiB/s (22.0MB/s)(1024MiB/48788msec)"),
        ("2.2.10", "write", 1525758, "io=5959.2MB, bw=101716KB/s, iops=25428, runt= 60001msec"),
    ):
        rwts = f"0,{count}" if way == "write" else f"{count},0"
        block = (
            f"a: (groupid=0, jobs=1): err= 0: pid=1\n  {way}: {line}\n     issued rwts: total={rwts},0,0\n"
        )
        size = (
            "a: (g=0): rw=rw, bs=(R) 4096B-4096B, (W) 4096B-4096B, (T) 4096B-4096B, ioengine=x, iodepth=1\n"
        )
        (job,) = fio.parse(f"{size}fio-{version}\n{block}").jobs
        has(getattr(job, way), bytes=4096 * count, ios=count)
        assert not job.invalid
        # Where the size is not known, the rate decides.
        (job,) = fio.parse(f"fio-{version}\n{block}").jobs
        found.append(known(getattr(job, way)).bytes / (4096 * count))
        assert not job.invalid
    assert found == pytest.approx([1, 1, 1, 1], rel=0.005)
    # Since 3.26, they are what they say.
    (job,) = fio.parse(f"fio-3.26\n{block}".replace("io=5959.2MB", "io=4959.0MB")).jobs
    assert job.invalid == Says("write: the rate is")


def test_a_part_that_is_longer_than_the_whole_has_no_percentiles() -> None:
    """librawstor's engine does not tell fio when an I/O was issued."""
    (job, _) = fio.parse(NEW.replace("clat (usec): min=70, max=12k", "clat (msec): min=70, max=12k")).jobs
    read = known(job.read).latency
    has(read, mean_ns=401_500, p50_ns=None, p99_ns=None)
    assert fio.NOT_SINCE_ISSUED in fio.parse(NEW.replace("clat (usec)", "clat (msec)")).warnings


@pytest.mark.parametrize("margin", ["  ", "> ", "> > ", "\t"])
def test_a_margin_of_a_mail_or_a_page_is_no_part_of_it(margin: str) -> None:
    quoted = "They measured:\n" + "".join(margin + line for line in NEW.splitlines(keepends=True))
    has(fio.parse(quoted), jobs=fio.parse(NEW).jobs, version="fio-3.28")


def test_more_bytes_than_its_blocks_have_are_doubted() -> None:
    odd = fio.parse(NEW.replace("total=163840,", "total=150000,")).warnings
    assert odd == Says("read: 10737418240 bytes, but 150000 blocks have only 9830400000")


def test_directions_that_are_one_figure_are_told() -> None:
    mixed = NEW.replace("  read: IOPS", "  mixed: IOPS").replace("  write: IOPS", "  mixed: IOPS")
    assert [job.invalid for job in fio.parse(mixed).jobs] == [(fio.NOT_SEPARATE,)] * 2


COLLECTED = OUTPUTS / "read-wrongly"


@pytest.mark.skipif(
    not COLLECTED.is_dir(), reason="the collection of real outputs is not next to the project"
)
def test_texts_that_others_published() -> None:
    first, *_, last = fio.parse((COLLECTED / "hikalium-normal-terse.txt").read_bytes()).jobs
    has(first.read, bytes=1 << 30, ios=1024, runtime_ns=12_039_000_000)
    has(known(last.write).latency, p99_ns=2_073_000)
    jobs = fio.parse((COLLECTED / "vtech-2111-normal.txt").read_bytes()).jobs
    assert len(jobs) == 12 and all(job.read or job.write for job in jobs)
