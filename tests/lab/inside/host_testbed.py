"""A run on the machine's own kernel, with things of the user's that it must not touch."""

from __future__ import annotations

import statistics
import subprocess
from typing import Any

from tests.lab.inside.kernel import (
    RESULTS,
    differences,
    harness,
    make_the_user_s_own,
    newest_run,
    records,
    snapshot,
)

RUN = ("run", "--testbed=host", "--link=wired", "--ipsec=both", "--repeats=1", "--runtime=0.3s")
PATHS = (
    *("run", "--testbed=host", "--link=pppoe", "--link=switched:1", "--link=openflow:flows:cpu=90"),
    *("--ipsec=off", "--repeats=1", "--runtime=0.3s"),
)


def taken_by_others(record: dict[str, Any]) -> float:
    """What others took of the one machine that there is."""
    (use,) = record["telemetry"]["others"]
    assert use["hosts"] == ["initiator", "target"] and use["taken"] is not None, use
    return float(use["taken"])


def with_a_busy_loop() -> None:
    """On this one processor, a loop takes about half; what the run does itself is none of it."""
    run = [*RUN, "--workload=rand-read-4k", "--size=32M", "--link=local", f"--results={RESULTS}"]
    run += ["--no-probes", "--retries=0"]
    harness(*run)
    alone = [taken_by_others(record) for record in records(newest_run()).values()]
    with subprocess.Popen(["sh", "-c", "while :; do :; done"]) as loop:
        said = harness(*run)
        loop.kill()
    telemetry = [taken_by_others(record) for record in records(newest_run()).values()]
    print(f"others took {alone} alone, and {telemetry} beside a loop")
    # Where the machine below stands still during a cell, that counts too.
    assert statistics.median(alone) < min(telemetry) and min(telemetry) > 0.3, (alone, telemetry)
    assert "3 of 3 measurements disturbed" in said and "other programs used" in said, said


def main() -> None:
    make_the_user_s_own()
    before = snapshot()
    said = harness(*RUN, "--workload=seq-read-256k", "--size=32M", f"--results={RESULTS}")
    assert "2 measurements (2 ok)" in said, said
    found = records(newest_run())
    assert {record["setting"]["testbed"] for record in found.values()} == {"host"}
    assert {record["status"] for record in found.values()} == {"ok"}
    assert found["wired+aes128gcm16.seq-read-256k.r1"]["proof"]["cleartext_segments"] == 0
    with_a_busy_loop()
    said = harness(*PATHS, "--workload=seq-read-256k", "--size=32M", f"--results={RESULTS}")
    assert "3 measurements (3 ok)" in said, said
    changed = differences(before, snapshot())
    assert not changed, changed


if __name__ == "__main__":
    main()
