"""What each part is worth if it alone were faster: predicted with its price changed, and nothing else
(after Curtsinger and Berger, Coz, SOSP 2015, where all else is slowed down; prices can be changed exactly).

Of cells that were measured (``of_run``), prices come from the run itself, and what was measured is multiplied
by the ratio of two predictions, with the change and without, up to what the link carries after it: what the
model errs in both cancels.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence

import msgspec
from tabulate import tabulate

from harness.analysis import disturbance, stats
from harness.analysis.prices import Per, PriceList
from harness.analysis.schedule import throughput_bytes_s
from harness.explain import predicted, priced
from harness.explain.evidence import collect
from harness.explain.path import measured_link
from harness.explain.predicted import PREDICTED, Ends, Predicted, Way, predict
from harness.model import Column, Job, LinkProfile, Plan
from harness.model.errors import UsageError
from harness.model.lines import listed
from harness.model.units import shown, unknown_name
from harness.results.measured import Measured

CIPHER, RATE, ROUND_TRIP = "cipher", "rate", "rtt"
WIDEST = 40
"""Characters of the longest bar."""

MUCH = 1000.0
"""What is so many times as slow is felt by every cell that has it."""


class FasterPart(msgspec.Struct, frozen=True):
    """A part that is so many times as fast; of ``rtt`` so many times as long."""

    part: str
    factor: float

    @property
    def words(self) -> str:
        return f"{self.part} {self.factor:g}x"


class MeasuredCell(msgspec.Struct, frozen=True, kw_only=True):
    """The throughput of a cell's middle repeat, in 10^6 bytes per second. If ``is_disturbed``, other programs
    spoiled all of its repeats."""

    mb_s: float
    is_disturbed: bool = False


FAR = math.log(1.2)
"""Where prices miss what was measured by more, what they say of a change is doubtful."""


class ChangedCell(msgspec.Struct, frozen=True, kw_only=True):
    """A cell, as it is and as it would be; rates are in 10^6 bytes per second.

    ``name`` is its column's label. ``predicted_mb_s`` is what the prices say of it as it is. What was
    measured is ``measured_mb_s``, null of a matrix that nobody measured; if ``is_disturbed``, other programs
    spoiled all of its repeats. ``gains`` are by what part it would be faster, by the words of each change of
    something that it has. ``would_be_mb_s`` are the rates with it: what was measured, or else predicted, that
    much faster. ``why_not`` says why nothing is predicted. ``mark`` is always ``predicted``.
    """

    name: str
    workload: str
    mark: str = PREDICTED
    predicted_mb_s: float | None = None
    measured_mb_s: float | None = None
    is_disturbed: bool = False
    gains: dict[str, float] = {}
    would_be_mb_s: dict[str, float] = {}
    why_not: str = ""


class Worth(msgspec.Struct, frozen=True, kw_only=True):
    """What a ``part`` is worth if it alone were ``factor`` times as fast (of ``rtt``: as long).

    ``gain`` is by what part the middle one of the ``cells`` that have it would be faster.
    """

    part: str
    factor: float
    gain: float
    cells: int

    @property
    def words(self) -> str:
        return FasterPart(self.part, self.factor).words


class PrintedWhatIf(msgspec.Struct, frozen=True, kw_only=True):
    """What changes would give that nobody made: ``predicted`` is always true.

    ``machine`` and ``initiator_machine`` are names of price lists, or the run that they are from. ``parts``
    are in the order of what they give, without those that no cell has. ``outside`` says what makes it
    doubtful.
    """

    machine: str
    initiator_machine: str
    predicted: bool = True
    outside: tuple[str, ...] = ()
    parts: tuple[Worth, ...] = ()
    cells: tuple[ChangedCell, ...] = ()


def parts(ends: Ends) -> list[str]:
    """What can be changed: the priced parts, all ciphers as one, rate and round trip."""
    lists = [found for found in (ends.target, ends.initiator) if found is not None]
    own = [price.part for found in lists for price in found.prices if not is_cipher(found, price.part)]
    return [*dict.fromkeys(own), CIPHER, RATE, ROUND_TRIP]


def parse(text: str, ends: Ends) -> list[FasterPart]:
    """``cipher=2x,rtt=0.5x``, or ``2x`` for each part in turn. UsageError for others."""
    known, found = parts(ends), []
    for word in text.split(","):
        name, is_named, factor = word.strip().rpartition("=")
        match = re.fullmatch(r"([0-9]{1,6}(?:\.[0-9]{1,6})?)x", factor)
        if match is None or not float(match[1]):
            raise UsageError(
                f"--what-if {shown(word)}: expected how many times as fast, such as 2x", hint="try cipher=2x"
            )
        if is_named and name not in known:
            raise unknown_name("part", name, known)
        # A round trip that is twice as fast takes half the time.
        of = [name] if is_named else known
        times = float(match[1])
        found += [
            FasterPart(each, 1 / times if each == ROUND_TRIP and not is_named else times) for each in of
        ]
    return found


def is_cipher(found: PriceList, part: str) -> bool:
    """Whether a part of a list is a cipher by itself."""
    return any(price.part == part and price.direction == "encrypt" for price in found.prices)


def with_prices(found: PriceList, change: FasterPart) -> PriceList:
    """The list after a change."""
    if change.part in (RATE, ROUND_TRIP):
        return found
    made = []
    for price in found.prices:
        part = CIPHER if is_cipher(found, price.part) else price.part
        if part == change.part and price.per is not Per.ROUND_TRIP:
            times = {name: getattr(price, name) / change.factor for name in ("low", "ns", "high")}
            price = msgspec.structs.replace(price, **times)
        made.append(price)
    return msgspec.structs.replace(found, prices=tuple(made))


def _linked(link: LinkProfile | None, change: FasterPart) -> LinkProfile | None:
    if link is None or change.part not in (RATE, ROUND_TRIP):
        return link
    if change.part == RATE:
        rate = link.rate_bit_s and round(link.rate_bit_s * change.factor)
        return msgspec.structs.replace(link, rate_bit_s=rate)
    hops = link.hops and msgspec.structs.replace(link.hops, delay_us=link.hops.delay_us * change.factor)
    return msgspec.structs.replace(link, delay_us=link.delay_us * change.factor, hops=hops)


def gain(before: Predicted, after: Predicted, mb_s: float | None) -> float | None:
    """By what part a cell is faster after a change, as two predictions of it say; None without either.
    Nothing that was measured with ``mb_s`` becomes faster than the link lets it."""
    if not after.mb_s or not before.mb_s:
        return None
    ratio = after.mb_s / before.mb_s
    if after.bound_mb_s and mb_s:
        # What is measured may be a little above what the link was said to carry.
        ratio = min(ratio, after.bound_mb_s / min(mb_s, before.bound_mb_s or mb_s))
    return ratio - 1


def gains(
    ends: Ends,
    ways: Sequence[Way],
    jobs: Sequence[Job],
    base: Sequence[Predicted],
    rates: Sequence[float | None],
    change: FasterPart,
) -> list[float | None]:
    """By what part each cell would be faster, with this change alone; None where it has no such part. They
    were measured with ``rates``, in 10^6 bytes per second."""

    def with_it(each: FasterPart) -> list[float | None]:
        initiator = None if ends.initiator is None else with_prices(ends.initiator, each)
        changed = Ends(target=with_prices(ends.target, each), initiator=initiator)
        other = [msgspec.structs.replace(way, link=_linked(way.link, each)) for way in ways]
        return [*map(gain, base, predict(changed, other, jobs), rates)]

    slower = FasterPart(change.part, MUCH if change.part == ROUND_TRIP else 1 / MUCH)
    return [found if felt else None for found, felt in zip(with_it(change), with_it(slower), strict=True)]


def of_run(found: Measured, text: str) -> PrintedWhatIf:
    """What the changes of ``text`` would give of the cells of some runs of one kernel, by their own prices.
    UsageError if they have none."""
    ends = Ends(target=priced.price_list(found, ", ".join(found.runs)))
    plan = priced.joined([*found.plans.values()])
    measured, ways, left_out = {}, [], []
    for column in dict.fromkeys(record.column for record in found.records):
        link = link_of(column, plan, found)
        if column.initiators > 1 or plan.has_radio(link):
            left_out.append(column.label)
            continue
        ways.append(Way(column=column, link=link, proposals=plan.proposals))
        of_column = [record for record in found.records if record.column == column]
        for name in dict.fromkeys(record.workload.name for record in of_column):
            own = [record for record in of_column if record.workload.name == name]
            if rates := [throughput_bytes_s(record) for record in disturbance.counting(own)]:
                mb_s = stats.median(rates) / 1e6
                measured[column.label, name] = MeasuredCell(
                    mb_s=mb_s, is_disturbed=not disturbance.quiet(own)
                )
    made = worked_out(ends, ways, plan.jobs, text, measured=measured)
    off = [
        f"{cell.name} {cell.workload}"
        for cell in made.cells
        if cell.predicted_mb_s and abs(math.log(cell.predicted_mb_s / (cell.measured_mb_s or 1.0))) > FAR
    ]
    outside = [*predicted.doubts(ends)]
    if left_out:
        outside.append(f"left out, because radios and several initiators have no prices: {listed(left_out)}")
    if off:
        outside.append(f"doubtful, because prices say another figure than was measured: {listed(off)}")
    return msgspec.structs.replace(made, outside=tuple(outside))


def link_of(column: Column, plan: Plan, found: Measured) -> LinkProfile | None:
    """A column's link; a real one as it was measured with the cells."""
    link = plan.links.get(column.link)
    if link is None or link.interface is None:
        return link
    for each in collect(found.records, found.plans, found.probes):
        if each.column == column and each.rtt_ns is not None:
            return measured_link(link, each.rtt_ns, each.goodput_bytes_s)
    return link


def worked_out(
    ends: Ends,
    ways: Sequence[Way],
    jobs: Sequence[Job],
    text: str,
    *,
    measured: Mapping[tuple[str, str], MeasuredCell] | None = None,
) -> PrintedWhatIf:
    """What the changes of ``text`` give (``parse``), of all cells or of those that were measured. UsageError
    for others, and if no cell has a prediction."""
    changes, base = parse(text, ends), predict(ends, ways, jobs)
    if not any(each.mb_s for each in base):
        why = "; ".join(dict.fromkeys(each.why_not for each in base))
        raise UsageError(
            f"expected a cell that prices tell something of, found none: {why}",
            hint="harness price measures what is missing",
        )
    known = [None if measured is None else measured.get((each.name, each.workload)) for each in base]
    rates = [None if cell is None else cell.mb_s for cell in known]
    of_each = {change: gains(ends, ways, jobs, base, rates, change) for change in dict.fromkeys(changes)}
    cells = []
    for place, (each, cell) in enumerate(zip(base, known, strict=True)):
        if measured is not None and cell is None:
            continue
        own = {change.words: g for change, found in of_each.items() if (g := found[place]) is not None}
        mb_s = (each.mb_s or 0.0) if cell is None else cell.mb_s
        cells.append(
            ChangedCell(
                name=each.name,
                workload=each.workload,
                predicted_mb_s=each.mb_s,
                measured_mb_s=rates[place],
                is_disturbed=cell is not None and cell.is_disturbed,
                gains=own,
                would_be_mb_s={words: mb_s * (1 + g) for words, g in own.items()},
                why_not=each.why_not,
            )
        )
    return PrintedWhatIf(
        machine=ends.target.name,
        initiator_machine=(ends.initiator or ends.target).name,
        parts=tuple(sorted(_worth(of_each, cells), key=lambda worth: -worth.gain)),
        cells=tuple(cells),
    )


def _worth(changes: Iterable[FasterPart], cells: Sequence[ChangedCell]) -> Iterator[Worth]:
    for change in changes:
        if found := [cell.gains[change.words] for cell in cells if change.words in cell.gains]:
            gain_of_middle = stats.median(found)
            yield Worth(part=change.part, factor=change.factor, gain=gain_of_middle, cells=len(found))


def sentence(found: PrintedWhatIf) -> str:
    """What stands above the lines of a run."""
    return (
        f"{PREDICTED}, not measured: MB/s as measured, times the ratio of two predictions, with each change "
        f"and without, up to what the link carries, from the prices of {found.machine}"
    )


def _rate(mb_s: float | None) -> str:
    return "n/a" if mb_s is None else f"{mb_s:.4g}" if mb_s < 1e4 else f"{mb_s:.0f}"


def lines(found: PrintedWhatIf) -> list[str]:
    """A line for each cell, then a bar for each change: first what gives most."""
    names = [worth.words for worth in found.parts]
    is_measured = any(cell.measured_mb_s is not None for cell in found.cells)
    rows = [["cell", *(["MB/s", PREDICTED] if is_measured else []), *names]]
    for cell in found.cells:
        row = [f"{cell.name} {cell.workload}"]
        if is_measured:
            disturbed = "!" if cell.is_disturbed else ""
            row += [f"{_rate(cell.measured_mb_s)}{disturbed}", _rate(cell.predicted_mb_s)]
        for name in names:
            part, would_be = cell.gains.get(name), cell.would_be_mb_s.get(name)
            rate = f" {_rate(would_be)}" if is_measured else ""
            row.append("" if part is None else f"{part:+.1%}{rate}")
        rows.append(row)
    most, width = max([each.gain for each in found.parts] + [1e-9]), max(map(len, names), default=0)
    said = tabulate(rows, "firstrow", disable_numparse=True, stralign="right").splitlines()
    said += ["", f"{PREDICTED}, the middle cell of those that have it:"]
    for each in found.parts:
        bar = "#" * round(WIDEST * max(0.0, each.gain) / most)
        said.append(f"{each.words:{width}}  {each.gain:+7.1%}  {bar}".rstrip())
    return said
