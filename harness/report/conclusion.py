"""What a column reaches and costs, and why: the answer that most readers came for, which ``summary`` words.

A column without protection is held to what its link carries, its goodput, and to what one request at a time
allows (``bounds``); and to the local disk, unless that is memory, next to which every network looks broken. A
column with protection is compared with the same link and transport without it.

A comparison is of all cells together that have blocks of one size and one depth: in each round of
the run, the median of their ratios. These have a 95 % interval, since rounds were measured one after another
and cells of one round share its noise. A cell whose own interval lies wholly outside that one is given
by itself; if half of them do, each is. Disturbed figures are compared within each round (``duet``). Where
that says nothing, bounds are given: between which two the loss would be if no other program had taken
anything (``disturbance.undisturbed``). A figure that is the lab's own is no part of an answer about a
protection.
"""

from __future__ import annotations

import collections
from collections.abc import Sequence

import msgspec

from harness.analysis import duet, stats
from harness.analysis.duet import Duet
from harness.analysis.limit import Limit
from harness.analysis.stats import MARGIN, Difference
from harness.explain.headroom import Headroom
from harness.explain.limits import RULES
from harness.explain.text import Explained
from harness.explain.verdict import Confidence
from harness.model import Setting, Status
from harness.model.lines import capital, counted, listed
from harness.parse.profiles import DEFAULT_PROPOSAL
from harness.results.columns import CellKey
from harness.table.options import Table, TableCell, TableColumn

LARGE_BYTES = 1 << 16
"""From here on a block is a super-packet or more."""

ABOVE = 1.05
"""A figure that is this much above the goodput is no figure of that link as its plan has it."""

MOST = 4
"""So many workloads are named, and so many sizes and depths; others are counted."""

PER_HOST = 0.02
"""A cell that costs less than this more than the others, or less, is worth no sentence of its own."""

WIDEST = 2.0
"""An interval that reaches from twice as fast on tells nothing."""

TENTHS = 0.95
"""Percent: a change known better than this has a tenth."""

OFFLOAD = (
    "The kernel's module esp4_offload may help: in the lab, another column with "
    f"{DEFAULT_PROPOSAL}-gso tells how much."
)
"""What may help, and no model tells how much (docs/protections.md)."""


class ThroughputRatio(msgspec.Struct, frozen=True, kw_only=True):
    """A ratio of throughputs, below 1 if something is lost, with its 95 % interval (None: measured once).

    ``is_exact``: in virtual time, which repeats exactly.
    """

    ratio: float
    interval: tuple[float, float] | None
    is_exact: bool = False

    @classmethod
    def of(cls, ratios: Sequence[float], *, is_exact: bool) -> ThroughputRatio:
        interval = stats.ratio_interval(ratios)
        return cls(ratio=stats.median(ratios), interval=interval, is_exact=is_exact)

    @classmethod
    def next_to_others(cls, found: Duet) -> ThroughputRatio:
        return cls(ratio=found.ratio, interval=found.interval)

    @property
    def difference(self) -> Difference | None:
        return stats.difference(self.interval)

    @property
    def is_reported(self) -> bool:
        """Whether it is a figure: not if a difference is neither shown nor ruled out."""
        return self.difference in (Difference.DIFFERENT, None)

    @property
    def brief(self) -> str:
        """What is lost: ``3 % (2-4)``, with its interval in brackets."""
        is_close = self.interval is not None and len({*map(_amount, self.interval)}) == 1
        amount = f"{_amount(self.ratio, tenths=is_close and not self.is_exact)} %"
        amount += " faster" if self.ratio > 1 else ""
        if self.is_exact:
            return amount
        if self.interval is None:
            return f"{amount} (measured once)"
        least, most = signed(self.interval)
        match self.difference:
            case Difference.DIFFERENT:
                return f"{amount} ({_ends(self.interval)})"
            case Difference.EQUIVALENT:
                return f"under {100 * MARGIN:.0f} % ({least} to {most})"
            case _ if self.interval[1] < WIDEST:
                return f"unclear ({least} to {most} %)"
            case _:
                return "unclear"

    @property
    def lost(self) -> str:
        """What is lost, in few characters: ``-2.4 % ±0.2``, as far as the farther end of its interval is."""
        if self.difference is Difference.EQUIVALENT:
            return f"< {100 * MARGIN:.0f} %"
        if self.difference is Difference.INCONCLUSIVE:
            return "unclear"
        ends = self.interval or (self.ratio, self.ratio)
        off = 100 * max(abs(end - self.ratio) for end in ends)
        is_close = not self.is_exact and self.interval is not None and off < TENTHS
        amount = _amount(self.ratio, tenths=is_close)
        amount = f"{'' if float(amount) == 0 else '-' if self.ratio < 1 else '+'}{amount} %"
        if self.is_exact or self.interval is None:
            return amount
        return f"{amount} ±{max(off, 0.1):.{1 if is_close else 0}f}"


class Loss(msgspec.Struct, frozen=True, kw_only=True):
    """The cells of a column that have blocks of one size (None: of several) at one depth (None: unknown).

    ``kept`` are the parts that they have, in the table's order: of the same link without protection, of the
    local disk, or of the link's goodput (1, if that is unknown). If ``is_disturbed``, it has both ends of
    ``duet``, or the bounds of all cells, or nothing. ``compared`` is that of all cells together, ``apart``
    of those cells which differ from the others, by workload: all of them, if half do. ``duet`` is that of all
    repeats, disturbed or not, within each round, where fewer than two undisturbed rounds are left.
    """

    block_bytes: int | None
    kept: tuple[float, ...]
    cells: tuple[Explained, ...]
    depth: int | None = 1
    compared: ThroughputRatio | None = None
    apart: tuple[tuple[str, ThroughputRatio], ...] = ()
    is_disturbed: bool = False
    duet: Duet | None = None

    @property
    def group(self) -> Group:
        return self.block_bytes, self.depth

    @property
    def size(self) -> str:
        """``4K``, as in the names of workloads; with the depth, if that is not 1."""
        deep = f", {self.depth} at a time" if self.depth is not None and self.depth > 1 else ""
        if self.block_bytes is None:
            return f"several sizes{deep}"
        if self.block_bytes % 1024:
            return f"{self.block_bytes} bytes{deep}"
        return f"{self.block_bytes // 1024}K{deep}"

    @property
    def depends(self) -> bool:
        """Whether the cells differ so much that one figure of all says nothing."""
        return len(self.apart) >= max(2, len(self.cells))

    @property
    def goodput_mb_s(self) -> float | None:
        return next((cell.evidence.goodput_mb_s for cell in self.cells), None)

    @property
    def most_mb_s(self) -> float | None:
        """What the link carries in the frames of this column's protection."""
        for cell in self.cells:
            path = cell.evidence.path
            if cell.evidence.column.protection and path is not None and (most := cell.rate(path.busy_ns)):
                return most
        return self.goodput_mb_s

    @property
    def mb_s(self) -> list[float]:
        """What its cells move."""
        return [cell.mb_s for cell in self.cells if cell.mb_s is not None]

    @property
    def latency_bound_mb_s(self) -> list[float]:
        """The most that one request at a time allows each of its cells; empty if that is not known of all."""
        known = [cell.evidence.one_at_a_time_mb_s for cell in self.cells]
        found = [most for most in known if most is not None]
        return found if len(found) == len(known) else []

    @property
    def is_waiting(self) -> bool:
        """Whether one request at a time waits rather than transfers, so that the link's rate says nothing."""
        found = self.mb_s or [rate for cell in self.cells if (rate := cell.at_least_mb_s) is not None]
        alone = self.latency_bound_mb_s
        if not found or not alone:
            return False
        # Where the rate is not known, the transfer is not in that bound.
        is_unknown = any(cell.evidence.rate_unknown for cell in self.cells)
        streams = [cell.evidence.stream_mb_s or 0.0 for cell in self.cells]
        rate = self.most_mb_s or (max(*found, *streams) if is_unknown else None)
        return not (rate and 2 * max(alone) > rate) and max(found) <= ABOVE * max(alone)

    @property
    def is_above(self) -> bool:
        """Whether a figure is none of that link as its plan has it."""
        most = self.most_mb_s
        return most is not None and not self.is_waiting and max(self.mb_s, default=0.0) > ABOVE * most

    @property
    def is_part(self) -> bool:
        """Whether what was kept is a part of something that is known."""
        if self.is_disturbed:
            return bool(self.kept)
        return self.compared is not None or self.goodput_mb_s is not None


class Hiding(msgspec.Struct, frozen=True, kw_only=True):
    """A cell whose limit hides what its protection costs, up to which load, and the size of its blocks in
    words."""

    cell: Explained
    found: Headroom
    size: str


Group = tuple[int | None, int | None]
"""The size of blocks in bytes (None: several), and the depth (None: unknown)."""


def ends(groups: Sequence[Group]) -> Sequence[Group]:
    """Those that are shown: all, or of more than ``MOST`` the largest and the smallest blocks, each alone and
    with the most at a time. They are ordered by size, the largest first, and then by depth."""
    if len(groups) <= MOST:
        return groups
    found: list[Group] = []
    for size in dict.fromkeys((groups[0][0], groups[-1][0])):
        depths = [group for group in groups if group[0] == size]
        found += [depths[0], *depths[1:][-1:]]
    return found


class Conclusion(msgspec.Struct, frozen=True, kw_only=True):
    """One column's answer. ``losses`` is empty if there is no figure that counts.

    ``baseline`` is the name of the column that it is compared with, empty without protection. ``lab_limited``
    are the workloads that are left out of the answer about a protection, because a figure is not the emulated
    link's, but the lab's own: the column's, or that which it is compared with. ``disturbed`` are those left
    out for that; ``is_disturbed``: any figure is. ``lacks`` says what has no figure at all, and why.
    ``hiding`` is a cell whose limit hides what the protection costs; as that is about a core, the first
    link's answer has it. ``memory`` says, in the first answer, that reads may come from the target's memory.
    """

    column: TableColumn
    baseline: str
    losses: tuple[Loss, ...]
    lab_limited: tuple[str, ...] = ()
    disturbed: tuple[str, ...] = ()
    is_disturbed: bool = False
    lacks: str = ""
    hiding: Hiding | None = None
    memory: str = ""

    @property
    def shown(self) -> tuple[Loss, ...]:
        """Those that are shown (``ends``)."""
        kept = ends([loss.group for loss in self.losses])
        return tuple(loss for loss in self.losses if loss.group in kept)

    @property
    def why_none(self) -> str:
        """Why there is no answer."""
        if self.is_disturbed:
            return "it or its baseline was disturbed"
        if self.lab_limited:
            return "the lab limited it or its baseline"
        return self.lacks or "its baseline is unknown"

    @property
    def proved(self) -> str:
        """That only one end was seen, as a sentence; empty if both were."""
        if self.column.column.filesystem:
            return "Its network path is not proven."
        is_one_end = any(cell.evidence.is_one_end for loss in self.losses for cell in loss.cells)
        return "The target was not monitored." if is_one_end else ""

    @property
    def unknown(self) -> str:
        """That the rate of a column's link without protection is not known, as a sentence; else empty."""
        whys = {cell.evidence.rate_unknown for loss in self.losses for cell in loss.cells} - {""}
        return " ".join(f"{capital(why)}." for why in sorted(whys) if not self.baseline)

    @property
    def takes_packets_one_by_one(self) -> bool:
        """Whether ESP without segmentation offload has many packets to an I/O, and may be limited by that."""
        if DEFAULT_PROPOSAL not in self.column.column.protection:
            return False
        verdicts = [
            cell.verdict
            for loss in self.losses
            if not loss.is_disturbed and (loss.block_bytes or 0) >= LARGE_BYTES
            for cell in loss.cells
        ]
        return any(Limit.CPU in {each.limited_by, *each.either} for each in verdicts)


def answers(table: Table, cells: Sequence[Explained]) -> list[Conclusion]:
    """An answer for each measured column over a network that has a figure or is compared, in the table's
    order.

    ``table`` is of MB/s; ``cells`` are those of the same records.
    """
    of = {cell.evidence.cell: cell for cell in cells}
    baselines = {
        (cell.evidence.key.setting, cell.evidence.column.bare, cell.evidence.workload)
        for cell in cells
        if cell.verdict.is_lab_limited and not cell.evidence.column.protection
    }
    found: list[Conclusion] = []
    packages: set[tuple[Setting | None, str | None, tuple[str, ...]]] = set()
    for place, column in enumerate(table.columns):
        if column.key is None or column.column.is_local:
            continue
        is_protected = bool(column.column.protection)
        clean: dict[Group, list[_Held]] = {}
        bounded: dict[Group, list[_Held]] = {}
        is_disturbed, left_out, disturbed = False, list[str](), dict[str, Group]()
        for row, line in zip(table.rows, table.cells, strict=True):
            cell, explained = line[place], of.get(CellKey(column.key, row.workload))
            if cell is None or explained is None:
                continue
            is_disturbed |= any(other is not None and other.is_disturbed for other in line)
            group = explained.evidence.block_bytes, explained.evidence.depth
            compared_with = column.setting, column.column.bare, row.workload
            is_own = explained.verdict.is_lab_limited or compared_with in baselines
            kept = _kept(column, cell, explained)
            if is_protected and is_own:
                left_out.append(row.workload)
            elif kept is not None and not cell.is_disturbed:
                clean.setdefault(group, []).append(_Held(cell, explained, (kept,)))
            elif cell.is_disturbed or (cell.bounds is not None and is_disturbed):
                bounds = cell.bounds if is_protected or not column.is_memory else None
                bounded.setdefault(group, []).append(_Held(cell, explained, bounds or ()))
                disturbed[row.workload] = group
        is_compared = is_protected or not column.is_memory
        sentences = [_loss(group, held, is_compared=is_compared) for group, held in clean.items()]
        sentences += [
            _loss(group, held, is_compared=is_compared, is_disturbed=True)
            for group, held in bounded.items()
            if group not in clean
        ]
        losses = tuple(sorted(sentences, key=lambda loss: (-(loss.block_bytes or 0), loss.depth or 0)))
        room = (column.setting, column.column.transport, column.column.protection)
        hiding = None if room in packages else _hiding(losses)
        packages |= {room} if hiding is not None else set()
        found.append(
            Conclusion(
                column=column,
                baseline=column.column.bare.label if is_protected else "",
                losses=losses,
                hiding=hiding,
                memory="" if any(each.memory for each in found) else _memory(column, cells),
                lab_limited=tuple(left_out),
                disturbed=tuple(name for name, of in disturbed.items() if of in clean or of not in bounded),
                is_disturbed=is_disturbed,
                lacks=_lacks(table, column),
            )
        )
    return found


class _Held(msgspec.Struct, frozen=True):
    """A cell, and the part that it has of what it is held to; or both bounds of that."""

    cell: TableCell
    explained: Explained
    kept: tuple[float, ...]


def _kept(column: TableColumn, cell: TableCell, explained: Explained) -> float | None:
    """The part that a cell has of what it is held to; None if that is unknown."""
    if column.column.protection:
        return cell.ratio_to_unprotected
    if not column.is_memory and cell.ratio_to_local is not None:
        return cell.ratio_to_local
    if cell.value is None or explained.mb_s is None:
        return None
    goodput = explained.evidence.goodput_mb_s
    return explained.mb_s / goodput if goodput else 1.0


def _memory(column: TableColumn, cells: Sequence[Explained]) -> str:
    """That its reads may come from the target's memory, as a sentence; empty if nothing says so."""
    found = [cell.evidence.reread for cell in cells if cell.evidence.key == column.key]
    return next((f"{capital(reread.words)}." for reread in found if reread is not None), "")


def _hiding(losses: Sequence[Loss]) -> Hiding | None:
    """Of the largest and deepest I/Os, the cell that a link hides what the protection costs; None if it
    shows."""
    for loss in sorted(losses, key=lambda loss: (-(loss.block_bytes or 0), -(loss.depth or 0))):
        for cell in loss.cells if not loss.is_disturbed else ():
            if found := cell.verdict.headroom:
                return Hiding(cell=cell, found=found, size=loss.size)
    return None


def _loss(group: Group, found: Sequence[_Held], *, is_compared: bool, is_disturbed: bool = False) -> Loss:
    size, depth = group
    compared = _compared(found) if is_compared and not is_disturbed else None
    pairs = [pair for held in found for pair in held.cell.pairs] if is_compared else []
    # Where two undisturbed pairs are left, they tell.
    alike = duet.compare(pairs) if compared is None or compared.interval is None else None
    if compared is not None and alike is not None and alike.is_stated:
        compared = ThroughputRatio.next_to_others(alike)
    parts = [part for held in found for part in held.kept]
    return Loss(
        block_bytes=size,
        depth=depth,
        kept=alike.interval if is_disturbed and alike is not None and alike.is_stated else tuple(parts),
        duet=alike,
        cells=tuple(held.explained for held in found),
        compared=compared,
        apart=_apart(found, compared) if compared is not None else (),
        is_disturbed=is_disturbed,
    )


def _compared(found: Sequence[_Held]) -> ThroughputRatio | None:
    """All cells together: the median of their ratios in each round that has all of them.

    Without two such rounds, the median of the cells' own ratios, and from the lowest end to the highest of
    their intervals. None if nothing was compared.
    """
    is_exact = all(held.explained.evidence.is_virtual for held in found)
    each = [held.cell.within_rounds for held in found]
    common = [one for one in each[0] if all(one in ratios for ratios in each)]
    if len(common) > 1 or (common and all(len(ratios) == 1 for ratios in each)):
        pooled = [stats.median([ratios[one] for ratios in each]) for one in common]
        return ThroughputRatio.of(pooled, is_exact=is_exact)
    medians = [held.cell.ratio_to_unprotected or held.cell.ratio_to_local for held in found]
    known = [ratio for ratio in medians if ratio]
    if len(known) < len(found):
        return None
    intervals = [stats.ratio_interval(list(ratios.values())) for ratios in each]
    ends = [interval for interval in intervals if interval is not None]
    widest = None
    if len(ends) == len(found):
        widest = min(low for low, _ in ends), max(high for _, high in ends)
    return ThroughputRatio(ratio=stats.median(known), interval=widest, is_exact=is_exact)


def _apart(found: Sequence[_Held], together: ThroughputRatio) -> tuple[tuple[str, ThroughputRatio], ...]:
    """The cells that are ``PER_HOST`` from all together, and whose interval has nothing in common with
    theirs; all cells, if half are so."""
    if together.interval is None or len(found) < 2:
        return ()
    low, high = together.interval
    own = [
        (
            held.explained.evidence.workload,
            ThroughputRatio.of(list(held.cell.within_rounds.values()), is_exact=together.is_exact),
        )
        for held in found
        if held.cell.within_rounds
    ]
    apart = [
        (workload, one)
        for workload, one in own
        if one.interval is not None
        and abs(one.ratio - together.ratio) > PER_HOST
        and (one.interval[1] < low or one.interval[0] > high)
    ]
    return tuple(own if 2 * len(apart) >= len(found) else apart)


_ENDED = {
    Status.OK: "without one",
    Status.FAILED: "failed",
    Status.INVALID: "invalid",
    Status.SKIPPED: "skipped",
}


def _lacks(table: Table, column: TableColumn) -> str:
    """Why there is no ratio: what has no figure, the column or that which it is compared with."""
    for name, wanted in (("it", column.column), (column.column.bare.label, column.column.bare)):
        cells = [
            cell
            for line in table.cells
            for other, cell in zip(table.columns, line, strict=True)
            if cell is not None and (other.setting, other.column) == (column.setting, wanted)
        ]
        if not cells:
            return f"{name} was not measured"
        if not any(cell.value for cell in cells):
            ended = collections.Counter(_ENDED[cell.status] for cell in cells)
            return f"{name} has no figure: " + listed(
                [f"{counted(n, 'cell')} {how}" for how, n in ended.items()]
            )
    return ""


def limits(cells: Sequence[Explained]) -> str:
    """What limits these cells, and how sure that is: ``limited by crypto work (confidence high)``."""
    names, part, how = _limits(cells)
    return f"limited by {names}{part} ({how})" if names else "no verdict on what limits it"


UNTOLD = "something unknown"


def by_limit(cells: Sequence[Explained]) -> str:
    """The same in a list: ``the round trip``; of two of which it is one, both: ``the rate or the disk``."""
    names, part, _ = _limits(cells)
    several = len({cell.verdict.limited_by for cell in cells} - {Limit.UNKNOWN}) > 1
    return f"{names}{', by workload' if several else part}" or UNTOLD


def _limits(cells: Sequence[Explained]) -> tuple[str, str, str]:
    """The limits in words, the most frequent first; of how many of the cells they are known; and how sure
    that is. Empty if nothing is known."""
    known = [cell.verdict for cell in cells if cell.verdict.limited_by is not Limit.UNKNOWN]
    found = [verdict.limited_by for verdict in known]
    ranked = sorted(dict.fromkeys(found), key=found.count, reverse=True)
    ranked = ranked or sorted({limit for cell in cells for limit in cell.verdict.either})
    names = " or ".join(RULES[limit].words(cells[0].evidence) for limit in ranked)
    if not known:
        return names, "", "unclear which"
    part = "" if len(known) == len(cells) else f" in {len(known)} of {len(cells)} workloads"
    least = max((verdict.confidence for verdict in known), key=list(Confidence).index)
    return names, part, f"confidence {least}"


def bound(rate: float) -> str:
    """A bound for people: ``117.7``, ``5.98``."""
    return f"{rate:.1f}" if rate >= 10 else f"{rate:.3g}"


def _amount(ratio: float, *, tenths: bool = False) -> str:
    """The change in percent without its sign: whole, but for ``tenths`` a tenth, and below 1 and near 100,
    which says that all is lost."""
    change = abs(100 * (ratio - 1))
    if 99 < change < 100:
        return f"{min(change, 99.9):.1f}"
    return f"{change:.1f}" if tenths or 0.05 <= change < 0.95 else f"{change:.0f}"


def signed(interval: tuple[float, float]) -> tuple[str, str]:
    """The least and the most that is lost, in percent; below zero it is faster."""
    least, most = (f"{'-' * (end > 1)}{_amount(end)}" for end in reversed(interval))
    return least, most


def _ends(interval: tuple[float, float]) -> str:
    """``2-4``; closer ends have a tenth, or are ``within 0.1``."""
    least, most = sorted(interval, key=lambda ratio: abs(ratio - 1))
    if (low := _amount(least)) != (high := _amount(most)):
        return f"{low}-{high}"
    ends = dict.fromkeys(_amount(end, tenths=True) for end in (least, most))
    return "-".join(ends) if len(ends) > 1 else "within 0.1"
