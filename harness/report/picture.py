"""Pictures of a report as separate files, SVG and PNG."""

from __future__ import annotations

import struct
import textwrap
import zlib
from collections.abc import Mapping
from pathlib import Path

import msgspec

from harness.model.errors import RequirementError, UsageError, lacks_package
from harness.model.escape import for_page, printable
from harness.report import charts, content, curves, draw, surfaces
from harness.report.answer import answer
from harness.report.charts import Chart, ChartKind
from harness.report.content import LoadedResults, Theme, Words
from harness.report.differences import differences
from harness.report.losses import WHISKERS, losses
from harness.report.waterfalls import waterfalls
from harness.table import Metric
from harness.table.curves import doubts
from harness.version import __version__

_GAP = 24
_HEAD = 26
_LINE = 17


def picture(
    kind: ChartKind,
    results: LoadedResults,
    metric: Metric,
    file: Path,
    *,
    words: Words | None = None,
    theme: Theme = Theme.LIGHT,
    scale: float = 2.0,
) -> bytes:
    """The picture in the format that the name of ``file`` ends with: .svg or .png.

    A PNG has ``scale`` pixels for each px. The last line says where the figures come from, and so does the
    file itself (SVG's title and desc; PNG's text chunks).

    UsageError for another ending, for no records, and if there is nothing to draw. RequirementError if the
    package that makes PNG, or a font, is missing.
    """
    if file.suffix not in (".svg", ".png"):
        raise UsageError(
            f"expected a .svg or .png file, found '{printable(file.name)}'", hint="try -o picture.svg"
        )
    colours = draw.DARK if theme is Theme.DARK else draw.LIGHT
    found = drawn(kind, results, metric, colours)
    if not found:
        raise UsageError(f"these results have nothing for a picture of {kind}", hint=NEEDS[kind])
    words = words or Words(title="")
    if kind in OF_QUESTIONS:
        words = msgspec.structs.replace(
            words, notes=(*words.notes, OF_QUESTIONS[kind], *doubts(results.curves))
        )
    if kind is ChartKind.LOSS:
        words = msgspec.structs.replace(words, notes=(*words.notes, WHISKERS))
    if kind in (ChartKind.MATRIX, ChartKind.BARS):
        words = msgspec.structs.replace(words, notes=(*words.notes, *charts.signs(results.table(metric))))
    document = _document(found, words, results.source, colours)
    if file.suffix == ".svg":
        return document.encode()
    metadata = {
        "Title": words.title or ", ".join(chart.title for chart in found),
        "Author": words.author,
        "Description": " ".join((*words.notes, results.source)),
        "Software": f"storage-network-harness {__version__}",
    }
    return with_text(_png(document, scale), metadata)


def drawn(
    kind: ChartKind,
    results: LoadedResults,
    metric: Metric = Metric.MB_S,
    colours: Mapping[str, str] = draw.LIGHT,
) -> list[Chart]:
    """The pictures of a kind; none if the results lack what it needs. Some kinds show one metric alone."""
    match kind:
        case ChartKind.ANSWER:
            return answer(results)
        case ChartKind.DIFFERENCES:
            return differences(results.compared, results.places) if results.compared else []
        case ChartKind.WATERFALL:
            return waterfalls(results.explained)
        case ChartKind.CURVES:
            return surfaces.curves(results.curves, results.places)
        case ChartKind.RESPONSE:
            return surfaces.responses(results.curves, results.places)
        case ChartKind.HEAT_MAP:
            return surfaces.heat_maps(results.curves, results.limits)
        case ChartKind.FAULTS:
            return [
                chart
                for run_id, section in results.sections.items()
                for chart in section.charts(
                    [record for record in results.records if record.run_id == run_id], results.folders
                )
            ]
    table = results.table(_METRICS.get(kind, metric))
    facts = content.columns(results, table)
    match kind:
        case ChartKind.LOSS:
            return losses(results.answers, facts)
        case ChartKind.MATRIX:
            return charts.matrix(table, facts, colours)
        case ChartKind.BARS:
            return charts.bars(table, facts)
        case ChartKind.PERCENTILES:
            return curves.percentiles(table, facts, results.folders)
        case ChartKind.OVER_TIME:
            return curves.courses(table, facts, results.folders)
        case ChartKind.ROOFLINE:
            return charts.roofline(table, facts, results.explained)
        case ChartKind.TRENDS:
            return curves.trends(table, facts, results.plans)


OF_QUESTIONS = {
    **dict(zip((ChartKind.CURVES, ChartKind.RESPONSE, ChartKind.HEAT_MAP), surfaces.LEGENDS, strict=True)),
    ChartKind.FAULTS: "Writes at a rate around a fault, which is shaded: how many were answered a second, "
    "and the longest latency since a request was due. Over a setting: how long I/O stood still, and dashed, "
    "with empty marks, how long after the fault began the first error came.",
}
"""The pictures of what questions measured, with what is said of each."""

_METRICS = {
    ChartKind.PERCENTILES: Metric.P99,
    ChartKind.OVER_TIME: Metric.MB_S,
    ChartKind.ROOFLINE: Metric.MB_S,
}
"""Of the pictures that show no other."""


def _document(drawn: list[Chart], words: Words, source: str, colours: Mapping[str, str]) -> str:
    """All charts on one sheet, two side by side, below the title and above what is said of them."""
    across = min(2, len(drawn))
    wide = max(chart.width for chart in drawn)
    width = across * (wide + _GAP) + _GAP
    parts = []
    y = float(_GAP)
    if words.title:
        parts.append(draw.text(_GAP, y + 12, draw.shortened(words.title, draw.fits(width - 2 * _GAP)), "b"))
        y += _HEAD
    for first in range(0, len(drawn), across):
        strip = drawn[first : first + across]
        for column, chart in enumerate(strip):
            x = _GAP + column * (wide + _GAP)
            parts.append(draw.text(x, y + 12, draw.shortened(chart.title, draw.fits(wide) - 6), "b"))
            parts.append(draw.inset(x, y + _HEAD, chart.width, chart.height, chart.body))
        y += _HEAD + max(chart.height for chart in strip) + _GAP
    for line in (*words.notes, "; ".join(filter(None, (words.author, source)))):
        for part in textwrap.wrap(printable(line), draw.fits(width - 2 * _GAP)):
            parts.append(draw.text(_GAP, y, part, "mu"))
            y += _LINE
    y += _GAP - _LINE
    names = for_page("; ".join(f"{chart.title}: {chart.description}" for chart in drawn))
    title = for_page(words.title or ", ".join(chart.title for chart in drawn))
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:g}" height="{y:g}" '
        f'viewBox="0 0 {draw.FINE * width:g} {draw.FINE * y:g}" role="img" aria-label="{names}">'
        f"<title>{title}</title><desc>{for_page(' '.join((*words.notes, words.author, source)))}</desc>"
        f"<style>{draw.style(colours)}</style>"
        f'<rect width="100%" height="100%" fill="{colours["page"]}"/>{"".join(parts)}</svg>\n'
    )


def with_text(png: bytes, metadata: Mapping[str, str]) -> bytes:
    """A PNG with international text chunks behind its header (ISO/IEC 15948, 11.3.4.5): keyword and text."""
    header_end = 8 + 4 + 4 + 13 + 4
    chunks = b""
    for keyword, text in metadata.items():
        if text:
            data = b"iTXt" + keyword.encode("latin-1") + bytes(5) + printable(text).encode()
            chunks += struct.pack(">I", len(data) - 4) + data + struct.pack(">I", zlib.crc32(data))
    return png[:header_end] + chunks + png[header_end:]


NEEDS = {
    ChartKind.ANSWER: "no column over a network has a figure, or can be compared with another one",
    ChartKind.MATRIX: "no cell has a figure (harness table says why)",
    ChartKind.BARS: "no cell has a figure (harness table says why)",
    ChartKind.PERCENTILES: "it needs the raw outputs of a run (raw/CELL/fio.json)",
    ChartKind.OVER_TIME: "it needs samples of 5 s, or 20 points, and fio's logs of a run in real time with "
    "one initiator (raw/CELL/bw.log)",
    ChartKind.LOSS: "no column over a network can be compared with its link, or with another column",
    ChartKind.ROOFLINE: "it needs a run's plan.json, a shaped link, and undisturbed figures over it",
    ChartKind.WATERFALL: "it needs a run's plan.json and undisturbed cells",
    ChartKind.TRENDS: "it needs two runs of the same cells",
    ChartKind.DIFFERENCES: "it needs exactly two runs that have cells in common",
    ChartKind.CURVES: "it needs curves: a sweep, or fio outputs that differ only in depth, block or jobs",
    ChartKind.RESPONSE: "it needs curves over depth or jobs",
    ChartKind.HEAT_MAP: "it needs curves over two axes",
    ChartKind.FAULTS: "it needs a run of harness fault and its raw outputs (raw/CELL/fio.json)",
}
"""What a picture takes that a folder of results may lack."""


def _png(document: str, scale: float) -> bytes:
    try:
        import resvg_py
    except ImportError as error:
        raise lacks_package("a PNG", "resvg-py", "take -o FILE.svg") from error
    # Without a font it draws no text at all, and does not say so.
    if resvg_py.svg_to_bytes(svg_string=_LETTER.format("A")) == resvg_py.svg_to_bytes(
        svg_string=_LETTER.format("")
    ):
        raise RequirementError(
            "a PNG needs the font DejaVu Sans, which is not installed",
            hint="apt install fonts-dejavu-core, or take -o FILE.svg",
        )
    return bytes(resvg_py.svg_to_bytes(svg_string=document, zoom=scale))


_LETTER = (
    '<svg xmlns="http://www.w3.org/2000/svg" width="20" height="20">'
    '<text x="2" y="16" font-family="DejaVu Sans" font-size="16">{}</text></svg>'
)
