"""What a column costs, and why: the answer that most readers came for, in a sentence for each column.

A column with protection is compared with the same link and transport without it, any other column over a
network with the local disk. A loss is what a column lacks of the other one's throughput (1 - ratio), where
the ratio is the table's: the median of the ratios within blocks. Of disturbed figures only bounds are told:
between which two the loss would be if no other program had taken anything (``disturbance.undisturbed``).
A figure that is the lab's own is no part of an answer about a protection.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from harness.analysis.stats import Difference
from harness.explain.text import Explained
from harness.explain.verdict import Confidence, Limit
from harness.model import ISCSI, LINK_LOCAL, TRANSPORTS
from harness.model.escape import printable
from harness.model.lines import wrapped
from harness.parse.profiles import DEFAULT_PROPOSAL
from harness.table.options import Table, TableCell, TableColumn

LARGE_BYTES = 1 << 16
"""From here on a block is a super-packet or more."""

OFFLOAD = (
    "Without the kernel's module esp4_offload each packet of ESP passes TCP, IP and xfrm by itself: "
    f"{DEFAULT_PROPOSAL}-gso beside it, in the lab, tells what the module is worth."
)
"""What may help, and no model tells how much (docs/protections.md)."""


class Loss(msgspec.Struct, frozen=True, kw_only=True):
    """The cells of a column that have blocks of one size (None: of several).

    ``kept`` are their ratios to the baseline, in the table's order, or the bounds of all of them if
    ``is_disturbed``. ``is_shown``: at least one of them is shown to differ from 1; without repeats, or beside
    the local disk, nothing is tested.
    """

    block_bytes: int | None
    kept: tuple[float, ...]
    is_shown: bool
    cells: tuple[Explained, ...]
    is_disturbed: bool = False

    @property
    def size(self) -> str:
        """``4K``, as in the names of workloads."""
        if self.block_bytes is None:
            return "several sizes"
        return f"{self.block_bytes // 1024}K" if self.block_bytes % 1024 == 0 else f"{self.block_bytes} bytes"

    @property
    def words(self) -> str:
        """``-78 to -80 % at 256K``, ``between -52 and -31 % at 256K (disturbed)``."""
        least, most = _percent(min(self.kept)), _percent(max(self.kept))
        if self.is_disturbed:
            between = f"about {least}" if least == most else f"between {least} and {most}"
            return f"{between} % at {self.size} (disturbed)"
        nearest = (most, least) if abs(max(self.kept) - 1) <= abs(min(self.kept) - 1) else (least, most)
        changes = dict.fromkeys(nearest)
        doubt = "" if self.is_shown else " (no difference shown)"
        return f"{' to '.join(changes)} % at {self.size}{doubt}"


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """One column's answer. ``losses`` is empty if no figure that counts can be compared.

    ``subject`` says what costs, ``baseline`` beside what. ``labs_own`` are the workloads that are left out of
    the answer about a protection, because a figure is not the emulated link's, but the lab's own: the
    column's, or that beside it.
    """

    column: TableColumn
    subject: str
    baseline: str
    losses: tuple[Loss, ...]
    labs_own: tuple[str, ...] = ()
    is_disturbed: bool = False

    @property
    def cost(self) -> str:
        """What it costs, as a sentence."""
        if not self.losses:
            why = "a figure is missing"
            if self.is_disturbed:
                why = "its figures, or those beside it, are disturbed"
            elif self.labs_own:
                why = "its figures, or those beside it, are the lab's own"
            return f"{self.subject}: no answer, because {why}."
        losses = ", ".join(loss.words for loss in self.losses)
        return f"{self.subject}: {losses}, beside {self.baseline}."

    @property
    def cause(self) -> str:
        """What limits it, and how sure that is, as a sentence; empty without figures."""
        found = [(loss.size, limits(loss.cells)) for loss in self.losses if not loss.is_disturbed]
        if not found:
            return "What limits it is not told, because the figures are disturbed." if self.losses else ""
        if len({words for _, words in found}) == 1:
            return f"{_capital(found[0][1])}."
        return f"{_capital('; '.join(f'at {size} {words}' for size, words in found))}."

    @property
    def left_out(self) -> str:
        """What the answer leaves out, as a sentence; empty if it has all, or nothing."""
        if not (self.labs_own and self.losses):
            return ""
        those = f"{', '.join(self.labs_own)} {'is' if len(self.labs_own) == 1 else 'are'}"
        return f"{those} left out, because the lab limits there, not the link that it imitates."

    @property
    def sentences(self) -> tuple[str, str, str, str]:
        """All of it, each a sentence or empty."""
        return self.cost, self.left_out, self.cause, self.help

    @property
    def help(self) -> str:
        """What would help where the loss is largest, as a sentence; empty if that is not known."""
        sure = [loss for loss in self.losses if not loss.is_disturbed]
        cells = [pair for loss in sure for pair in zip(loss.kept, loss.cells, strict=True)]
        for _, cell in sorted(cells, key=lambda pair: pair[0]):
            change = cell.verdict.change
            if change is None or not cell.would_lift:
                continue
            known = f"{_capital(change.what)} {cell.would_lift}."
            return f"{known} {OFFLOAD}" if self._takes_packets_one_by_one else known
        return OFFLOAD if self._takes_packets_one_by_one else ""

    @property
    def _takes_packets_one_by_one(self) -> bool:
        """Whether ESP without segmentation offload has many packets to an I/O, and may be limited by that."""
        if DEFAULT_PROPOSAL not in self.column.protection:
            return False
        verdicts = [
            cell.verdict
            for loss in self.losses
            if not loss.is_disturbed and (loss.block_bytes or 0) >= LARGE_BYTES
            for cell in loss.cells
        ]
        return any(Limit.CPU in {each.limited_by, *each.either} for each in verdicts)


def answers(table: Table, cells: Sequence[Explained]) -> list[Answer]:
    """An answer for each measured column over a network that could be compared, in the table's order.

    ``table`` is of MB/s; ``cells`` are those of the same records.
    """
    of = {(cell.evidence.column, cell.evidence.workload): cell for cell in cells}
    labs_own = [cell for cell in cells if cell.verdict.is_labs_own]
    baselines = {(_beside(cell), cell.evidence.workload) for cell in labs_own if not cell.evidence.protection}
    several = len({column.heading[0] for column in table.columns}) > 1
    found = []
    for place, column in enumerate(table.columns):
        if column.setting is None or column.link == LINK_LOCAL:
            continue
        losses: dict[int | None, list[tuple[float, TableCell, Explained]]] = {}
        bounds: dict[int | None, list[tuple[tuple[float, float], Explained]]] = {}
        disturbed, left_out = False, list[str]()
        for row, line in zip(table.rows, table.cells, strict=True):
            cell, explained = line[place], of.get((column.label, row.workload))
            if cell is None or explained is None:
                continue
            kept = cell.ratio_to_no_ipsec if column.protection else cell.ratio_to_local
            disturbed |= any(beside is not None and beside.is_disturbed for beside in line)
            between = cell.bounds_to_no_ipsec if column.protection else cell.bounds_to_local
            size = explained.evidence.block_bytes
            is_own = explained.verdict.is_labs_own or (_beside(explained), row.workload) in baselines
            if column.protection and is_own:
                left_out.append(row.workload)
            elif kept is not None and not cell.is_disturbed:
                losses.setdefault(size, []).append((kept, cell, explained))
            elif between is not None and disturbed:
                bounds.setdefault(size, []).append((between, explained))
        # Without the local disk there is nothing to compare an unprotected column with.
        if not (losses or bounds or column.protection):
            continue
        told = [_bounded(size, bounds[size]) for size in bounds if size not in losses]
        told += [_loss(size, losses[size]) for size in losses]
        found.append(
            Answer(
                column=column,
                subject=_subject(column, with_setting=several),
                baseline=_baseline(column),
                losses=tuple(sorted(told, key=lambda loss: -(loss.block_bytes or 0))),
                labs_own=tuple(left_out),
                is_disturbed=disturbed,
            )
        )
    return found


def _beside(cell: Explained) -> tuple[object, ...]:
    """What a column has in common with its baseline."""
    of = cell.evidence
    return of.setting, of.link, of.transport, of.initiators


def in_words(found: Sequence[Answer], width: int) -> str:
    """Each answer's sentences, for people, in lines of ``width`` characters at most."""
    told = [" ".join(filter(None, answer.sentences)) for answer in found]
    return "\n".join(line for words in told for line in wrapped(printable(words), width, "  "))


def _loss(size: int | None, found: Sequence[tuple[float, TableCell, Explained]]) -> Loss:
    tested = {cell.difference_from_no_ipsec for _, cell, _ in found}
    return Loss(
        block_bytes=size,
        kept=tuple(kept for kept, _, _ in found),
        is_shown=bool(tested & {Difference.SHOWN, None}),
        cells=tuple(cell for _, _, cell in found),
    )


def _bounded(size: int | None, found: Sequence[tuple[tuple[float, float], Explained]]) -> Loss:
    return Loss(
        block_bytes=size,
        kept=(min(low for (low, _), _ in found), max(high for (_, high), _ in found)),
        is_shown=True,
        cells=tuple(cell for _, cell in found),
        is_disturbed=True,
    )


def _subject(column: TableColumn, *, with_setting: bool) -> str:
    """``IPsec aes128gcm16 over Gigabit Ethernet``."""
    origin, title, remarks, protection = column.heading
    transport = TRANSPORTS.get(column.transport or ISCSI, "")
    what = protection if column.protection else transport
    told = [remark for remark in remarks.split(", ") if remark and remark != "emulated"]
    if not column.protection and transport in told:
        told.remove(transport)
    brackets = f" ({', '.join(told)})" if told else ""
    return f"{f'{origin}: ' if origin and with_setting else ''}{what} over {title}{brackets}"


def _baseline(column: TableColumn) -> str:
    return "the same link without it" if column.protection else "the local disk"


def limits(cells: Sequence[Explained]) -> str:
    """What limits these cells, the most frequent first: ``limited by crypto work (confidence high)``."""
    known = [cell for cell in cells if cell.verdict.limited_by is not Limit.UNKNOWN]
    if not known:
        either = {limit for cell in cells for limit in cell.verdict.either}
        if not either:
            return "no verdict on what limits it"
        names = " or ".join(limit.words(cells[0].evidence) for limit in sorted(either))
        return f"limited by {names}, which of them is not clear"
    limits = [cell.verdict.limited_by for cell in known]
    ranked = sorted(dict.fromkeys(limits), key=limits.count, reverse=True)
    names = " or ".join(limit.words(cells[0].evidence) for limit in ranked)
    least = max((cell.verdict.confidence for cell in known), key=list(Confidence).index)
    part = "" if len(known) == len(cells) else f" in {len(known)} of {len(cells)} workloads"
    return f"limited by {names}{part} (confidence {least})"


def _percent(kept: float) -> str:
    """The change in whole percent; a loss of nearly all has a tenth, because -100 says that all is lost."""
    change = round(100 * (kept - 1))
    if change == -100 and kept > 0:
        return f"{max(100 * (kept - 1), -99.9):.1f}"
    return f"{change:+d}" if change else "0"


def _capital(words: str) -> str:
    return words[:1].upper() + words[1:]
