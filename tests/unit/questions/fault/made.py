"""Plans with a fault, stalls and their records, and what is said of them."""

from __future__ import annotations

import math
from typing import Any

import msgspec

from harness.model import Cell, Plan, Record
from harness.model.ranges import out_of_range
from harness.model.stalls import Stall
from harness.questions.fault import printed
from harness.questions.fault.plan import FaultRequest, make_plan
from harness.questions.fault.requests import LoadReport, judged
from harness.questions.fault.section import REBOOT, Fault
from harness.questions.fault.theory import NEVER, StallBounds, expected
from tests.unit.questions import carried_out as grids

S = 10**9

REBOOTED: dict[str, Any] = {"target": "ssh://root@nas", "links": ("wired=eth0",), "fault": (REBOOT,)}


def planned(*faults: str, **more: Any) -> Any:
    usual: dict[str, Any] = {"links": ("wired",), "ipsec": ("off",), "fault": faults or ("link-down:5s",)}
    return make_plan(FaultRequest(**usual | more))


def cells(plan: Plan) -> list[Cell]:
    return [Cell(column, job.name, 1) for column in plan.columns for job in plan.jobs]


def rows(*parts: tuple[float, float, int]) -> list[tuple[int, int, int]]:
    """A request each 10 ms: parts of so many seconds, of which each has this latency (s; of the first, then
    always until the same time if it is negative) and errno."""
    found: list[tuple[int, int, int]] = []
    for lasts_s, latency_s, error in parts:
        for _ in range(round(100 * lasts_s)):
            found.append((len(found) * S // 100, round(latency_s * S), error))
    return found


def stalled(*parts: tuple[float, float, int]) -> Stall:
    found = LoadReport(start_ns=0, late_ns=S // 10, rows=rows(*parts), blocks=7, lost=[])
    stall = judged(found, fault="link-down:5s", began_ns=3 * S, ended_ns=8 * S)
    assert out_of_range(stall) is None
    return stall


def record(stall: Stall, transport: str = "iscsi", **session: str) -> Record:
    plan = planned(transports=(transport,))
    (cell,) = cells(plan)
    made = grids.measure(plan, cell, 0, 4096)
    return msgspec.structs.replace(made, stall=stall, session=session, emulated=True)


def said_of(stall: Stall, transport: str = "iscsi", **session: str) -> str:
    *_, last = printed.sentences([record(stall, transport, **session)])
    return last


def assert_settings_say(
    transport: str, fault: Fault, session: dict[str, str], found: StallBounds | None
) -> None:
    """A stall is bounded by so much, to a tenth of a second; None: there is no formula."""
    stall = msgspec.structs.replace(stalled((5, 0.001, 0)), fault=fault.name)
    stall = msgspec.structs.replace(stall, ended_ns=stall.began_ns + round(fault.lasts_s * S))
    say = expected(record(stall, transport, **session), stall)
    assert (say and tuple(round(each, 1) for each in say)) == found
    if say is not None:
        never = msgspec.structs.replace(stall, late=1, stall_ns=None, over_ns=None)

        def lasting(stall_s: float) -> Stall:
            return msgspec.structs.replace(never, stall_ns=round(stall_s * 1e9), over_ns=0)

        ends = [never] if say is NEVER else [lasting(math.ceil(say.least_s * 1e9) / 1e9), lasting(say.most_s)]
        assert all(say.holds(end) for end in ends)
        assert not say.holds(lasting(60.0)) and not say.holds(lasting(-1.0))
