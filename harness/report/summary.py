"""The answer in a few lines, for terminal, page and picture: what was measured, a table of what each column
reaches, and what follows from it.

A row is a column of the matrix, indented if it is the one above with a protection. For each size of blocks
(and depth) it has the slowest and the fastest workload, and then the most that the link lets through, or what
the protection takes. Below it stand what limits, where the time goes, what would help, and what was left out:
a line or two for each, and only where there is any. However many columns there are, ``MOST`` are named.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence

import msgspec

from harness.analysis import stats
from harness.analysis.duet import Duet
from harness.analysis.limit import Limit
from harness.analysis.stats import Difference
from harness.explain import headroom
from harness.explain.limits import RULES
from harness.explain.remedy import Change
from harness.explain.text import Explained, short
from harness.explain.verdict import Confidence
from harness.model import Record, Setting, Status, block_word, transport_title
from harness.model.escape import printable
from harness.model.lines import capital, counted, listed, wrapped
from harness.model.protections import PROTECTIONS
from harness.report.conclusion import (
    LARGE_BYTES,
    MOST,
    OFFLOAD,
    UNTOLD,
    WIDEST,
    Conclusion,
    Group,
    Loss,
    ThroughputRatio,
    bound,
    by_limit,
    ends,
    signed,
)
from harness.results.columns import by_column
from harness.results.measured import Measured

FEW = 1
"""Of more than ``MOST``, so many are named where each needs many words."""

MOST_REASONS = 2
"""So many reasons for doubt, and for having no answer, are named."""

LEAST = 0.03
"""A part of an I/O's time that is less than this part of it is not named."""

MOST_ROUNDS = 500
"""Who needs more of them needs a quieter machine."""

BROADEST = 0.5
"""Bounds of a loss that are further apart say nothing."""

GAP = "  "
"""Between two columns of the table; a blank more is between two sizes."""

COMMAND = "  "
"""Begins a line that is to be copied, and so stays whole."""

Command = Callable[[Sequence[Explained]], str]
"""What to type to try what is forecast of some cells of one workload; empty if it cannot be tried."""


class FiguresOfSize(msgspec.Struct, frozen=True, kw_only=True):
    """The table's columns of one size of blocks: what stands above them, the name of each, and a line of
    figures for each row; empty where there is none."""

    heading: str
    names: Sequence[str]
    figures: Sequence[Sequence[str]]


class SettingAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """What is said of all columns of one setting, unescaped: where and how it was measured, what its
    links carry, the table with the titles of its rows and what its figures are (all empty without any), and
    what follows."""

    circumstances: str
    links: str = ""
    titles: Sequence[str] = ()
    blocks: Sequence[FiguresOfSize] = ()
    legend: str = ""
    sentences: Sequence[str] = ()

    def table(self, width: int) -> list[str]:
        """The table in lines. What does not fit next to each other has no IOPS, which follow from MB/s; if
        it still does not, one size is below the other."""
        if not self.blocks:
            return []
        names = ["", "", *self.titles]
        first, gap = max(map(len, names)), GAP + " "

        def taken(blocks: Sequence[list[str]]) -> int:
            """How many of these fit into a line."""
            room, count = width - first, 0
            while count < len(blocks) and (room := room - len(gap) - len(blocks[count][0])) >= 0:
                count += 1
            return max(1, count)

        blocks = [_aligned(block) for block in self.blocks]
        if taken(blocks) < len(blocks):
            blocks = [_aligned(block, without="IOPS") for block in self.blocks]
        made: list[str] = []
        while blocks:
            count = taken(blocks)
            parts = [[name.ljust(first) for name in names], *blocks[:count]]
            made += [gap.join(line).rstrip() for line in zip(*parts, strict=True)]
            blocks = blocks[count:]
        return [*map(printable, made)]


def _aligned(block: FiguresOfSize, without: str = "") -> list[str]:
    """The columns of one size, as lines of one width: two of a heading, and one for each row."""
    kept = [place for place, name in enumerate(block.names) if name != without]
    table = [[line[place] for place in kept] for line in (block.names, *block.figures)]
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    made = [GAP.join(map(str.rjust, line, widths)) for line in table]
    across = max(len(block.heading) + 4, *map(len, made))
    return [f" {block.heading} ".center(across, "-"), *(line.rjust(across) for line in made)]


def said(
    found: Sequence[Conclusion], results: Measured, command: Command = lambda _: ""
) -> list[SettingAnswer]:
    """An answer for each setting; ``results`` is what the conclusions are about."""
    of: dict[Setting | None, list[Conclusion]] = {}
    for conclusion in found:
        of.setdefault(conclusion.column.setting, []).append(conclusion)
    return [_Answer.of(conclusions, results).said(setting, command) for setting, conclusions in of.items()]


def lines(
    found: Sequence[Conclusion],
    results: Measured,
    width: int,
    volumes: Sequence[str] = (),
    command: Command = lambda _: "",
) -> list[str]:
    """The lines of the answer, none longer than ``width``, unless names or commands alone are.

    ``results`` is what the conclusions are about. ``volumes`` are lines on what a volume keeps, below the
    table; they say nothing of which machine, so of several there are none.
    """
    answers = said(found, results, command)
    made: list[str] = []
    for answer in answers:
        made += [""] * bool(made)
        made += _wrapped([answer.circumstances, answer.links], width)
        made += answer.table(width)
        made += _wrapped([answer.legend], width)
        made += volumes if len(answers) == 1 else ()
        made += _wrapped(answer.sentences, width)
    return made


def _wrapped(said: Iterable[str], width: int) -> list[str]:
    return [
        line
        for each in said
        if each
        for line in ([printable(each)] if each.startswith(COMMAND) else wrapped(printable(each), width, "  "))
    ]


class _Row(msgspec.Struct, frozen=True, kw_only=True):
    """A column of the matrix: its name in the table's row, and its short one in sentences.

    ``path`` is what it has in common with the column without protection.
    """

    conclusion: Conclusion
    title: str
    path: str
    name: str

    @property
    def protection(self) -> str:
        """In full; empty without any."""
        column = self.conclusion.column
        return column.heading[3] if column.column.protection else ""

    @property
    def carrier(self) -> str:
        of = self.conclusion.column.column
        return transport_title(of.transport) or of.filesystem

    def loss(self, group: Group) -> Loss | None:
        size, depth = group
        of_size = (loss for loss in self.conclusion.losses if loss.block_bytes == size)
        return next((loss for loss in of_size if loss.depth in (depth, None)), None)

    def clean(self, group: Group) -> Loss | None:
        """The same, unless it is disturbed."""
        loss = self.loss(group)
        return None if loss is None or loss.is_disturbed else loss

    def lost(self, group: Group) -> str:
        """What the protection takes, in few characters; empty without one, and where that is not known."""
        loss = self.loss(group)
        if loss is None or not self.protection:
            return ""
        if loss.duet is not None:
            # Measured next to other programs: what is lost, or at most, or a sign that it cannot be said.
            if not loss.duet.is_stated:
                return "?"
            ratio = ThroughputRatio.next_to_others(loss.duet)
            return f"~{ratio.lost}" if ratio.is_reported else f"~< {signed(loss.duet.interval)[1]} %"
        if loss.compared is None:
            return ""
        return "by workload" if loss.depends else loss.compared.lost

    @property
    def cells(self) -> Iterable[Explained]:
        return (cell for loss in self.conclusion.losses for cell in loss.cells)


class _Answer(msgspec.Struct, frozen=True, kw_only=True):
    """All columns of one setting. ``rows`` are those with a figure, ``unexplained`` the others.
    ``groups`` are the sizes of blocks that are shown, with their depths, and ``left`` how many are not.
    ``records`` are those of the columns."""

    rows: Sequence[_Row]
    unexplained: Sequence[_Row]
    groups: Sequence[Group]
    left: int
    records: Sequence[Record]

    @classmethod
    def of(cls, found: Sequence[Conclusion], results: Measured) -> _Answer:
        reported = [each for each in found if each.losses]
        rows = _rows(reported, found)
        sizes = {loss.group: None for each in reported for loss in each.losses}
        # Of several initiators the depth is not known, and not another one.
        known = {size for size, depth in sizes if depth is not None}
        ordered = sorted(
            ((size, depth) for size, depth in sizes if depth is not None or size not in known),
            key=lambda group: (-(group[0] or 0), group[1] or 0),
        )
        groups = ends(ordered)
        keys = {conclusion.column.key for conclusion in found}
        records = [
            record
            for key, cells in by_column(results.records).items()
            if key in keys
            for of_cell in cells.values()
            for record in of_cell
        ]
        return cls(
            rows=rows,
            unexplained=_rows([each for each in found if not each.losses], found),
            groups=groups,
            left=len(ordered) - len(groups),
            records=records,
        )

    @property
    def cells(self) -> list[Explained]:
        """Those that are shown, and that nothing disturbed."""
        losses = (row.clean(group) for group in self.groups for row in self.rows)
        return [cell for loss in losses if loss is not None for cell in loss.cells]

    @property
    def has_depths(self) -> bool:
        return len({depth for _, depth in self.groups} - {None}) > 1

    def size(self, group: Group) -> str:
        """``4K``; with the depth, ``4K x8``, if several are shown."""
        size, depth = group
        if size is None:
            words = "several sizes"
        else:
            words = f"{size} bytes" if size % 1024 else block_word(size).upper()
        return f"{words} x{depth}" if self.has_depths and depth is not None else words

    def circumstances(self, setting: Setting | None) -> str:
        """Where, over what, on what, and how many requests at a time."""
        found = [row.conclusion for row in (*self.rows, *self.unexplained)]
        if setting is None or not setting.is_harness:
            return "fio output (path not recorded):"
        emulated = frozenset(record.emulated for record in self.records if record.column.has_path)
        transports = dict.fromkeys(
            transport_title(each.column.column.transport) or each.column.column.filesystem for each in found
        )
        links = {frozenset({True}): " over emulated links", frozenset({False}): " over real links"}.get(
            emulated, ""
        )
        depths = sorted({depth for _, depth in self.groups if depth is not None})
        parts = [f"{' and '.join(filter(None, transports))}{links}"]
        parts += [each.column.heading[1] for each in found if each.column.column.filesystem]
        parts += ["disk in memory"] * any(each.column.is_memory for each in found)
        if self.has_depths:
            parts.append(f"{', '.join(f'x{depth}' for depth in depths)}: requests in flight")
        elif depths:
            parts.append(self.at_a_time)
        parts += [
            f"{words[:1].lower()}{words[1:]}"
            for words in dict.fromkeys(each.proved for each in found)
            if words
        ]
        return f"{capital(setting.name)}: {', '.join(part.rstrip('.') for part in parts)}."

    def links(self) -> str:
        """What each link carries, and how long a round trip over it takes without a load: most of the time of
        a small request."""
        found: dict[str, str] = {}
        carries, trip = "carries ", "round trip "
        for row in self.rows:
            link = row.conclusion.column.column.link
            for evidence in (cell.evidence for cell in row.cells if link not in found):
                parts = [f"{carries}{bound(evidence.goodput_mb_s)} MB/s"] if evidence.goodput_mb_s else []
                carries = "" if parts else carries
                if evidence.path is not None and evidence.path.round_trip_ns:
                    parts.append(f"{trip}{evidence.path.round_trip_ns / 1e6:.2g} ms")
                    trip = ""
                if parts:
                    found[link] = f"{link} {', '.join(parts)}"
                    break
        named = _few([*found.values()], "; ")
        return f"{'Links' if len(found) > 1 else 'Link'}: {named}." if found else ""

    def said(self, setting: Setting | None, command: Command) -> SettingAnswer:
        """All of it; without any figure no table."""
        answer = SettingAnswer(
            circumstances=self.circumstances(setting),
            links=self.links(),
            sentences=[*filter(None, self.sentences(command))],
        )
        if not self.rows:
            return answer
        return msgspec.structs.replace(
            answer,
            titles=[row.title for row in self.rows],
            blocks=[*map(self._block, self.groups)],
            legend=self._legend(),
        )

    def _block(self, group: Group) -> FiguresOfSize:
        found = [_figures(row.loss(group), row.lost(group)) for row in self.rows]
        kept = [name for name in _FIGURES if any(each.get(name) for each in found)]
        workloads = {
            cell.evidence.workload for row in self.rows if (loss := row.loss(group)) for cell in loss.cells
        }
        heading = self.size(group) if len(workloads) > 1 or self.has_depths else next(iter(workloads))
        figures = [[each.get(name, "") for name in kept] for each in found]
        return FiguresOfSize(heading=heading, names=kept, figures=figures)

    def _legend(self) -> str:
        """What the figures are."""
        ok = [record for record in self.records if record.status is Status.OK]
        fio_ns = [record.fio_ns for record in ok if record.fio_ns]
        counts = Counter((record.column, record.workload.name) for record in ok)
        repeats = sorted({cell.evidence.repeats for cell in self.cells} or {*counts.values()} or {1})
        count = " to ".join(dict.fromkeys(map(str, (repeats[0], repeats[-1]))))
        samples = "one sample" if repeats == [1] else f"median of {count} samples"
        time = f" of {stats.median(fio_ns) / 1e9:.2g} s" if fio_ns else ""
        losses = [loss for row in self.rows for group in self.groups if (loss := row.loss(group))]
        most = max(len(loss.cells) for loss in losses)
        several = f", range of {most} workloads" if most > 1 else ""
        above = " >: lower bound, other programs interfered." if any(map(_is_floor, losses)) else ""
        most_words = f"link limit{self.at_a_time and f', {self.at_a_time}'}"
        parts = [most_words] if any(_most(loss) for loss in losses) else []
        if any(row.lost(group) for row in self.rows for group in self.groups):
            parts.append(self._cost_words())
        bound = f" max: {'; below: '.join(parts)}." if parts else ""
        return f"MB/s: {samples}{time}{several}.{above}{bound}"

    @property
    def at_a_time(self) -> str:
        """``1 request at a time``, as far as that is known."""
        depths = {depth for _, depth in self.groups} - {None}
        if len(depths) > 1:
            return "at that many requests in flight"
        return "".join(f"{counted(depth or 0, 'request')} at a time" for depth in depths)

    def _cost_words(self) -> str:
        """What the costs in the table are of, and how sure."""
        ratios = [
            loss.compared
            for row in self.rows
            for group in self.groups
            if row.protection and (loss := row.clean(group)) and loss.compared is not None
        ]
        names = list(dict.fromkeys(row.protection for row in self.rows if row.protection))
        measured = [each for each in ratios if not each.is_exact]
        how = ", measured once" if measured else ""
        how = ", 95 % interval" if any(each.interval is not None for each in measured) else how
        is_unclear = any(each.difference is Difference.INCONCLUSIVE for each in ratios)
        few = "; unclear: few repeats" if is_unclear else ""
        proposals = _proposals(row.conclusion for row in self.rows)
        of_ipsec = f" (IPsec: {''.join(proposals)})" if len(proposals) == 1 else ""
        what = names[0] if len(names) == 1 else f"protection{of_ipsec}"
        return f"cost of {what}{how}{few}"

    def sentences(self, command: Command) -> Iterable[str]:
        """What follows, the most important first."""
        yield from self._costs()
        yield from self._rounds()
        yield self._limits()
        yield self._times()
        yield from self._doubts()
        yield self._hidden()
        yield from self._help(command)
        found = [row.conclusion for row in (*self.rows, *self.unexplained)]
        if any(each.takes_packets_one_by_one for each in found):
            yield OFFLOAD
        yield from dict.fromkeys(each.unknown for each in found)
        yield from (each.memory for each in found)
        yield from self._left_out()

    def _costs(self) -> Iterable[str]:
        """What does not fit into the table: what the network takes of a disk's rate, between which bounds the
        cost of disturbed figures is, and workloads that differ from the others."""
        of: dict[str, dict[str, list[str]]] = {}
        apart: list[str] = []
        compared = [
            (row, group, loss) for row in self.rows for group in self.groups if (loss := row.loss(group))
        ]
        for row, group, loss in compared:
            if row.lost(group):
                apart += [f"{row.name} {workload} {found.lost}" for workload, found in loss.apart]
            elif cost := _cost(loss):
                what = row.protection or f"{row.carrier}, compared with the local disk,"
                of.setdefault(what, {}).setdefault(row.path, []).append(f"{cost} at {self.size(group)}")
        ratios = [loss.compared for row, group, loss in compared if loss.compared and not row.lost(group)]
        has_interval = any(each.interval is not None and not each.is_exact for each in ratios)
        how = " (95 % interval)" if has_interval else ""
        for what, paths in of.items():
            said = [f"{path} {', '.join(costs)}" for path, costs in paths.items()]
            yield f"{what} costs{how}: {listed(said, MOST, '; ')}."
        if any("unclear" in cost for paths in of.values() for costs in paths.values() for cost in costs):
            yield "Unclear: too few repeats to tell (minus means faster); use more --repeats."
        if apart:
            yield f"Exceptions: {listed(apart, MOST)}."

    def _rounds(self) -> Iterable[str]:
        """Of disturbed figures: what they rest on, what would tell more, and of which nothing can be said."""
        found = [
            (f"{row.name} {self.size(group)}", loss.duet)
            for row in self.rows
            for group in self.groups
            if (loss := row.loss(group)) and loss.duet is not None
        ]
        rounds = len({(record.run_id, record.repeat) for record in self.records})
        round_s = sum(record.wall_ns for record in self.records) / 1e9 / max(1, rounds)
        more = max((_more(each, rounds) for _, each in found if not each.is_full), default=0)
        if any(each.is_stated for _, each in found):
            yield "~: other programs were running; compared within each round (95 % interval)."
        if rounds / 4 < more <= MOST_ROUNDS:
            minutes = math.ceil(more * round_s / 60)
            yield f"{more} more rounds would narrow it to within {100 * stats.MARGIN:.0f} % ({minutes} min)."
        elif more > MOST_ROUNDS:
            yield "More rounds would not help: use a quieter machine."
        if full := [name for name, each in found if each.is_full]:
            yield (
                f"No cost known for {listed(full, MOST)}: the core is full, so other programs may have made "
                "the processor the limit."
            )

    def _limits(self) -> str:
        """What limits, for each size: of all rows together, if that is the same."""
        sizes: dict[str, list[str]] = {}
        for group in self.groups:
            of: dict[str, list[str]] = {}
            for row in self.rows:
                if loss := row.loss(group):
                    of.setdefault(by_limit(loss.cells), []).append(row.name)
            said = [
                f"{limit} ({listed(names, MOST)})" if len(of) > 1 else limit for limit, names in of.items()
            ]
            sizes.setdefault(", ".join(said), []).append(self.size(group))
        sizes.pop("", None)
        if not sizes or {*sizes} == {UNTOLD}:
            return "The limit is unknown: harness explain says why." if sizes else ""
        lab = [
            row.name
            for row in self.rows
            if any(
                c.verdict.is_lab_limited
                for g in self.groups
                if (of_row := row.clean(g))
                for c in of_row.cells
            )
        ]
        words = (
            f" Figures limited by the lab ({listed(lab, MOST)}) do not describe such a link." if lab else ""
        )
        said_of = "; ".join(
            f"{limit} at {' and '.join(names)}" if len(sizes) > 1 or len(self.groups) == 1 else limit
            for limit, names in sizes.items()
        )
        return f"Limited by {said_of}.{words}"

    def _times(self) -> str:
        """Where the time of one request goes in the first row without protection: it accounts for what is
        missing to the most that the link lets through."""
        for row in self.rows:
            found = {group: self._shares(row, group) for group in self.groups}
            if not row.protection and any(found.values()):
                said = (
                    f"{self.size(group)} {', '.join(shares)}" for group, shares in found.items() if shares
                )
                return f"Time of a request over {row.name}: {'; '.join(said)}."
        return ""

    def _shares(self, row: _Row, group: Group) -> list[str]:
        """The parts of the middle cell's time, one request at a time, the largest first."""
        cells = loss.cells if (loss := row.clean(group)) and loss.depth == 1 else ()
        known = sorted((c for c in cells if c.verdict.whole_ns), key=lambda cell: cell.mb_s or 0.0)
        if not known:
            return []
        cell = known[len(known) // 2]
        parts, whole_ns = cell.verdict.waterfall_ns, cell.verdict.whole_ns or 1
        rest_ns = parts.get("rest", 0)
        if rest_ns == max(parts.values()) or rest_ns < -LEAST * whole_ns:
            return []  # nothing is known, or the parts overlap
        named = {"cpu": "processor", "rest": "unexplained"}
        if not cell.evidence.is_one_end:
            named["device"] = "memory" if row.conclusion.column.is_memory else "disk"
        return [
            f"{named.get(name) or short(name, [cell])} {100 * ns / whole_ns:.0f} %"
            for name, ns in sorted(parts.items(), key=lambda part: -part[1])
            if ns >= LEAST * whole_ns
        ]

    def _doubts(self) -> Iterable[str]:
        """Which of these are not sure, and why."""
        of: dict[str, dict[Group, list[str]]] = {}
        for group in self.groups:
            for row in self.rows:
                for why in _doubted(row.clean(group)):
                    of.setdefault(why, {}).setdefault(group, []).append(row.name)
        parts = []
        for why, groups in of.items():
            said: list[str] = []
            for group, names in groups.items():
                is_of_all = len(names) == sum(row.clean(group) is not None for row in self.rows)
                said += [f"{'' if is_of_all else f'{name} '}{self.size(group)}" for name in names]
            parts.append(f"{_few(list(dict.fromkeys(said)))} ({why})")
        if parts:
            yield f"Less sure of {listed(parts, MOST_REASONS, '; ')}."

    def _hidden(self) -> str:
        """Up to which load a limit hides what protections cost."""
        found = [(row, hiding) for row in self.rows if (hiding := row.conclusion.hiding) is not None]
        if not found:
            return ""
        sizes, carriers = {hiding.size for _, hiding in found}, {row.carrier for row, _ in found}
        parts: list[str] = []
        for row, hiding in found:
            alone = hiding.found.cipher_mb_s
            at_most = f"at most {_rate(alone)} MB/s" if alone else "an unknown load"
            load = headroom.room(hiding.found) or at_most
            of_size = f" of {hiding.size}" if len(sizes) > 1 or not parts else ""
            over = f" over {row.carrier}" if len(carriers) > 1 else ""
            parts.append(f"{load}{of_size} for {row.protection}{over}")
        cell, room = found[0][1].cell, found[0][1].found
        how = headroom.remedy(cell.evidence, cell.verdict.limited_by, room)
        limits = dict.fromkeys(
            RULES[hiding.cell.verdict.limited_by].words(hiding.cell.evidence) for _, hiding in found
        )
        begin = f"Where {' or '.join(limits)} does not limit, protection costs more"
        named = dict.fromkeys("+".join(hiding.cell.evidence.column.protection) for _, hiding in found)
        end = f" ({how} --protect {','.join(named)})" if how else ""
        return f"{begin}: a core is full at {_few(parts)}{end}."

    def _help(self, command: Command) -> Iterable[str]:
        """Forecasts of the workload that most rows have one of, and how to try them."""
        at: dict[str, list[tuple[_Row, Explained, Change]]] = {}
        for row in self.rows:
            for group in self.groups:
                for cell in loss.cells if (loss := row.clean(group)) else ():
                    if (change := cell.verdict.change) is not None and cell.lift:
                        at.setdefault(cell.evidence.workload, []).append((row, cell, change))
        if not at:
            return
        # Of those that most rows have the last: small blocks lose most.
        workload = max(reversed(at), key=lambda each: len(at[each]))
        named = sorted(at[workload], key=lambda each: bool(each[0].protection))
        others = len(named) - FEW if len(named) > MOST else 0
        named = named[: len(named) - others]
        is_lab = all(cell.where for _, cell, _ in named)
        steps: dict[str, list[str]] = {}
        for row, cell, change in named:
            where = " (by the lab's one core)" if cell.where and not is_lab else ""
            steps.setdefault(change.what, []).append(f"{row.name} {_lift(cell, change)}{where}")
        said = "; ".join(f"with {what}: {', '.join(names)}" for what, names in steps.items())
        of_lab = ", by the lab's one core" if is_lab else ""
        more = f" and {others} more" if others else ""
        typed = command([cell for _, cell, _ in at[workload]])
        how = " Measure it:" if typed else ""
        yield f"Would help (forecast, MB/s{of_lab}): {workload} {said}{more}.{how}"
        yield f"{COMMAND}{typed}" if typed else ""

    def _left_out(self) -> Iterable[str]:
        whys: Mapping[str, list[str]] = {
            "disturbed by other programs": [
                f"{row.name} {workload}" for row in self.rows for workload in row.conclusion.disturbed
            ],
            "limited by the lab, not by the emulated link": [
                f"{row.name} {workload}" for row in self.rows for workload in row.conclusion.lab_limited
            ],
        }
        above = [
            f"{row.name} {self.size(group)}"
            for row in self.rows
            for group in self.groups
            if (loss := row.clean(group)) and loss.is_above
        ]
        if above:
            yield f"More than the link should carry: {listed(above, MOST)}."
        for why, cells in whys.items():
            if cells:
                yield f"Left out: {listed(cells, MOST)}: {why}."
        none: dict[str, list[str]] = {}
        for row in self.unexplained:
            none.setdefault(row.conclusion.why_none, []).append(row.name)
        for why, names in [*none.items()][:MOST_REASONS]:
            yield f"No answer on {listed(names, MOST)}: {why}."
        if others := sum(map(len, [*none.values()][MOST_REASONS:])):
            yield f"No answer on {others} more: harness explain says why."
        if self.left:
            yield f"{counted(self.left, 'other size')} or depths: harness table."


def _few(parts: Sequence[str], joint: str = ", ") -> str:
    """All of them; of many the first ``FEW``, and how many there are besides."""
    return listed(parts, FEW if len(parts) > MOST else MOST, joint)


def _rows(found: Sequence[Conclusion], among: Sequence[Conclusion]) -> list[_Row]:
    """These, with what tells them apart among all."""
    transports = {each.column.column.transport for each in among} - {None}
    proposals = _proposals(among)
    made: list[_Row] = []
    above = None
    for each in found:
        column, of = each.column, each.column.column
        carrier = transport_title(of.transport) if len(transports) > 1 else ""
        many = f"{of.initiators} initiators" if of.initiators > 1 else ""
        path = name = " ".join(filter(None, (of.link, carrier)))
        title = ", ".join(filter(None, (" ".join(filter(None, (of.link, column.rate, carrier))), many)))
        if of.protection:
            protection, names = column.heading[3], "+".join(of.protection)
            for proposal in proposals:
                short = "IPsec" if len(proposals) == 1 else proposal
                protection = protection.replace(f"IPsec {proposal}", short)
                names = names.replace(proposal, short)
            for kind, known in PROTECTIONS.items():
                names = names.replace(kind, known.title) if kind in of.protection else names
            mode = f" {column.key.mode}" if column.key is not None and column.key.mode else ""
            name = f"{path}+{names}{mode}"
            title = f"{GAP}+ {protection}" if above == of.bare else f"{title} + {protection}"
        above = of.bare
        behind = f" ({many})" if many else ""
        made.append(_Row(conclusion=each, title=title, path=f"{path}{behind}", name=f"{name}{behind}"))
    return made


def _proposals(found: Iterable[Conclusion]) -> set[str]:
    """Those of IPsec. Where there is one, rows do not name it."""
    return {each.column.column.ipsec for each in found if each.column.column.has_ipsec}


_FIGURES = ("MB/s", "max", "IOPS", "ms")


def _figures(loss: Loss | None, cost: str) -> dict[str, str]:
    """What a row shows of one size of blocks, by the headings. IOPS and ms are of the middle workload.

    ``cost`` is what its protection takes, which stands in the place of what the link lets through.
    """
    if loss is None:
        return {"MB/s": "-"}
    rates = [rate for cell in loss.cells if (rate := cell.mb_s or cell.at_least_mb_s) is not None]
    if not rates:
        return {"MB/s": "-"}
    found = {"MB/s": f"{'>' * _is_floor(loss)}{_range(rates)}", "max": cost or _most(loss)}
    if _is_floor(loss):
        return found
    if loss.block_bytes is not None and loss.block_bytes < LARGE_BYTES:
        middle = stats.median(rates)
        found["IOPS"] = _rate(1e6 * middle / loss.block_bytes)
        if loss.depth is not None:
            # Little's law: so long is each of them in flight.
            found["ms"] = _rate(loss.depth * loss.block_bytes / middle / 1e3, digits=2)
    return found


def _is_floor(loss: Loss) -> bool:
    """Whether its figures are what it moves at least."""
    return any(cell.at_least_mb_s for cell in loss.cells)


def _most(loss: Loss) -> str:
    """What the link lets through: with one request at a time, if that is known, or else whatever the depth.
    Without a known rate the transfer is in neither, so it says something where a request waits."""
    alone = loss.latency_bound_mb_s if loss.is_waiting or loss.most_mb_s else []
    most = [min(alone), max(alone)] if alone else [loss.most_mb_s] if loss.most_mb_s else []
    # What headers make of it is less than two runs differ by.
    most = most[-1:] if most and most[0] > (1 - LEAST) * most[-1] else most
    return "-".join(dict.fromkeys(map(bound, most)))


def _cost(loss: Loss) -> str:
    if loss.is_disturbed:
        if not loss.kept:
            return ""
        low, high = min(loss.kept), max(loss.kept)
        if high <= WIDEST and high - low < BROADEST:
            least, most = signed((low, high))
            return f"{least} to {most} % (disturbed)"
        return "an unknown part (disturbed)" if loss.duet is None else ""
    if loss.compared is None:
        return ""
    if loss.depends:
        return " and ".join(f"{found.brief} ({workload})" for workload, found in loss.apart)
    apart = [f"{workload} alone {found.brief}" for workload, found in loss.apart]
    return " but ".join((loss.compared.brief, *apart))


def _more(found: Duet, rounds: int) -> int:
    """How many rounds more would tell the loss to within ``stats.MARGIN``."""
    return math.ceil(rounds * found.pairs_needed() / found.n) - rounds


def _doubted(loss: Loss | None) -> Iterable[str]:
    """Why the verdict on a row is not sure, of its cells the least sure one."""
    known = [
        cell.verdict
        for cell in (loss.cells if loss is not None else ())
        if cell.verdict.limited_by is not Limit.UNKNOWN and cell.verdict.confidence is not Confidence.HIGH
    ]
    if known:
        least = max(known, key=lambda verdict: list(Confidence).index(verdict.confidence))
        yield f"confidence {least.confidence}: {least.unsure}"


def _lift(cell: Explained, change: Change) -> str:
    """``24.1 to 76-110``: a forecast has no more than two digits."""
    rate = cell.rates(change.each_ns)
    return f"{_rate(cell.mb_s or 0.0)} to {_range([rate.low, rate.high], digits=2)}"


def _rate(value: float, digits: int = 3) -> str:
    """Of three digits, without an exponent: ``104``, ``24.0``, ``5.59``, ``5930``."""
    rounded = float(f"{value:.{digits}g}")
    decimals = digits - 1 - math.floor(math.log10(rounded)) if rounded > 0 else 0
    return f"{rounded:.{max(0, decimals)}f}"


def _range(values: Sequence[float], digits: int = 3) -> str:
    """The least and the most: ``104-106``; one of them, if they are the same."""
    return "-".join(dict.fromkeys(_rate(each, digits) for each in (min(values), max(values))))
