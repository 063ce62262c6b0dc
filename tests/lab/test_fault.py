"""Faults in virtual time: how long I/O stands still is what timers say, to a step of the kernel's."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.model import Status
from harness.model.stalls import Stall
from tests.lab.cli import harness, in_lab_that_is_up, well

pytestmark = [pytest.mark.lab, pytest.mark.custom_kernel]

HOW = ("fault", "--virtual-time", "--link", "wired", "--size", "32M", "--retries", "0")

RTO_S = 0.22
"""TCP's least timeout, 200 ms, and the round trip's variation, in this kernel's steps of 10 ms (HZ 100)."""


def stalls(results: Path, *words: str) -> dict[tuple[str, str], Stall]:
    """By column and fault; in none was anything in clear."""
    found = {}
    for record in in_lab_that_is_up(results, *HOW, *words).records.values():
        assert (record.status, record.reason) == (Status.OK, None), record.column
        assert record.proof is not None
        assert not record.column.protection or record.proof.cleartext_segments == 0
        assert record.stall is not None
        found[record.column.label, record.stall.fault] = record.stall
    return found


@pytest.mark.core
def test_i_o_stands_still_for_as_long_as_timers_say(tmp_path: Path) -> None:
    found = stalls(tmp_path, "--fault", "link-down:5s", "--fault", "loss-100:5s", "--ipsec", "both")
    assert len(found) == 4
    for (_, fault), stall in found.items():
        assert stall.is_over and stall.stall_ns is not None and not stall.errnos
        assert stall.lost == 0 and stall.written > 300 and stall.not_read_back is None
        # An interface that is down refuses a segment, and TCP tries again after half a second at most
        # (TCP_RESOURCE_PROBE_INTERVAL); one that vanishes is sent again after 1, 3, 7, 15, 31 timeouts.
        bounds_s = (5.0, 5.5) if fault == "link-down:5s" else (31 * RTO_S * 0.98, 31 * RTO_S * 1.03)
        assert bounds_s[0] <= stall.stall_ns / 1e9 <= bounds_s[1], stall
    said = " ".join(well(harness("explain", str(tmp_path))).out.split())
    assert "wired, loss-100:5s: I/O stood still for 6." in said and "it decided" not in said


@pytest.mark.long
def test_errors_come_when_the_timer_that_decides_has_run_out(tmp_path: Path) -> None:
    """After noop_out_interval and noop_out_timeout, 5 s each, and replacement_timeout, in the kernel's steps;
    twice the last one is as much later."""
    came_s = {}
    for timeout_s in (15, 30):
        words = ("--ipsec", "off", "--iscsi", f"replacement_timeout={timeout_s}")
        found = stalls(tmp_path / f"{timeout_s}", "--fault", "loss-100:60s", *words)
        stall = found["wired", "loss-100:60s"]
        assert stall.first_error_ns is not None and stall.errnos.keys() == {"eio"}
        came_s[timeout_s] = (stall.first_error_ns - stall.began_ns) / 1e9
    assert came_s[30] - came_s[15] == pytest.approx(15, abs=0.64)
