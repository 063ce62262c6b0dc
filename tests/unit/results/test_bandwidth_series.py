"""Bandwidth within a measurement: what is doubted of it, and what repeats of a cell have in common."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.model import Record, Status
from harness.model.errors import UsageError
from harness.model.telemetry import NOT_STEADY, WARMING_UP
from harness.parse.fiolog import LogSample, interval_ms
from harness.results import bandwidth_series
from harness.results.bandwidth_series import LOG, BandwidthSeries, doubts, of_cell
from harness.results.store import RunFolder, open_results
from tests import flat
from tests.unit.parsing import known
from tests.unit.table.test_table import record

JOB = "[w]\nlog_avg_msec=500\nper_job_logs=0\n"


def samples(*mb_s: float, interval_s: float = 0.5) -> list[LogSample]:
    return [LogSample(round(1e9 * interval_s * n), 1e6 * rate) for n, rate in enumerate(mb_s, 1)]


def test_steady_state_is_looked_for() -> None:
    expected: tuple[tuple[list[float], tuple[str, ...]], ...] = (
        ([100.0] * 10, ()),
        ([95.0, 105.0] * 5, ()),
        ([100.0] * 9 + [99.0] * 3, ()),
        ([50.0] * 5 + [100.0] * 5, (NOT_STEADY,)),
        ([10.0 * n for n in range(1, 13)], (NOT_STEADY,)),
        ([100.0] * 12 + [20.0] * 4, (NOT_STEADY,)),  # it was steady, and is no longer
        ([20.0] * 4 + [100.0] * 12, (WARMING_UP,)),
        ([20.0] * 3 + [100.0] * 6, ()),  # less than five seconds: too short to tell
        ([0.0] * 12, ()),
        ([], ()),
    )
    for rates, found in expected:
        assert doubts(samples(*rates)) == found, rates
    # Five seconds are judged although the last interval ends early.
    made = samples(20.0, 100.0, 100.0, 100.0, 100.0, interval_s=1.0)
    assert doubts([*made[:-1], LogSample(4_996_000_000, 1e8)]) == (NOT_STEADY,)


def test_equal_parts_are_cut_out_of_intervals_of_any_length() -> None:
    uneven = [LogSample(1_500_000_000, 10.0), LogSample(2_000_000_000, 40.0), LogSample(4_000_000_000, 20.0)]
    assert bandwidth_series.parts(uneven, 4, 4.0) == pytest.approx([10.0, 25.0, 20.0, 20.0])
    assert bandwidth_series.parts(uneven, 1, 4.0) == pytest.approx([(15 + 20 + 40) / 4])
    assert bandwidth_series.parts(uneven, 2, 2.0) == pytest.approx([10.0, 25.0])


def lines(*kib_s: int) -> str:
    """A log of reads, one each half second."""
    return "".join(f"{500 * n}, {rate}, 0, 0, 0\n" for n, rate in enumerate(kib_s, 1))


def written(folder: Path, repeat: int, *kib_s: int, log: str | None = None, job: str = JOB) -> Record:
    """A record whose raw folder has a log."""
    raw = folder / "raw" / f"r{repeat}"
    raw.mkdir(parents=True)
    (raw / LOG).write_text(lines(*kib_s) if log is None else log)
    (raw / "job.fio").write_text(job)
    return record(repeat=repeat, raw=(f"raw/r{repeat}/job.fio", f"raw/r{repeat}/{LOG}"))


def series(folder: Path, *records: Record) -> BandwidthSeries:
    return known(of_cell(records, {"r1": folder}))


def test_repeats_are_laid_over_each_other(tmp_path: Path) -> None:
    rates = ([100] * 12, [300] * 12, [80] * 13)
    records = [written(tmp_path, repeat, *kib_s) for repeat, kib_s in enumerate(rates, 1)]
    invalid = flat.changed(written(tmp_path, 4, *[9000] * 12), status=Status.INVALID)
    found = series(tmp_path, *records, invalid)
    assert (found.repeats, found.interval_s, found.settled_s) == (3, 0.5, 5.0)
    for line, rate in ((found.median, 102400.0), (found.low, 81920.0), (found.high, 307200.0)):
        assert line == pytest.approx([rate] * 12)
    assert found.state is not None and found.state.attained
    # What takes a while to settle is said to, and what is short is not judged.
    found = series(tmp_path, written(tmp_path, 5, *[10] * 4, *[100] * 16))
    assert found.state is not None and not found.state.attained and found.settled_s == 7.0
    found = series(tmp_path, written(tmp_path, 6, 10, 500, 20))
    assert found.median == pytest.approx([10240.0, 512000.0, 20480.0])
    assert (found.state, found.settled_s) == (None, None)


def test_without_a_log_that_is_understood_there_is_no_curve(tmp_path: Path) -> None:
    beyond = "9" * 400
    logs = ("", "nonsense\n", f"500, {beyond}, 0, 0, 0\n", f"{beyond}, 100, 0, 0, 0\n")
    changes = [*({"log": log} for log in logs), {"job": "[w]\n"}]
    for repeat, change in enumerate(changes):
        assert of_cell([written(tmp_path, repeat, 100, **change)], {"r1": tmp_path}) is None, change
    # One that tells of years has no more intervals than lines.
    years = f"500, 100, 0, 0, 0\n{10**15}, 100, 0, 0, 0\n"
    assert len(series(tmp_path, written(tmp_path, 9, log=years)).median) == 4
    assert interval_ms(JOB) == 500
    with pytest.raises(UsageError, match="expected log_avg_msec"):
        interval_ms("[w]\n")
    # None outside of the run is read.
    inside, outside = tmp_path / "run", tmp_path / "elsewhere"
    inside.mkdir()
    written(outside, 1, 100)
    names = tuple(f"../elsewhere/raw/r1/{name}" for name in ("job.fio", LOG))
    assert of_cell([record(raw=names)], {"r1": inside}) is None
    assert of_cell([record(raw=names)], {}) is None


def test_a_picture_has_fewer_intervals_and_hides_no_dip() -> None:
    lines = {"median": [10.0, 20.0, 30.0, 40.0, 50.0], "low": [9.0, 1.0, 29.0, 39.0, 49.0]}
    lines["high"] = [11.0, 21.0, 31.0, 99.0, 51.0]
    fine = BandwidthSeries(repeats=2, interval_s=0.1, **lines, fifths=[1.0] * 5, state=None, settled_s=None)
    assert fine.coarser(5) is fine
    drawn = fine.coarser(3)
    assert (drawn.interval_s, drawn.median, drawn.low, drawn.high) == (0.2, [15, 35], [1, 29], [21, 99])
    assert drawn.fifths == fine.fifths


def test_a_log_of_before_with_two_attempts_shows_the_last_one(tmp_path: Path) -> None:
    """A retry appended to the log of the disturbed attempt: 200 MB/s on gigabit, and not steady."""
    both = lines(*[90] * 12) + lines(*[100] * 12)
    stored = flat.changed(written(tmp_path, 1, log=both), warnings=(NOT_STEADY, "another"))
    assert series(tmp_path, stored).median == pytest.approx([102400.0] * 12)
    RunFolder(tmp_path).save_record(stored)
    for found in (*RunFolder(tmp_path).load_records(), *open_results([tmp_path])):
        assert found.warnings == ("another",)
    # The jobs of one attempt are added up.
    log = "".join(lines(*[rate] * 12) for rate in (1, 2, 30, 40))
    jobs = series(tmp_path, written(tmp_path, 2, log=log, job=f"{JOB}numjobs=2\n"))
    assert jobs.median == pytest.approx([70 * 1024.0] * 12)
    # A verdict that holds or cannot be judged stays.
    for repeat, rates in ((3, [50] * 6 + [100] * 6), (4, [])):
        stored = flat.changed(written(tmp_path, repeat, *rates), warnings=(NOT_STEADY,))
        RunFolder(tmp_path).save_record(stored)
        assert RunFolder(tmp_path).load_records()[-1].warnings == (NOT_STEADY,)
