"""What sweeps say, of networks of which it is known where they bend."""

from __future__ import annotations

import math
from collections.abc import Callable

from msgspec.structs import replace

from harness.analysis.response import Estimate
from harness.explain import curves
from harness.model import Plan, Record
from harness.questions.sweep.section import SECTION
from harness.results import sections
from harness.results.axes import curve_of, workloads
from harness.table.curves import render
from tests.unit.explain.test_explain import known
from tests.unit.questions.carried_out import measure
from tests.unit.questions.sweep.test_sweep import planned

Rate = Callable[[dict[str, float], bool], float]


def records_of(plan: Plan, rate: Rate, session: dict[str, str] | None = None) -> list[Record]:
    """What a sweep measures: all that its curves take."""
    todo = sections.schedule(plan)
    jobs = workloads(plan.jobs)
    records = []
    for order, cell in todo:
        _, at = known(curve_of(plan, SECTION.of(plan).over, cell.column, jobs[cell.workload]))
        made = measure(plan, cell, order, rate(at, bool(cell.column.protection)))
        records.append(replace(made, session=session or {}))
        todo.take(records[-1])
    return records


def said_of(plan: Plan, rate: Rate) -> list[str]:
    """Of a sweep that measured all that it takes."""
    return list(curves.sentences(SECTION.curves(plan, records_of(plan, rate))))


def gigabit(at: dict[str, float], is_protected: bool) -> float:
    """4K reads: 23 MB/s one at a time, and the link's 117.5 MB/s from depth 6 on; protected, 80."""
    return min(at["depth"] * 23e6, 80e6 if is_protected else 117.5e6)


def test_a_depth_from_which_the_link_is_full_is_named() -> None:
    assert said_of(planned("depth=1..64", ipsec=("both",)), gigabit) == [
        "wired rand-read, block 4K: within 5 % of its peak from depth 6 on; the peak fills the link "
        "(117.5 of 117.7 MB/s).",
        "wired+aes128gcm16 rand-read, block 4K: reaches 95 % of its peak (80 MB/s) at depth 4.",
        "IPsec aes128gcm16 costs wired rand-read, block 4K most at depth 6 (32 %, 28 % to 36 %) and least at "
        "depth 1 (no measurable cost, under 6 %).",
    ]
    # More that helps to the end is not called enough.
    helps = "wired rand-read, block 4K: still rising at depth 3, the end of the range (69 MB/s)."
    assert said_of(planned("depth=1,2,3", ipsec=("off",)), gigabit) == [helps]
    # Of round trips it says where half is lost.
    lossy = planned("rtt=0.1ms..50ms", ipsec=("off",))
    (half,) = said_of(lossy, lambda at, _: 100e6 / (1 + 1e3 * at["rtt"]))
    (left,) = said_of(lossy, lambda at, _: 100e6 / (1 + at["rtt"]))
    assert (
        half
        == "wired rand-read, depth 1, block 4K: at or below half of its peak (90.91 MB/s) from rtt 1.6 ms on."
    )
    assert left.endswith(": still above half of its peak (99.99 MB/s) at rtt 50 ms, the end of the range.")


def test_a_predicted_point_neither_fills_a_link_nor_is_the_peak() -> None:
    """A prediction may be above all that was measured, by its error."""
    made = planned("depth=1..64", ipsec=("off",))
    records = records_of(made, lambda at, _: min(at["depth"] * 23e6, 113e6))
    (curve,) = SECTION.curves(made, records[::2])
    full = Estimate(116e6, 117e6, 118e6, is_predicted=True)
    assert curve.estimates and all(each.is_predicted for each in curve.estimates.values())
    curve.__dict__["estimates"] = dict.fromkeys(curve.estimates, full)
    (said,) = curves.sentences([curve])
    assert "(113 MB/s)" in said and "fills" not in said
    # Where none was measured, a sign says so.
    curve.__dict__.update(rates={}, estimates=dict.fromkeys(curve.grid, full))
    (said,) = curves.sentences([curve])
    assert said.endswith("the peak fills the link (~117 of 117.7 MB/s).")


def test_of_many_workloads_the_first_is_told_and_the_others_are_counted() -> None:
    def reported(*names: str) -> list[str]:
        made = planned("depth=1,4", "block=4K,64K", workloads=names, ipsec=("both",))
        return curves.in_short(SECTION.curves(made, records_of(made, gigabit)))

    first, both = reported("rand-read-4k"), reported("rand-read-4k", "rand-write-4k")
    assert len(first) == 9 and both == [*first, "1 more workload: harness explain."]


def test_points_are_named_by_their_axes_alone() -> None:
    """And not by how often their writes wait for the target."""
    made = planned("block=4K,64K,256K", "depth=1,4", workloads=("rand-write-4k",), ipsec=("both",))
    session = {"first_burst_len": "65536", "max_burst_len": "262144", "initial_r2t": "0"}
    records = records_of(made, lambda at, is_protected: 1e6 * at["depth"] / (1 + is_protected), session)
    *_, cost = curves.sentences(SECTION.curves(made, records))
    assert "most at block 4K and depth 1 (50 %" in cost


def test_a_cost_is_that_of_measured_points_and_a_predicted_one_is_called_so() -> None:
    made = planned("depth=1,4", ipsec=("both",))
    records = records_of(made, lambda at, _: 20e6 * at["depth"])
    *_, cost = curves.sentences(SECTION.curves(made, records))
    assert cost == (
        "IPsec aes128gcm16 has no measurable cost for wired rand-read, block 4K at any of 2 measured points "
        "(under 6 %)."
    )
    # No point was measured on both sides.
    bare = [each for each in records if not each.column.protection][:1]
    other = [each for each in records if each.column.protection and each.workload != bare[0].workload]
    *_, cost = curves.sentences(SECTION.curves(made, bare + other))
    assert "any point (predicted)" in cost or "predicted: " in cost


def test_tables_tell_what_was_measured_from_what_lies_between() -> None:
    made = planned("depth=1..64", "block=4K,64K", ipsec=("off",))
    found = records_of(made, lambda at, _: min(at["depth"] * at["block"] / 180e-6, 117e6))
    lines = render(SECTION.curves(made, found)).splitlines()
    assert lines[0] == "wired rand-read (MB/s; block in columns)"
    assert lines[1].split() == ["depth", "4K", "64K"] and lines[3].split() == ["1", "22.76", "117"]
    assert any("~" in line for line in lines[3:-2]) and lines[-1] == "~: interpolated between measured points"


def test_along_links_a_link_is_full_by_its_own_goodput_and_the_local_disk_by_none() -> None:
    (said,) = said_of(planned("rate=100M,1G", ipsec=("off",)), lambda at, _: at["rate"] / 8 * 0.94)
    assert said.endswith("still rising at rate 1 Gbit/s, the end of the range (117.5 MB/s).")
    (said,) = said_of(planned("rate=1G,10G", ipsec=("off",)), lambda _at, _: 117e6)
    assert said.endswith("reaches 95 % of its peak (117 MB/s) at rate 1 Gbit/s.") and "full" not in said
    first, _ = said_of(planned("depth=1,2,3", links=("local", "wired"), ipsec=("off",)), gigabit)
    assert first.startswith("local rand-read, block 4K: still rising at depth 3")


def depths(*rates: float) -> str:
    """What is said of these rates, in MB/s, at the depths 1, 2, 4 and so on."""
    made = planned(f"depth={','.join(str(2**n) for n in range(len(rates)))}", ipsec=("off",))
    (said,) = said_of(made, lambda at, _: 1e6 * rates[round(math.log2(at["depth"]))])
    return said.partition("block 4K: ")[2]


def test_from_there_on_holds_for_every_point_from_there_on() -> None:
    """It was "from depth 1 on 95 % of the most" where depth 2 had 72 %."""
    assert depths(48, 36, 49, 50) == (
        "reaches 95 % of its peak (50 MB/s) at depth 1 and from 4 on, but only 72 % at depth 2."
    )
    assert depths(10, 50, 49, 30) == (
        "peaks at depth 2 (50 MB/s) and falls to 60 % of it at depth 8, the end of the range."
    )
    assert depths(20, 10, 30, 50) == (
        "peaks at depth 8, the end of the range (50 MB/s), but drops by 50 % at depth 2."
    )
    assert depths(10, 46, 49, 48).startswith("reaches 95 % of its peak (49 MB/s) at depth 4 (2 to 4)")
    # Along round trips half is not lost "from" a point behind which it is back.
    trips = planned("rtt=0.1ms,1ms,10ms,50ms", ipsec=("off",))
    (said,) = said_of(trips, lambda at, _: 40e6 if at["rtt"] == 0.001 else 100e6)
    assert said.endswith(": at or below half of its peak (100 MB/s) only at rtt 1 ms.")
