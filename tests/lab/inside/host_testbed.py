"""A run on the machine's own kernel, beside things of the user's that it must not touch."""

from __future__ import annotations

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


def main() -> None:
    make_the_user_s_own()
    before = snapshot()
    said = harness(*RUN, "--workload=seq-read-256k", "--size=32M", f"--results={RESULTS}")
    assert "2 cells (2 ok)" in said, said
    found = records(newest_run())
    assert {record["testbed"] for record in found.values()} == {"host"}
    assert {record["status"] for record in found.values()} == {"ok"}
    assert found["wired+aes128gcm16.seq-read-256k.r1"]["proof"]["cleartext_segments"] == 0
    said = harness(*PATHS, "--workload=seq-read-256k", "--size=32M", f"--results={RESULTS}")
    assert "3 cells (3 ok)" in said, said
    changed = differences(before, snapshot())
    assert not changed, changed


if __name__ == "__main__":
    main()
