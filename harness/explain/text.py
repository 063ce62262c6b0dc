"""Verdicts for people and for programs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import groupby
from typing import cast

import msgspec

from harness.analysis.interval import Interval
from harness.analysis.limit import ChangeKind, Limit
from harness.explain.evidence import Evidence
from harness.explain.limits import RULES
from harness.explain.printed import (
    PrintedChange,
    PrintedHeadroom,
    PrintedTime,
    PrintedVerdict,
    PrintedVerdicts,
)
from harness.explain.verdict import Confidence, Verdict, in_words, judge
from harness.explain.volumes import VolumeOverPath
from harness.explain.waterfall import PARTS
from harness.model import TRANSPORTS
from harness.model.escape import in_ascii, printable
from harness.model.lines import counted, wrapped
from harness.results.sections import Outcome

TOO_HIGH = "over a half-duplex link such forecasts were up to 14 % too high: docs/scores.md"
"""A deeper queue over ``wifi`` (`python bench/remedies.py`)."""

_HYPHENATED = {"device": "de- vice", "framing": "fram- ing", "emulation": "emu- lation"}
"""Words of headings that are too long for a narrow table of many parts."""


class Explained(msgspec.Struct, frozen=True, kw_only=True):
    """One cell: its evidence and its verdict."""

    evidence: Evidence
    verdict: Verdict

    @classmethod
    def of(cls, evidence: Evidence) -> Explained:
        """The cell with its verdict."""
        return cls(evidence=evidence, verdict=judge(evidence))

    @property
    def mb_s(self) -> float | None:
        return self.rate(self.evidence.time_ns.mid if self.evidence.time_ns else None)

    @property
    def at_least_mb_s(self) -> float | None:
        """What a disturbed cell moves at least; None of others."""
        return self.rate(self.evidence.at_most_ns)

    @property
    def lift(self) -> str:
        """``from 22.3 to between 58 and 66 MB/s``, with the change that would help; "" if that is unknown."""
        change = self.verdict.change
        if change is None or self.mb_s is None:
            return ""
        rate = self.rates(change.each_ns)
        least, most = f"{rate.low:.3g}", f"{rate.high:.3g}"
        to = f"about {least}" if least == most else f"between {least} and {most}"
        return f"from {self.mb_s:.3g} to {to} MB/s"

    @property
    def where(self) -> str:
        """Where alone the forecast holds; "" if it does anywhere."""
        change, evidence = self.verdict.change, self.evidence
        is_by_core = change is not None and change.limited_by is Limit.CPU
        is_of_lab = is_by_core and evidence.is_emulated and not evidence.busiest
        return "lab only: both ends share one core" if is_of_lab else ""

    @property
    def caveat(self) -> str:
        """Of a kind of forecast that the scores show to be too high; "" of others."""
        change = self.verdict.change
        is_deeper = change is not None and change.step.kind is ChangeKind.DEPTH
        return TOO_HIGH if is_deeper and self.evidence.is_half_duplex else ""

    def rates(self, times_ns: Interval) -> Interval:
        """MB/s, if an I/O takes this long; the cell has a block size."""
        return times_ns.falling(lambda ns: (self.evidence.block_bytes or 0) / ns * 1e3)

    def rate(self, time_ns: float | None) -> float | None:
        """MB/s, if an I/O takes this long."""
        return self.evidence.rate(time_ns)


def short(name: str, cells: Sequence[Explained]) -> str:
    """The heading of a part of these cells: by their transport or protection, if they have the same."""
    carried_by = {cell.evidence.column.transport for cell in cells} - {None}
    if name == "transport" and len(carried_by) == 1:
        return TRANSPORTS.get(carried_by.pop() or "", name)
    framed = {cell.evidence.column.framed for cell in cells} - {""}
    if name == "framing" and len(framed) == 1:
        return f"{framed.pop()} framing"
    if name == "device" and all(cell.evidence.is_one_end for cell in cells):
        return "target"
    return name.replace("_", " ")


def sentence(cell: Explained) -> str:
    """The verdict on one cell, with how sure it is and what would help."""
    verdict = cell.verdict
    doubt = f"; {verdict.doubt}" if verdict.doubt else ""
    if verdict.limited_by is Limit.UNKNOWN:
        return f"no verdict: {verdict.reason}{doubt}"
    detail = f" ({verdict.detail})" if verdict.detail else ""
    words = (
        f"limited by {RULES[verdict.limited_by].words(cell.evidence)}{detail}: {verdict.reason}; "
        f"confidence {verdict.confidence}{doubt}"
    )
    change = verdict.change
    if advice := RULES[verdict.limited_by].advice(cell.evidence):
        return f"{words}; what may help: {advice}"
    if change is None or not cell.lift:
        return words
    how = "; ".join(filter(None, (change.how, cell.where, cell.caveat)))
    return f"{words}; forecast: with {change.what}, it would rise {cell.lift} ({how})"


def text(cells: Sequence[Explained], width: int | None = None, corrections: Sequence[str] = ()) -> str:
    """For each column: a sentence on the whole, where the time goes, and a sentence for each cell; below
    them, what answers of earlier versions said wrongly.

    ``width`` is that of the terminal in characters; None: lines are as long as their sentences.
    """
    unexplained = [cell for cell in cells if _is_figure_alone(cell)]
    judged = [cell for cell in cells if not _is_figure_alone(cell)]
    columns = groupby(judged, key=lambda cell: cell.evidence.name)
    blocks = [_column(list(found), width) for _, found in columns]
    if unexplained:
        blocks += [[_figures_alone(unexplained)]]
    blocks += [[line] for line in corrections]
    return "\n\n".join("\n".join(_wrapped(printable(line), width) for line in lines) for lines in blocks)


def _is_figure_alone(cell: Explained) -> bool:
    """Whether it is of a plain output of fio, with which nothing else was measured."""
    return not cell.evidence.key.setting.is_harness and cell.verdict.limited_by is Limit.UNKNOWN


def _figures_alone(cells: Sequence[Explained]) -> str:
    names = list(dict.fromkeys(cell.evidence.name for cell in cells))
    files = names[0] if len(names) == 1 else f"{len(names)} outputs of fio"
    return (
        f"{files}: what limits {counted(len(cells), 'cell')} is unknown: fio's output does not describe the "
        "path, the device or the processors; harness table shows the figures"
    )


def _wrapped(line: str, width: int | None) -> str:
    """A sentence in several lines, if it is too long. A table's row, which has no colon, stays whole."""
    if width is None or len(line) <= width or ": " not in line:
        return line
    indent = " " * (len(line) - len(line.lstrip()))
    return "\n".join(wrapped(line, width, f"{indent}  "))


def _headline(name: str, cells: Sequence[Explained]) -> str:
    counts = Counter(cell.verdict.limited_by for cell in cells)
    limits = sorted(counts, key=lambda limit: (limit is Limit.UNKNOWN, -counts[limit]))
    parts = []
    for limit in limits:
        found = [cell for cell in cells if cell.verdict.limited_by is limit]
        names = ", ".join(cell.evidence.workload for cell in found)
        if limit is Limit.UNKNOWN:
            parts += _unexplained(found)
            continue
        first, *others = (cell.verdict.detail.split(", ") for cell in found)
        common = ", ".join(word for word in first if all(word in other for other in others))
        detail = f" ({common})" if common else ""
        sure = min((cell.verdict.confidence for cell in found), key=list(Confidence).index)
        least = list(Confidence)[max(list(Confidence).index(cell.verdict.confidence) for cell in found)]
        confidence = str(sure) if sure is least else f"{least} to {sure}"
        what = RULES[limit].words(found[0].evidence)
        parts.append(f"limited by {what}{detail}: {names} ({_shares(found)}confidence {confidence})")
    return f"{name}: {'; '.join(parts)}."


def _unexplained(cells: Sequence[Explained]) -> list[str]:
    """Cells without a verdict, with their two candidate limits if known."""
    parts = []
    for either in dict.fromkeys(tuple(cell.verdict.either) for cell in cells):
        found = [cell for cell in cells if tuple(cell.verdict.either) == either]
        names = ", ".join(cell.evidence.workload for cell in found)
        if not either:
            parts.append(f"no verdict: {names}")
            continue
        ranges = {limit: [cell.verdict.either[limit] for cell in found] for limit in either}
        shares = {limit: (min(of)[0], max(high for _, high in of)) for limit, of in ranges.items()}
        words = " or ".join(RULES[limit].words(found[0].evidence) for limit in either)
        which = f"the evidence does not say which: {names}"
        parts.append(f"limited by {words}, {which} ({in_words(shares, found[0].evidence)} of the time)")
    return parts


def _shares(cells: Sequence[Explained]) -> str:
    shares = [cell.verdict.share for cell in cells if cell.verdict.share is not None]
    if not shares:
        return ""
    low, high = f"{min(shares):.0%}", f"{max(shares):.0%}"
    return f"{low} of the time, " if low == high else f"{low} to {high} of the time, "


def _column(cells: Sequence[Explained], width: int | None) -> list[str]:
    shown = [cell for cell in cells if cell.verdict.waterfall_ns]
    lines = [_headline(cells[0].evidence.name, cells)]
    if shown:
        lines += ["", *_table(shown, width)]
    return lines + ["", *(f"  {cell.evidence.workload}: {sentence(cell)}" for cell in cells)]


def _table(cells: Sequence[Explained], width: int | None) -> list[str]:
    """The parts of the time. If that is too wide, headings have a word a line, large figures no decimal, and
    columns smaller gaps; eight parts then fit into 80 characters, and nine with hyphens."""
    names = [name for name in PARTS if any(cell.verdict.waterfall_ns.get(name) for cell in cells)]
    heading = ["us for one I/O", "depth", "all", *(short(name, cells) for name in names)]
    lines = _in_columns([[each] for each in heading], _rows(cells, names, most_us=None), gap=2)
    hyphens: dict[str, str]
    for hyphens in ({}, _HYPHENATED):
        if width is None or max(map(len, lines)) <= width - 2:
            break
        cut = [" ".join(hyphens.get(word, word) for word in each.split()).split() for each in heading[1:]]
        lines = _in_columns([[heading[0]], *cut], _rows(cells, names, most_us=1000), gap=1)
    return [f"  {line}" for line in lines]


def _rows(cells: Sequence[Explained], names: Sequence[str], *, most_us: float | None) -> list[list[str]]:
    """The cells of the table; figures above ``most_us`` have no decimal."""
    rows = []
    for cell in cells:
        parts = cell.verdict.waterfall_ns
        times = [cell.verdict.whole_ns or 0, *(parts.get(name) for name in names)]
        row = [cell.evidence.workload, str(cell.evidence.depth)]
        rows.append(row + ["-" if time_ns is None else _us(time_ns, most_us) for time_ns in times])
    return rows


def _in_columns(headings: Sequence[Sequence[str]], rows: Sequence[Sequence[str]], gap: int) -> list[str]:
    """The lines of a table; headings of several lines end at the rule below them."""
    height = max(map(len, headings))
    above = list(zip(*([""] * (height - len(words)) + [*words] for words in headings), strict=True))
    widths = [max(map(len, column)) for column in zip(*above, *rows, strict=True)]
    return [
        (" " * gap).join([line[0].ljust(widths[0]), *map(str.rjust, line[1:], widths[1:])]).rstrip()
        for line in [*above, ["-" * each for each in widths], *rows]
    ]


def _us(time_ns: int, most_us: float | None) -> str:
    # Added to zero, minus zero is zero.
    us = round(time_ns / 1000, 1) + 0
    return f"{us:.0f}" if most_us is not None and us >= most_us else f"{us:.1f}"


def outcome_lines(outcome: Outcome) -> list[str]:
    """What a question found of cells: its table, and what that says."""
    headings, rows = [[each] for each in outcome.headings], [[*row] for row in outcome.rows]
    return [*_in_columns(headings, rows, gap=2), "", *wrapped(outcome.summary, 80)]


def as_json(
    cells: Sequence[Explained],
    corrections: Sequence[str] = (),
    tried: Sequence[msgspec.Struct] = (),
    volumes: Sequence[VolumeOverPath] = (),
) -> str:
    """``{"cells": [{…}]}``; docs/schemas/explain.json has the keys. What is unknown is null."""
    found: PrintedVerdicts = {
        "cells": [_plain(cell) for cell in cells],
        "corrections": list(corrections),
        "tried": list(tried),
        "volumes": list(volumes),
    }
    return in_ascii(msgspec.json.format(msgspec.json.encode(found), indent=1).decode())


def _plain(cell: Explained) -> PrintedVerdict:
    evidence, verdict, key = cell.evidence, cell.verdict, cell.evidence.key
    time_ns = evidence.time_ns
    made = {
        "setting": key.setting,
        "column": key.column,
        "encrypted": key.is_encrypted,
        "doubt": verdict.doubt or None,
        "sentence": sentence(cell),
        "mb_s": cell.mb_s,
        "at_least_mb_s": cell.at_least_mb_s,
        "time_ns": time_ns and PrintedTime(low=time_ns.low, median=time_ns.mid, high=time_ns.high),
        "change": _change(cell),
        "headroom": _headroom(cell),
    }
    # The others are called as in the verdict, or in its evidence.
    found = {
        name: made[name] if name in made else getattr(verdict if hasattr(verdict, name) else evidence, name)
        for name in PrintedVerdict.__annotations__
    }
    return cast(PrintedVerdict, found)


def _headroom(cell: Explained) -> PrintedHeadroom | None:
    found = cell.verdict.headroom
    if found is None:
        return None
    load = found.load_mb_s
    return PrintedHeadroom(
        load_mb_s=load,
        cipher_mb_s=found.cipher_mb_s,
        mb_s=None if load is None else load.mid,
        least_mb_s=None if load is None else load.low,
        most_mb_s=None if load is None else load.high,
    )


def _change(cell: Explained) -> PrintedChange | None:
    change = cell.verdict.change
    if change is None:
        return None
    rate = cell.rates(change.each_ns)
    return PrintedChange(
        **{name: getattr(change, name) for name in change.__struct_fields__},
        rate_mb_s=rate,
        time_ns=change.each_ns.mid,
        least_ns=change.each_ns.low,
        most_ns=change.each_ns.high,
        then=change.limited_by,
        mb_s=rate.mid,
        least_mb_s=rate.low,
        most_mb_s=rate.high,
    )
