"""What a published matrix shows of which only the figures are known: one measurement of each cell.

An additional layer makes a volume slower or not, never faster. Where a figure is higher with more layers in
the way, chance (or a cache) made it so. That excess is a lower bound on the noise of every figure of the
link. A loss within the noise shows nothing.

IPsec adds two things to an I/O: ESP's bytes, which are known beforehand, and work for processors. So a loss
beyond the noise that the bytes do not explain is the implementation's: cipher and kernel's path together.
Only a column without encryption could separate these two.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from harness.analysis import path_demands, theory
from harness.analysis.limit import Limit
from harness.analysis.theory import IoDirection
from harness.analysis.wire.iscsi import WINDOW_BYTES, IscsiDialogue
from harness.explain.verdict import Confidence
from harness.model import LINK_LOCAL, Column, IpsecMode, LinkProfile
from harness.model.units import parse_size
from harness.parse.jobfile import DEFAULT_BLOCK_BYTES
from harness.parse.references import Reference, ReferenceColumn

USUAL = IscsiDialogue(
    initial_r2t=True,
    immediate_data=True,
    first_burst_bytes=65536,
    max_burst_bytes=262144,
    max_recv_bytes=262144,
    window_bytes=WINDOW_BYTES,
)
"""What Linux's two ends of iSCSI, which the articles measured, negotiate by default."""

DEAREST = theory.esp(("cbc(aes)", "hmac(sha256)"), IpsecMode.TUNNEL)
"""The ESP proposal with the most bytes: the publication does not name its proposal."""


class Concluded(msgspec.Struct, frozen=True, kw_only=True):
    """One published figure. ``added_ns`` is the time per I/O beyond the step below (the local disk; the same
    link without IPsec), ``framing_ns`` the most that ESP's bytes take."""

    column: Column
    workload: str
    mb_s: float
    ratio: float
    time_ns: float
    added_ns: float
    framing_ns: float | None
    limited_by: Limit
    confidence: Confidence
    sentence: str


class Published(msgspec.Struct, frozen=True, kw_only=True):
    """The whole matrix. ``noise``, by link: the largest factor by which a figure was too high, at least 1."""

    reference: str
    source: str
    noise: dict[str, float]
    cells: tuple[Concluded, ...]
    sentences: tuple[str, ...]


def conclude(reference: Reference, links: dict[str, LinkProfile]) -> Published:
    """What the matrix shows; ``links`` are by the names of its columns, for their rate and MTU."""
    columns = {n: each for n, each in enumerate(reference.columns) if each.link != LINK_LOCAL}
    noise: dict[str, float] = {}
    for place, column in columns.items():
        before = _before(reference, place)
        ratios = [row[place] / row[before] for row in reference.rows.values()] if before is not None else []
        noise[column.link] = max([noise.get(column.link, 1.0), *ratios])
    cells = {
        place: [_cell(reference, workload, place, noise, links) for workload in reference.rows]
        for place in columns
    }
    return Published(
        reference=reference.title,
        source=reference.source,
        noise=noise,
        cells=tuple(cell for of in cells.values() for cell in of),
        sentences=(
            *(_of_noise(link, factor) for link, factor in noise.items()),
            *(_of_column(column, cells[place], noise) for place, column in columns.items()),
        ),
    )


def _place(of: ReferenceColumn) -> Column:
    return Column(of.link, of.protection)


def _before(reference: Reference, place: int) -> int | None:
    """The column with one layer less."""
    column = reference.columns[place]
    wanted = Column(column.link if column.protection else LINK_LOCAL)
    return next((n for n, c in enumerate(reference.columns) if _place(c) == wanted), None)


def _cell(
    reference: Reference, workload: str, place: int, noise: dict[str, float], links: dict[str, LinkProfile]
) -> Concluded:
    column, row = reference.columns[place], reference.rows[workload]
    before = _before(reference, place)
    direction: IoDirection = "write" if "write" in workload else "read"
    block_bytes = _block_bytes(workload)
    time_ns = block_bytes / row[place] * 1e3
    base = row[before] if before is not None else row[place]
    added_ns = time_ns - block_bytes / base * 1e3
    framing_ns = None
    if column.protection and column.link in links:
        asked = path_demands.of_dialogue(links[column.link], DEAREST, USUAL, direction, block_bytes)
        framing_ns = asked.framing_ns
    ratio, factor = row[place] / base, noise[column.link]
    limit, words = _limit(column, ratio, factor, time_ns, added_ns, framing_ns)
    return Concluded(
        column=_place(column),
        workload=workload,
        mb_s=row[place],
        ratio=ratio,
        time_ns=time_ns,
        added_ns=added_ns,
        framing_ns=framing_ns,
        limited_by=limit,
        confidence=Confidence.NONE if limit is Limit.UNKNOWN else Confidence.LOW,
        sentence=words,
    )


def _limit(
    column: ReferenceColumn,
    ratio: float,
    noise: float,
    time_ns: float,
    added_ns: float,
    framing_ns: float | None,
) -> tuple[Limit, str]:
    protected = bool(column.protection)
    step = "without IPsec" if protected else "without the network"
    if ratio > 1 / noise:
        words = f"{ratio:.2f} of the figure {step}, within the noise of this link"
        if ratio > 1:
            words = f"{ratio:.2f} times as fast as {step}, which only chance or a cache explains"
        if protected:
            return Limit.UNKNOWN, f"{words}: it shows nothing about IPsec"
        return Limit.DEVICE, f"{words}: the disk limits"
    words = f"{ratio:.2f} of the figure {step}: {_time(added_ns)} more per I/O"
    if not protected or framing_ns is None:
        why = "neither pings nor processor use were published, so these cannot be separated"
        return Limit.UNKNOWN, f"{words}, for round trip, rate, iSCSI and processors; {why}"
    share = (added_ns - framing_ns) / time_ns
    framing = f"of which ESP's bytes are at most {_time(framing_ns)} ({framing_ns / added_ns:.1%})"
    work = f"the rest is the implementation's work, {share:.0%} of the I/O's time"
    unknown = "only a column without encryption could separate cipher and kernel's path"
    return Limit.UNKNOWN, f"{words}, {framing}: {work}; {unknown}"


def _of_noise(link: str, factor: float) -> str:
    if factor == 1:
        return f"{link}: no figure rises with more layers, so the link's noise is unknown"
    return (
        f"{link}: figures are up to {factor - 1:.0%} higher with more layers, which is noise; "
        f"a loss of less than {1 - 1 / factor:.0%} is not significant"
    )


def _of_column(column: ReferenceColumn, cells: Sequence[Concluded], noise: dict[str, float]) -> str:
    """What all figures of a column together show."""
    name = f"{column.title} with IPsec" if column.protection else column.title
    shown = [cell for cell in cells if cell.ratio <= 1 / noise[column.link]]
    if not shown:
        what = "IPsec" if column.protection else "the network"
        return f"{name}: none of {len(cells)} figures shows a loss to {what}"
    names = ", ".join(cell.workload for cell in shown)
    if len(shown) == 1:
        # The noise is a lower bound, so one figure of many soon lies beyond it.
        return f"{name}: of {len(cells)} figures only {names} shows a loss, which is only a hint"
    words = f"{name}: {len(shown)} of {len(cells)} figures show a loss ({names})"
    framed = [(cell, cell.framing_ns) for cell in shown if cell.framing_ns is not None]
    if not framed:
        return words
    most = max(bytes_ns / cell.added_ns for cell, bytes_ns in framed)
    stages = [
        _block_bytes(cell.workload) / (cell.added_ns - bytes_ns) * 1e3
        for cell, bytes_ns in framed
        if cell.added_ns > bytes_ns
    ]
    return (
        f"{words}; ESP's bytes are at most {most:.0%} of it, and iSCSI is the same with and without IPsec: "
        "the "
        f"implementation causes it, like an extra stage of {min(stages):.0f} to {max(stages):.0f} MB/s "
        "in series"
    )


def _block_bytes(workload: str) -> int:
    size = workload.rpartition("-")[2]
    return parse_size(size) if size[:1].isdigit() else DEFAULT_BLOCK_BYTES


def _time(time_ns: float) -> str:
    return f"{time_ns / 1e6:.2f} ms" if time_ns >= 1e6 else f"{time_ns / 1e3:.0f} us"


def text(published: Published) -> str:
    """Sentences about the whole matrix, then one for each figure."""
    lines = [f"{published.reference}: {published.source}", "", *published.sentences]
    for column in dict.fromkeys(cell.column for cell in published.cells):
        found = [cell for cell in published.cells if cell.column == column]
        name = f"{column.link} with IPsec" if column.protection else column.link
        lines += ["", name]
        lines += [f"  {cell.workload}, {cell.mb_s:g} MB/s: {cell.sentence}" for cell in found]
    return "\n".join(lines)
