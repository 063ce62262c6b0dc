"""The store: what is written comes back, what is damaged is named, what is foreign is understood."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Any

import msgspec
import pytest

from harness.model import SCHEMA_VERSION, Io, Latency, Proof, Record, Status, TestbedKind, unread
from harness.model.errors import UsageError
from harness.results import store
from harness.results.store import RunFolder, open_results, write_atomically
from tests import flat
from tests.unit.parsing import refused
from tests.unit.results_folder import made_plan


def record(**changes: Any) -> Record:
    crossed: dict[str, Any] = {"link_bytes_initiator": 4500, "link_bytes_target": 4501}
    proof = Proof(**crossed, protected_bytes=4400, tcp_retransmits=0)
    whole: dict[str, Any] = {"run_id": "r1", "testbed": TestbedKind.LAB, "status": Status.OK}
    whole |= {"workload": "seq-read-4k", "link": "wifi", "protection": ("aes128gcm16",), "transport": "iscsi"}
    whole |= {"repeat": 2, "order": 5, "raw": ("raw/x/fio.json",), "started_unix_s": 1.75e9}
    whole["read"] = Io(bytes=4096, ios=1, runtime_ns=10, latency=Latency(mean_ns=1.5, p99_9_ns=2.5))
    whole |= {"proof": proof, "session": {"MaxBurstLength": "262144"}}
    return flat.record(**(whole | changes))


def fio_job(name: str = "job1", **changes: Any) -> dict[str, Any]:
    """A job that read 1000 blocks of 4096 bytes in a second, each in 1 ms."""
    latency: dict[str, Any] = {"min": 900000, "max": 1100000, "mean": 1000000.0, "stddev": 1.0}
    latency["percentile"] = {"99.000000": 1090000}
    moved = {"io_bytes": 4096000, "io_kbytes": 4000, "bw_bytes": 4096000, "bw": 4000, "total_ios": 1000}
    busy = {**moved, "runtime": 1000, "iops": 1000.0, "clat_ns": latency, "lat_ns": latency}
    idle = {**dict.fromkeys((*moved, "runtime"), 0), "iops": 0.0}
    return {"jobname": name, "error": 0, "read": busy, "write": idle} | changes


def write_fio(path: Path, *jobs: dict[str, Any], before: str = "") -> Path:
    path.parent.mkdir(exist_ok=True)
    path.write_text(before + json.dumps({"fio version": "fio-3.33", "jobs": list(jobs)}), encoding="utf-8")
    return path


def opened(path: Path, *jobs: dict[str, Any], before: str = "") -> tuple[Record, Io]:
    """The one record of fio's output on these jobs, and what it read."""
    (found,) = open_results([write_fio(path, *jobs, before=before)])
    assert found.read is not None
    return found, found.read


def test_records_plans_and_environments_come_back_as_they_were(tmp_path: Path) -> None:
    run, plan = RunFolder(tmp_path / "results" / "r1"), made_plan()
    run.save_plan(plan)
    run.save_environment({"hosts": {"target": {"kernel": "Linux version 6.1.55"}}})
    assert run.load_plan() == plan
    assert run.load_environment() == {"hosts": {"target": {"kernel": "Linux version 6.1.55"}}}
    run.save_record(record(status=Status.FAILED, reason="the target vanished"))
    written = record()
    assert run.save_record(written) == run.path / "cells" / "wifi+aes128gcm16.seq-read-4k.r2.json"
    assert run.load_records() == [written], "it replaces the first"
    assert store.record_key(record(link="local", protection=(), repeat=1)) == "local.seq-read-4k.r1"


def test_what_an_earlier_attempt_left_is_kept_and_no_key_leaves_its_folder(tmp_path: Path) -> None:
    run = RunFolder(tmp_path)
    assert run.raw_folder("y.r1") == tmp_path / "raw" / "y.r1" and (tmp_path / "raw" / "y.r1").is_dir()
    assert run.new_raw_folder("x.r1") == tmp_path / "raw" / "x.r1"
    for attempt in ("first", "second", "third"):
        (run.new_raw_folder("x.r1") / "fio.json").write_text(attempt)
    found = {str(file.parent.name): file.read_text() for file in tmp_path.rglob("fio.json")}
    assert found == {"x.r1.attempt-1": "first", "x.r1.attempt-2": "second", "x.r1": "third"}
    for key in ("../x", "a/b", ".hidden", "", "nul\0", "x" * 250):
        with pytest.raises(UsageError, match="cannot name a file"):
            run.raw_folder(key)


def test_writing_leaves_the_old_content_if_it_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "plan.json"
    write_atomically(file, b"old")

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        write_atomically(file, b"new")
    assert file.read_bytes() == b"old" and list(tmp_path.iterdir()) == [file]


def test_a_left_over_temporary_file_is_no_record_and_a_bad_record_is_never_dropped(tmp_path: Path) -> None:
    run = RunFolder(tmp_path)
    run.save_record(record(repeat=1))
    for name in (".123.tmp", ".x.json"):
        (tmp_path / "cells" / name).write_text("{", encoding="utf-8")
    assert len(run.load_records()) == 1
    run.save_record(record(repeat=3)).write_text("{}", encoding="utf-8")
    with pytest.raises(UsageError, match=r"r3\.json"):
        open_results([tmp_path])


@pytest.mark.thorough
def test_a_record_cut_at_any_byte_is_refused_by_name(tmp_path: Path) -> None:
    file = RunFolder(tmp_path).save_record(record())
    whole = file.read_bytes().rstrip()
    for length in range(len(whole)):
        file.write_bytes(whole[:length])
        with pytest.raises(UsageError, match=f"{re.escape(file.name)} is not a readable record"):
            open_results([tmp_path])


NO_RECORDS = [b"", b"[]", b"null", b"{}", b'{"run_id": 1}', b"NaN", b"[" * 5000, b'{"x": ' + b"[" * 5000]
NO_TEXT = [b"\xff\xfe{\x00", b"\xef\xbb\xbf{}", b'"\xed\xa0\x80"']


def test_what_is_no_record_is_refused_by_a_safe_name(tmp_path: Path) -> None:
    file = tmp_path / "a\x1b[2Jb.json"
    for content, words in (
        *((content, "") for content in (*NO_RECORDS, *NO_TEXT)),
        (b'{"name": "left-pad"}', ": expected the fields of a record, found no 'schema'"),
        (b'{"schema": 1, "link": "wired"}', ": expected the fields of a record of schema 1"),
    ):
        file.write_bytes(content)
        said = str(refused(open_results, [tmp_path if words else file]))
        assert rf"a\x1b[2Jb.json is not a readable record{words}" in said, content


def altered(folder: Path, old: str, new: str) -> None:
    """A record in which somebody replaced a value."""
    file = RunFolder(folder).save_record(record())
    text = file.read_text(encoding="utf-8")
    assert old in text
    file.write_text(text.replace(old, new), encoding="utf-8")


def test_values_that_nothing_measures_are_refused_and_what_contradicts_itself_does_not_count(
    tmp_path: Path,
) -> None:
    for field, value, *others in (
        ("bytes", "4096", "-4096", "9223372036854775808", '"4096"'),
        ("ios", "1", "-1"),
        ("runtime_ns", "10", "-10"),
        ("mean_ns", "1.5", "-1.5", "NaN", "1e309"),
        ("status", '"ok"', '"fine"'),
    ):
        for other in others:
            altered(tmp_path, f'"{field}": {value}', f'"{field}": {other}')
            assert "r2.json" in str(refused(open_results, [tmp_path])), (field, other)
    # Whoever edits one figure leaves the others: a huge one must not stand in a table as measured.
    altered(tmp_path, '"bytes": 4096', '"bytes": 9000000000000000')
    for found in (*open_results([tmp_path]), *RunFolder(tmp_path).load_records()):
        moved = "fio moved 9000000000000000 bytes, but only 4500 crossed the link"
        assert (found.status, found.reason) == (Status.INVALID, f"the record contradicts itself: {moved}")


def test_a_record_of_a_later_version_is_refused_whatever_its_shape(tmp_path: Path) -> None:
    later = SCHEMA_VERSION + 1
    for shape in (msgspec.to_builtins(record(schema=later)), {"schema": later, "cell": "something else"}):
        file = tmp_path / "x.json"
        file.write_text(json.dumps(shape), encoding="utf-8")
        assert f"x.json was written by a later version (schema {later}" in str(refused(open_results, [file]))


def test_where_nothing_is_a_sentence_says_so(tmp_path: Path) -> None:
    (tmp_path / "r1" / "cells").mkdir(parents=True)
    for path, words in (
        (tmp_path, "holds no results"),
        (tmp_path / "r1", "holds no results"),
        (tmp_path / "nowhere", "does not exist"),
        (tmp_path / ("x" * 300), "cannot be read"),
        ("a\0b", "expected a path, found"),
    ):
        error = refused(open_results, [path])
        assert words in error.message, path
        assert words != "holds no results" or "harness run" in (error.hint or "")
    assert "no plan.json" in str(refused(RunFolder(tmp_path).load_plan))


def test_a_run_a_folder_of_runs_and_a_single_record_are_opened(tmp_path: Path) -> None:
    first, second = RunFolder(tmp_path / "r1"), RunFolder(tmp_path / "r2")
    file = first.save_record(record())
    second.save_record(record(run_id="r2"))
    (tmp_path / "README.md").write_text("mine", encoding="utf-8")
    (tmp_path / "latest").symlink_to(first.path)
    for paths, runs in (
        ([tmp_path], ["r1", "r2"]),
        ([second.path], ["r2"]),
        ([file], ["r1"]),
        ([tmp_path, first.path], ["r1", "r2"]),  # what is found twice counts once
    ):
        assert [found.run_id for found in open_results(paths)] == runs
    RunFolder(tmp_path / "copy").save_record(record(order=6))
    with pytest.raises(UsageError, match=r"two different records of the cell wifi\+aes128gcm16"):
        open_results([tmp_path])


def test_a_renamed_folder_is_the_run_of_its_plan_or_else_of_its_records(tmp_path: Path) -> None:
    """Else its machines and its raw outputs would not be found."""
    run, plan = RunFolder(tmp_path / "from a colleague"), made_plan()
    file = run.save_record(record())
    RunFolder(tmp_path / "r2").save_record(record(run_id="r2"))
    assert run.run_id == "r1"
    whole = file.read_bytes()
    file.write_bytes(b"{")
    assert run.run_id == "from a colleague"
    file.write_bytes(whole)
    run.save_plan(plan)
    run.save_environment({"hosts": {}})
    assert store.open_plans([tmp_path, run.path]) == {"r1": plan}
    assert store.open_environments([tmp_path]) == {"r1": {"hosts": {}}, "r2": {}}


def test_a_fio_output_becomes_a_column_named_by_its_file(tmp_path: Path) -> None:
    found, read = opened(tmp_path / "nvme.json", fio_job("4k-read"), before="note: something\n")
    assert (found.column.link, found.workload.name, found.setting.source) == ("nvme", "4k-read", "fio")
    assert (found.setting.testbed, found.column.protection, found.status) == (TestbedKind.HOST, (), Status.OK)
    assert (read.bytes, read.ios, read.runtime_ns) == (4096000, 1000, 10**9)
    assert read.latency.p99_ns == 1090000
    assert found.write is None
    assert any("text before the JSON" in warning for warning in found.warnings)


def test_clones_add_up_with_percentiles_of_all_their_ios_where_there_are_histograms(tmp_path: Path) -> None:
    def clone(bins: dict[str, int]) -> dict[str, Any]:
        read = fio_job()["read"]
        return fio_job(read=read | {kind: {**read[kind], "bins": bins} for kind in ("clat_ns", "lat_ns")})

    fast, slow = {"1000": 990, "2000": 10}, {"50048": 1000}
    latency = opened(tmp_path / "x.json", clone(fast), clone(slow))[1].latency
    assert (latency.p50_ns, latency.p99_ns, latency.p99_9_ns) == (2000, 50048, 50048)
    assert opened(tmp_path / "y.json", clone(fast), clone({}))[1].latency.p99_ns is None
    slower = fio_job()["read"] | {"runtime": 2000, "iops": 500.0, "bw": 2000, "bw_bytes": 2048000}
    found, read = opened(tmp_path / "x.json", fio_job(), fio_job(read=slower))
    assert (read.bytes, read.ios, read.runtime_ns) == (8192000, 2000, 2 * 10**9)
    assert (read.latency.mean_ns, read.latency.p99_ns) == (1000000.0, None)
    assert "2 jobs of this name added up" in found.warnings


def test_a_job_with_an_error_has_failed_and_one_that_contradicts_itself_is_invalid(tmp_path: Path) -> None:
    wrong = fio_job(read=fio_job()["read"] | {"bw_bytes": 8192000, "bw": 8000})
    for job, status, reason in (
        (fio_job(error=5), Status.FAILED, "error 5"),
        (wrong, Status.INVALID, "bw_bytes"),
    ):
        (found,) = open_results([write_fio(tmp_path / "x.json", job)])
        assert found.status is status and reason in (found.reason or "")


def test_a_folder_of_fio_outputs_may_hold_other_files_and_equal_names_stay_apart(tmp_path: Path) -> None:
    for name in ("a.json", "b.txt"):
        write_fio(tmp_path / name, fio_job())
    (tmp_path / "notes.txt").write_text("nothing of interest", encoding="utf-8")
    assert [found.column.link for found in open_results([tmp_path])] == ["a", "b"]
    files = [write_fio(tmp_path / folder / "disk.json", fio_job()) for folder in ("one", "two")]
    found = open_results([file.parent for file in files])
    assert [each.column.link for each in found] == ["one/disk", "two/disk"]


def test_a_damaged_file_is_refused_by_name_and_in_a_folder_costs_itself_alone(tmp_path: Path) -> None:
    bad, good = (write_fio(tmp_path / name, fio_job()) for name in ("a.json", "b.json"))
    for damaged, words in ((bad.read_bytes()[:200], ": "), (b'{"run_id": "r1"', " is not a readable record")):
        bad.write_bytes(damaged)
        for paths in ([bad], [good, bad], [tmp_path, bad]):
            assert f"a.json{words}" in str(refused(open_results, paths))
        with unread.noted() as lost:
            (found,) = open_results([tmp_path])
        assert [error.message.startswith(f"{bad}{words}") for error in lost] == [True]
        assert (found.column.link, found.workload.name, found.status) == ("b", "job1", Status.OK)
        assert found.read is not None and found.read.bytes == 4096000
    assert "a.json is not a readable record" in str(refused(open_results, [tmp_path]))
