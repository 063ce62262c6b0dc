"""What a published matrix lets conclude of which nothing but its figures is known: one measurement of each
cell.

What is put in a volume's way makes it slower or not, never faster. Where a figure is higher with more in
its way, it is so by chance (or by a cache), and so much any other figure of that link may be wrong as well:
the matrix itself tells its noise, from below. A loss within that shows nothing.

What IPsec adds to an I/O is ESP's bytes, which are known beforehand, and work for processors. So a loss
beyond the noise that the bytes do not explain is the implementation's: cipher and kernel's path together,
which only a column without encryption could tell apart.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from harness.analysis import theory
from harness.analysis.theory import Direction, Session
from harness.explain import path
from harness.explain.verdict import Confidence, Limit
from harness.model import IPSEC_OFF, LINK_LOCAL, IpsecMode, LinkProfile
from harness.model.units import parse_size
from harness.parse.jobfile import DEFAULT_BLOCK_BYTES
from harness.parse.references import Reference, ReferenceColumn

SESSION = Session(
    initial_r2t=True,
    immediate_data=True,
    first_burst_bytes=65536,
    max_burst_bytes=262144,
    max_recv_bytes=262144,
    window_bytes=path.USUAL_WINDOW_BYTES,
)
"""What Linux's target and initiator agree on if nobody asks for anything else."""

DEAREST = theory.esp(("cbc(aes)", "hmac(sha256)"), IpsecMode.TUNNEL)
"""The ESP that takes most bytes: what is published does not name it."""


class Concluded(msgspec.Struct, frozen=True, kw_only=True):
    """One published figure. ``added_ns`` is the time per I/O beyond the step before (the local disk; the
    same link without IPsec), ``framing_ns`` what ESP's bytes come to at most."""

    workload: str
    link: str
    ipsec: str
    mb_s: float
    ratio: float
    time_ns: float
    added_ns: float
    framing_ns: float | None
    limited_by: Limit
    confidence: Confidence
    sentence: str


class Published(msgspec.Struct, frozen=True, kw_only=True):
    """All of a matrix. ``noise`` is by link: how many times too high a figure of it was found, at least 1."""

    reference: str
    source: str
    noise: dict[str, float]
    cells: tuple[Concluded, ...]
    sentences: tuple[str, ...]


def conclude(reference: Reference, links: dict[str, LinkProfile]) -> Published:
    """What the matrix lets conclude; ``links`` by the names of its columns, for their rate and MTU."""
    noise = {
        link: max((ratio for ratio in _ratios(reference, link) if ratio > 1), default=1.0)
        for link in dict.fromkeys(column.link for column in reference.columns if column.link != LINK_LOCAL)
    }
    cells = [
        _cell(reference, workload, place, noise, links)
        for place, column in enumerate(reference.columns)
        if column.link != LINK_LOCAL
        for workload in reference.rows
    ]
    sentences = [_of_noise(link, factor) for link, factor in noise.items()]
    sentences += [
        _of_column(column, [c for c in cells if (c.link, c.ipsec) == (column.link, column.ipsec)], noise)
        for column in reference.columns
        if column.link != LINK_LOCAL
    ]
    return Published(
        reference=reference.title,
        source=reference.source,
        noise=noise,
        cells=tuple(cells),
        sentences=tuple(sentences),
    )


def _before(reference: Reference, place: int) -> int | None:
    """The column with one thing less in the way."""
    column = reference.columns[place]
    wanted = (LINK_LOCAL, IPSEC_OFF) if column.ipsec == IPSEC_OFF else (column.link, IPSEC_OFF)
    return next((n for n, c in enumerate(reference.columns) if (c.link, c.ipsec) == wanted), None)


def _ratios(reference: Reference, link: str) -> list[float]:
    """Each figure of the link's columns by the one with less in its way."""
    return [
        row[place] / row[before]
        for place, column in enumerate(reference.columns)
        if column.link == link and (before := _before(reference, place)) is not None
        for row in reference.rows.values()
    ]


def _cell(
    reference: Reference, workload: str, place: int, noise: dict[str, float], links: dict[str, LinkProfile]
) -> Concluded:
    column, row = reference.columns[place], reference.rows[workload]
    before = _before(reference, place)
    direction: Direction = "write" if "write" in workload else "read"
    block_bytes = _block_bytes(workload)
    time_ns = block_bytes / row[place] * 1e3
    base = row[before] if before is not None else row[place]
    added_ns = time_ns - block_bytes / base * 1e3
    framing_ns = None
    if column.ipsec != IPSEC_OFF and column.link in links:
        asked = path.demands(links[column.link], DEAREST, SESSION, direction, block_bytes)
        framing_ns = asked.esp_ns
    ratio, factor = row[place] / base, noise[column.link]
    limit, words = _limit(column, ratio, factor, time_ns, added_ns, framing_ns)
    return Concluded(
        workload=workload,
        link=column.link,
        ipsec=column.ipsec,
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
    protected = column.ipsec != IPSEC_OFF
    step = "without IPsec" if protected else "without the network"
    if ratio > 1 / noise:
        if ratio > 1:
            words = f"{ratio:.2f} times as fast as {step}, which nothing but chance or a cache explains"
        else:
            words = f"{ratio:.2f} of what it is {step}, no more than chance gave this link elsewhere"
        if protected:
            return Limit.UNKNOWN, f"{words}: of IPsec nothing can be concluded"
        return Limit.DEVICE, f"{words}: the disk"
    words = f"{ratio:.2f} of what it is {step}: {_time(added_ns)} more per I/O"
    if not protected or framing_ns is None:
        why = "neither a ping nor how busy they were is published"
        return Limit.UNKNOWN, f"{words}, for round trip, rate, iSCSI and processors; {why}, so not told which"
    share = (added_ns - framing_ns) / time_ns
    framing = f"of which ESP's bytes are at most {_time(framing_ns)} ({framing_ns / added_ns:.1%})"
    work = f"the implementation's work, {share:.0%} of its time"
    unknown = "whether cipher or kernel's path is not told without a column that does not encrypt"
    return Limit.UNKNOWN, f"{words}, {framing}: {work}; {unknown}"


def _of_noise(link: str, factor: float) -> str:
    if factor == 1:
        return f"{link}: no figure is higher for having more in its way, so its noise is not known"
    return (
        f"{link}: figures are up to {factor - 1:.0%} higher with more in their way, which cannot be; "
        f"a loss of less than {1 - 1 / factor:.0%} shows nothing there"
    )


def _of_column(column: ReferenceColumn, cells: Sequence[Concluded], noise: dict[str, float]) -> str:
    """What all figures of a column together say."""
    name = f"{column.title} with IPsec" if column.ipsec != IPSEC_OFF else column.title
    shown = [cell for cell in cells if cell.ratio <= 1 / noise[column.link]]
    if not shown:
        what = "IPsec" if column.ipsec != IPSEC_OFF else "the network"
        return f"{name}: no loss to {what} is shown in any of {len(cells)} figures"
    names = ", ".join(cell.workload for cell in shown)
    if len(shown) == 1:
        # The noise is known from below only, and one of many lies beyond it soon.
        return f"{name}: a loss is shown in {names} alone, of {len(cells)} figures: no more than a hint"
    words = f"{name}: a loss is shown in {len(shown)} of {len(cells)} figures ({names})"
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
        f"{words}; ESP's bytes are at most {most:.0%} of it, and iSCSI does the same with and without: the "
        f"implementation takes it, like one more stage of {min(stages):.0f} to {max(stages):.0f} MB/s in a "
        "row with the others"
    )


def _block_bytes(workload: str) -> int:
    size = workload.rpartition("-")[2]
    return parse_size(size) if size[:1].isdigit() else DEFAULT_BLOCK_BYTES


def _time(time_ns: float) -> str:
    return f"{time_ns / 1e6:.2f} ms" if time_ns >= 1e6 else f"{time_ns / 1e3:.0f} us"


def text(published: Published) -> str:
    """Sentences on the whole, then one for each figure."""
    lines = [f"{published.reference}: {published.source}", "", *published.sentences]
    for link in dict.fromkeys((cell.link, cell.ipsec) for cell in published.cells):
        found = [cell for cell in published.cells if (cell.link, cell.ipsec) == link]
        name = found[0].link if found[0].ipsec == IPSEC_OFF else f"{found[0].link} with IPsec"
        lines += ["", name]
        lines += [f"  {cell.workload}, {cell.mb_s:g} MB/s: {cell.sentence}" for cell in found]
    return "\n".join(lines)


def as_json(published: Published) -> bytes:
    """Like that of measured cells, with what was concluded in place of a waterfall."""
    return msgspec.json.format(msgspec.json.encode(published), indent=1)
