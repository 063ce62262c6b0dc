"""A run on the machine's own kernel, with things of the user's that it must not touch."""

from __future__ import annotations

import statistics
import subprocess
from typing import Any

from tests.lab.inside.kernel import RESULTS, harness, make_the_user_s_own, measured, newest_records, unchanged

SHORT = ("--repeats=1", "--runtime=0.3s", "--size=32M", f"--results={RESULTS}")
RUN = ("run", "--testbed=host", "--link=wired", "--ipsec=both", *SHORT)
PATHS = (
    "--link=switched:1",
    "--link=pppoe",
    "--link=openflow:flows:cpu=90",
)


def taken_by_others() -> list[float]:
    uses = [record["telemetry"]["background_load"] for record in newest_records().values()]
    for (use,) in uses:
        assert use["hosts"] == ["initiator", "target"] and use["taken"] is not None, use
    return [float(use["taken"]) for (use,) in uses]


def with_a_busy_loop() -> None:
    """On this one processor, a loop takes about half; what the run does itself is none of it."""
    run = (*RUN, "--workload=rand-read-4k", "--link=local", "--no-probes", "--retries=0")
    harness(*run)
    alone = taken_by_others()
    with subprocess.Popen(["sh", "-c", "while :; do :; done"]) as loop:
        harness(*run, says=("3 of 3 measurements disturbed", "other programs used"))
        loop.kill()
    beside = taken_by_others()
    print(f"others took {alone} alone, and {beside} beside a loop")
    # Where the machine below stands still during a cell, that counts too.
    assert statistics.median(alone) < min(beside) and min(beside) > 0.3, (alone, beside)


def main() -> None:
    make_the_user_s_own()
    with unchanged("runs"):
        found: dict[str, Any] = measured(*RUN, "--workload=seq-read-256k")
        assert len(found) == 2 and {record["setting"]["testbed"] for record in found.values()} == {"host"}
        assert found["wired+aes128gcm16.seq-read-256k.r1"]["proof"]["cleartext_segments"] == 0
        with_a_busy_loop()
        said = (f"{len(PATHS)} measurements ({len(PATHS)} ok)",)
        words = (*PATHS, "--ipsec=off", *SHORT, "--workload=seq-read-256k")
        harness("run", "--testbed=host", *words, says=said)


if __name__ == "__main__":
    main()
