"""A run on the machine's own kernel, killed at several moments; `harness clean` restores everything."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from pathlib import Path

from harness.protection.witness import REQID
from tests.lab.inside.kernel import (
    DAEMONS,
    RESULTS,
    differences,
    events,
    harness,
    make_the_user_s_own,
    newest_run,
    processes,
    sh,
    snapshot,
    started,
    wait_for,
)

RUN = ("run", "--testbed=host", "--ipsec=on", "--repeats=1", "--workload=seq-read-256k", "--size=32M")
GONE_WITHIN_S = 20.0


def daemons() -> set[str]:
    return set(processes().values()) & DAEMONS


def filling(_folder: Path) -> bool:
    return "dd" in daemons()


def negotiating(_folder: Path) -> bool:
    """Both charons are there, and no SA yet."""
    charons = list(processes().values()).count("charon-systemd")
    return charons == 2 and f"({REQID:#010x})" not in sh("ip", "xfrm", "state")


def logging_in(_folder: Path) -> bool:
    """Somewhere in the handful of commands that it takes; the login itself may be over between two looks."""
    return "iscsiadm" in processes().values()


def measuring(folder: Path) -> bool:
    return "fio" in daemons() and any(event["event"] == "cell-started" for event in events(folder))


def taking_down(folder: Path) -> bool:
    return any("taking everything down" in event.get("text", "") for event in events(folder))


def kill_while(moment: Callable[[Path], bool], *words: str) -> str:
    """Start a run, kill it at that moment, clean up; returns what `harness clean` said."""
    with started([*RUN, f"--results={RESULTS}", *words]) as process:
        known = set(RESULTS.iterdir()) if RESULTS.is_dir() else set()
        wait_for(lambda: RESULTS.is_dir() and bool(set(RESULTS.iterdir()) - known), "the run", deadline_s=30)
        folder = newest_run()
        wait_for(lambda: moment(folder), f"{moment.__name__}", deadline_s=60)
        time.sleep(0.1)
        assert process.poll() is None, Path("/root/started.log").read_text(encoding="utf-8")
    wait_for(lambda: not daemons(), f"the end of {daemons()}", deadline_s=GONE_WITHIN_S)
    return harness("clean")


LINKS = {logging_in: "pppoe", measuring: "openflow:controller"}
"""Paths with daemons of their own, at moments when these run."""


MOMENTS = {moment.__name__: moment for moment in (filling, negotiating, logging_in, measuring, taking_down)}


def main(*moments: str) -> None:
    make_the_user_s_own()
    before = snapshot()
    for moment in map(MOMENTS.__getitem__, moments):
        began = time.monotonic()
        runtime_s = 100 if moment is measuring else 0.1
        said = kill_while(moment, f"--link={LINKS.get(moment, 'wired')}", f"--runtime={runtime_s}s")
        changed = differences(before, snapshot())
        assert not changed, f"killed while {moment.__name__}, then cleaned ({said}):\n{changed}"
        assert "Ramdisk 33554432" in said, said
        if moment in (measuring,):
            for what in ("IscsiSession", "IscsiTarget", "Backstore", "IpsecBarrier"):
                assert f"removed, left by an earlier run: {what}" in said, said
        print(f"{moment.__name__}: {time.monotonic() - began:.1f} s")
    assert "nothing was left behind" in harness("clean")
    again = harness(*RUN, "--link=wired", "--runtime=0.1s", f"--results={RESULTS}")
    assert "1 measurement (1 ok)" in again, again
    changed = differences(before, snapshot())
    assert not changed, changed


if __name__ == "__main__":
    main(*sys.argv[1:])
