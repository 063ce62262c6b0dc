"""The page and its pictures: well formed, complete, and safe whatever the names in the records are."""

from __future__ import annotations

import os
import re
import struct
import sys
import xml.etree.ElementTree as ET
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import msgspec
import pytest

from harness.model import Record, Status
from harness.model.errors import RequirementError, UsageError
from harness.report import ChartKind, Theme, Words, content, draw, load, picture, render
from harness.report.charts import bars, goodness, roofline
from harness.report.content import LoadedResults, Origin
from harness.report.curves import percentiles, short, trends
from harness.report.page import METRICS
from harness.report.picture import OF_QUESTIONS, drawn
from harness.table import Metric
from harness.table.options import Table, TableCell
from tests import flat
from tests.unit.cli.test_cli import assert_refused
from tests.unit.command import harness
from tests.unit.explain.test_explain import SESSION
from tests.unit.results.test_plain_curves import surface
from tests.unit.results_folder import ENVIRONMENT, fio_json, made_plan, write
from tests.unit.table.test_table import HOSTILE, matrix, record, repeats, transfer
from tests.unit.test_disturbed_results import spoilt

NAMES = [
    *(HOSTILE, "</script><script>alert(1)</script>", "\"' onmouseover=alert(1) x='"),
    *("]]><svg onload=alert(1)>", "two\nlines\r\u2028three", "\u202egnp.exe\u2066", "x" * 5000, ""),
]
VOID = {"meta", "input", "br", "wbr", "link", "img", "hr"}
_OURS = """
    html head meta title style body header main section nav div h1 h2 h3 h4 p ul li a label select option
    fieldset legend input details summary table caption thead tbody tr th td button span small figure
    figcaption svg br wbr g rect circle path text dl dt dd pre code script
"""
ELEMENTS = set(_OURS.split())
CELL, ROW, TERM = {"td", "th"}, {"td", "th", "tr"}, {"dt", "dd"}
ENDED_BY = {"td": CELL, "th": CELL, "tr": ROW, "tbody": {*ROW, "thead"}, "dt": TERM, "dd": TERM}


class Page(HTMLParser):
    """Checks that every tag is one of ours and is closed, and gathers text and attributes."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text: list[str] = []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert tag in ELEMENTS
        assert not any(name.startswith("on") for name, _ in attrs)
        # HTML lets these end without an end tag.
        while self.open and self.open[-1] in ENDED_BY.get(tag, ()):
            self.open.pop()
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert tag in ELEMENTS
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        while self.open[-1] in ENDED_BY and self.open[-1] != tag:
            self.open.pop()
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text.append(data)

    def count(self, tag: str) -> int:
        return sum(found == tag for found, _ in self.tags)

    @property
    def said(self) -> str:
        return "".join(self.text)


def results(records: list[Record], **changes: Any) -> LoadedResults:
    return LoadedResults(records=records, **changes)


def columns(shown: LoadedResults, metric: Metric = Metric.MB_S) -> tuple[Table, list[content.ColumnFacts]]:
    table = shown.table(metric)
    return table, content.columns(shown, table)


def svg(kind: ChartKind, shown: LoadedResults, **more: Any) -> str:
    """A picture that a parser takes."""
    text = picture(kind, shown, Metric.MB_S, Path("x.svg"), **more).decode()
    ET.fromstring(text)  # noqa: S314 -- our own
    return text


def png(kind: ChartKind, shown: LoadedResults, **more: Any) -> bytes:
    try:
        return picture(kind, shown, Metric.MB_S, Path("x.png"), **more)
    except RequirementError as missing:
        (pytest.fail if os.environ.get("CI") else pytest.skip)(str(missing))


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> LoadedResults:
    """A matrix with all that a report shows."""
    folder = tmp_path_factory.mktemp("results")
    found = [flat.changed(record, block_bytes=4096, session=SESSION) for record in matrix()]
    bins = {1000: 900, 2000: 95, 9000: 5}
    write(folder, found, made_plan(), ENVIRONMENT, bins=bins, log_kib_s=[900, 1000, 1100] * 7)
    return load([folder])


SAID = (
    *("What it costs, and why", "Matrix", "Throughput", "Latency distributions", "Throughput over time"),
    *("I/O roofline", "What limits each cell", "Linux version 6.1.176", "qdisc netem", "1000 Mbit/s"),
    *("fio: fio-3.33", "psync"),
)


def test_the_page_has_every_section_and_needs_nothing_else(whole: LoadedResults) -> None:
    text = render(whole)
    page = Page(text)
    assert [words for words in SAID if words not in page.said] == []
    assert not re.search(r"""(src|href|url)\s*[=(]\s*["']?(?!#)[\w/.]""", text)
    assert text.count("<script") == 1
    # answer, disks; losses; matrices; 8 each of bars, percentiles, over time, waterfalls; 2 rooflines; hosts
    assert page.count("table") == page.count("caption") == 2 + len(METRICS) + 2 + 4 * 8 + 2 + 1
    shown = [a for t, a in page.tags if t == "svg"]
    assert len(shown) == 2 + 4 * 8 + 2
    assert all(a.get("role") == "img" and a.get("aria-label") for a in shown)
    assert all(a.get("scope") for t, a in page.tags if t == "th")
    assert sum("aria-sort" in a for _, a in page.tags) == len(METRICS) * 6
    # Columns have their names in headings, and their titles in the answer.
    assert "<span>wired<wbr>+aes128gcm16</span>" in text and "<th scope=row>+ IPsec<td>" in text


def test_ids_are_unique_links_lead_somewhere_and_every_warning_is_listed_once_and_marked_in_its_cells() -> (
    None
):
    odd = repeats(1.0, 2.0, workload="odd", warnings=("beware",), link="wired")
    bad = record(status=Status.INVALID, reason="cleartext", workload="bad")
    page = Page(render(results([*matrix(), *odd, bad])))
    ids = [attributes["id"] for _, attributes in page.tags if "id" in attributes]
    assert len(set(ids)) == len(ids)
    assert {a["href"] for t, a in page.tags if t == "a"} <= {f"#{name}" for name in ids}
    assert "beware" in page.said and "cleartext" in page.said
    found = [record(1.0, link=f"l{n}", warnings=(f"doubt {n:02}", "all share it")) for n in range(15)]
    page = Page(render(results(found)))
    assert all(page.said.count(f"doubt {n:02} (") == len(METRICS) for n in range(15))  # one of each metric
    assert "and 7 more)" in page.said and "--format json" not in page.said
    marks = [a["href"] for tag, a in page.tags if tag == "a" and (a["href"] or "").startswith("#m0w")]
    assert (len(marks), len(set(marks))) == (2 * 15, 16)


@pytest.mark.parametrize("name", NAMES)
def test_hostile_names_stay_text(name: str) -> None:
    names: dict[str, Any] = {"workload": name, "link": name, "run_id": name, "reason": name}
    reported = {
        "link_title": name,
        "warnings": (name,),
        "session": {name: name},
        "agreed": {name: {name: name}},
    }
    found = repeats(1.0, 2.0, protection=() if name == "off" else (name,), **names, **reported)
    found.append(record(status=Status.FAILED, repeat=9, **names))
    plan = made_plan(name, profile=name, harness_version=name)
    environment = {name: {name: [name, {name: None}]}, "hosts": {name: {name: name}}}
    shown = results(found, plans={name: plan}, environments={name: environment})
    page = Page(render(shown))
    assert page.count("script") == 1 and "\u202e" not in page.said
    for kind in (ChartKind.MATRIX, ChartKind.BARS):
        svg(kind, shown)


def test_environments_of_any_shape_are_shown() -> None:
    deep: Any = "bottom"
    for _ in range(100):
        deep = {"level": deep}
    odd: tuple[Any, ...] = (7, {"a": 1}, deep, [[], {}, None, 1.5, True])
    for name, value in zip(("hosts", "hosts", "probe", "x"), odd, strict=True):
        page = Page(render(results([record()], environments={"r1": {name: value}})))
        assert value is not deep or "bottom" in page.said


def test_of_no_figures_the_page_says_why_and_of_few_many_and_extreme_ones_there_is_one() -> None:
    with pytest.raises(UsageError, match="no records"):
        render(results([]))
    invalid = record(status=Status.INVALID, reason="the clock went back", read=None, write=None)
    page = Page(render(results([invalid])))
    assert (
        page.count("svg") == 0
        and "the clock went back" in page.said
        and "Left out: no cell has a figure" in page.said
    )
    Page(render(results([record(5.0)])))
    wide = [r for n in range(64) for r in repeats(1.0 + n, 2.0 + n, link=f"link-{n:02}")]
    page = Page(render(results(wide)))
    assert sum("aria-sort" in a for _, a in page.tags) == len(METRICS) * 65
    rates = {"a": 1e-6, "b": 9e12, "c": 0.0, "d": 1.0}
    shown = results([record(mb_s, link=link) for link, mb_s in rates.items()])
    Page(render(shown))
    svg(ChartKind.BARS, shown)


def test_origins_are_distinguished_by_words_and_signs() -> None:
    found = [
        *(record(1.0, link="local", **of) for of in ({"run_id": "disk"}, {"testbed": "host"})),
        *(record(1.0, link="wifi", emulated=True), record(1.0, link="twin", clock="virtual")),
        record(1.0, link="simulated", clock="virtual", predicted_from="lab-custom 012345"),
    ]
    shown = results(found, plans={"r1": made_plan()})
    table, facts = columns(shown)
    (chart,) = bars(table, facts)
    facts = sorted(facts, key=lambda fact: list(Origin).index(fact.origin))
    assert [fact.origin for fact in facts] == list(Origin)
    said = Page(render(shown)).said
    assert all(f"{origin.sign} {origin}" in said for origin in Origin)
    classes = ["me", "me", "em", "vi", "vi"]
    assert all(f'f{fact.place} {of}"' in chart.body for fact, of in zip(facts, classes, strict=True))
    # A ramdisk is never said to be measured with nothing emulated.
    shown = results([record(1.0, link="local"), record(1.0)], plans={"r1": made_plan()})
    _, (local, _) = columns(shown)
    assert local.origin is Origin.MEMORY
    said = " ".join(Page(render(shown)).said.split())
    assert "◉ memory: in real time, on a ramdisk without a network: not a disk's speed" in said
    assert "nothing emulated" not in said


def test_bars_begin_at_zero_and_memory_is_cut() -> None:
    """Two bars are as long as their figures, however far they are apart; memory does not shrink them."""
    found = [record(5000.0, link="local"), record(100.0), record(2.0, link="wifi")]
    both = (columns(results(found, plans=plans)) for plans in ({"r1": made_plan()}, {}))
    with_plan, bare = (bars(*each)[0].body for each in both)
    width = r'<rect[^>]* width="([0-9]+)"'
    memory, wired, wifi = map(int, re.findall(width, with_plan))
    assert wired / wifi == pytest.approx(100 / 2, rel=0.1)
    assert memory / wired == pytest.approx(1.02, rel=0.01) and 'class="ha"' in with_plan
    assert "logarithmic" not in with_plan
    disk, other, _ = map(int, re.findall(width, bare))
    assert disk / other == pytest.approx(50, rel=0.1) and 'class="ha"' not in bare
    # Missing cells have no bar and say why.
    found = [record(1.0, link="a"), record(link="b", status=Status.FAILED, reason="gone", write=None)]
    (chart,) = bars(*columns(results(found)))
    assert chart.body.count("<rect") == 1 and "FAILED" in chart.body
    assert chart.lines[1][-1] == "failed: gone"
    # Of one sample there is a figure, and no range.
    assert chart.lines[0][2:6] == ("1.00", "", "", "1")


def test_signs_are_explained_where_they_stand() -> None:
    shown = results([msgspec.structs.replace(spoilt(record(1.0)), repeat=1), record(2.0, link="wifi")])
    matrix_of, _, rest = render(shown).partition('<section id="bars"')
    pictures = [svg(kind, shown) for kind in (ChartKind.BARS, ChartKind.MATRIX)]
    for text in (matrix_of.partition("<h3>Notes")[0], rest.partition("<figure")[0], *pictures):
        assert "!: disturbed, do not use" in text
    assert all(
        "disturbed" not in svg(kind, results([record(2.0)])) for kind in (ChartKind.BARS, ChartKind.MATRIX)
    )


def test_a_setting_that_all_columns_share_is_not_in_the_names_of_pictures() -> None:
    """It would be what is left of them where they are shortened."""
    plain = matrix()
    slow = [flat.changed(found, disk="hdd-7200") for found in plain]
    alone, both = ([fact.name for fact in columns(results(found))[1]] for found in (slow, plain + slow))
    assert alone == ["local", "wired", "wired+aes128gcm16", "wifi", "wifi+aes128gcm16"]
    assert len(set(both)) == 2 * len(alone)


def test_percentiles_are_of_merged_repeats_and_a_roofline_holds_cells_against_the_link(
    whole: LoadedResults, tmp_path: Path
) -> None:
    charts = percentiles(*columns(whole, Metric.P99), whole.folders)
    assert len(charts) == 8
    known = dict(zip(charts[0].headings, charts[0].lines[0], strict=True))
    assert (known["I/Os"], known["repeats merged"]) == ("3000", "3 of 3")
    assert [known[f"{of} %"] for of in ("50", "99", "99.95", "99.99")] == ["1 µs", "2 µs", "9 µs", ""]
    wide = [record(1.0 + n, link=f"link-{n:02}", workload="seq-read-4k") for n in range(20)]
    write(tmp_path, wide, bins={1000: 10})
    shown = load([tmp_path])
    charts = percentiles(*columns(shown, Metric.P99), shown.folders)
    assert [len(chart.lines) for chart in charts] == [8, 8, 4]
    assert charts[2].title.endswith(", 3 of 3")
    wired, wifi = roofline(*columns(whole), whole.explained)
    assert (wired.title, wifi.title) == ("Gigabit Ethernet (wired)", "802.11n (wifi)")
    assert len(wired.lines) == 2 * 8
    known = dict(zip(wired.headings, wired.lines[0], strict=True))
    assert (known["bound by round trip [MB/s]"], known["queue depth"]) == ("40.96", "1")
    assert float(known["goodput in its frames [MB/s]"]) == pytest.approx(113.7, rel=0.01)
    assert (
        "goodput 117.69 MB/s" in wired.body
        and "of the 29.9 MB/s that one request at a time allows" in wired.body
    )


def test_a_row_is_compared_with_its_best_and_names_are_shortened_in_the_middle() -> None:
    def cells(*values: float | None) -> list[TableCell | None]:
        return [None if v is None else TableCell(status=Status.OK, n=1, repeats=1, value=v) for v in values]

    assert goodness(cells(1000.0, 1.0, None, 0.0), Metric.MB_S) == [1.0, 0.0, None, 0.0]
    assert goodness(cells(10.0, 100.0), Metric.P99) == [1.0, pytest.approx(2 / 3)]
    for text, shown in (("abcdefghij", "abc…hij"), ("abc", "abc"), ("a\nb", "a\\nb")):
        assert draw.shortened(text, 7) == shown
    # Scales have a few round ticks on them.
    for low, high, log in ((0, 1, 0), (0, 0.003, 0), (0, 7e12, 0), (1, 2, 1), (1e-6, 1e12, 1)):
        scale = draw.Scale(low=low, high=high, start=10, end=410, log=bool(log))
        ticks = scale.ticks()
        assert 2 <= len(ticks) <= 7, (low, high)
        assert all(low * 0.99 <= tick <= high * 1.01 for tick in ticks), ticks
        assert scale.at(low) == 10 and scale.at(high) == pytest.approx(410)
        assert scale.at(high * 100) == scale.at(high)


@pytest.mark.parametrize("colours", [draw.LIGHT, draw.DARK])
def test_colours_stand_out_as_wcag_asks(colours: dict[str, str]) -> None:
    def luminance(name: str) -> float:
        parts = [int(colours[name][at : at + 2], 16) / 255 for at in (1, 3, 5)]
        red, green, blue = (p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts)
        return 0.2126 * red + 0.7152 * green + 0.0722 * blue

    of_text = [("text", "page", 4.5), ("muted", "page", 4.5), ("c0", "page", 4.5), ("text", "heat1", 4.5)]
    for one, other, least in (*of_text, *((f"c{n}", "page", 3) for n in range(draw.SERIES))):
        low, high = sorted(map(luminance, (one, other)))
        assert (high + 0.05) / (low + 0.05) >= least, (one, other)


# Those of faults are drawn where faults are tested (tests/unit/questions/fault).
@pytest.mark.parametrize("kind", [kind for kind in ChartKind if kind is not ChartKind.FAULTS])
def test_every_picture_is_drawn_as_a_file(kind: ChartKind, whole: LoadedResults, tmp_path: Path) -> None:
    shown = whole
    if kind is ChartKind.TRENDS:
        again = [msgspec.structs.replace(each, run_id="r2") for each in shown.records]
        shown = msgspec.structs.replace(shown, records=[*shown.records, *again])
    if kind is ChartKind.DIFFERENCES:
        again = [msgspec.structs.replace(each, run_id="r2", fio_ns=1) for each in shown.records]
        shown = msgspec.structs.replace(shown, records=[*shown.records, *again])
    if kind in OF_QUESTIONS:
        shown = load([surface(tmp_path)])
    made = svg(kind, shown)
    assert ET.fromstring(made).get("role") == "img"  # noqa: S314 -- our own
    assert "var(--" not in made
    # A picture of twice as many pixels each way takes four times as long, and shows nothing else.
    assert png(kind, shown, scale=2.0 if kind is ChartKind.MATRIX else 0.5).startswith(b"\x89PNG")


def test_runs_of_the_same_cells_are_drawn_one_after_the_other() -> None:
    found = [
        record(mb_s, run_id=run, repeat=repeat, workload=workload, link="wired")
        for run, speeds in (("20261121-100000-b", (10.0, 12.0)), ("20261122-100000-a", (20.0, 26.0)))
        for repeat, mb_s in enumerate(speeds, 1)
        for workload in ("w", "v")
        if (run, workload) != ("20261121-100000-b", "v")
    ]
    shown = results(found)
    (chart,) = trends(*columns(shown), shown.plans)
    assert (chart.row, chart.headings) == ("w", ("column", "20261121-100000-b", "20261122-100000-a"))
    assert chart.lines == (("wired", "11.00 [10.00, 12.00]", "23.00 [20.00, 26.00]"),)
    assert "11-21 10:00" in chart.body and "11-22 10:00" in chart.body
    page = render(shown)
    assert 'id="differences">' in page and 'href="#differences">' in page and "#trends" not in page
    (both,) = drawn(ChartKind.DIFFERENCES, shown)
    # A is the run that was named first; only cells of both are compared.
    (line,) = both.lines
    assert line[:4] == ("wired w", "11.00", "23.00", "+108.2") and float(line[4]) < 108.2 < float(line[5])
    assert page.index("B compared with A: ") < page.index('id="differences"') < page.index('id="answer"')
    third = [msgspec.structs.replace(each, run_id="20261123-100000-c", fio_ns=1) for each in found]
    page = render(results([*found, *third]))
    assert 'id="trends">' in page and "#differences" not in page
    alone = render(results([each for each in found if each.run_id.endswith("a")]))
    assert "#trends" not in alone and 'id="trends"' not in alone
    assert short("mine.json") == "mine.json" and len(short("a" * 40)) <= 11


def test_of_two_runs_each_has_its_own_columns_side_by_side() -> None:
    first = [flat.changed(each, block_bytes=4096) for each in matrix()]
    second = [
        msgspec.structs.replace(flat.changed(each, run_id="r2"), write=each.write and transfer(1e3))
        for each in first
    ]
    plans = {run: made_plan(run) for run in ("r1", "r2")}
    pooled = results([*first, *second], plans=plans)
    shown = pooled.side_by_side
    table, facts = columns(shown)
    names = [fact.name for fact in facts]
    assert names[:4] == ["A local", "B local", "A wired", "B wired"] and len(names) == 2 * 5
    assert all(cell is not None and cell.n == 3 for line in table.cells for cell in line)
    assert len({fact.place for fact in facts}) == len(facts)
    # So they do in each section, and B's colour is that of the difference.
    page = render(shown)
    for section in ("answer", "matrix", "bars", "roofline", "environment"):
        part = page[page.index(f'<section id="{section}"') :].partition("</section>")[0]
        assert "A wired" in part or ">A<" in part or ">A: " in part, section
    (chart,) = drawn(ChartKind.DIFFERENCES, shown)
    of_b = next(fact.place for fact in facts if fact.name == "B wired")
    assert f'<g class="{draw.series(of_b)}">' in chart.body
    assert [line[0] for line in chart.lines] == [
        line[0] for line in drawn(ChartKind.DIFFERENCES, pooled)[0].lines
    ]
    # A link of both has one picture.
    assert [chart.title for chart in roofline(table, facts, shown.explained)] == [
        "Gigabit Ethernet (wired)",
        "802.11n (wifi)",
    ]
    assert "Different testbeds" not in page and "A: run r1; profile" in page and "B: run r2; profile" in page
    # One run alone, and two that have nothing in common, are as ever.
    other = [
        flat.changed(each, link="wifi", link_title="x") for each in second if each.column.link == "wired"
    ]
    only = [each for each in first if each.column.link == "wired"]
    for found in (first, [*only, *other]):
        alone = results(found, plans=plans)
        assert alone.side_by_side is alone


def test_a_page_and_its_pictures_bear_the_words_of_who_shows_them(whole: LoadedResults) -> None:
    words = Words(title="My <NAS>", author="A. Person", notes=("After the new switch.", "1 & 2"))
    said = Page(render(whole, words)).said
    assert said.count("My <NAS>") == 2 and "A. Person" in said and "After the new switch." in said
    made = svg(ChartKind.BARS, whole, words=words, theme=Theme.DARK)
    assert made.count("My &lt;NAS&gt;") == 2 and made.count("1 &amp; 2") == 2 and draw.DARK["page"] in made
    assert "r1" in made[made.index("<desc>") : made.index("</desc>")]
    one, two = (png(ChartKind.BARS, whole, words=words, scale=scale) for scale in (0.5, 1))
    (wide,), (wider,) = (struct.unpack(">I", each[16:20]) for each in (one, two))
    assert wider == 2 * wide
    assert b"iTXtTitle\0\0\0\0\0My <NAS>" in one and b"A. Person" in one


def test_pictures_say_what_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    shown = results([record()])
    with pytest.raises(UsageError, match=r"\.svg or \.png"):
        picture(ChartKind.BARS, shown, Metric.MB_S, Path("x.gif"))
    with pytest.raises(UsageError, match="nothing for a picture of roofline") as refused:
        svg(ChartKind.ROOFLINE, shown)
    assert (refused.value.hint or "").startswith(
        "it needs a run's plan.json, a shaped link, and undisturbed figures"
    )
    with pytest.raises(UsageError, match="no kind of picture"):
        ChartKind("pie")
    monkeypatch.setitem(sys.modules, "resvg_py", None)
    with pytest.raises(RequirementError, match="resvg-py"):
        picture(ChartKind.BARS, shown, Metric.MB_S, Path("x.png"))


def test_the_commands_write_files_and_refuse_in_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "mine.json").write_bytes(fio_json("job", {1000: 5}))
    done = harness("report", "mine.json", "-o", "page.html", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (0, "")
    Page((tmp_path / "page.html").read_text(encoding="utf-8"))
    assert harness("plot", "percentiles", "mine.json", "-o", "p.svg", cwd=tmp_path).returncode == 0
    for words in ("report none", "plot pie mine.json", "plot bars mine.json -o x.gif"):
        assert_refused(harness(*words.split(), cwd=tmp_path), "  hint: ")


def test_a_page_of_a_run_that_goes_on_says_what_is_measured_and_what_is_left(whole: LoadedResults) -> None:
    half = [each for each in whole.records if each.repeat == 1]
    plans = {**whole.plans, "ended": made_plan("ended")}
    page = render(msgspec.structs.replace(whole, records=half, plans=plans), going="r1 goes on")
    progress = page[page.index('<section id="progress">') : page.index('<section id="answer">')]
    (plan,) = whole.plans.values()
    assert progress.count("<th scope=row>") == len(plan.columns)
    assert f"<td>{len(plan.jobs)}<td>{len(plan.jobs) * (plan.repeats - 1)}<td>" in progress
    assert "progress" not in render(whole)
