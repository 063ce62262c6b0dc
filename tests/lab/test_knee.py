"""A search for a knee in virtual time: an open loop over a link that is the server of an M/D/1 queue."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.model import Status
from harness.questions.knee.section import SECTION
from harness.results.store import RunFolder
from tests.lab.cli import harness, only_run, well

pytestmark = [pytest.mark.lab, pytest.mark.custom_kernel]

HOW = ("--virtual-time", "--link", "wired", "--protect", "off", "--workload", "rand-read-4k", "--size", "32M")
WHAT = ("--p99", "1ms", "--mean", "0.3ms", "--load", "20000..30000", "--runtime", "0.2s", "--disk", "ram")

SERVICE_S = 36.6e-6
"""What the answer to a read takes on gigabit, with its headers."""


@pytest.mark.core
def test_it_finds_the_knee(tmp_path: Path) -> None:
    done = well(harness("knee", *HOW, *WHAT, "--results", str(tmp_path)))
    folder = RunFolder(only_run(tmp_path))
    plan, records = folder.load_plan(), folder.load_records()
    assert all(record.status is Status.OK and record.proof is not None for record in records)
    assert not any("late" in warning for record in records for warning in record.warnings)
    p99, mean = sorted(SECTION.found(plan, records), key=lambda each: -each.load)
    assert (p99.goal.metric, mean.goal.metric) == ("p99", "mean") and p99.is_known and mean.is_known
    # p99 of 5 000 requests varies by 15 %; the load at which it is 1 ms by a tenth of that.
    assert 0.84 <= p99.load * SERVICE_S <= 0.98
    alone_s = min(r.read.latency.mean_ns or 0 for r in records if r.read) / 1e9
    left_s = 3e-4 - alone_s
    busy = 2 * left_s / (2 * left_s + SERVICE_S)  # Pollaczek and Khinchine
    assert mean.load * SERVICE_S == pytest.approx(busy, rel=0.1)
    assert "99 % of requests finish within 1 ms (interpolated: met at " in " ".join(done.out.split())

    again = harness("run", "--resume", plan.run_id, "--results", str(tmp_path))
    assert again.status == 0 and "nothing is left to measure" in again.err, again
