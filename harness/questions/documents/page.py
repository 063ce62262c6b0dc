"""What published articles asked, their figures next to ours, and the answers: as a page, and as text."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from harness.model import Clock
from harness.model.escape import for_html, printable
from harness.model.lines import capital
from harness.parse import references
from harness.parse.references import Reference
from harness.questions.documents.answers import MEASURED, VIRTUAL, Answer, Bars, of_matrix, of_paths
from harness.questions.documents.experiments import Experiment, experiments
from harness.report import draw, page
from harness.report.charts import TOP, WIDTH, Chart
from harness.report.content import Words
from harness.results.columns import TableRow
from harness.results.store import RunFolder, open_runs
from harness.table import Options, TableFormat, build, render
from harness.table.matrix import with_reference
from harness.table.options import Table
from harness.table.views import View
from harness.table.views import build as build_view
from harness.table.views import render as render_view
from harness.table.views.grid import Grid

TITLE = "What published measurements asked, and what we measured"

_STYLE = """
.wraps thead th { white-space: normal !important; max-width: 9rem; }
.wraps td:not([style]) { white-space: normal; min-width: 5rem; }
.wraps td:first-child { min-width: 11rem; }
.wraps td, .wraps th { padding: .15rem .35rem; }
.data p { margin: .2rem 0; }
.charts .data th { white-space: normal; }
"""

Reasons = Mapping[str, str]
"""Why a command of an experiment measured nothing; commands are as ``Experiment.command_line`` has them."""


class Article(msgspec.Struct, frozen=True, kw_only=True):
    """One article. ``missing`` are sentences on what was not measured, ``pictures`` have a figure each."""

    name: str
    title: str
    subject: str
    question: str
    source: str
    answers: tuple[Answer, ...]
    pictures: tuple[Bars, ...]
    tables: tuple[Grid | Table, ...]
    missing: tuple[str, ...]
    runs: tuple[str, ...]

    @property
    def whom(self) -> str:
        """The first answer that is known what the cause is; empty if none is."""
        nobody = "no loss is shown"
        nobody = nobody if all(answer.is_free for answer in self.answers) else ""
        whom = next((answer.whom for answer in self.answers if answer.whom), nobody)
        return whom and f"{capital(whom)}."

    @property
    def short(self) -> str:
        """That, or else the first answer that there is."""
        ours = (answer for answer in self.answers if MEASURED in answer.bars.origins)
        return self.whom or next(ours, self.answers[0]).sentences


def load(paths: Sequence[Path], names: Sequence[str] = (), reasons: Reasons | None = None) -> list[Article]:
    """The articles of these ``names`` (all if empty), with the runs in ``paths`` that are theirs.

    ``reasons`` are those that are known; without one, the text names the command that would measure it.
    UsageError for an article that there is not, and for results that cannot be read.
    """
    runs = open_runs(paths)
    made = experiments()
    return [
        _article(name, [found for found in made if found.article == name], runs, reasons or {})
        for name in names or references.names()
    ]


def runs_of(experiment: Experiment, runs: Sequence[RunFolder], *, virtual: bool) -> list[RunFolder]:
    """Those that the experiment's command made."""
    found = []
    for run in runs:
        plan = run.load_plan() if run.has_plan else None
        if plan is None or plan.profile != experiment.profile or plan.setting.is_virtual is not virtual:
            continue
        if plan.setting.predicted_from:  # nothing of it was measured
            continue
        if bool(plan.probing) is (experiment.command == "probe"):
            found.append(run)
    return found


def _article(name: str, made: Sequence[Experiment], runs: Sequence[RunFolder], reasons: Reasons) -> Article:
    view = references.view_of(name)
    missing = [words for one in made for words in _missing(one, runs, reasons)]
    cells, probes = (
        [
            run
            for one in made
            if one.command == command
            for virtual in (False, True)
            for run in runs_of(one, runs, virtual=virtual)
        ]
        for command in ("run", "probe")
    )
    records = [record for run in probes for record in run.load_probes()]
    tables: list[Grid | Table] = []
    reference: Reference | references.PathReference
    if view is not None:
        reference = references.load_path_reference(name)
        answers = of_paths(reference, records)
        tables.append(build_view(View(view), records, reference))
    else:
        reference = references.load_reference(name)
        found = _matrices(reference, cells)
        answers = of_matrix(reference, found[0] if found else None)
        # The first has all columns; side by side with the article's they are easier to read clock by clock.
        tables += found[1:] or [_alone(reference)]
        if records:
            tables.append(build_view(View.LINK, records))
    return Article(
        name=name,
        title=reference.title,
        subject=reference.subject,
        question=reference.question,
        source=reference.source,
        answers=tuple(answers),
        pictures=tuple(_merged(answers)),
        tables=tuple(tables),
        missing=tuple(missing),
        runs=tuple(run.run_id for run in (*cells, *probes)),
    )


def _merged(answers: Sequence[Answer]) -> list[Bars]:
    """A picture for each figure, with all that the answers have of it."""
    found: dict[str, dict[str, dict[str, float]]] = {}
    for answer in answers:
        for name, values in answer.bars.bars.items():
            found.setdefault(answer.bars.title, {}).setdefault(name, {}).update(values)
    return [Bars(title=title, bars=bars) for title, bars in found.items()]


def _missing(one: Experiment, runs: Sequence[RunFolder], reasons: Reasons) -> list[str]:
    found = []
    for virtual, clock in ((False, "Not measured"), (True, "Not measured in virtual time")):
        if virtual and one.virtual is None:
            command = one.command_line(virtual=False)
            found.append(f"{clock}: `{command}`, because {one.no_virtual}.")
            continue
        command = one.command_line(virtual=virtual)
        measured = runs_of(one, runs, virtual=virtual)
        if command in reasons:
            words = clock.replace("Not", "Not all of it was") if measured else clock
            found.append(f"{words}: `{command}`: {reasons[command].removesuffix('.')}.")
        elif not measured:
            found.append(f"{clock}: no run of `{command}` is among the results.")
    return found


def _matrices(reference: Reference, runs: Sequence[RunFolder]) -> list[Table]:
    """The table of all runs, then that of each clock; each with the reference's columns."""
    records = [record for run in runs for record in run.load_records()]
    plans = {run.run_id: run.load_plan() for run in runs}
    environments = {run.run_id: run.load_environment() for run in runs}
    of_clocks = [[r for r in records if (r.setting.clock is Clock.REAL) is real] for real in (True, False)]
    options = Options(reference=reference)
    return [build(found, options, plans, environments) for found in (records, *of_clocks) if found]


def _alone(reference: Reference) -> Table:
    """A published matrix without anything next to it."""
    rows = tuple(TableRow(workload=name, direction=None, group="", operation=name) for name in reference.rows)
    table = Table(
        options=Options(reference=reference),
        columns=(),
        rows=rows,
        cells=((),) * len(rows),
        title=f"{reference.title}, in {reference.unit}",
        notes=(f"Published: {reference.title}, {reference.source}.",),
    )
    return with_reference(table, reference)


def _drawn(table: Grid | Table, format: TableFormat, width: int | None = None) -> str:
    return render_view(table, format) if isinstance(table, Grid) else render(table, format, width)


def text(found: Sequence[Article], width: int | None = None) -> str:
    """All articles for a terminal of that width; None: no limit."""
    return "\n\n\n".join("\n".join(_lines(article, width)) for article in found)


def _lines(article: Article, width: int | None) -> list[str]:
    def wrapped(words: str) -> str:
        escaped = printable(words)
        return escaped if width is None else textwrap.fill(escaped, width, subsequent_indent="  ")

    lines = [wrapped(f"{capital(article.title)}: {article.question}"), ""]
    lines += [wrapped(article.whom), ""] if article.whom else []
    lines += [wrapped(answer.sentences) for answer in article.answers]
    lines += [line for table in article.tables for line in ("", _drawn(table, TableFormat.TEXT, width))]
    return lines + ([""] if article.missing else []) + [wrapped(words) for words in article.missing]


def render_page(found: Sequence[Article]) -> str:
    """All articles as one page, with the report's looks."""
    words = Words(title=TITLE)
    runs = list(dict.fromkeys(run for article in found for run in article.runs))
    source = f"{len(found)} articles; {len(runs) or 'no'} {'run' if len(runs) == 1 else 'runs'} of ours"
    places = [(document.name, for_html(capital(document.title))) for document in found]
    body = page.header(words, source, [("answers", "In short"), *places])
    sections = "".join(map(_section, found))
    return page.whole(words, f"{body}<main>{_short(found)}{sections}</main>", style=_STYLE)


def _short(found: Sequence[Article]) -> str:
    """Each question with its cause, or with its first answer."""
    items = "".join(
        f'<dt><a href="#{article.name}">{for_html(article.question)}</a></dt>'
        f"<dd>{for_html(article.short)}</dd>"
        for article in found
    )
    return f'<section id="answers"><h2>In short</h2><dl class="facts">{items}</dl></section>'


def _section(article: Article) -> str:
    answers = "".join(map(_answer, article.answers))
    whom = article.whom and f"<p><strong>{for_html(article.whom)}</strong></p>"
    drawn = "".join(page.figure(_picture(bars), article.title) for bars in article.pictures if bars.bars)
    tables = "".join(map(_table, article.tables))
    missing = "".join(f"<li>{_coded(words)}</li>" for words in article.missing)
    missing = missing and f"<h3>What is missing</h3><ul>{missing}</ul>"
    return (
        f'<section id="{article.name}"><h2>{for_html(capital(article.title))}: '
        f"{for_html(article.question)}</h2>"
        f'<p class="muted">{for_html(capital(article.source))}.</p>'
        f'{whom}<div class="charts">{drawn}</div>{answers}<h3>Figures</h3>{tables}{missing}</section>'
    )


_BAR, _GAP = 15, 7


def _picture(bars: Bars) -> Chart:
    """For each link or row, a bar of the article's figure, one of ours and one in virtual time."""
    origins = bars.origins
    highest = max((value for values in bars.bars.values() for value in values.values()), default=0.0)
    scale = draw.linear([highest], 4, WIDTH - 60)
    parts, y = [], float(TOP)
    for name, values in bars.bars.items():
        parts.append(draw.text(4, y, draw.shortened(name, draw.fits(WIDTH - 8))))
        y += 5
        for origin in origins:
            if (value := values.get(origin)) is None:
                continue
            tip = f"{name}, {origin}: {draw.amount(value)}"
            parts.append(draw.rect(4, y, max(0.5, scale.at(value) - 4), _BAR - 3, _looks(origin), tip))
            parts.append(draw.text(scale.at(value) + 4, y + _BAR - 4, draw.amount(value), "mu"))
            y += _BAR
        y += _GAP + 12
    for origin in origins:
        parts.append(draw.rect(4, y - 10, 18, 10, _looks(origin)))
        parts.append(draw.text(28, y, origin))
        y += 16
    return Chart(
        title=bars.title,
        description="bars of what the article has, of ours, and of ours in virtual time",
        height=y,
        body="".join(parts),
        headings=("", *origins),
        lines=tuple(
            (name, *(f"{values[each]:.4g}" if each in values else "" for each in origins))
            for name, values in bars.bars.items()
        ),
    )


def _looks(origin: str) -> str:
    """The classes of an origin's bars: ours as in the report, the article's in another colour."""
    return {MEASURED: "f0 me", VIRTUAL: "f0 vi"}.get(origin, "f1 em")


def _answer(answer: Answer) -> str:
    figures = "".join(
        f"<dt>{for_html(name)}</dt><dd>{for_html(words)}</dd>" for name, words in answer.figures
    )
    return (
        f'<div class="answer"><h3>{for_html(answer.subject)}</h3>'
        f'<dl class="says">{figures}</dl><p>{for_html(answer.conclusion)}</p></div>'
    )


def _table(table: Grid | Table) -> str:
    name = for_html(table.title)
    drawn = _drawn(table, TableFormat.HTML)
    return f'<div class="data wraps" tabindex="0" role="region" aria-label="{name}">{drawn}</div>'


def _coded(words: str) -> str:
    """With what stands between backquotes as code."""
    parts = for_html(words).split("`")
    return "".join(f"<code>{part}</code>" if n % 2 else part for n, part in enumerate(parts))
