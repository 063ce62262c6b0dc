"""Which cells tell prices apart, and which matrix is predicted."""

from __future__ import annotations

import msgspec
import pytest

from harness.model import Column, Plan
from harness.model.errors import UsageError
from harness.planning import duration
from harness.planning.price import PriceRequest, make_plan, ways
from harness.planning.request import RunRequest

MOST_S = 60.0
"""A list of the lab takes no more by its estimate, which is for a quiet machine."""


def planned(*protect: str, **more: object) -> Plan:
    return make_plan(PriceRequest(protect=protect, lab_kernel="debian", **more))  # type: ignore[arg-type]


def labels(plan: Plan) -> list[str]:
    return [column.label for column in plan.columns]


def test_columns_differ_in_one_thing_each() -> None:
    plan = planned()
    unprotected = ["wired-unshaped", "wired"]
    assert labels(plan) == ["local", *unprotected, *(f"{label}+aes128gcm16" for label in unprotected)]
    assert plan.repeats == 1 and plan.retries == 0 and len(plan.jobs) == 7 and not plan.probes_paths
    assert duration.run_s(plan) <= MOST_S and plan.runtime_s is None
    # Further protections are measured on one link and in a minute.
    plan = planned("off,aes128gcm16,macsec,chacha20poly1305")
    assert Column("wired", ("macsec",)) not in plan.columns and Column("wired", ()) in plan.columns
    assert "wired-unshaped+macsec" in labels(plan) and "wired+aes128gcm16" in labels(plan)
    assert duration.run_s(plan) <= MOST_S
    # Links and workloads may be others.
    plan = planned("off", links=("local", "10g"), workloads=("rand-read-4k",))
    assert labels(plan) == ["local", "10g"] and [job.name for job in plan.jobs] == ["rand-read-4k"]


def test_cells_of_machines_are_long_compared_with_what_ssh_takes() -> None:
    machines = PriceRequest(protect=("off",), target="ssh://root@nas", links=("wired=eth0",))
    assert make_plan(machines).runtime_s == 2.0
    assert make_plan(msgspec.structs.replace(machines, runtime="8s")).runtime_s == 8.0


def test_a_matrix_is_that_of_a_run() -> None:
    found, jobs, notes = ways(RunRequest())
    assert len(found) * len(jobs) == 40 and not notes
    assert [way.column.label for way in found][:3] == ["local", "wired", "wifi"]
    assert found[0].link is None and all(way.link for way in found[1:])
    found, jobs, notes = ways(RunRequest(links=("wired",), depths=("1,8",), workloads=("rand-read-4k",)))
    assert len(jobs) == 2 and notes  # what replaced an engine
    with pytest.raises(UsageError, match="expected an interface with real machines"):
        ways(RunRequest(links=("wired=eth0",)))
