"""The pictures and the page of a sweep, of networks of which it is known where they bend."""

from __future__ import annotations

import functools
import re
from pathlib import Path

import msgspec
import pytest

from harness.analysis.limit import Limit
from harness.explain.curves import sentences
from harness.explain.limits import RULES
from harness.model import Latency, Plan, Record
from harness.model.errors import UsageError
from harness.questions.sweep.section import SECTION
from harness.report import ChartKind, draw, load, picture, render
from harness.report import surfaces as of_surfaces
from harness.report.content import LoadedResults
from harness.report.picture import drawn
from harness.results.machine import set_apart
from harness.table import Metric
from tests.unit.questions.sweep.test_sentences import Rate, records_of
from tests.unit.questions.sweep.test_sweep import planned
from tests.unit.report.test_report import Page
from tests.unit.results.test_plain_curves import job
from tests.unit.results.test_results import write_fio
from tests.unit.table.test_table import HOSTILE, matrix


def surface(at: dict[str, float], _is_protected: bool) -> float:
    """Over gigabit, as an initiator with a queue of 32 gets it."""
    waiting = (160e-6 + 17e-9 * at["block"]) / min(at["depth"], 32)
    return float(at["block"] / (waiting**4 + (9e-6 + 8.5e-9 * at["block"]) ** 4) ** 0.25)


def timed(record: Record) -> Record:
    """With the latency that its throughput has by Little's law, at 4K."""
    assert record.read is not None and record.workload.in_flight is not None
    mean_ns = record.workload.in_flight * 4096e9 / record.read.bytes
    latency = Latency(mean_ns=mean_ns, p99_ns=3 * mean_ns)
    return msgspec.structs.replace(record, read=msgspec.structs.replace(record.read, latency=latency))


def results(plan: Plan, rate: Rate) -> LoadedResults:
    return LoadedResults(records=list(map(timed, records_of(plan, rate))), plans={plan.run_id: plan})


def over_depth(at: dict[str, float], is_protected: bool) -> float:
    """The same of 4K; protected, it takes the busiest part half as long again."""
    waiting = 178e-6 / min(at["depth"], 32)
    return float(4096 / (waiting**4 + (35e-6 * (1.5 if is_protected else 1.0)) ** 4) ** 0.25)


@functools.cache
def depths() -> LoadedResults:
    """A sweep over depth that has measured half of its points."""
    found = results(planned("depth=1..64", ipsec=("both",)), over_depth)
    kept = [each for each in found.records if each.workload.depth in (1, 2, 6, 16, 32, 64)]
    return msgspec.structs.replace(found, records=kept)


@functools.cache
def surfaces() -> LoadedResults:
    """A sweep over depth and block."""
    return results(planned("depth=1..64", "block=4K..1M", ipsec=("off",)), surface)


def test_a_curve_has_marks_where_it_was_measured_and_dashes_between() -> None:
    (chart,) = drawn(ChartKind.CURVES, depths())
    assert chart.title == "wired rand-read, block 4K"
    assert chart.headings == ("queue depth", "wired [MB/s]", "wired+aes128gcm16 [MB/s]")
    for curve in depths().curves:
        known = [place for place in curve.grid if place in curve.rates]
        assert 3 <= len(known) < len(curve.grid)
        assert sum(f">depth {curve.grid[place]['depth']:g}: " in chart.body for place in known) == len(known)
    assert chart.body.count('class="li da"') >= 2 and chart.body.count('class="ra"') == 2
    assert chart.body.count("bound by latency") == chart.body.count("bound by the busiest part") == 2
    assert chart.lines[0][:2] == ("1", "23") and chart.lines[-1][0] == "64"
    assert all((" [" in line[1]) is line[1].startswith("~") for line in chart.lines), "one sample has none"
    assert any(line[1].startswith("~") for line in chart.lines)
    assert ">without protection</text>" in chart.body and ">IPsec aes128gcm16</text>" in chart.body
    titles = [chart.title for chart in drawn(ChartKind.CURVES, surfaces())]
    assert titles == [f"wired rand-read, block {block}" for block in ("4K", "64K", "1M")]
    assert [chart.title for chart in drawn(ChartKind.RESPONSE, surfaces())] == titles


def test_a_response_curve_has_mean_and_p99_of_what_was_measured() -> None:
    (chart,) = drawn(ChartKind.RESPONSE, depths())
    assert {line[0]: line[1] for line in chart.lines}["1"] == "23 MB/s, 178 µs, 534 µs"
    points = sum(len(curve.rates) for curve in depths().curves)
    assert chart.body.count("<title>depth ") == 2 * points
    (plan,) = depths().plans.values()
    untimed = LoadedResults(records=records_of(plan, over_depth), plans=depths().plans)
    assert drawn(ChartKind.RESPONSE, untimed) == []
    # Of round trips there is a curve alone.
    found = results(planned("rtt=0.1ms..50ms", ipsec=("off",)), lambda at, _: 100e6 / (1 + 1e3 * at["rtt"]))
    (chart,) = drawn(ChartKind.CURVES, found)
    assert ">100 us</text>" in chart.body and ">50 ms</text>" in chart.body
    assert drawn(ChartKind.RESPONSE, found) == drawn(ChartKind.HEAT_MAP, found) == []


def test_a_heat_map_says_what_limits_by_colour_and_by_letter() -> None:
    (curve,), (run,) = surfaces().curves, surfaces().plans
    limits = {place: Limit.ROUND_TRIP if curve.rates[place] < 100e6 else Limit.LINK for place in curve.rates}
    (chart,) = of_surfaces.heat_maps([curve], {run: limits})
    assert chart.headings[0] == "depth \\ block" and len(chart.lines) == 12 and len(chart.headings) == 10
    cells = chart.body.count("<title>depth ")
    assert cells == len(curve.grid)
    assert chart.body.count('class="link pa"') + chart.body.count('class="round_trip pa"') == cells + 2
    assert chart.body.count(">L</text>") + chart.body.count(">R</text>") == cells + 2
    assert chart.body.count(">~") == len(curve.estimates)
    assert ">round trip</text>" in chart.body and ">link</text>" in chart.body
    # Each limit has a letter, and a colour if it has a part of the time.
    for limit in Limit:
        (chart,) = of_surfaces.heat_maps([curve], {run: dict.fromkeys(limits, limit)})
        assert chart.body.count(f">{RULES[limit].letter}</text>") >= (limit is not Limit.UNKNOWN)
        assert {*re.findall(r'class="(\w+) pa"', chart.body)} == {RULES[limit].part} & {*draw.PARTS}
    # Without limits there are shades alone.
    (chart,) = of_surfaces.heat_maps([curve], {})
    assert "fill-opacity:0.54" in chart.body and ">?</text>" not in chart.body and " pa" not in chart.body


@pytest.mark.thorough
def test_many_columns_make_a_heat_map_wider() -> None:
    values = ",".join(map(str, range(1, 13)))
    plan = planned(f"depth={values}", f"jobs={values}", ipsec=("off",))
    found = results(plan, lambda at, _: 1e6 * at["depth"] / (1 + at["jobs"]))
    (chart,) = of_surfaces.heat_maps(found.curves, {})
    assert chart.width > 12 * 30
    assert 'style="min-width:' in render(found), "on a telephone it is scrolled"


def test_the_page_of_a_sweep_has_curves_and_no_matrix(tmp_path: Path) -> None:
    html = render(surfaces())
    page = Page(html)
    anchors = [attrs["id"] for tag, attrs in page.tags if tag == "section"]
    assert anchors == ["answer", "curves", "response", "heat", "paths", "environment"]
    assert "wired rand-read, block 4K: reaches 95 % of its peak" in html and page.count("figure") == 7
    # The page begins with the first of what it found.
    reported = list(sentences(surfaces().curves))
    assert [each in html[: html.index("<nav")] for each in reported] == [True] * 3 + [False] * (
        len(reported) - 3
    )
    # What is on no curve stands below as ever.
    html = render(LoadedResults(records=[*depths().records, *matrix()], plans=depths().plans))
    Page(html)
    assert html.index('id="curves"') < html.index('id="matrix"') < html.index('id="bars"')
    assert "qd64" not in html[html.index('id="matrix"') : html.index('id="bars"')]
    # Names in fio's outputs of others are text.
    for depth in (1, 4, 16):
        write_fio(tmp_path / f"a-{depth}.json", job(HOSTILE, iodepth=depth))
    found = load([tmp_path])
    assert len(found.curves) == 1
    Page(render(found))


def test_a_page_of_a_sweep_that_goes_on_says_how_much_of_each_curve_is_known() -> None:
    def progress(shown: LoadedResults) -> list[tuple[str, ...]]:
        (run,) = shown.plans
        page = render(shown, going=f"{run} goes on")
        part = page[page.index('id="progress"') : page.index('id="answer"')]
        return re.findall(r"<tr><th scope=row>([^<]*)<td>([^<]*)<td>([^<]*)(?:<td>([^<]*))?", part)

    few = [each for each in depths().records if each.workload.depth in (1, 64)]
    shown = msgspec.structs.replace(depths(), records=few)
    curves, (plan,) = shown.curves, shown.plans.values()
    error = SECTION.of(plan).error
    unsure = [sum(each.error > error for each in curve.estimates.values()) for curve in curves]
    assert progress(shown) == [
        (curve.name, str(len(curve.records)), str(len(curve.estimates)), str(count))
        for curve, count in zip(curves, unsure, strict=True)
    ]
    assert any(unsure)


def test_two_sweeps_that_are_compared_are_told_apart() -> None:
    alone = depths()
    (run,), (plan,) = alone.plans, alone.plans.values()
    other = [msgspec.structs.replace(each, run_id="other", wall_ns=1) for each in alone.records]
    plans = {run: plan, "other": msgspec.structs.replace(plan, run_id="other")}
    shown = LoadedResults(records=[*alone.records, *other], plans=plans).side_by_side
    (chart,) = drawn(ChartKind.CURVES, shown)
    names = [f"{side} {name} [MB/s]" for side in "AB" for name in ("wired", "wired+aes128gcm16")]
    assert chart.headings == ("queue depth", *names)
    assert {f"{side} {name}" for side in "AB" for name in ("without protection", "IPsec aes128gcm16")} <= {
        *re.findall(r"<text[^>]*>([^<]*)</text>", chart.body)
    }
    said = " ".join(sentences(shown.curves))
    assert "A wired rand-read, block 4K: " in said and "costs B wired rand-read, block 4K most" in said


@pytest.mark.parametrize("kind", [ChartKind.CURVES, ChartKind.RESPONSE, ChartKind.HEAT_MAP])
def test_a_picture_alone_says_what_its_marks_mean(kind: ChartKind) -> None:
    svg = picture(kind, surfaces(), Metric.MB_S, Path("sweep.svg")).decode()
    assert "measured" in svg[svg.index("<desc>") : svg.index("</desc>")]
    with pytest.raises(UsageError, match="nothing for a picture") as caught:
        picture(kind, LoadedResults(records=matrix()), Metric.MB_S, Path("sweep.svg"))
    assert "it needs curves" in (caught.value.hint or "")


def test_sweeps_of_two_machines_each_have_their_limits() -> None:
    alone = depths()
    ((run, limits),) = alone.limits.items()
    other = f"{run}-other"
    records = [*alone.records, *(msgspec.structs.replace(each, run_id=other) for each in alone.records)]
    environments = {name: {"hosts": {"target": {"cpu": f"of {name}"}}} for name in (run, other)}
    plan = alone.plans[run]
    both = LoadedResults(
        records=set_apart(records, environments),
        plans={run: plan, other: msgspec.structs.replace(plan, run_id=other)},
    )
    assert limits and both.limits == {run: limits, other: limits}
