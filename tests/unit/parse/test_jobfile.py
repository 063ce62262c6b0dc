"""Job files: what ships passes fio's own parser, what a user writes cannot leave the device."""

from __future__ import annotations

import functools
import json
import re
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from harness.hosts import runner
from harness.model import Clock, Job
from harness.model.errors import UsageError
from harness.model.units import check_name
from harness.parse import jobfile
from harness.parse.jobfile import block_bytes, job_file, load_jobs, parse_jobs, repeat_seed, wall_estimate_s
from harness.parse.profiles import data_folder
from harness.planning.duration import run_s
from harness.planning.plan import make_plan
from harness.planning.request import RunRequest
from tests.unit.command import harness
from tests.unit.parsing import OUTPUTS, listed, refused

pytestmark = pytest.mark.thorough

MIB = 1 << 20


def one(text: str) -> Job:
    (workload,) = parse_jobs(text, "f.fio")
    return workload


def options_of(text: str) -> dict[str, str | None]:
    return dict(one(text).options)


def job_of(workload: Job, size_bytes: int = MIB, device: str = "/dev/sdb", seed: int = 1, **more: Any) -> str:
    return job_file(workload, device=device, size_bytes=size_bytes, seed=seed, **more)


def rendered(text: str, **more: Any) -> dict[str, str | None]:
    """The options of the cell's job file on a device of 64 MiB, in its only section."""
    workload = one(f"[a]\n{text}")
    head, *lines = job_of(workload, 64 * MIB, seed=7, **more).splitlines()
    assert head == f"[{workload.name}]"
    options = [line.partition("=") for line in lines]
    assert len({key for key, _, _ in options}) == len(options)
    return {key: value if equals else None for key, equals, value in options}


def fio(*words: str, job: str = "") -> subprocess.CompletedProcess[str]:
    """fio is a package of the project: without it these tests fail."""
    return subprocess.run(["fio", *words], input=job, capture_output=True, text=True, timeout=60, check=False)


@functools.cache
def fio_accepts(jobs: str) -> bool:
    return fio("--parse-only", "-", job=jobs).returncode == 0


def assert_accepted(jobs: Sequence[str]) -> None:
    """fio is asked for all of them at once, because it takes 0.1 s to start."""
    assert fio_accepts("".join(jobs)) or [job for job in jobs if not fio_accepts(job)] == []


def test_a_part_of_a_device_is_as_a_device_of_its_own() -> None:
    """fio adds the increment to the offset for each job, and a percentage is of the whole device."""
    assert "offset" not in rendered("")
    for text, offset in (("", 0), ("offset=1m\n", MIB), ("offset=25%\n", 16 * MIB)):
        found = rendered(text, offset_bytes=128 * MIB)
        assert (found["offset"], found["size"]) == (str(128 * MIB + offset), str(64 * MIB - offset))
    found = rendered("numjobs=3\noffset_increment=8m\n", offset_bytes=128 * MIB)
    assert (found["offset"], found["offset_increment"]) == (str(128 * MIB), "8m")
    assert found["size"] == str(48 * MIB)


def test_article_has_the_eight_rows_and_modern_has_depth_mix_and_sync() -> None:
    name, workloads = load_jobs("basic")
    assert name == "basic"
    assert {w.name: (block_bytes(w), jobfile.moves_read(w), jobfile.moves_write(w)) for w in workloads} == {
        f"{order}-{way}-{block}": (size, way == "read", way == "write")
        for order in ("seq", "rand")
        for way in ("write", "read")
        for block, size in (("4k", 4096), ("256k", 262144))
    }
    for workload in workloads:
        order, way, _ = workload.name.split("-")
        options = dict(workload.options)
        assert options["rw"] == order.removeprefix("seq") + way
        assert (options["ioengine"], options["iodepth"], options["direct"]) == ("psync", "1", "1")
        assert wall_estimate_s(workload) == 0.4
    modern = {workload.name: workload for workload in load_jobs("modern")[1]}
    mixed = modern["mixed-70-30-4k-qd32"]
    assert dict(modern["rand-read-4k-qd32"].options)["iodepth"] == "32"
    assert dict(mixed.options)["rwmixread"] == "70" and dict(modern["fsync-4k"].options)["fdatasync"] == "1"
    assert jobfile.moves_read(mixed) and jobfile.moves_write(mixed)
    # It is in fio's own format, and renders for fio.
    shipped = []
    for profile in ("basic", "modern"):
        done = fio("--parse-only", "--filename=/dev/null", str(data_folder() / "profiles" / f"{profile}.fio"))
        assert done.returncode == 0, done.stderr
        shipped += [job_of(workload, 64 * MIB, runtime_s=0.5) for workload in load_jobs(profile)[1]]
    assert_accepted(shipped)
    assert not any("stonewall" in job or "[global]" in job for job in shipped)


def test_an_option_that_fio_knows_is_let_through_refused_or_dropped() -> None:
    listing = fio("--cmdhelp=all").stdout
    for engine in jobfile._ENGINES:
        listing += fio(f"--enghelp={engine}").stdout
    known = {line.split()[0].rstrip(":") for line in listing.splitlines() if line.strip()}
    assert jobfile._CHECKS.keys() - known == set()
    kinds = (jobfile._CHECKS.keys(), jobfile._REFUSED.keys(), jobfile._LEFT_OUT.keys(), jobfile._DROPPED)
    assert len(set().union(*kinds)) == sum(map(len, kinds))


def test_merging_comments_and_aliases() -> None:
    text = "; a comment\n[global]\n blocksize = 8k   # of every job\n time_based\n timeout=2s\n[a]\n"
    text += "readwrite=randread ; random\n[global]\nbs=16K\n[b]\ntime_based=0\nbs=4kb\n[c]\r\ndirect=0\r\n"
    a, b, c = parse_jobs(text, "f.fio")
    assert (a.name, block_bytes(a), wall_estimate_s(a)) == ("a", 8192, 2)
    assert (dict(a.options)["rw"], dict(a.options)["time_based"]) == ("randread", None)
    assert block_bytes(b) == 4096 and "time_based" not in dict(b.options)
    assert (block_bytes(c), dict(c.options)["direct"]) == (16384, "0")


def test_block_sizes_and_defaults() -> None:
    sizes = {
        "bs=64k": 65536,
        "bs=4k,8k\nrw=read": 4096,
        "bs=4k,8k\nrw=write": 8192,
        "bs=4k,8k\nrw=rw": None,
        "bs=8k,8k\nrw=readwrite": 8192,
        "bs=,8k\nrw=randread": 4096,
        "bsrange=4k-64k": None,
        "bssplit=4k/60:64k/40": None,
        "rw=randrw:8\nbs=1M": MIB,
    }
    jobs = {text: one(f"[a]\n{text}\n") for text in sizes}
    assert {text: block_bytes(job) for text, job in jobs.items()} == sizes
    assert_accepted([job_of(job) for job in jobs.values()])
    assert options_of("[a]") == {"rw": "read", "bs": "4096"}


FORBIDDEN = """
    opendir=/etc | exec_prerun=id | exec_postrun=rm -rf / | read_iolog=/dev/sda | replay_redirect=/dev/sda |
    verify_state_load=1 | trigger=id | create_only=1 | steadystate=lat:5% | prio=8 | cmdprio_class=4 |
    ioscheduler=none | cgroup=x | uid=0 | gid=0 | randseed=1 | allrandrepeat=1 | ignore_error=EIO |
    continue_on_error=all | unified_rw_reporting=1 | stats=0 | clocksource=cpu | kb_base=1000 |
    mem=mmap:/etc/passwd | iomem=mmapshared:/dev/sda | mem=cudamalloc | buffer_pattern='/etc/passwd' |
    verify_pattern='x' | include /etc/passwd | include=x | includes | client=host | server=x |
    trigger-file=x | ioengine=sg | ioengine=exec | ioengine=net | ioengine=external:./x.so | ioengine=./x.so |
    random_distribution=x | random_distribution=sequence:2,0 |
    ioengine=libaio,x | ioengine=rbd | ioengine=null | program=id | hostname=x | rw=trim | rw=randtrim |
    rw=trimwrite | rw=READ | rw=readx | rw= | rw | rw=read:--1 | bs=${SIZE} | bs=$pagesize | bs=(4*1k) |
    bs=-4k | bs=0 | bs=4KiB | bs=4.5k | bs=1e3 | bs=nan | bs= | bs=, | bs=4k,4k,4k,4k |
    bs=9223372036854775808 | bs=99999999999999999999 | bs=9P,9999P | size=0 | size=-1 | size=101% | size=0% |
    size=1e309 | size=1.5G | size=50%x | offset=-4k | offset=100% | io_size=0 | runtime=0 | runtime=-1 |
    runtime=1.5 | runtime=nan | runtime=00:00:02 | runtime=1e309 | runtime=999999999999d | runtime=2x |
    runtime | iodepth=0 | iodepth=-1 | iodepth=1k | iodepth=99999999 | numjobs=0 | numjobs=1000000 |
    direct=2 | direct | direct=yes | time_based=2 | rwmixread=101 | bsrange=4k | bsrange=4k-8k-16k |
    random_distribution=`id` | random_distribution=zipf:1.2(1) | bssplit=a"b | nosuchoption=1 | =1 | rw read |
    --rw=read | RW=read | zonemode=zbd | bs=4k\x1b[2J | b\x1bs=4k | bs=٤k | io_size=4\u212a
"""


def test_a_refusal_says_where_and_why() -> None:
    for line in listed(FORBIDDEN):
        refusal = refused(parse_jobs, f"[global]\nthread\n\n{line}\n[a]\n", "f.fio")
        assert refusal.message.startswith("f.fio, line 4"), line
    for text, said in (
        ("[a]\nopendir=/etc", "line 2: option 'opendir' is refused: only the harness chooses the device"),
        ("[a]\nexec_prerun=id", "may not run commands"),
        ("[a]\nbs=4KiB", "fio takes KiB for 1000"),
        ("[a]\niodepht=4", "did you mean iodepth?"),
        ("[a]\nrw=reed", "line 2: option 'rw': expected one of read, write"),
        ("[a]\ninclude x", "expected a file in the job file's folder"),
        *((text, "found none") for text in ("", "; nothing\n# at all\n", "[global]\nbs=4k\n")),
        ("bs=4k\n[a]\n", "line 1: 'bs=4k' stands before the first section"),
        *((text, "line 1: expected [NAME]") for text in ("[a", "[a]x\n")),
        ("[]", "line 1: section name"),
        ("[globals]", "takes the section 'globals' for [global]"),
        ("[()]", "line 1: section name"),
        ("[Global]", "takes the section 'Global' for [global]"),
        ("[a]\nruntime=1\nramp_time=2\n", "expected ramp_time to be at most runtime"),
        ("{}", "stands before"),
    ):
        assert said in str(refused(parse_jobs, text, "f.fio")), text


def test_names_of_sections_and_profiles_refused() -> None:
    # fio takes any; each becomes one that may be a file's.
    for name in (*listed("../x | /etc | $(id) | a:b | a%b | $jobnum | -x | <b> | a,b"), "x" * 65):
        (job,) = parse_jobs(f"[{name}]\n", "f.fio")
        assert check_name("section", job.name)
    for name in listed("a\0b | a\x1b[2J | a\tb | ."):
        refused(parse_jobs, f"[{name}]\n", "f.fio")
    for spec in listed("| none.fio | ./none | / | /dev/zero | a\0.fio | -x | ../x"):
        refused(load_jobs, spec)
    assert "did you mean basic?" in str(refused(load_jobs, "basci"))
    # A hostile line takes no time.
    began = time.process_time()
    for line in (f"bsrange={'1' * 5000}x", f"bs={'4k,' * 5000}", "x" * 500_000, f"bssplit={'4k/1:' * 5000}"):
        with pytest.raises(UsageError):
            one(f"[a]\n{line}\n")
    assert time.process_time() - began < 5


def test_files_of_the_user(tmp_path: Path) -> None:
    path = tmp_path / "My QD32.fio"
    path.write_text("[a]\nrw=write\n")
    name, workloads = load_jobs(str(path))
    assert (name, [w.name for w in workloads]) == ("my-qd32", ["a"])
    for content, said in (
        (b"\xef\xbb\xbf[a]\n", "byte order mark"),
        ("[a]\n".encode("utf-16"), "byte order mark"),
        ("[a]\n; ü".encode("latin-1"), "line 2: expected UTF-8"),
        (bytes(range(32)), "NUL byte"),
        (b"[a]\nopendir=/etc\n", f"{path}, line 2: option 'opendir'"),
    ):
        path.write_bytes(content)
        message = str(refused(load_jobs, str(path)))
        assert "QD32" in message and said in message


def test_what_the_harness_sets() -> None:
    found = rendered("rw=write\nstonewall\ngroup_reporting=0\ndescription=x\npercentile_list=1\n")
    known = """filename=/dev/sdb rw=write bs=4096 size=67108864 direct=1 randrepeat=1 randseed=7
        refill_buffers allow_file_create=0 verify_state_save=0 thread group_reporting lat_percentiles=1
        percentile_list=50:90:95:99:99.9:99.99"""
    options = (option.partition("=") for option in known.split())
    assert found == {key: value if equals else None for key, equals, value in options}
    # What a profile may settle itself.
    assert rendered("direct=0")["direct"] == "0"
    assert rendered("buffered=1")["direct"] == "0"
    assert "refill_buffers" not in rendered("zero_buffers")
    # fio takes a seed for repeatable even with randrepeat=0 (init.c, setup_random_seeds).
    assert "randseed" not in rendered("randrepeat=0")
    jobs = "numjobs=3\noffset_increment=16M"
    for text, mib in (("size=1M", 1), ("size=50%", 32), ("offset=16M", 48), (jobs, 32)):
        assert rendered(text)["size"] == str(mib * MIB), text


def test_ramp_time_is_wall_time_whoever_sets_the_runtime() -> None:
    for options, runtime_s, expected in (
        ("ramp_time=2\nruntime=3", None, 5),
        ("ramp_time=2\nruntime=3", 7, 9),
        ("ramp_time=2\nruntime=3", 2.5, 4.5),
        ("ramp_time=500ms\nruntime=1m", 1, 1.5),
        ("ramp_time=2", 4, 6),
        ("ramp_time=2", None, 600),
        ("runtime=3", 7, 7),
        ("size=1M", 0.25, 0.25),
        ("size=1M", None, 600),
        ("", None, 600),
    ):
        assert wall_estimate_s(one(f"[a]\n{options}"), runtime_s) == expected, options
    found = rendered("size=1M", runtime_s=0.25)
    assert (found["runtime"], found["time_based"]) == ("250000us", None)
    for seconds in (0, -1, float("nan"), float("inf"), 1e300, 1.9):
        with pytest.raises(UsageError, match="runtime above 0 and not below its ramp_time"):
            rendered("ramp_time=2\nruntime=3", runtime_s=seconds)


def test_nothing_beyond_the_device_and_no_device_of_another_name() -> None:
    beyond = """offset=64M | bs=65M | size=4k\nbs=8k | bsrange=4k-128M | offset=65M\nsize=1M |
        bssplit=4k/50:1G/50 | numjobs=5\noffset_increment=16M"""
    for options in listed(beyond):
        with pytest.raises(UsageError, match="to fit on 64 MiB"):
            rendered(options)
    for size_bytes in (0, 4095):
        with pytest.raises(UsageError, match="to fit"):
            job_of(one("[a]"), size_bytes)
    names = """ | sdb | - | / | /dev/sdb\nexec_prerun=id | /dev/sdb;x | /dev/s# | /dev/${X} | /dev/$jobnum |
        /dev/../etc/passwd | /dev/.. | /dev/./sdb | /dev/a b | /dev/\0 | /dev/ä"""
    for device in (*listed(names), "/dev/" + "x" * 300):
        with pytest.raises(UsageError, match="path of a device"):
            job_of(one("[a]"), device=device)
    # A job gets what the device has: most users' files have a size for their disk, and the lab's is small.
    for options, mib in (
        ("size=65M", 64),
        ("size=10G\noffset=1M", 63),
        ("size=100%\noffset=50%", 32),
        ("size=1G\nnumjobs=4\noffset_increment=16M", 16),
    ):
        assert rendered(options)["size"] == str(mib * MIB), options
        assert jobfile.shortened(one(f"[a]\n{options}\n"), 64 * MIB) is not None, options
        assert jobfile.shortened(one("[a]\nsize=64M\n"), 64 * MIB) is None, options


def test_seeds_differ_and_a_stored_run_finds_its_blocks_again_under_later_versions() -> None:
    seeds = {repeat_seed(s, r, w) for s in range(20) for r in range(1, 21) for w in ("a", "b")}
    assert len(seeds) == 800 and all(0 < seed < 2**31 for seed in seeds)
    assert repeat_seed(1, 1, "rand-read-4k") == 1204914499


def test_fio_measures_what_was_rendered_and_makes_no_device(tmp_path: Path) -> None:
    """A file whose name needs escaping; two jobs reported as one."""
    device = tmp_path / "by-path:3260-lun-0"
    assert fio("-", job=job_of(one("[a]\nrw=write"), device=str(device))).returncode != 0
    assert not device.exists()
    device.write_bytes(bytes(MIB))
    workload = one("[a]\nrw=randrw\nbs=4k\nnumjobs=2\nsize=256k\nbuffered=1\nioengine=pvsync2\n")
    job = job_of(workload, device=str(device), seed=repeat_seed(1, 1, "a"))
    done = fio("--output-format=json", "-", job=job)
    assert done.returncode == 0, done.stderr
    (result,) = json.loads(done.stdout)["jobs"]
    assert result["error"] == 0
    assert result["read"]["io_bytes"] + result["write"]["io_bytes"] == 512 * 1024
    assert "99.990000" in result["read"]["lat_ns"]["percentile"]
    assert [file.name for file in tmp_path.iterdir()] == [device.name]


def test_fio_asks_the_kernel_for_the_time_where_it_is_virtual_and_never_otherwise() -> None:
    for _ in range(2):
        assert "clocksource" not in rendered("rw=read")
        for has_tested_clock in (False, True):
            found = rendered("rw=read", clock=Clock.VIRTUAL, has_tested_clock=has_tested_clock)
            assert found["clocksource"] == "clock_gettime"
        assert rendered("rw=read", has_tested_clock=True)["clocksource"] == "cpu"


def test_fio_reads_all_jobs_of_a_plan_at_once_and_the_one_that_it_refuses_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[str] = []
    run = runner.run

    def noted(argv: Sequence[str], **options: Any) -> runner.Completed:
        started.extend([options["input"]] if argv[0] == "fio" else [])
        return run(argv, **options)

    monkeypatch.setattr(runner, "run", noted)
    made = make_plan(RunRequest())
    (jobs,) = started
    assert re.findall(r"^\[(.*)\]$", jobs, re.MULTILINE) == [workload.name for workload in made.jobs]
    path = tmp_path / "own.fio"
    path.write_text("[a]\nrw=read\n[b]\nrw=randread\nsqthread_poll\n[c]\nrw=write\n", "utf-8")
    with pytest.raises(
        UsageError, match=r"fio does not accept the workload b: Bad option <sqthread_poll> \("
    ):
        make_plan(RunRequest(profile=str(path)))
    path.write_text("[global]\nsqthread_poll\nregisterfiles\n[a]\n[b]\n", "utf-8")
    error = refused(make_plan, RunRequest(profile=str(path)))
    bad = "Bad option <sqthread_poll>; Bad option <registerfiles>"
    assert error.obstacles == tuple(f"fio does not accept the workload {name}: {bad}" for name in "ab")


LEFT_OUT = """
    filename=/dev/sda | filename_format=x.$jobnum | directory=/tmp | lockfile=readwrite | write_bw_log=x |
    write_lat_log | write_iops_log=/etc/x | write_hist_log=x | write_iolog=x | log_avg_msec=1 |
    per_job_logs=1 | verify_state_save=1 | verify_dump=1 | unlink=1 | unlink_each_loop=1 |
    allow_mounted_write=1 | allow_file_create=1 | filesize=1M-2M | nrfiles=2 | fallocate=native |
    overwrite=1 | file_append=1 | fill_device=1 | fill_fs=1 | name=x | numa_cpu_nodes=0-1 | exitall |
    startdelay=5 | flow=8 | percentile_list=50:99 | clat_percentiles=1
"""


def test_what_only_names_files_is_left_out_with_a_note() -> None:
    """Nearly every user's file has one of these, and was refused for it."""
    for line in listed(LEFT_OUT):
        notes: list[str] = []
        (workload,) = parse_jobs(f"[global]\n{line}\n[a]\nrw=write\n", "f.fio", notes)
        assert workload == one("[a]\nrw=write"), line
        (note,) = notes
        assert note.startswith(f"{line.partition('=')[0]}: left out, because "), line


def test_notes_say_what_became_of_what() -> None:
    notes: list[str] = []
    text = "[global]\ndirectory=/data1\nioengine=windowsaio\nverify=crc32c\n"
    text += "[Rand Write]\nfilename=x\nrw=randwrite\n[check]\nstonewall\nrw=read\nioengine=mmap\n"
    write, check = parse_jobs(text, "f.fio", notes)
    options = dict(write.options)
    assert (write.name, options["ioengine"], options["verify"]) == ("rand-write", "libaio", "crc32c")
    assert (dict(check.options)["ioengine"], "verify" in dict(check.options)) == ("psync", False)
    assert notes == [
        "directory, filename: left out, because the harness chooses the device",
        "ioengine=windowsaio: libaio, its equivalent on Linux",
        "[Rand Write]: called rand-write",
        "ioengine=mmap: psync, its equivalent on Linux",
        "verify of check: left out, because a job alone can only verify what it wrote",
    ]
    # What fio never ends is left out.
    notes.clear()
    text = "[a]\nio_submit_mode=offload\nrate_iops=50\nrate_process=poisson\n"
    (workload,) = parse_jobs(text, "f.fio", notes)
    assert "io_submit_mode" not in dict(workload.options) and len(notes) == 1
    assert "io_submit_mode" in options_of(text.replace("poisson", "linear"))


def test_a_job_with_one_file_and_no_size_has_the_files_as_in_fio() -> None:
    """Such a job moved all of the device instead."""
    for text, size in (
        ("[a]\nfilesize=1M\n", "1M"),
        ("[global]\nfilesize=1M\nnr_files=1\n[a]\nfilesize=2M\n", "2M"),
        ("[a]\nsize=4M\nfilesize=1M\n", "4M"),
        ("[a]\nfilesize=1M\nnrfiles=2\n", None),
        ("[a]\nfilesize=1M-2M\n", None),
        ("[a]\nfilesize=0\n", None),
        ("[a]\nfilesize=50%\n", None),
    ):
        notes: list[str] = []
        (job,) = parse_jobs(text, "f.fio", notes)
        assert dict(job.options).get("size") == size, text
        assert not {"filesize", "nrfiles"} & dict(job.options).keys()
        used = "filesize: used as the size of a job that has none, as fio does" in notes
        assert used is (size in ("1M", "2M")), text
        left_out = any("filesize" in note and "left out" in note for note in notes)
        assert left_out is not used, notes


def test_of_two_values_the_later_counts_as_in_fio() -> None:
    """Users' files have an option twice, and were refused; and direct is buffered the other way round."""
    notes: list[str] = []
    text = "[a]\nruntime=180\nnorandommap\nruntime=600\nnorandommap\nstonewall\nwait_for_previous\n"
    (job,) = parse_jobs(text, "f.fio", notes)
    assert dict(job.options)["runtime"] == "600"
    assert notes == ["runtime=180: a later line of its section replaces it, as in fio"]
    for text, expected in (
        ("[global]\ndirect=1\nbuffered=1\n[a]\ndirect=1\n", {"direct": "1"}),
        ("[global]\ndirect=1\n[a]\nbuffered=1\n", {"direct": "0"}),
        ("[global]\nrwmixwrite=60\nrwmixread=70\n[a]\nrw=rw\nrwmixwrite=10\n", {"rwmixread": "90"}),
    ):
        found = options_of(text)
        shown = {name: value for name, value in found.items() if name[:5] in ("direc", "buffe", "rwmix")}
        assert shown == expected, text


def test_all_obstacles_are_reported_at_once() -> None:
    """One was, and the next after it was removed."""
    text = "[global]\nbad=x\n[a]\nrw=trim\n[b (1)]\nrw=trim\n[c]\nruntime=x\nramp_time=9\n"
    error = refused(parse_jobs, text, "f, line 1.fio")
    assert error.message.startswith(
        "f, line 1.fio: expected jobs that read and write a device of the harness's"
    )
    assert [each.partition(", found")[0] for each in error.obstacles] == [
        "line 2: the harness does not pass option 'bad' on to fio",
        "lines 4, 6: option 'rw': expected one of read, write, randread, randwrite, rw and randrw",
        "line 8: option 'runtime': expected a whole number of us, ms, s, m, h or d above 0, such as 1500ms",
    ], "what follows from another is not named"
    # What follows from nothing is, also in a section of which something was refused.
    for refusal in ("rw=trim", "bad=x"):
        error = refused(parse_jobs, f"[a]\n{refusal}\nruntime=1\nramp_time=2\n", "f.fio")
        assert (
            error.obstacles[1] == "line 1: section 'a': expected ramp_time to be at most runtime, found '2'"
        )
    for refusal in ("runtme=9", "timeout=x", "include x"):
        error = refused(parse_jobs, f"[a]\n{refusal}\nruntime=1\nramp_time=2\n", "f.fio")
        assert error.obstacles == (), "its runtime may be another"
    # An option that is refused whatever its value is: to write the value would be in vain.
    for line, said in (("pool=${POOL}", "does not pass option 'pool' on"), ("uid=${ID}", "'uid' is refused")):
        assert said in refused(parse_jobs, f"[a]\n{line}\n", "f.fio").message
    # A template has no section yet: that is one of them.
    error = refused(parse_jobs, "[global]\nrw=RW\nbs=4k\n", "f.fio")
    assert error.obstacles[1].endswith("expected at least one section other than [global], found none")
    many = "".join(f"x{number}=1\n" for number in range(60))
    error = refused(parse_jobs, f"[a]\n{many}", "f.fio")
    assert len(error.obstacles) == 51 and error.obstacles[-1] == "and 10 more"


def test_obstacles_have_a_line_each(tmp_path: Path) -> None:
    (tmp_path / "own.fio").write_text("[a]\nrw=trim\nsize=${SIZE}\nexec_prerun=x\n", "utf-8")
    done = harness("run", "--profile", "./own.fio", "--plan", cwd=tmp_path)
    lines = done.stderr.splitlines()
    assert done.returncode == 2 and [line[:9] for line in lines[1:4]] == [f"  line {n}:" for n in (2, 3, 4)]
    assert "fio would insert the value of ${SIZE}" in lines[2] and lines[4].startswith("  hint: ")


def test_what_fio_runs_at_the_same_time_is_named() -> None:
    for text, said in (
        ("[a]\n[b]\n[c]\nstonewall\n[d]\n", ["a with b", "c with d"]),
        ("[a]\n[b]\nwait_for=a\n[c]\nwait_for_previous\n", []),
        ("[A 1]\n[b]\nwait_for=A 1\n[c]\nwait_for=b\n", []),
        ("[global]\nstonewall\n[a]\n[b]\n", []),
        ("[a]\n[b]\nstonewall=0\n", ["a with b"]),
    ):
        notes: list[str] = []
        parse_jobs(text, "f.fio", notes)
        fate = "measured one after another, while fio would run them at the same time"
        notes = [note for note in notes if "called" not in note]
        assert notes == ([f"{', '.join(said)}: {fate}"] if said else []), text
    # Of fio's example waitfor: readers wait for their own writers alone.
    notes = []
    parse_jobs("[w]\n[r]\nwait_for=w\n[w2]\n[r2]\nwait_for=w2\n", "f.fio", notes)
    assert notes == [
        "w with r with w2 with r2: measured one after another, while fio would run those without "
        "stonewall or wait_for at the same time"
    ]


def test_names_and_values_that_fio_takes_are_taken() -> None:
    notes: list[str] = []
    text = "[70% read/4k]\nsize=100%%\nverify=0\n[70% read/4k]\nrw=write\nverify=0\nstonewall\n"
    first, second = parse_jobs(text, "f.fio", notes)
    assert (first.name, second.name) == ("70-read-4k", "70-read-4k-2")
    assert dict(first.options)["size"] == "100%" and "verify" not in dict(second.options)
    assert notes == [
        "[70% read/4k]: called 70-read-4k",
        "[70% read/4k]: called 70-read-4k-2",
    ]


def test_the_notes_are_in_the_plan_and_reported(tmp_path: Path) -> None:
    (tmp_path / "own.fio").write_text("[a]\nrw=read\nfilename=/dev/sda\nsize=10G\nruntime=1\n", "utf-8")
    plan = make_plan(RunRequest(profile=str(tmp_path / "own.fio"), links=("local",)))
    assert plan.notes == (
        "filename: left out, because the harness chooses the device",
        "a: direct=1, while fio would use the page cache by default",
        "a: size=10G is 128 MiB, because the storage has no more; a cell may end before its runtime of 1",
    )
    assert run_s(plan, 1) < 30
    done = harness("run", "--profile", "./own.fio", "--link", "local", "--plan", cwd=tmp_path)
    assert done.returncode == 0 and done.stdout.count("note:      ") == 3, done
    (tmp_path / "own.fio").write_text("[a]\nrw=read\nsize=10G\nnumjobs=2\n", "utf-8")
    plan = make_plan(RunRequest(profile=str(tmp_path / "own.fio"), links=("local",)))
    ends = "a: has no runtime, so a cell ends after 256 MiB, and fails if that takes longer than 10 min; "
    ends += "--runtime 10s measures for that time"
    assert plan.notes[-1] == ends
    assert run_s(plan, 1) < 30, "not ten minutes"
    assert make_plan(RunRequest(links=("local",))).notes == ()


def planned(folder: Path, text: str, **more: Any) -> tuple[str, ...]:
    (folder / "own.fio").write_text(text, "utf-8")
    return make_plan(RunRequest(profile=str(folder / "own.fio"), links=("local",), **more)).notes


def test_the_plan_says_where_fio_would_not_do_the_same(tmp_path: Path) -> None:
    direct = "direct=1, while fio would use the page cache by default"
    filled = "refill_buffers, while fio would fill its buffers once"
    timed = "runtime=1\ntime_based\n"
    for text, said in (
        ("rw=read\n", [f"a: {direct}"]),
        ("rw=write\n", [f"a: {direct}; {filled}"]),
        ("rw=write\ndirect=1\nrefill_buffers=0\n", [f"a: {filled}"]),
        ("rw=write\ndirect=1\nbuffer_compress_percentage=50\n", []),
        ("rw=read\ndirect=1\n[b]\nstonewall\nrw=read\n", [f"b: {direct}"]),
        (
            "rw=write\nbuffered=1\nzero_buffers\n",
            ["a: uses the page cache, so a cell is invalid if less crosses the link than fio counts"],
        ),
    ):
        assert planned(tmp_path, f"[global]\n{timed}[a]\n{text}") == tuple(said), text
    # fio's init.c goes on without time_based; --runtime gives it one.
    text = "[a]\ntime_based\ndirect=1\n"
    assert planned(tmp_path, text)[0] == "time_based of a: left out, as fio does without a runtime"
    # fio warns of it where nobody sees that.
    text = "[a]\nrw=write\ndirect=1\nverify=crc32c\n"
    (note,) = planned(tmp_path, text, runtime="1s")
    assert note == "a: verifies nothing, because it writes for all of --runtime; without that option it does"
    assert planned(tmp_path, f"{text}verify_backlog=8\n", runtime="1s") == ()
    assert "verifies nothing" not in str(planned(tmp_path, text))


def test_all_jobs_that_do_not_fit_are_named_at_once(tmp_path: Path) -> None:
    text = "[a]\noffset=1G\n[b]\n[c]\nbs=1G\n"
    error = refused(planned, tmp_path, text)
    assert error.message.endswith("own.fio: expected jobs that fit on the storage, found others")
    assert error.hint == "use a larger backing, or lower size, offset or bs in the profile"
    fit = "expected blocks, offset and size to fit on 128 MiB, found"
    assert error.obstacles == (
        f"line 1: workload 'a': {fit} 4 KiB blocks up to 1 GiB",
        f"line 4: workload 'c': {fit} 1 GiB blocks up to 128 MiB",
    )
    assert planned(tmp_path, text, workloads=("b",))
    assert planned(tmp_path, "[c]\nbs=1G\n", blocks=("4k",))
    error = refused(planned, tmp_path, "[b]\n", blocks=("1G,4k,2G",))
    assert [each.partition(": expected")[0] for each in error.obstacles] == [
        "line 1: workload 'b-1024m'",
        "line 1: workload 'b-2048m'",
    ]


def test_sizes_are_checked_also_in_a_file_that_is_refused(tmp_path: Path) -> None:
    """They were once all else had been removed."""
    for text, found in (
        ("[a]\nbad=x\noffset=1G\n", "4 KiB blocks up to 1 GiB"),
        ("[a]\nbad=x\noffset=131071k\n", "4 KiB blocks up to 128 MiB"),
        ("[global]\nrw=trim\nnumjobs=9\n[a]\noffset_increment=64M\n", "4 KiB blocks up to 512 MiB"),
        # What is refused may be as little as possible.
        ("[a]\noffset=1z\nsize=1z\nbs=256M\n", "256 MiB blocks up to 128 MiB"),
        ("[a]\nbs=x\noffset=128M\n", "blocks up to 128 MiB"),
        ("[a]\nbs=4k\nbssplit=`\noffset=1G\n", "4 KiB blocks up to 1 GiB"),
        # The section has a value of its own instead.
        ("[global]\noffset=1z\n[a]\noffset=1G\n", "4 KiB blocks up to 1 GiB"),
    ):
        error = refused(planned, tmp_path, text)
        line = text[: text.index("[a]")].count("\n") + 1
        said = f"line {line}: workload 'a': expected blocks, offset and size to fit on 128 MiB, found {found}"
        assert error.obstacles[-1] == said, text
        assert "read and write a device" in error.message
    for text in (
        "[a]\nbs=x\noffset=131071k\n",
        "[a]\noffset=1G\noffset=1z\n",
        "[a]\nofset=1k\noffset=1G\n",
        "[a]\ninclude x\nbs=1G\n",
        "[a]\nnumjobs=x\noffset_increment=1G\n",
        "[global]\nbs=1G\n[a]\nbs=x\n",
        "[a]\nbsrange=x\nbs=4k\n",
    ):
        assert refused(planned, tmp_path, text).obstacles == (), f"the job may fit: {text}"
    text = "[a]\nbad=x\n[b]\nbs=1G\n"
    assert refused(planned, tmp_path, text, workloads=("a",)).obstacles == (), "b is not measured"
    error = refused(planned, tmp_path, "[a]\nbad=x\nramp_time=9\n", runtime="2s")
    assert "expected a runtime above 0 and not below its ramp_time, found 2.0 s" in error.obstacles[1]
    # What was typed wrong is no obstacle of the file.
    assert "expected" in refused(planned, tmp_path, "[a]\nbad=x\n", numjobs=("0",)).message


def test_a_file_of_the_same_folder_is_included(tmp_path: Path) -> None:
    """As fio does it: its lines stand where the include stands, and it has no sections."""
    path = tmp_path / "own.fio"
    path.write_text("[global]\ninclude common.fio\n[a]\ninclude=block\nrw=write\n[b]\nstonewall\n", "utf-8")
    (tmp_path / "common.fio").write_text("; common\ndirect=1\nbs=8k # not 4k\n", "utf-8")
    (tmp_path / "block").write_text("bs=64k\nrefill_buffers=1\n", "utf-8")
    notes: list[str] = []
    a, b = load_jobs(str(path), notes)[1]
    assert (block_bytes(a), block_bytes(b), dict(b.options)["direct"], notes) == (65536, 8192, "1", [])
    (tmp_path / "block").write_text("rw=trim\nuid=0\n[c]\ninclude common.fio\n", "utf-8")
    error = refused(load_jobs, str(path))
    assert [each.partition(":")[0] for each in error.obstacles] == ["line 4"] * 4, (
        "of the line that includes it"
    )
    assert "option 'rw'" in error.obstacles[0] and "found 'include common.fio'" in error.obstacles[3]
    for line in (
        "include none",
        "include ../own.fio",
        "include /etc/passwd",
        "include .",
        "includes common.fio",
    ):
        path.write_text(f"[a]\n{line}\n", "utf-8")
        assert "expected a file in the job file's folder" in refused(load_jobs, str(path)).message


EXAMPLES = OUTPUTS / "fio-examples"
RUNS = """
    1mbs_clients aio-read backwards-read basic-verify butterfly cmdprio-bssplit cmdprio-percentage
    dedupe-global disk-zone-profile exitwhat fio-rand-RW fio-rand-read fio-rand-write fio-seq-RW fio-seq-read
    fio-seq-write fixed-rate-submission flow fsx iometer-file-access-server jesd219 latency-profile numa
    poisson-rate-submission rand-zones ssd-steadystate ssd-test steadystate surface-scan tiobench-example
    waitfor
"""
"""fio's own examples that run on the lab's 128 MiB: all with an ordinary engine that read or write, but for
those below."""

OTHERWISE = {
    "atomic-verify": "verify_write_sequence",  # of later versions of fio
    "cross-stripe-verify": "to fit on 128 MiB, found 16 KiB blocks up to 3.512 TiB",
    "enospc-pressure": "line 35: option 'rw': expected one of read",  # and ignores errors
    "example_latency_steadystate": "steadystate_check_interval",  # of later versions of fio
    "sprandom": r"value of \$\{FIO_BS\}",
    **dict.fromkeys(
        ("zbd-rand-write", "zbd-rand-write-trim-gc", "zbd-rand-write-zone-reset-gc", "zbd-seq-read"),
        "option 'zonemode': expected one of none, strided, found 'zbd'",
    ),
    **dict.fromkeys(("xnvme-compare", "xnvme-fdp", "xnvme-zoned"), r"value of \$\{FIO_RW\}"),
    "xnvme-pi": "option 'md_per_io_size'",
}
"""What else has an ordinary engine, or none, and why it does not run."""
OWN_ENGINE = "option 'ioengine': expected one of"


@pytest.mark.skipif(not EXAMPLES.is_dir(), reason="the collection of real outputs is not next to the project")
@pytest.mark.parametrize("file", sorted(EXAMPLES.glob("*.fio")), ids=lambda file: file.stem)
def test_fios_own_examples_run_or_are_refused_once(file: Path) -> None:
    def jobs() -> str:
        return "".join(job_of(each, 128 * MIB) for each in load_jobs(str(file))[1])

    if file.stem in RUNS.split():
        assert fio_accepts(jobs())
    else:
        assert re.search(OTHERWISE.get(file.stem, OWN_ENGINE), str(refused(jobs)))
