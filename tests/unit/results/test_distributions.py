"""Histograms of a cell: of all repeats that count, of the files that the records name, and of no others."""

from __future__ import annotations

from pathlib import Path

import msgspec

from harness.model import Record, Status
from harness.results import distributions
from harness.results.store import RunFolder, open_results
from tests import flat
from tests.unit.results_folder import fio_json, write
from tests.unit.table.test_table import record, repeats

BINS = {1000: 90, 2000: 9, 5000: 1}


def loaded(folder: Path) -> tuple[list[Record], dict[str, Path]]:
    return RunFolder(folder).load_records(), {"r1": folder}


def test_repeats_add_up_and_percentiles_are_of_all(tmp_path: Path) -> None:
    folder = write(tmp_path, repeats(1.0, 2.0, 3.0, workload="seq-read-4k"), bins=BINS)
    found = distributions.of_cell(*loaded(folder), writes=False)
    assert found is not None
    assert (found.merged, found.repeats, found.histogram.count) == (3, 3, 300)
    assert found.histogram.percentiles_ns([50, 99, 100]) == [1000, 2000, 5000]
    assert distributions.of_cell(*loaded(folder), writes=True) is None


def test_what_does_not_count_is_left_out(tmp_path: Path) -> None:
    good, bad = repeats(1.0, 2.0, workload="seq-read-4k")
    bad = msgspec.structs.replace(bad, status=Status.INVALID, reason="x")
    folder = write(tmp_path, [good, bad], bins=BINS)
    found = distributions.of_cell(*loaded(folder), writes=False)
    assert found is not None
    assert (found.merged, found.repeats) == (1, 1)


def test_a_damaged_or_missing_output_costs_its_repeat_alone(tmp_path: Path) -> None:
    folder = write(tmp_path, repeats(1.0, 2.0, 3.0, workload="seq-read-4k"), bins=BINS)
    (folder / "raw" / "wired.seq-read-4k.r1" / "fio.json").write_bytes(b"{")
    (folder / "raw" / "wired.seq-read-4k.r2" / "fio.json").unlink()
    found = distributions.of_cell(*loaded(folder), writes=False)
    assert found is not None
    assert (found.merged, found.repeats) == (1, 3)


def test_no_file_outside_the_run_is_opened(tmp_path: Path) -> None:
    outside = tmp_path / "fio.json"
    outside.write_bytes(fio_json("seq-read-4k", BINS))
    folder = tmp_path / "r1"
    folder.mkdir()
    for name in ("../fio.json", str(outside), "\0fio.json"):
        lying = record(workload="seq-read-4k", raw=(name,))
        assert distributions.of_cell([lying], {"r1": folder}, writes=False) is None


def test_the_output_of_several_hosts_at_once_is_one_of_them(tmp_path: Path) -> None:
    folder = write(tmp_path, [record(workload="seq-read-4k")], bins=BINS)
    output = folder / "raw" / "wired.seq-read-4k.r1" / "fio.json"
    job = fio_json("seq-read-4k", BINS).partition(b'"jobs":[')[2].removesuffix(b"]}")
    both = b'{"fio version":"fio-3.33","client_stats":[%s,%s]}' % (job, job)
    output.with_name("fio-client.txt").write_bytes(b"<initiator> Starting 1 thread\n" + both)
    (whole,), folders = loaded(folder)
    several = msgspec.structs.replace(whole, raw=("raw/wired.seq-read-4k.r1/fio-client.txt",))
    found = distributions.of_cell([several], folders, writes=False)
    assert found is not None
    assert (found.merged, found.histogram.count) == (1, 200)


def test_kinds_of_latency_do_not_mix(tmp_path: Path) -> None:
    folder = write(tmp_path, repeats(1.0, 2.0, workload="seq-read-4k"), bins=BINS)
    other = (folder / "raw" / "wired.seq-read-4k.r2" / "fio.json").read_bytes()
    changed = other.replace(b'"lat_ns"', b'"clat_ns"').replace(b'"lat_percentiles":"1"', b'"x":"1"')
    (folder / "raw" / "wired.seq-read-4k.r2" / "fio.json").write_bytes(changed)
    found = distributions.of_cell(*loaded(folder), writes=False)
    assert found is not None
    assert (found.merged, found.repeats) == (1, 2)


def test_plain_outputs_of_fio_tell_their_jobs_apart(tmp_path: Path) -> None:
    file = tmp_path / "mine.json"
    file.write_bytes(fio_json("a", BINS))
    (found,) = open_results([file])
    assert distributions.of_cell([found], {}, writes=False) is not None
    other = flat.changed(found, workload="b")
    assert distributions.of_cell([other], {}, writes=False) is None
