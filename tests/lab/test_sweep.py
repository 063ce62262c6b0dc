"""A sweep in virtual time, where no machine is busy: half of a grid at most, and the rest is right."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.analysis.schedule import throughput_bytes_s
from harness.model import Status
from harness.questions.sweep.section import SECTION
from harness.results.store import RunFolder
from tests.lab.cli import harness, only_run, well

pytestmark = [pytest.mark.lab, pytest.mark.custom_kernel]

HOW = ("--virtual-time", "--link", "wired", "--protect", "off", "--workload", "rand-read-4k", "--size", "32M")
OVER = ("--over", "depth=1..32", "--over", "block=4K..64K", "--runtime", "0.2s")


@pytest.mark.core
def test_it_measures_where_the_curve_bends(tmp_path: Path) -> None:
    done = well(harness("sweep", *HOW, *OVER, "--results", str(tmp_path)))
    folder = RunFolder(only_run(tmp_path))
    plan, records = folder.load_plan(), folder.load_records()
    assert all(record.status is Status.OK and record.proof is not None for record in records)
    (curve,) = SECTION.curves(plan, records)
    assert len(records) == len(curve.rates) <= len(curve.grid) / 2
    assert "the peak fills the link" in done.out and "~: interpolated between measured points" in done.out

    # Some of the others, each by itself.
    words = ("--depth", "3,16", "--block", "8K,32K", "--runtime", "0.2s", "--repeats", "1", "--no-probes")
    well(harness("run", *HOW, *words, "--results", str(tmp_path / "grid")))
    truth = RunFolder(only_run(tmp_path / "grid")).load_records()
    forecast = {place[1]: estimate for place, estimate in curve.estimates.items()}
    checked = [
        (forecast[r.workload.name], throughput_bytes_s(r)) for r in truth if r.workload.name in forecast
    ]
    assert checked
    errors = [abs(estimate.mid / rate - 1) for estimate, rate in checked]
    assert max(errors) <= 0.1, errors

    again = harness("run", "--resume", plan.run_id, "--results", str(tmp_path))
    assert again.status == 0 and "nothing is left to measure" in again.err, again
