"""What each column loses, drawn as loss: percent of throughput on an axis from zero, with intervals; and the
same in the few sentences that a page begins with."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from harness.analysis import stats
from harness.model import transport_title
from harness.model.lines import capital, listed
from harness.report import draw
from harness.report.charts import EDGE, WIDTH, Chart, looks, vertical, whisker
from harness.report.conclusion import Conclusion, Loss, ThroughputRatio, limits
from harness.report.content import ColumnFacts

OF_LINK = "Unused part of the link's goodput"
OF_DISK = "Lost compared with the local disk"
OF_BARE = "Lost to the protection"

WHISKERS = (
    "Bars: percent of throughput lost, from zero. Whiskers: the 95 % interval; for the link's goodput, from "
    "the best workload to the worst. No bar: equivalent."
)

_MOST = 3
"""So many columns, or limits, are named in a sentence."""

_ROW = 34
_TOP = 12


class _Bar(msgspec.Struct, frozen=True, kw_only=True):
    """Parts of a throughput that are lost: ``lost`` is None if no difference is shown, or only its bounds
    are known."""

    fact: ColumnFacts
    name: str
    lost: float | None
    low: float | None
    high: float | None
    words: str


def losses(found: Sequence[Conclusion], facts: Sequence[ColumnFacts]) -> list[Chart]:
    """A picture for each thing that columns are compared with."""
    of = {fact.column.key: fact for fact in facts}
    pictures: dict[str, list[_Bar]] = {}
    for answer in found:
        for loss in answer.shown:
            if loss.is_part and answer.column.key in of:
                against = pictures.setdefault(_against(answer, loss), [])
                against.extend(_bars(of[answer.column.key], loss))
    return [_drawn(title, bars) for title, bars in pictures.items()]


def _against(answer: Conclusion, loss: Loss) -> str:
    if answer.baseline:
        return OF_BARE
    return OF_LINK if loss.compared is None and not loss.is_disturbed else OF_DISK


def _bars(fact: ColumnFacts, loss: Loss) -> list[_Bar]:
    """One bar; or one for each workload, if they differ so much that one of all says nothing."""
    if loss.compared is None:
        ends = [1 - part for part in (max(loss.kept), min(loss.kept))]
        lost = None if loss.is_disturbed else 1 - stats.median(loss.kept)
        words = f"{_range(*ends)} %{' (disturbed)' if loss.is_disturbed else ''}"
        low, high = ends if len(loss.kept) > 1 else (None, None)
        return [_Bar(fact=fact, name=f"{fact.name}, {loss.size}", lost=lost, low=low, high=high, words=words)]
    each = list(loss.apart) if loss.depends else [(loss.size, loss.compared), *loss.apart]
    return [_compared(fact, name, ratio) for name, ratio in each]


def _compared(fact: ColumnFacts, name: str, found: ThroughputRatio) -> _Bar:
    lost = 1 - found.ratio
    low, high = (None, None) if found.interval is None else (1 - found.interval[1], 1 - found.interval[0])
    words = f"{_percent(lost)} %"
    if low is not None and high is not None and not found.is_exact:
        words = f"{words} ({_range(low, high)})" if found.is_reported else f"not shown ({_range(low, high)})"
    return _Bar(
        fact=fact,
        name=f"{fact.name}, {name}",
        lost=lost if found.is_reported else None,
        low=low,
        high=high,
        words=words,
    )


def _percent(part: float) -> str:
    """Two digits."""
    return f"{100 * part:.0f}" if abs(part) >= 0.0995 else f"{100 * part:.1f}"


def _range(low: float, high: float) -> str:
    return " to ".join(dict.fromkeys((_percent(low), _percent(high))))


def _drawn(title: str, bars: Sequence[_Bar]) -> Chart:
    ends = [end for bar in bars for end in (bar.lost, bar.low, bar.high) if end is not None]
    low, high = min(0.0, *ends), max(0.0, *ends)
    scale = draw.Scale(
        low=100 * low, high=100 * (high if high > low else 0.01) * 1.02, start=EDGE, end=WIDTH - EDGE
    )
    room = max(draw.width(bar.name) + draw.width(bar.words) for bar in bars) + 3 * EDGE
    # A name and its figure stand in one line, unless that has no room for both.
    line = 0 if room <= WIDTH else 15
    row = _ROW + line
    bottom = _TOP + row * len(bars)
    ticks = [(scale.at(tick), draw.amount(tick)) for tick in scale.ticks(5)]
    inside = [tick for tick in ticks if draw.width(tick[1]) / 2 <= tick[0] <= WIDTH - draw.width(tick[1]) / 2]
    parts = vertical(inside, _TOP - 4, bottom)
    names, figures, whiskers, lines = [], [], [], []
    for place, bar in enumerate(bars):
        y = _TOP + row * place
        names.append((EDGE + 4, y + 10, draw.shortened(bar.name, draw.fits(WIDTH - 3 * EDGE))))
        figures.append((WIDTH - EDGE, y + 10 + line, bar.words))
        if bar.lost is not None:
            start, end = sorted((scale.at(0.0), scale.at(100 * bar.lost)))
            wide = max(0.5, end - start)
            parts.append(draw.rect(start, y + 15 + line, wide, 13, looks(bar.fact), bar.name))
        if bar.low is not None and bar.high is not None:
            whiskers += whisker(scale.at(100 * bar.low), scale.at(100 * bar.high), y + 21.5 + line)
        values = ["" if value is None else _percent(value) for value in (bar.lost, bar.low, bar.high)]
        lines.append((bar.name, *values, bar.words))
    parts += [draw.lines(whiskers, classes) for classes in ("ha", "wh") if whiskers]
    zero = [(_TOP - 4.0, bottom)]
    if low < 0:
        # Not through names and figures, which stand on both sides of it.
        zero = [(y + 12, y + 31) for y in (_TOP + line + row * place for place in range(len(bars)))]
    parts.append(draw.lines([((scale.at(0.0), top), (scale.at(0.0), end)) for top, end in zero], "wh"))
    parts += [draw.texts(names, ""), draw.texts(figures, "e b")]
    parts.append(draw.text(WIDTH / 2, bottom + 30, "% of throughput", "m mu"))
    return Chart(
        title=title,
        description="percent of throughput that each column loses, from zero, with intervals",
        height=bottom + 36,
        body="".join(parts),
        headings=("column", "lost [%]", "low", "high", "in words"),
        lines=tuple(lines),
    )


def headline(found: Sequence[Conclusion]) -> list[str]:
    """What the results are about, what is lost, and what limits: a sentence each; none without figures."""
    known = [answer for answer in found if any(loss.is_part for loss in answer.shown)]
    if not known:
        return []
    bare = [answer for answer in known if not answer.baseline]
    lost = [
        f"{answer.column.heading[3]} over {answer.baseline} costs {words}"
        for answer in known
        if (words := _lost(answer))
    ]
    reached = [f"{answer.column.column.label} {words}" for answer in bare if (words := _kept(answer))]
    sentences = [
        f"{listed(lost, _MOST, '; ')}." if lost else "",
        f"{'Without protection: ' if lost else ''}{listed(reached, _MOST, '; ')}." if reached else "",
        _limit(known),
    ]
    said = [*filter(None, sentences)]
    return [*said[:1], _about(known), *said[1:]]


def _about(known: Sequence[Conclusion]) -> str:
    """``iSCSI over Gigabit Ethernet (wired) and WiFi 802.11n (wifi), without protection and with …``."""
    columns = [answer.column for answer in known]
    transports = dict.fromkeys(transport_title(column.column.transport) for column in columns)
    links = dict.fromkeys(f"{column.heading[1]} ({column.column.link})" for column in columns)
    kinds = dict.fromkeys(column.heading[3] for column in columns if column.column.protection)
    first = f"{listed([*filter(None, transports)], _MOST)} over {listed([*links], _MOST)}".strip()
    return f"{first}{f', without protection and with {listed([*kinds], _MOST)}' if kinds else ''}."


def _lost(answer: Conclusion) -> str:
    if not answer.baseline:
        return ""
    shown = [
        f"{_percent(1 - loss.compared.ratio)} % at {loss.size}"
        for loss in answer.shown
        if loss.compared is not None and loss.compared.is_reported and not loss.depends
    ]
    return listed(shown, _MOST)


def _kept(answer: Conclusion) -> str:
    parts = []
    for loss in answer.shown:
        if loss.is_part and not loss.is_disturbed:
            whole = "the link" if loss.compared is None else "the local disk"
            parts.append(f"{_range(min(loss.kept), max(loss.kept))} % of {whole} at {loss.size}")
    return f"reaches {listed(parts, _MOST)}" if parts else ""


def _limit(known: Sequence[Conclusion]) -> str:
    """What limits, by size of blocks."""
    of: dict[str, dict[str, None]] = {}
    for answer in known:
        for loss in answer.shown:
            words = limits(loss.cells).partition(" (")[0]
            if words.startswith("limited by "):
                of.setdefault(words.removeprefix("limited by "), {})[loss.size] = None
    found = [f"{name} at {listed([*sizes], _MOST)}" for name, sizes in of.items()]
    return capital(f"limited by {listed(found, _MOST, '; ')}.") if found else ""
