"""The target's link goes down while fio is at work: that cell has no number, the others have theirs."""

from __future__ import annotations

import time
from pathlib import Path

from tests.lab.inside.kernel import (
    RESULTS,
    arguments,
    differences,
    make_the_user_s_own,
    newest_events,
    newest_run,
    processes,
    records,
    sh,
    snapshot,
    started,
    wait_for,
)

COLUMN = "wired-mtu1400"
RUN = ("run", "--testbed=host", "--link=local", "--link=wired", "--link=wired:mtu=1400", "--ipsec=off")
WHAT = ("--repeats=1", "--runtime=4s", "--workload=rand-write-4k", "--size=32M", f"--results={RESULTS}")
BOUND_S = 480.0
"""Several times what it takes on a quiet machine; a session that hung would keep its run for longer."""


def cell_under_way() -> str:
    """The cell that fio is at work on, or nothing."""
    if "fio" not in processes().values():
        return ""
    begun = [event["key"] for event in newest_events() if event["event"] == "cell-started"]
    return str(begun[-1]) if begun else ""


def written() -> int:
    """How many writes the initiator's disks have ended (Documentation/block/stat.rst)."""
    return sum(int(stat.read_text().split()[4]) for stat in Path("/sys/block").glob("sd*/stat"))


def main() -> None:
    make_the_user_s_own()
    was = snapshot()
    with started([*RUN, *WHAT]) as process:
        wait_for(lambda: cell_under_way().startswith(COLUMN), f"fio on {COLUMN}", deadline_s=60)
        before = written()
        wait_for(lambda: written() > before, "its first requests", deadline_s=60)
        assert cell_under_way().startswith(COLUMN)
        cut_the_target_s_end()
        began = time.monotonic()
        status = process.wait(timeout=BOUND_S)
        took_s = time.monotonic() - began
    said = Path("/root/started.log").read_text(encoding="utf-8")
    found = records(newest_run())
    print({key: (r["status"], r["reason"]) for key, r in found.items()}, f"{took_s:.1f} s")
    assert status == 1, said
    assert "Traceback" not in said
    assert took_s < BOUND_S
    victim = found.pop(f"{COLUMN}.rand-write-4k.r1")
    assert victim["status"] in ("invalid", "failed")
    assert victim["reason"]
    assert victim["raw"], "what fio said is kept"
    assert len(found) == 2
    assert {record["status"] for record in found.values()} == {"ok"}
    changed = differences(was, snapshot())
    assert not changed, changed


def cut_the_target_s_end() -> None:
    """Take the interface in the target's namespace down; the capture there leads to it."""
    for pid, name in processes().items():
        if name != "tcpdump":
            continue
        file = Path(f"/proc/{pid}/fd/1").readlink()
        if file.parent.name != COLUMN or not file.name.startswith("target-"):
            continue
        words = arguments(pid)
        iface = words[words.index("-i") + 1]
        sh("nsenter", f"--net=/proc/{pid}/ns/net", "ip", "link", "set", "dev", iface, "down")
        return
    raise AssertionError(f"no capture of {COLUMN} in {processes()}")


if __name__ == "__main__":
    main()
