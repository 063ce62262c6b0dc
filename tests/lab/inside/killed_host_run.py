"""A run on the machine's own kernel, killed at several moments; `harness clean` restores everything."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from harness.protection.xfrm_listener import REQID
from tests.lab.inside import kernel
from tests.lab.inside.kernel import RESULTS, events, harness, newest_run, processes, sh, unchanged, wait_for

RUN = ("run", "--testbed=host", "--ipsec=on", "--repeats=1", "--workload=seq-read-256k", "--size=32M")
GONE_WITHIN_S = 20.0


def daemons() -> set[str]:
    return set(processes().values()) & kernel.DAEMONS


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


MOMENTS = {moment.__name__: moment for moment in (filling, negotiating, logging_in, measuring, taking_down)}
LEFT = ("IscsiSession", "IscsiTarget", "Backstore", "IpsecFailClosed")
LINKS: dict[Callable[[Path], bool], str] = {
    logging_in: "pppoe",
    measuring: "openflow:controller",
}
"""Paths with daemons of their own, at moments when these run."""


def kill_while(moment: Callable[[Path], bool], *words: str, removed: Sequence[str] = ()) -> None:
    """Start a run, kill it at that moment, and clean up: all is as before, and told are these."""
    with unchanged(f"killed while {moment.__name__}, then cleaned"):
        known = set(RESULTS.glob("*"))
        with kernel.started([*RUN, f"--results={RESULTS}", *words]) as process:
            wait_for(lambda: bool(set(RESULTS.glob("*")) - known), "the run", deadline_s=30)
            folder = newest_run()
            wait_for(lambda: moment(folder), f"{moment.__name__}", deadline_s=60)
            time.sleep(0.1)
            assert process.poll() is None, kernel.started_said()
        wait_for(lambda: not daemons(), f"the end of {daemons()}", deadline_s=GONE_WITHIN_S)
        reported = [f"removed, left by an earlier run: {what}" for what in removed]
        harness("clean", says=("Ramdisk 33554432", *reported))


def one_more(*words: str) -> None:
    with unchanged("another run"):
        run = (*RUN, *words, "--runtime=0.1s", f"--results={RESULTS}")
        harness(*run, says=("1 measurement (1 ok)",))


def main(*moments: str) -> None:
    kernel.make_the_user_s_own()
    with unchanged("all of them"):
        for moment in map(MOMENTS.__getitem__, moments):
            began = time.monotonic()
            words = (
                f"--link={LINKS.get(moment, 'wired')}",
                f"--runtime={100 if moment is measuring else 0.1}s",
            )
            removed = ("IscsiSession", "IscsiTarget", "Backstore", "IpsecFailClosed")
            kill_while(moment, *words, removed=removed if moment is measuring else ())
            print(f"{moment.__name__}: {time.monotonic() - began:.1f} s")
        harness("clean", says=("nothing was left behind",))
        one_more("--link=wired")


if __name__ == "__main__":
    main(*sys.argv[1:])
