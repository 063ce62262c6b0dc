"""Pictures of a report as separate files: SVG, and PNG if the optional package for it is installed."""

from __future__ import annotations

from pathlib import Path

from harness.model.errors import RequirementError, UsageError
from harness.model.escape import for_html, printable
from harness.report import charts, content, courses, draw
from harness.report.charts import Chart, Kind
from harness.report.content import Results
from harness.report.waterfalls import waterfalls
from harness.table import Metric

_GAP = 24
_HEAD = 26
_PNG_SCALE = 2


def picture(kind: Kind, results: Results, metric: Metric, file: Path) -> bytes:
    """The picture in the format that the name of ``file`` ends with: .svg or .png.

    UsageError for another ending, for no records, and if there is nothing to draw. RequirementError if the
    package that makes PNG, or a font, is missing.
    """
    if file.suffix not in (".svg", ".png"):
        raise UsageError(
            f"expected a .svg or .png file, found '{printable(file.name)}'", hint="try -o picture.svg"
        )
    drawn = _drawn(kind, results, metric)
    if not drawn:
        raise UsageError(
            f"these results have nothing for a picture of {kind}",
            hint="percentiles and over-time need a run's raw outputs, a roofline its plan with a shaped link",
        )
    document = _document(drawn)
    return document.encode() if file.suffix == ".svg" else _png(document)


def _drawn(kind: Kind, results: Results, metric: Metric) -> list[Chart]:
    match kind:
        case Kind.MATRIX | Kind.BARS:
            table = results.table(metric)
            make = charts.matrix if kind is Kind.MATRIX else charts.bars
            return make(table, content.columns(results, table))
        case Kind.PERCENTILES:
            table = results.table(Metric.P99)
            return charts.percentiles(table, content.columns(results, table), results.folders)
        case Kind.OVER_TIME:
            table = results.table(Metric.MB_S)
            return courses.courses(table, content.columns(results, table), results.folders)
        case Kind.ROOFLINE:
            table = results.table(Metric.MB_S)
            return charts.roofline(table, content.columns(results, table))
        case Kind.WATERFALL:
            return waterfalls(results.explained())


def _document(drawn: list[Chart]) -> str:
    """All charts on one sheet, two side by side, in colours for paper."""
    across = min(2, len(drawn))
    wide = max(chart.width for chart in drawn)
    parts = []
    y = float(_GAP)
    for first in range(0, len(drawn), across):
        beside = drawn[first : first + across]
        for column, chart in enumerate(beside):
            x = _GAP + column * (wide + _GAP)
            parts.append(draw.text(x, y + 12, draw.shortened(chart.title, draw.fits(wide) - 6), "b"))
            parts.append(
                f'<svg x="{x:g}" y="{y + _HEAD:g}" width="{chart.width:g}" height="{chart.height:g}">'
                f"{chart.body}</svg>"
            )
        y += _HEAD + max(chart.height for chart in beside) + _GAP
    width = across * (wide + _GAP) + _GAP
    names = for_html("; ".join(f"{chart.title}: {chart.description}" for chart in drawn))
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:g}" height="{y:g}" '
        f'viewBox="0 0 {width:g} {y:g}" role="img" aria-label="{names}">'
        f"<style>{draw.style(draw.LIGHT)}</style>"
        f'<rect width="100%" height="100%" fill="{draw.LIGHT["page"]}"/>{"".join(parts)}</svg>\n'
    )


def _png(document: str) -> bytes:
    try:
        import resvg_py
    except ImportError as error:
        raise RequirementError(
            "a PNG needs the Python package resvg-py, which is not installed",
            hint="pip install 'storage-network-harness[report]', or take -o FILE.svg",
        ) from error
    # Without a font it draws no text at all, and does not say so.
    if resvg_py.svg_to_bytes(svg_string=_LETTER.format("A")) == resvg_py.svg_to_bytes(
        svg_string=_LETTER.format("")
    ):
        raise RequirementError(
            "a PNG needs the font DejaVu Sans, which is not installed",
            hint="apt install fonts-dejavu-core, or take -o FILE.svg",
        )
    return bytes(resvg_py.svg_to_bytes(svg_string=document, zoom=_PNG_SCALE))


_LETTER = (
    '<svg xmlns="http://www.w3.org/2000/svg" width="20" height="20">'
    '<text x="2" y="16" font-family="DejaVu Sans" font-size="16">{}</text></svg>'
)
