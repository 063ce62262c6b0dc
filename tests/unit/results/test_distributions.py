"""Histograms of a cell: of all repeats that count, of the files that the records name, and of no others."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from harness.model import Status
from harness.model.histogram import Histogram
from harness.results import distributions
from harness.results.store import RunFolder, open_results
from tests import flat
from tests.unit.parsing import known
from tests.unit.results_folder import fio_json, write
from tests.unit.table.test_table import record, repeats

BINS = {1000: 90, 2000: 9, 5000: 1}


def output(folder: Path, repeat: int) -> Path:
    return folder / "raw" / f"wired.seq-read-4k.r{repeat}" / "fio.json"


def found(folder: Path, **changes: Any) -> tuple[int, int, Histogram]:
    """How many repeats are in the histogram, of how many that count; records with these changes."""
    records = [flat.changed(each, **changes) for each in RunFolder(folder).load_records()]
    cell = known(distributions.of_cell(records, {"r1": folder}, writes=False))
    return cell.merged, cell.repeats, cell.histogram


def test_repeats_add_up_but_not_kinds_of_latency_nor_what_does_not_count_or_is_damaged(
    tmp_path: Path,
) -> None:
    folder = write(tmp_path, repeats(1.0, 2.0, 3.0, workload="seq-read-4k"), bins=BINS)
    merged, of, histogram = found(folder)
    assert (merged, of, histogram.count) == (3, 3, 300)
    assert histogram.percentiles_ns([50, 99, 100]) == [1000, 2000, 5000]
    assert distributions.of_cell(RunFolder(folder).load_records(), {"r1": folder}, writes=True) is None
    changed = output(folder, 2).read_bytes().replace(b'"lat_ns"', b'"clat_ns"')
    output(folder, 2).write_bytes(changed.replace(b'"lat_percentiles":"1"', b'"x":"1"'))
    assert found(folder)[:2] == (2, 3)
    bad = repeats(1.0, 2.0, workload="seq-read-4k", status=Status.INVALID, reason="x")[1]
    write(folder.parent, [bad], bins=BINS)
    assert found(folder)[:2] == (2, 2)
    output(folder, 1).write_bytes(b"{")
    assert found(folder)[:2] == (1, 2)
    output(folder, 1).unlink()
    assert found(folder)[:2] == (1, 2)


def test_no_file_outside_the_run_is_opened(tmp_path: Path) -> None:
    outside, run = tmp_path / "fio.json", tmp_path / "r1"
    outside.write_bytes(fio_json("seq-read-4k", BINS))
    run.mkdir()
    for name in ("../fio.json", str(outside), "\0fio.json"):
        lying = record(workload="seq-read-4k", raw=(name,))
        assert distributions.of_cell([lying], {"r1": run}, writes=False) is None


def test_the_output_of_several_hosts_at_once_is_one_of_them(tmp_path: Path) -> None:
    folder = write(tmp_path, [record(workload="seq-read-4k")], bins=BINS)
    job = fio_json("seq-read-4k", BINS).partition(b'"jobs":[')[2].removesuffix(b"]}")
    both = b'{"fio version":"fio-3.33","client_stats":[%s,%s]}' % (job, job)
    output(folder, 1).with_name("fio-client.txt").write_bytes(b"<initiator> Starting 1 thread\n" + both)
    merged, _, histogram = found(folder, raw=("raw/wired.seq-read-4k.r1/fio-client.txt",))
    assert (merged, histogram.count) == (1, 200)


def test_plain_outputs_of_fio_tell_their_jobs_apart(tmp_path: Path) -> None:
    file = tmp_path / "mine.json"
    file.write_bytes(fio_json("a", BINS))
    (plain,) = open_results([file])
    assert distributions.of_cell([plain], {}, writes=False) is not None
    assert distributions.of_cell([flat.changed(plain, workload="b")], {}, writes=False) is None
