"""The report: one page that needs no network, no server and, except for sorting and filtering, no script.

Pictures are SVG in the page, so they print sharply, follow its colours and can be read aloud. A policy in the
page forbids it to load anything and to run any script but its own.
"""

from __future__ import annotations

import base64
import hashlib
import itertools
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from importlib.resources import files
from typing import Any, TypeVar

import msgspec

from harness.explain import volumes
from harness.explain.curves import sentences
from harness.model import LinkProfile, Plan, transport_title
from harness.model.escape import as_json, for_page
from harness.model.lines import capital, counted, listed
from harness.model.protections import protocol
from harness.model.units import format_size
from harness.report import charts, content, draw, paths, summary
from harness.report.charts import Chart, ChartKind
from harness.report.content import ColumnFacts, LoadedResults, Origin, Words, planned_s
from harness.report.losses import WHISKERS, headline
from harness.report.picture import NEEDS, OF_QUESTIONS, drawn
from harness.results.machine import MACHINE
from harness.results.sections import AdaptiveSection
from harness.table import Metric
from harness.table.comparison import Comparison
from harness.table.curves import doubts
from harness.table.notes import sign_of
from harness.table.options import Table, TableCell
from harness.table.text import marked_value, percent
from harness.table.views.counters import lost_hops

T = TypeVar("T")

METRICS = tuple(metric for metric in Metric if metric.figure.in_report)


def _file(name: str) -> str:
    return files(__package__).joinpath(name).read_text(encoding="utf-8")


class _Drawn(msgspec.Struct, frozen=True):
    """A section with pictures: its anchor, its name among the links to sections, its title, and HTML above
    the pictures."""

    kind: ChartKind
    anchor: str
    place: str
    title: str
    preface: str


_DRAWN = (
    _Drawn(ChartKind.CURVES, "curves", "Curves", "Curves", f"<p>{OF_QUESTIONS[ChartKind.CURVES]}</p>"),
    _Drawn(
        ChartKind.RESPONSE,
        "response",
        "Response",
        "Response curves",
        f"<p>{OF_QUESTIONS[ChartKind.RESPONSE]}</p>",
    ),
    _Drawn(ChartKind.FAULTS, "faults", "Faults", "Faults", f"<p>{OF_QUESTIONS[ChartKind.FAULTS]}</p>"),
    _Drawn(
        ChartKind.HEAT_MAP, "heat", "Heat maps", "Heat maps", f"<p>{OF_QUESTIONS[ChartKind.HEAT_MAP]}</p>"
    ),
    _Drawn(
        ChartKind.DIFFERENCES,
        "differences",
        "Difference",
        "Two runs compared",
        "<p>A is the first run, B the second. Marks: difference between B's median and A's; "
        "lines: the 95 % interval, as in <code>harness compare</code>.</p>",
    ),
    _Drawn(
        ChartKind.TRENDS,
        "trends",
        "Runs",
        "From run to run",
        "<p>The median of each run's undisturbed repeats; vertical lines: its 95 % interval, or lowest to "
        "highest with fewer than six repeats. <code>harness compare</code> shows which differences between "
        "two runs are more than chance, and how their setups differ.</p>",
    ),
    _Drawn(
        ChartKind.BARS,
        "bars",
        "Throughput",
        "Throughput",
        "<p>Bars and marks are filled where measured, light with an outline where emulated, empty "
        "with a dashed outline where virtual. Whiskers: the 95 % interval of the median; with fewer "
        "than six samples the lowest and the highest. Bars start at zero; a bar cut near its end (memory "
        "without a network) extends beyond the axis.</p>",
    ),
    _Drawn(
        ChartKind.PERCENTILES,
        "latency",
        "Latency",
        "Latency distributions",
        "<p>Percentiles over all I/Os of all repeats, from merged histograms (never averaged), as far as "
        "there are I/Os beyond them. Low and flat is good.</p>",
    ),
    _Drawn(
        ChartKind.OVER_TIME,
        "time",
        "Over time",
        "Throughput over time",
        "<p>Reads plus writes per interval of fio's log: median of the repeats, shaded from lowest to "
        "highest. Steady state (SNIA PTS): over five equal parts of the measurement, bandwidth varies by at "
        "most 20 % of its mean and its linear fit by at most 10 %. Less than five seconds is too short to "
        "tell.</p>",
    ),
    _Drawn(ChartKind.ROOFLINE, "roofline", "Roofline", "I/O roofline", _file("roofline.html")),
    _Drawn(
        ChartKind.WATERFALL,
        "waterfall",
        "Limits",
        "What limits each cell",
        "<p>Where the time of one I/O goes, and what limits each cell, as in <code>harness "
        "explain</code>. Outlined parts are waiting or unexplained time. Right of a vertical line the "
        "estimate exceeds the measurement. At queue depths above 1, the time is how long one I/O is in "
        "flight. Parts are measured or modelled: the table below each picture gives each verdict's "
        "confidence and reason. All bars have one length: each is 100 % of its column's time, printed above "
        "its end.</p>",
    ),
)
_THEMES = (
    '<label class="bar">Colours <select id="theme"><option value="auto">as the system</option>'
    '<option value="light">light</option><option value="dark">dark</option></select></label>'
)
_SHOWN = 12  # so many sentences of curves are in sight; the others are behind a click
_HEADLINE = 3  # so many of them stand above everything
_MANY = 24  # with more pictures in a section, a browser lays out only those in sight
_AGAIN_S = 5  # after which a page of a run that goes on loads itself again
_DEEPEST = 6  # levels of an environment that are laid out; deeper ones are shown as JSON


def render(results: LoadedResults, words: Words | None = None, *, going: str = "") -> str:
    """The whole page as HTML; UsageError if there are no records.

    ``going`` says how far a run is that goes on: the page then says so, and loads itself again.
    """
    words = words or Words()
    words = msgspec.structs.replace(words, notes=(*results.lacks, *words.notes))
    facts = content.columns(results, results.table(Metric.MB_S))
    sections = [("progress", "Progress", _progress(results, going))] if going else []
    rest = results.rest
    if rest.compared is not None:
        sections += [_compared(rest, rest.compared)]
    sections += [("answer", "Answer", _answer(results, facts))]
    sections += [
        (part.anchor, part.place, _section(part, found, _listed(doubts(results.curves))))
        for part in _DRAWN
        if part.kind in OF_QUESTIONS and (found := drawn(part.kind, results))
    ]
    if rest.records:
        sections += _of_cells(rest)
    sections += [
        ("paths", "Paths", _paths(results)),
        ("environment", "Environment", _environment(results, facts)),
    ]
    source = f"{results.source}; {counted(len(results.records), 'record')}"
    places = [(anchor, place) for anchor, place, html in sections if "<p>Left out: " not in html]
    stated = _reported(results)[:_HEADLINE] or (headline(rest.answers) if rest.records else [])
    if rest.compared is not None:
        stated = [f"B compared with A: {rest.compared.tally}."]
    above = header(words, source, places, _THEMES, going, stated)
    shown = "".join(html for _, _, html in sections)
    return whole(
        words,
        f'{above}<main>{shown}</main><div id="tip" role="tooltip" hidden></div>',
        _file("page.js"),
        going=going,
    )


def _of_cells(results: LoadedResults) -> list[tuple[str, str, str]]:
    """The sections with each cell: of the points of curves there are none."""
    tables = {metric: results.table(metric) for metric in METRICS}
    table = tables[Metric.MB_S]
    sections = [("matrix", "Matrix", _matrix(tables, content.columns(results, table)))]
    for part in _DRAWN:
        of_runs = part.kind in (ChartKind.TRENDS, ChartKind.DIFFERENCES)
        if part.kind in OF_QUESTIONS or (of_runs and results.compared is not None):
            continue
        if (found := drawn(part.kind, results)) or not of_runs:
            more = _listed(charts.signs(table)) if part.kind is ChartKind.BARS else ""
            sections.append((part.anchor, part.place, _section(part, found, more)))
    return sections


def _compared(results: LoadedResults, found: Comparison) -> tuple[str, str, str]:
    """The section on two runs."""
    part = next(part for part in _DRAWN if part.kind is ChartKind.DIFFERENCES)
    runs = f"A: {listed(found.a)}. B: {listed(found.b)}."
    more = "".join(f"<p>{for_page(line)}</p>" for line in (runs, *found.missing))
    more += f"<details><summary>Notes</summary>{_listed(found.notes)}</details>"
    if pictures := drawn(part.kind, results):
        return part.anchor, part.place, _section(part, pictures, more)
    return part.anchor, part.place, f'<section id="{part.anchor}"><h2>{part.title}</h2>{more}</section>'


def whole(words: Words, body: str, script: str = "", style: str = "", *, going: str = "") -> str:
    """A page with the report's looks, which needs nothing else; ``style`` are further rules."""
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    names = {name: f"var(--{name})" for name in draw.LIGHT}
    return (
        '<!DOCTYPE html><html lang="en" data-theme="auto"><head><meta charset="utf-8">'
        '<meta http-equiv="Content-Security-Policy" content="default-src \'none\'; '
        f"style-src 'unsafe-inline'; script-src 'sha256-{digest}'\">"
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        '<meta name="color-scheme" content="light dark">'
        + (f'<meta http-equiv="refresh" content="{_AGAIN_S}">' if going else "")
        + f'<meta name="author" content="{for_page(words.author)}">'
        f"<title>{for_page(words.title)}</title>"
        f"<style>{_theme()}{draw.style(names)}{_file('page.css')}{style}</style></head>"
        f"<body>{body}{script and f'<script>{script}</script>'}</body></html>\n"
    )


def _theme() -> str:
    def variables(colours: Mapping[str, str]) -> str:
        return "".join(f"--{name}:{colour};" for name, colour in colours.items())

    dark = f"color-scheme:dark;{variables(draw.DARK)}"
    return (
        f":root{{color-scheme:light;{variables(draw.LIGHT)}}}"
        f"@media screen and (prefers-color-scheme:dark){{:root:not([data-theme=light]){{{dark}}}}}"
        f"@media screen{{:root[data-theme=dark]{{{dark}}}}}"
    )


def header(
    words: Words,
    source: str,
    places: Sequence[tuple[str, str]],
    more: str = "",
    going: str = "",
    stated: Sequence[str] = (),
) -> str:
    """Title, what is ``told`` first, author, where the figures come from, notes, how far a run is, and links
    to the sections: anchor and name."""
    links = "".join(f'<li><a href="#{anchor}">{name}</a></li>' for anchor, name in places)
    notes = "".join(f"<p>{for_page(note)}</p>" for note in words.notes)
    notes += f'<p role="status"><strong>{for_page(going)}.</strong></p>' if going else ""
    by = f"{for_page(words.author)}; " if words.author else ""
    first = "".join(
        f"<p{'' if n else ' class=headline'}>{for_page(line)}</p>" for n, line in enumerate(stated)
    )
    return (
        f"<header><div><h1{' class=above' if stated else ''}>{for_page(words.title)}</h1>{first}"
        f'<div class="muted">{by}{for_page(source)}</div>{notes}</div>{more}</header>'
        f'<nav aria-label="Sections"><ul>{links}</ul></nav>'
    )


def _section(part: _Drawn, found: Sequence[Chart], more: str) -> str:
    """``more`` is HTML behind the preface."""
    figures = "".join(figure(chart, part.title) for chart in found)
    many = " many" if len(found) > _MANY else ""
    shown = f'{part.preface}{more}<div class="charts{many}">{figures}</div>'
    shown = shown if found else f"<p>Left out: {NEEDS[part.kind]}.</p>"
    return f'<section id="{part.anchor}"><h2>{part.title}</h2>{shown}</section>'


def figure(chart: Chart, section: str) -> str:
    name = for_page(f"{chart.title}: {chart.description}")
    row = f' data-row="{for_page(chart.row)}"' if chart.row else ""
    data = _data(f"{section}: {chart.title}", chart.headings, chart.lines)
    # What is wider than a telephone is scrolled there.
    is_wide = chart.width > charts.WIDTH
    size = f' style="min-width:{chart.width:g}px;max-width:none"' if is_wide else ""
    drawn = (
        f'<svg role="img" aria-label="{name}"{size} '
        f'viewBox="0 0 {draw.FINE * chart.width:g} {draw.FINE * chart.height:g}">{chart.body}</svg>'
    )
    if is_wide:
        drawn = f'<div class="data" tabindex="0" role="region" aria-label="{name}">{drawn}</div>'
    return (
        f"<figure{row}><figcaption>{for_page(chart.title)}</figcaption>{drawn}{_says(chart)}"
        f"<details><summary>Figures</summary>{data}</details></figure>"
    )


def _says(chart: Chart) -> str:
    reported = "".join(f"<dt>{for_page(name)}<dd>{for_page(words)}" for name, words in chart.says)
    return reported and f'<dl class="says">{reported}</dl>'


def _data(caption: str, headings: Sequence[str], lines: Iterable[Sequence[str]], classes: str = "") -> str:
    head = "".join(f"<th scope=col>{for_page(heading)}" for heading in headings)
    body = "".join(
        f"<tr><th scope=row>{for_page(line[0])}" + "".join(f"<td>{for_page(value)}" for value in line[1:])
        for line in lines
    )
    return (
        f'<div class="data{classes}" tabindex="0" role="region" aria-label="{for_page(caption)}"><table>'
        f'<caption class="hush">{for_page(caption)}</caption>'
        f"<thead><tr>{head}<tbody>{body}</table></div>"
    )


def _legend(facts: Iterable[ColumnFacts]) -> str:
    origins = dict.fromkeys(fact.origin for fact in facts)
    kinds = "; ".join(f"{origin.sign} {origin}: {origin.meaning}" for origin in Origin if origin in origins)
    return f"<p>{for_page(kinds)}.</p>"


def _answer(results: LoadedResults, facts: Sequence[ColumnFacts]) -> str:
    """What each column costs and why, and where the figures come from."""
    rest = results.rest
    found = rest.answers if rest.records else []
    reported = _first(_reported(results))
    if shown := drawn(ChartKind.LOSS, rest) if found else []:
        pictures = "".join(figure(chart, "What is lost") for chart in shown)
        reported += f'<p>{WHISKERS}</p><div class="charts">{pictures}</div>'
    answers = summary.said(found, rest)
    disks = volumes.tables(rest.volumes) if len(answers) == 1 else []
    for answer in answers:
        reported += f"<p>{for_page(answer.circumstances)} {for_page(answer.links)}</p>{_figures(answer)}"
        reported += "".join(_data(", ".join(table[0]), table[0], table[1:]) for table in disks)
        reported += _listed(answer.sentences)
    if not reported:
        reported = (
            "<p>No column over a network has a figure, or can be compared with another one. "
            "<code>--protect off</code> adds each link without protection.</p>"
        )
    reported += "".join(f"<p>{for_page(line)}</p>" for line in results.corrections)
    for outcome in results.outcomes:
        reported += f"<h3>{for_page(outcome.title)}</h3><p>{for_page(outcome.summary)}</p>"
        reported += _data(outcome.caption, outcome.headings, outcome.rows)
    return f'<section id="answer"><h2>What it costs, and why</h2>{reported}{_legend(facts)}</section>'


def _figures(answer: summary.SettingAnswer) -> str:
    """The table of an answer, and what its figures are; nothing without any."""
    if not answer.blocks:
        return ""
    headings = [f"{block.heading} {name}" for block in answer.blocks for name in block.names]
    parts = (block.figures for block in answer.blocks)
    lines = [
        (title.strip(), *itertools.chain(*of_row))
        for title, *of_row in zip(answer.titles, *parts, strict=True)
    ]
    return f"{_data(answer.circumstances, ('column', *headings), lines)}<p>{for_page(answer.legend)}</p>"


def _progress(results: LoadedResults, going: str) -> str:
    """Measured and remaining, of the run that ``going`` names."""
    tables = "".join(
        _data("Measured and remaining", *_left(plan, results))
        for run, plan in results.plans.items()
        if run in going
    )
    return f'<section id="progress"><h2>Measured so far</h2>{tables}</section>'


def _left(plan: Plan, results: LoadedResults) -> tuple[Sequence[str], list[tuple[str, ...]]]:
    """Headings, and a line for each column, or what its section says."""
    records = [record for record in results.records if record.run_id == plan.run_id]
    done = Counter((record.column, record.workload.name) for record in records)
    lines: list[tuple[str, ...]] = []
    section = results.sections.get(plan.run_id)
    if not isinstance(section, AdaptiveSection):
        for column in plan.columns:
            left = {job.name: plan.repeats - done[column, job.name] for job in plan.jobs}
            measured = sum(done[column, job.name] for job in plan.jobs)
            names = [name for name, count in left.items() if count > 0]
            lines.append((column.label, str(measured), str(sum(left[name] for name in names)), listed(names)))
        return ("column", "measured", "at most left", "of"), lines
    return section.left(plan, records)


def _reported(results: LoadedResults) -> list[str]:
    """What curves and questions say, a sentence each."""
    return [*sentences(results.curves), *results.section_sentences]


def _first(said: Sequence[str]) -> str:
    """Those that are in sight of several sentences, and the others behind a click."""
    rest = _listed(said[_SHOWN:])
    count = counted(len(said) - _SHOWN, "more sentence")
    return _listed(said[:_SHOWN]) + (rest and f"<details><summary>{count}</summary>{rest}</details>")


def _matrix(tables: Mapping[Metric, Table], facts: Sequence[ColumnFacts]) -> str:
    radios = "".join(
        f'<label><input type="radio" name="metric" value="{metric}"{" checked" if not n else ""}> '
        f"{for_page(metric.figure.title)}</label>"
        for n, metric in enumerate(tables)
    )
    boxes = "".join(
        f'<label><input type="checkbox" name="column" checked> {for_page(fact.name)}</label>'
        for fact in _asked_first(facts, facts)
    )
    parts = "".join(
        f'<div class="metric" data-metric="{metric}">{_table(table, facts, prefix=f"m{n}")}</div>'
        for n, (metric, table) in enumerate(tables.items())
    )
    return (
        f'<section id="matrix"><h2>Matrix</h2>'
        f"<p>{for_page(capital(charts.SHADES))}.</p>"
        f'<div class="bar"><fieldset><legend>Figures</legend>{radios}</fieldset>'
        '<label>Rows with <input type="search" id="search" placeholder="words, e.g. read 4k"></label></div>'
        f"<details><summary>Columns</summary><fieldset><legend>Shown</legend>{boxes}</fieldset></details>"
        f'<p id="said" class="muted" role="status"></p>{parts}</section>'
    )


def _asked_first(facts: Sequence[ColumnFacts], found: Iterable[T]) -> list[T]:
    """What is ``found`` of columns, those over a network first: a telephone shows two at a time."""
    pairs = sorted(zip(facts, found, strict=True), key=lambda pair: pair[0].column.column.is_local)
    return [each for _, each in pairs]


def _table(table: Table, facts: Sequence[ColumnFacts], prefix: str) -> str:
    metric = table.options.metric
    warnings: dict[str, list[str]] = {}
    numbers: dict[str, int] = {}
    lines = []
    for row, cells in zip(table.rows, table.cells, strict=True):
        shades = charts.goodness(cells, metric)
        shown = []
        for fact, cell, shade in _asked_first(facts, zip(facts, cells, shades, strict=True)):
            for warning in cell.warnings if cell is not None else ():
                numbers.setdefault(warning, len(numbers) + 1)
                warnings.setdefault(warning, []).append(f"{row.name}, {fact.name}")
            marks = [numbers[warning] for warning in cell.warnings] if cell is not None else []
            shown.append(_cell(cell, metric, shade, marks, prefix))
        lines.append(f'<tr><th scope="row">{for_page(row.name)}</th>{"".join(shown)}</tr>')
    head = "".join(_heading(fact) for fact in _asked_first(facts, facts))
    better = "higher" if metric.figure.higher_is_better else "lower"
    corner = '<th scope="col" aria-sort="none"><button type="button" class="sort">workload</button></th>'
    reasons = "".join(
        f'<li id="{prefix}r{n}">[{n}] {for_page(text)}</li>' for n, text in enumerate(table.footnotes, 1)
    )
    doubts = "".join(
        f'<li id="{prefix}w{n}">⚠{n} {for_page(text)} '
        f"<small>({for_page(listed(cells, 8, '; '))})</small></li>"
        for n, (text, cells) in enumerate(warnings.items(), 1)
    )
    # Of warnings the page has a complete list of its own.
    notes = "".join(
        f"<li>{for_page(note)}</li>"
        for note in table.notes
        if not (note.startswith("Warning (") or note.endswith(": see --format json."))
    )
    return (
        f'<div class="scroll" role="region" aria-label="{for_page(table.title)}"><table class="matrix">'
        f"<caption><span>{for_page(table.title)}; {better} is better</span></caption>"
        f"<thead><tr>{corner}{head}</tr></thead>"
        f"<tbody>{''.join(lines)}</tbody></table></div>"
        + _listed(table.marks)
        + (f"<h3>Why a figure is missing</h3><ul>{reasons}</ul>" if reasons else "")
        + (f"<h3>Warnings</h3><ul>{doubts}</ul>" if doubts else "")
        + f"<h3>Notes</h3><ul>{notes}</ul>"
    )


def _listed(said: Sequence[str]) -> str:
    """As a list; nothing if there is nothing in it."""
    items = "".join(f"<li>{for_page(each)}</li>" for each in said)
    return items and f"<ul>{items}</ul>"


def _heading(fact: ColumnFacts) -> str:
    origin, name, title, _, protection = fact.column.headed
    # The origin already gives that remark of the table.
    remarks = [remark for remark in fact.column.heading[2].split(", ") if remark != Origin.EMULATED]
    said = dict.fromkeys(filter(None, (origin, name, title, *remarks, protection)))
    spans = "".join(f"<span>{for_page(part).replace('+', '<wbr>+')}</span>" for part in said)
    return (
        f'<th scope="col" class="{fact.origin.look}" aria-sort="none"><button type="button" class="sort">'
        f'<span class="muted">{for_page(f"{fact.origin.sign} {fact.origin}")}</span>{spans}</button></th>'
    )


def _cell(
    cell: TableCell | None, metric: Metric, shade: float | None, warnings: Sequence[int], prefix: str
) -> str:
    if cell is None:
        return '<td class="none"><span aria-hidden="true">—</span><span class="hush">not measured</span></td>'
    value = for_page(marked_value(cell, metric))
    spread = f" <small>{for_page(percent(cell.spread))}</small>" if cell.spread is not None else ""
    same = f" {for_page(sign_of(cell))}" if sign_of(cell) else ""
    marks = f' <a href="#{prefix}r{cell.mark}">[{cell.mark}]</a>' if cell.mark is not None else ""
    marks += "".join(f' <a href="#{prefix}w{n}" aria-label="warning {n}">⚠{n}</a>' for n in warnings)
    # The script sorts by the text where it is the value.
    same_as_shown = cell.value is not None and value == f"{cell.value:.6g}"
    exact = "" if cell.value is None or same_as_shown else f" data-value={cell.value:.9g}"
    data = f"{exact} style=--h:{shade or 0:.2g}" if cell.value is not None else ""
    blank = "" if cell.value is not None else ' class="none"'
    tip = for_page(charts.describe(cell, metric))
    return f'<td{blank}{data} title="{tip}">{value}{spread}{same}{marks}'


def _paths(results: LoadedResults) -> str:
    parts = [
        f"<details><summary>{title}</summary>{_data(title, headings, lines, classes)}</details>"
        for title, headings, lines, classes in (
            ("Measured during the cells", *paths.telemetry(results), ""),
            ("Probes", paths.PROBES, paths.probes(results.probes), " facts"),
        )
        if lines
    ]
    preface = (
        "<p>Round trips were measured on the idle path just before a cell; processors and interfaces were "
        "sampled while fio ran. Medians of the repeats; counters are summed. Probes measure the "
        "path without storage.</p>"
    )
    lost = "".join(f"<p>n/a: {for_page(reason)}.</p>" for reason in lost_hops(results.records))
    shown = (
        f"{preface}{''.join(parts)}{lost}"
        if parts
        else "<p>Left out: no probes were made. Use 'harness run --probes' or 'harness probe'.</p>"
    )
    return f'<section id="paths"><h2>Paths and processors</h2>{shown}</section>'


def _environment(results: LoadedResults, facts: Sequence[ColumnFacts]) -> str:
    columns = "".join(_column(fact) for fact in facts)
    runs = "".join(
        _run(run, results.plans.get(run), results.environments.get(run, {}))
        for run in dict.fromkeys(record.run_id for record in results.records)
    )
    return (
        '<section id="environment"><h2>Environment</h2><h3>Columns</h3>'
        "<p>Each column's link as planned, and its iSCSI session and ESP as negotiated.</p>"
        f"{columns}<h3>Runs</h3>{runs}</section>"
    )


def _column(fact: ColumnFacts) -> str:
    records = [record for cell in fact.samples.values() for record in cell]
    session = next((record.session for record in records if record.session), {})
    agreed = next((record.agreed for record in records if record.agreed), {})
    parts = [
        f"<h4>{name}</h4>{_facts(known)}"
        for name, known in (
            ("Link", _profile(fact.link) if fact.link else {}),
            *((protocol(name), words) for name, words in agreed.items()),
            (f"{transport_title(fact.column.column.transport)} session", session),
        )
        if known
    ]
    network = not fact.column.column.is_local
    none = (
        "Nothing is known of its link, session or protection."
        if network
        else "The storage, without a network."
    )
    found = "".join(parts) or f"<p>{none}</p>"
    name = for_page(f"{fact.origin.sign} {fact.origin}: {fact.name}")
    return f"<details><summary>{name}</summary>{found}</details>"


def _profile(link: LinkProfile) -> dict[str, Any]:
    rate = (
        "unshaped" if link.rate_bit_s is None else f"{link.rate_bit_s / 1e6:g} Mbit/s, {link.duplex} duplex"
    )
    return {
        "name": f"{link.title} ({link.name})",
        "kind": "emulated" if link.emulated else "real",
        "rate": rate,
        "delay each way": f"{link.path_delay_us:g} µs, jitter {link.jitter_us:g} µs",
        "loss": f"{link.loss_percent:g} %",
        "MTU": f"{link.mtu_bytes} bytes, {link.frame_overhead_bytes} more on the medium",
        "description": link.description,
        "source": link.source,
    }


def _run(run: str, plan: Plan | None, environment: Mapping[str, Any]) -> str:
    planned = _facts(_planned(plan)) if plan else "<p>The run's folder has no plan.</p>"
    rest = {key: value for key, value in environment.items() if key not in ("hosts", MACHINE)}
    known = f"<h4>Probes</h4>{_facts(rest)}" if rest else ""
    if MACHINE in environment:
        known = f"<h4>Machine that the lab runs on</h4>{_value(environment[MACHINE], 0)}{known}"
    return (
        f"<details><summary>{for_page(run)}</summary>{planned}{_hosts(run, environment.get('hosts'))}{known}"
        "</details>"
    )


def _planned(plan: Plan) -> dict[str, Any]:
    made_s = planned_s(plan)
    made = f"{datetime.fromtimestamp(made_s, UTC):%Y-%m-%d %H:%M:%S} UTC" if made_s else ""
    return {
        "testbed": plan.setting.testbed.value,
        "planned": made,
        "profile": plan.profile,
        "repeats": plan.repeats,
        "run time of a cell": "the profile's" if plan.runtime_s is None else f"{plan.runtime_s:g} s",
        "seed": plan.seed,
        "storage": f"{plan.storage.backing.kind}, {format_size(max(0, plan.storage.backing.size_bytes))}",
        "IPsec mode": plan.ipsec_mode.value,
        "authentication": plan.ike_auth.value,
        "harness": plan.harness_version,
        "workloads": {
            job.name: " ".join(k if v is None else f"{k}={v}" for k, v in job.options) for job in plan.jobs
        },
    }


def _hosts(run: str, hosts: object) -> str:
    """A table of the facts on the hosts of a run, side by side."""
    if not isinstance(hosts, Mapping) or not all(isinstance(host, Mapping) for host in hosts.values()):
        return "" if hosts is None else _value(hosts, 0)
    names = list(dict.fromkeys(fact for host in hosts.values() for fact in host))
    lines = [[name, *(_plain(host.get(name, "")) for host in hosts.values())] for name in names]
    return f"<h4>Hosts</h4>{_data(f'Hosts of {run}', ['fact', *hosts], lines, ' facts')}" if lines else ""


def _plain(value: object) -> str:
    if isinstance(value, Mapping):
        return "; ".join(f"{key}: {_plain(part)}" for key, part in value.items())
    return value if isinstance(value, str) else as_json(value)


def _facts(known: Mapping[str, Any], depth: int = 0) -> str:
    items = "".join(f"<dt>{for_page(str(k))}</dt><dd>{_value(v, depth)}</dd>" for k, v in known.items())
    return f'<dl class="facts">{items}</dl>'


def _value(value: object, depth: int) -> str:
    """Any value that JSON can hold, laid out."""
    if depth < _DEEPEST and isinstance(value, Mapping):
        return _facts(value, depth + 1)
    if depth < _DEEPEST and isinstance(value, list | tuple):
        return "".join(_value(part, depth + 1) for part in value)
    text = value if isinstance(value, str) else as_json(value)
    lines = [for_page(line) for line in text.splitlines()]
    return f"<pre>{chr(10).join(lines)}</pre>" if len(lines) > 1 else "".join(lines)
