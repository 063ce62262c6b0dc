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
from harness.report.picture import SWEPT
from harness.table import Metric
from harness.table.options import TableCell
from tests import flat
from tests.unit.command import harness
from tests.unit.results_folder import ENVIRONMENT, fio_json, made_plan, write
from tests.unit.table.test_table import HOSTILE, matrix, record, repeats
from tests.unit.test_disturbed_results import spoilt

NAMES = [
    HOSTILE,
    "</script><script>alert(1)</script>",
    "\"' onmouseover=alert(1) x='",
    "]]><svg onload=alert(1)>",
    "two\nlines\r\u2028three",
    "\u202egnp.exe\u2066",
    "x" * 5000,
    "",
]
VOID = {"meta", "input", "br", "wbr", "link", "img", "hr"}
_OURS = """
    html head meta title style body header main section nav div h1 h2 h3 h4 p ul li a label select option
    fieldset legend input details summary table caption thead tbody tr th td button span small figure
    figcaption svg br wbr g rect circle path text dl dt dd pre code script
"""
ELEMENTS = set(_OURS.split())
CELL, ROW = {"td", "th"}, {"td", "th", "tr"}
ENDED_BY = {
    "td": CELL,
    "th": CELL,
    "tr": ROW,
    "tbody": {*ROW, "thead"},
    "dt": {"dt", "dd"},
    "dd": {"dt", "dd"},
}


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


def results(records: list[Record], **changes: Any) -> LoadedResults:
    return LoadedResults(records=records, **changes)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> LoadedResults:
    """A matrix with all that a report shows."""
    folder = tmp_path_factory.mktemp("results")
    found = [flat.changed(record, block_bytes=4096) for record in matrix()]
    write(
        folder,
        found,
        made_plan(),
        ENVIRONMENT,
        bins={1000: 900, 2000: 95, 9000: 5},
        log_kib_s=[900, 1000, 1100],
    )
    return load([folder])


def test_the_page_has_every_section_and_needs_nothing_else(whole: LoadedResults) -> None:
    text = render(whole)
    page = Page(text)
    said = "".join(page.text)
    for heading in (
        "What it costs, and why",
        "Matrix",
        "Throughput",
        "Latency distributions",
        "Throughput over time",
        "I/O roofline",
        "What limits each cell",
    ):
        assert heading in said
    for fact in ("Linux version 6.1.176", "qdisc netem", "1000 Mbit/s", "fio: fio-3.33", "psync"):
        assert fact in said
    assert not re.search(r"""(src|href|url)\s*[=(]\s*["']?(?!#)[\w/.]""", text)
    assert text.count("<script") == 1
    # 4 answers; matrices; 8 each of bars, percentiles, over time, waterfalls; 2 rooflines; the hosts' table
    assert page.count("table") == len(METRICS) + 4 * 8 + 2 + 1
    assert page.count("caption") == page.count("table")
    shown = [a for t, a in page.tags if t == "svg"]
    assert len(shown) == 4 + 4 * 8 + 2
    assert all(a.get("role") == "img" and a.get("aria-label") for a in shown)
    assert all(a.get("scope") for t, a in page.tags if t == "th")
    assert sum("aria-sort" in a for _, a in page.tags) == len(METRICS) * 6


def test_ids_are_unique_and_every_link_leads_somewhere() -> None:
    found = [*matrix(), *repeats(1.0, 2.0, workload="odd", warnings=("beware",), link="wired")]
    found.append(record(status=Status.INVALID, reason="cleartext", workload="bad"))
    page = Page(render(results(found)))
    ids = [attributes["id"] for _, attributes in page.tags if "id" in attributes]
    assert len(set(ids)) == len(ids)
    assert {a["href"] for t, a in page.tags if t == "a"} <= {f"#{name}" for name in ids}
    said = "".join(page.text)
    assert "beware" in said
    assert "cleartext" in said


@pytest.mark.parametrize("name", NAMES)
def test_hostile_names_stay_text(name: str, tmp_path: Path) -> None:
    found = repeats(
        1.0,
        2.0,
        workload=name,
        link=name,
        link_title=name,
        protection=() if name == "off" else (name,),
        run_id=name,
        reason=name,
        warnings=(name,),
        session={name: name},
        agreed={name: {name: name}},
    )
    found.append(record(workload=name, link=name, status=Status.FAILED, reason=name, repeat=9, run_id=name))
    plan = made_plan(name, profile=name, harness_version=name)
    environment = {name: {name: [name, {name: None}]}, "hosts": {name: {name: name}}}
    shown = results(found, plans={name: plan}, environments={name: environment})
    page = Page(render(shown))
    assert page.count("script") == 1
    assert "\u202e" not in "".join(page.text)
    for kind in (ChartKind.MATRIX, ChartKind.BARS):
        ET.fromstring(picture(kind, shown, Metric.MB_S, tmp_path / "x.svg"))  # noqa: S314 -- our own


def test_environments_of_any_shape_are_shown() -> None:
    deep: Any = "bottom"
    for _ in range(100):
        deep = {"level": deep}
    odd: list[dict[str, Any]] = [
        {"hosts": 7},
        {"hosts": {"a": 1}},
        {"probe": deep},
        {"x": [[], {}, None, 1.5, True]},
    ]
    for environment in odd:
        text = render(results([record()], environments={"r1": environment}))
        Page(text)
    assert "bottom" in render(results([record()], environments={"r1": {"probe": deep}}))


def test_every_warning_is_listed_once_and_marked_in_its_cells() -> None:
    found = [record(1.0, link=f"l{n}", warnings=(f"doubt {n:02}", "all share it")) for n in range(15)]
    page = Page(render(results(found)))
    said = "".join(page.text)
    assert all(said.count(f"doubt {n:02} (") == len(METRICS) for n in range(15))  # one of each metric
    assert "and 7 more)" in said
    assert "--format json" not in said
    marks = [a["href"] for tag, a in page.tags if tag == "a" and (a["href"] or "").startswith("#m0w")]
    assert len(marks) == 2 * 15
    assert len(set(marks)) == 16


def test_without_records_there_is_no_page() -> None:
    with pytest.raises(UsageError, match="no records"):
        render(results([]))


def test_of_invalid_cells_alone_the_page_says_why() -> None:
    shown = results([record(status=Status.INVALID, reason="the clock went back", read=None, write=None)])
    page = Page(render(shown))
    assert page.count("svg") == 0
    said = "".join(page.text)
    assert "the clock went back" in said
    assert "Left out: no cell has a figure" in said


def test_one_cell_and_sixty_four_columns() -> None:
    Page(render(results([record(5.0)])))
    wide = [r for n in range(64) for r in repeats(1.0 + n, 2.0 + n, link=f"link-{n:02}")]
    page = Page(render(results(wide)))
    assert sum("aria-sort" in a for _, a in page.tags) == len(METRICS) * 65


def test_zero_and_extreme_values_are_drawn(tmp_path: Path) -> None:
    found = [record(0.000001, link="a"), record(9e12, link="b"), record(0.0, link="c")]
    shown = results([*found, record(1.0, link="d")])
    Page(render(shown))
    ET.fromstring(picture(ChartKind.BARS, shown, Metric.MB_S, tmp_path / "x.svg"))  # noqa: S314 -- our own


def test_origins_are_distinguished_by_words_and_signs() -> None:
    found = [
        record(1.0, link="local", run_id="disk"),
        record(1.0, link="local", testbed="host"),
        record(1.0, link="wifi", emulated=True),
        record(1.0, link="twin", clock="virtual"),
        record(1.0, link="priced", clock="virtual", predicted_from="lab-own 012345"),
    ]
    shown = results(found, plans={"r1": made_plan()})
    facts = sorted(
        content.columns(shown, shown.table(Metric.MB_S)), key=lambda fact: list(Origin).index(fact.origin)
    )
    assert [fact.origin for fact in facts] == list(Origin)
    said = "".join(Page(render(shown)).text)
    assert all(f"{origin.sign} {origin}" in said for origin in Origin)
    (chart,) = bars(shown.table(Metric.MB_S), content.columns(shown, shown.table(Metric.MB_S)))
    classes = ["me", "me", "em", "vi", "vi"]
    assert all(f'f{fact.place} {of}"' in chart.body for fact, of in zip(facts, classes, strict=True))


def test_a_ramdisk_is_never_called_measured_with_nothing_emulated() -> None:
    shown = results([record(1.0, link="local"), record(1.0)], plans={"r1": made_plan()})
    (local, _) = content.columns(shown, shown.table(Metric.MB_S))
    assert local.origin is Origin.MEMORY
    said = " ".join("".join(Page(render(shown)).text).split())
    assert "◉ memory: in real time, without a network, on a ramdisk: no figure of a disk" in said
    assert "nothing emulated" not in said


def test_bars_begin_at_zero_and_memory_is_cut() -> None:
    """Two bars are as long as their figures, however far they are apart; memory does not shrink them."""
    found = [record(5000.0, link="local"), record(100.0), record(2.0, link="wifi")]
    shown = results(found, plans={"r1": made_plan()})
    table = shown.table(Metric.MB_S)
    (chart,) = bars(table, content.columns(shown, table))
    memory, wired, wifi = (int(wide) for wide in re.findall(r'<rect[^>]* width="([0-9]+)"', chart.body))
    assert wired / wifi == pytest.approx(100 / 2, rel=0.1)
    assert memory / wired == pytest.approx(1.02, rel=0.01) and 'class="ha"' in chart.body
    assert "logarithmic" not in chart.body
    bare = results(found)
    table = bare.table(Metric.MB_S)
    (chart,) = bars(table, content.columns(bare, table))
    disk, other, _ = (int(wide) for wide in re.findall(r'<rect[^>]* width="([0-9]+)"', chart.body))
    assert disk / other == pytest.approx(50, rel=0.1) and 'class="ha"' not in chart.body


def test_signs_are_explained_where_they_stand(tmp_path: Path) -> None:
    """Below the matrix and above the bars, in pictures below them; and only those that occur."""
    found = [msgspec.structs.replace(spoilt(record(1.0)), repeat=1), record(2.0, link="wifi")]
    shown = results(found)
    text = render(shown)
    matrix_of, _, rest = text.partition('<section id="bars"')
    assert "!: disturbed, do not use" in matrix_of.partition("<h3>Notes")[0]
    assert "!: disturbed, do not use" in rest.partition("<figure")[0]
    for kind in (ChartKind.BARS, ChartKind.MATRIX):
        drawn = picture(kind, shown, Metric.MB_S, tmp_path / "x.svg").decode()
        assert "!: disturbed, do not use" in drawn
        calm = picture(kind, results([record(2.0)]), Metric.MB_S, tmp_path / "x.svg").decode()
        assert "disturbed" not in calm


def test_columns_have_their_names_in_headings_and_answers(whole: LoadedResults) -> None:
    text = render(whole)
    assert "<span>wired<wbr>+aes128gcm16</span>" in text
    assert "<h3>wired+aes128gcm16</h3>" in text


def test_a_setting_that_all_columns_share_is_not_in_the_names_of_pictures() -> None:
    """It would be what is left of them where they are shortened."""
    plain = matrix()
    slow = [flat.changed(found, disk="hdd-7200") for found in plain]
    alone = results(slow)
    names = [fact.name for fact in content.columns(alone, alone.table(Metric.MB_S))]
    assert names == ["local", "wired", "wired+aes128gcm16", "wifi", "wifi+aes128gcm16"]
    both = results(plain + slow)
    assert len({fact.name for fact in content.columns(both, both.table(Metric.MB_S))}) == 2 * len(names)


def test_missing_cells_have_no_bar_and_say_why() -> None:
    found = [record(1.0, link="a"), record(link="b", status=Status.FAILED, reason="gone", write=None)]
    shown = results(found)
    table = shown.table(Metric.MB_S)
    (chart,) = bars(table, content.columns(shown, table))
    assert chart.body.count("<rect") == 1
    assert "FAILED" in chart.body
    assert chart.lines[1][-1] == "failed: gone"


def test_percentiles_are_of_merged_repeats_and_no_further_than_they_reach(whole: LoadedResults) -> None:
    table = whole.table(Metric.P99)
    facts = content.columns(whole, table)
    charts = percentiles(table, facts, whole.folders)
    assert len(charts) == 8
    known = dict(zip(charts[0].headings, charts[0].lines[0], strict=True))
    assert (known["I/Os"], known["repeats merged"]) == ("3000", "3 of 3")
    assert (known["50 %"], known["99 %"], known["99.95 %"]) == ("1 µs", "2 µs", "9 µs")
    assert known["99.99 %"] == ""


def test_more_curves_than_colours_make_more_pictures(tmp_path: Path) -> None:
    wide = [record(1.0 + n, link=f"link-{n:02}", workload="seq-read-4k") for n in range(20)]
    write(tmp_path, wide, bins={1000: 10})
    shown = load([tmp_path])
    table = shown.table(Metric.P99)
    charts = percentiles(table, content.columns(shown, table), shown.folders)
    assert [len(chart.lines) for chart in charts] == [8, 8, 4]
    assert charts[2].title.endswith(", 3 of 3")


def test_a_roofline_holds_cells_against_the_link(whole: LoadedResults) -> None:
    table = whole.table(Metric.MB_S)
    wired, wifi = roofline(table, content.columns(whole, table), whole.explained)
    assert (wired.title, wifi.title) == ("Gigabit Ethernet (wired)", "802.11n (wifi)")
    assert len(wired.lines) == 2 * 8
    known = dict(zip(wired.headings, wired.lines[0], strict=True))
    assert (known["bound by round trip [MB/s]"], known["queue depth"]) == ("40.96", "1")
    assert float(known["goodput in its frames [MB/s]"]) == pytest.approx(116.3, rel=0.01)
    assert "goodput 117.69 MB/s" in wired.body
    assert "of the 30.3 MB/s that one request at a time allows" in wired.body


def test_a_row_is_compared_with_its_best() -> None:
    def cells(*values: float | None) -> list[TableCell | None]:
        return [None if v is None else TableCell(status=Status.OK, n=1, repeats=1, value=v) for v in values]

    assert goodness(cells(1000.0, 1.0, None, 0.0), Metric.MB_S) == [1.0, 0.0, None, 0.0]
    assert goodness(cells(10.0, 100.0), Metric.P99) == [1.0, pytest.approx(2 / 3)]


@pytest.mark.parametrize(
    ("low", "high", "log"),
    [(0, 1, False), (0, 0.003, False), (0, 7e12, False), (1, 2, True), (1e-6, 1e12, True)],
)
def test_scales_have_a_few_round_ticks_on_them(low: float, high: float, log: bool) -> None:
    scale = draw.Scale(low=low, high=high, start=10, end=410, log=log)
    ticks = scale.ticks()
    assert 2 <= len(ticks) <= 7
    assert all(low * 0.99 <= tick <= high * 1.01 for tick in ticks)
    assert scale.at(low) == 10
    assert scale.at(high) == pytest.approx(410)
    assert scale.at(high * 100) == scale.at(high)


@pytest.mark.parametrize("colours", [draw.LIGHT, draw.DARK])
def test_colours_stand_out_as_wcag_asks(colours: dict[str, str]) -> None:
    def luminance(colour: str) -> float:
        parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
        red, green, blue = (p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts)
        return 0.2126 * red + 0.7152 * green + 0.0722 * blue

    def contrast(one: str, other: str) -> float:
        low, high = sorted((luminance(colours[one]), luminance(colours[other])))
        return (high + 0.05) / (low + 0.05)

    for words in ("text", "muted", "c0"):
        assert contrast(words, "page") >= 4.5
    assert contrast("text", "heat1") >= 4.5
    assert all(contrast(f"c{n}", "page") >= 3 for n in range(draw.SERIES))


def test_names_are_shortened_in_the_middle() -> None:
    assert draw.shortened("abcdefghij", 7) == "abc…hij"
    assert draw.shortened("abc", 7) == "abc"
    assert draw.shortened("a\nb", 7) == "a\\nb"


@pytest.mark.parametrize("kind", ChartKind)
def test_every_picture_is_drawn_as_a_file(kind: ChartKind, whole: LoadedResults, tmp_path: Path) -> None:
    shown = whole
    if kind is ChartKind.TRENDS:
        again = [msgspec.structs.replace(each, run_id="r2") for each in shown.records]
        shown = msgspec.structs.replace(shown, records=[*shown.records, *again])
    if kind in SWEPT:
        from tests.unit.report.test_sweeps import surfaces

        shown = surfaces()
    svg = picture(kind, shown, Metric.MB_S, tmp_path / "x.svg")
    root = ET.fromstring(svg)  # noqa: S314 -- our own
    assert root.get("role") == "img"
    assert "var(--" not in svg.decode()
    try:
        # A picture of twice as many pixels each way takes four times as long, and shows nothing else.
        png = picture(
            kind, shown, Metric.MB_S, tmp_path / "x.png", scale=2.0 if kind is ChartKind.MATRIX else 0.5
        )
    except RequirementError as missing:
        (pytest.fail if os.environ.get("CI") else pytest.skip)(str(missing))
    assert png.startswith(b"\x89PNG")


def test_runs_of_the_same_cells_are_drawn_one_after_the_other() -> None:
    found = [
        record(mb_s, run_id=run, repeat=repeat, workload=workload, link="wired")
        for run, speeds in (("20261121-100000-b", (10.0, 12.0)), ("20261122-100000-a", (20.0, 26.0)))
        for repeat, mb_s in enumerate(speeds, 1)
        for workload in ("w", "v")
        if (run, workload) != ("20261121-100000-b", "v")
    ]
    shown = results(found)
    table = shown.table(Metric.MB_S)
    (chart,) = trends(table, content.columns(shown, table), shown.plans)
    assert (chart.row, chart.headings) == ("w", ("column", "20261121-100000-b", "20261122-100000-a"))
    assert chart.lines == (("wired", "11.00 [10.00, 12.00]", "23.00 [20.00, 26.00]"),)
    assert "11-21 10:00" in chart.body and "11-22 10:00" in chart.body
    assert 'id="trends">' in render(shown) and 'href="#trends">' in render(shown)
    alone = results([each for each in found if each.run_id.endswith("a")])
    assert "#trends" not in render(alone) and 'id="trends"' not in render(alone)
    assert short("mine.json") == "mine.json" and len(short("a" * 40)) <= 11


WORDS = Words(title="My <NAS>", author="A. Person", notes=("After the new switch.", "1 & 2"))


def test_a_page_and_its_pictures_bear_the_words_of_who_shows_them(
    whole: LoadedResults, tmp_path: Path
) -> None:
    shown = whole
    page = Page(render(shown, WORDS))
    said = "".join(page.text)
    assert said.count("My <NAS>") == 2 and "A. Person" in said and "After the new switch." in said
    svg = picture(
        ChartKind.BARS, shown, Metric.MB_S, tmp_path / "x.svg", words=WORDS, theme=Theme.DARK
    ).decode()
    assert svg.count("My &lt;NAS&gt;") == 2 and svg.count("1 &amp; 2") == 2 and draw.DARK["page"] in svg
    root = ET.fromstring(svg)  # noqa: S314 -- our own
    assert "r1" in root.findtext("{http://www.w3.org/2000/svg}desc", "")
    try:
        one, two = (
            picture(ChartKind.BARS, shown, Metric.MB_S, tmp_path / "x.png", words=WORDS, scale=scale)
            for scale in (0.5, 1)
        )
    except RequirementError as missing:
        (pytest.fail if os.environ.get("CI") else pytest.skip)(str(missing))
    (wide,), (wider,) = (struct.unpack(">I", png[16:20]) for png in (one, two))
    assert wider == 2 * wide
    assert b"iTXtTitle\0\0\0\0\0My <NAS>" in one and b"A. Person" in one


def test_pictures_say_what_is_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shown = results([record()])
    with pytest.raises(UsageError, match=r"\.svg or \.png"):
        picture(ChartKind.BARS, shown, Metric.MB_S, tmp_path / "x.gif")
    with pytest.raises(UsageError, match="nothing for a picture of roofline") as refused:
        picture(ChartKind.ROOFLINE, shown, Metric.MB_S, tmp_path / "x.svg")
    assert (refused.value.hint or "").startswith("it needs a run's plan.json, a shaped link, and figures")
    with pytest.raises(UsageError, match="no kind of picture"):
        ChartKind("pie")
    monkeypatch.setitem(sys.modules, "resvg_py", None)
    with pytest.raises(RequirementError, match="resvg-py"):
        picture(ChartKind.BARS, shown, Metric.MB_S, tmp_path / "x.png")


def test_the_commands_write_files_and_refuse_in_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "mine.json").write_bytes(fio_json("job", {1000: 5}))
    done = harness("report", "mine.json", "-o", "page.html", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (0, "")
    Page((tmp_path / "page.html").read_text(encoding="utf-8"))
    done = harness("plot", "percentiles", "mine.json", "-o", "p.svg", cwd=tmp_path)
    assert done.returncode == 0
    for words in (
        ("report", "none"),
        ("plot", "pie", "mine.json"),
        ("plot", "bars", "mine.json", "-o", "x.gif"),
    ):
        done = harness(*words, cwd=tmp_path)
        assert done.returncode == 2
        assert "hint:" in done.stderr
        assert "Traceback" not in done.stderr
