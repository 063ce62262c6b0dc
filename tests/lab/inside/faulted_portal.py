"""Faults at the initiator's own end of somebody else's portal: its LUN is only read, and no other session is
broken."""

from __future__ import annotations

from collections.abc import Sequence

from tests.lab.inside import kernel, strangers
from tests.lab.inside.kernel import RESULTS, harness, newest_records, sh, unchanged, wait_for
from tests.lab.inside.strangers import PORTAL

LASTS_S = 3
POLICIES = ("ip", "xfrm", "policy", "list")
"""None is left of a fault."""


def asked(*faults: str) -> Sequence[str]:
    which = (f"--fault={kind}:{LASTS_S}s" for kind in faults)
    return ("fault", f"--results={RESULTS}", f"--portal={PORTAL}", "--no-probes", *which)


def main() -> None:
    strangers.prepare("xfrm_user")
    file = strangers.make("faulted")
    with strangers.untouched("a fault", file):
        harness(*asked("initiator-link-down", "loss-100-to-initiator"), says=("I/O stood still for",))
    for record in newest_records().values():
        stall = record["stall"]
        assert record["status"] == "ok" and record["read"] and not record["write"], record
        # It cannot end before the fault.
        assert stall["stall_ns"] >= 0.9 * LASTS_S * 1e9 and not stall["written"], stall
    print("a portal: stood still, and was only read")

    words = ("expected a fault at the initiator's end",)
    harness(*asked("target-down"), status=2, says=words)
    with strangers.logged_in(PORTAL), unchanged("another session"):
        harness(*asked("initiator-link-down"), status=1, says=("expected the run's own connections",))
    print("another session: left alone")

    with kernel.started(asked("initiator-link-down")) as run:
        wait_for(lambda: "priority 9000" in sh(*POLICIES), "the fault", deadline_s=60)
        run.kill()
        wait_for(lambda: "priority 9000" not in sh(*POLICIES), "its end", deadline_s=30)
    harness("clean", status=0)
    print("killed: the kernel ended the fault")


if __name__ == "__main__":
    main()
