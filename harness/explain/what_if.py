"""What each part is worth if it alone were faster: predicted with its CPU cost changed, and nothing else
(after Curtsinger and Berger, Coz, SOSP 2015, where all else is slowed down; CPU costs can be changed
exactly).

Of cells that were measured (``of_run``), CPU costs come from the run itself, and what was measured is
multiplied by the ratio of two predictions, with the change and without, up to what the link carries after it:
what the model errs in both cancels. What does not is the interval of it (``variants``).
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

import msgspec
from tabulate import tabulate

from harness.analysis import disturbance, stats
from harness.analysis.cpu_costs import CpuCost, CpuCosts, Per
from harness.analysis.interval import Interval
from harness.analysis.schedule import throughput_bytes_s
from harness.explain import demand, predicted
from harness.explain.evidence import collect, measured_link
from harness.explain.predicted import PREDICTED, Ends, NetworkPath, Predicted, predict
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
    """A part whose speed is multiplied by ``factor``; of ``rtt`` the time is."""

    part: str
    factor: float

    @property
    def words(self) -> str:
        return f"{self.part} {self.factor:g}x"

    @property
    def saves(self) -> float:
        """Which part of the time that a part takes it saves, or adds; 1 at most."""
        return min(1.0, abs(1 - (self.factor if self.part == ROUND_TRIP else 1 / self.factor)))


class MeasuredCell(msgspec.Struct, frozen=True, kw_only=True):
    """The throughput of a cell's middle repeat, in 10^6 bytes per second. If ``is_disturbed``, other programs
    spoiled all of its repeats."""

    mb_s: float
    is_disturbed: bool = False


FAR = math.log(1.2)
"""Where CPU costs miss what was measured by more, what they say of a change is doubtful."""


class ChangedCell(msgspec.Struct, frozen=True, kw_only=True):
    """A cell before and after a change; rates are in 10^6 bytes per second.

    ``name`` is its column's label. ``predicted_mb_s`` is the prediction without a change. ``measured_mb_s``
    is the measurement, null for a predicted matrix; if ``is_disturbed``, other programs spoiled all of its
    repeats. ``gains`` are the predicted speed-ups by change (0.1: 10 % faster). ``would_be_mb_s`` are the
    rates with the change: the measurement, or else the prediction, scaled by the speed-up, with the 90 %
    interval from ``would_be_low_mb_s`` to ``would_be_high_mb_s``. ``why_not`` says why nothing is predicted.
    ``mark`` is always ``predicted``.
    """

    name: str
    workload: str
    mark: str = PREDICTED
    predicted_mb_s: float | None = None
    measured_mb_s: float | None = None
    is_disturbed: bool = False
    gains: dict[str, float] = {}
    would_be_mb_s: dict[str, float] = {}
    would_be_low_mb_s: dict[str, float] = {}
    would_be_high_mb_s: dict[str, float] = {}
    why_not: str = ""


class Worth(msgspec.Struct, frozen=True, kw_only=True):
    """The gain if a ``part`` alone were ``factor`` times as fast (``rtt``: as long).

    ``gain`` is the median speed-up over the ``cells`` that have the part (0.1: 10 % faster), and
    ``half_width`` half the median 90 % interval.
    """

    part: str
    factor: float
    gain: float
    cells: int
    half_width: float = 0.0

    @property
    def words(self) -> str:
        return FasterPart(self.part, self.factor).words


class PrintedWhatIf(msgspec.Struct, frozen=True, kw_only=True):
    """Predicted effect of changes: ``predicted`` is always true.

    ``target_cpu_costs`` and ``initiator_cpu_costs`` are names of CPU cost files, or the run that they
    are from. ``parts`` are sorted by gain, without those that no cell has. ``outside`` says what makes it
    doubtful.
    """

    target_cpu_costs: str
    initiator_cpu_costs: str
    predicted: bool = True
    outside: tuple[str, ...] = ()
    parts: tuple[Worth, ...] = ()
    cells: tuple[ChangedCell, ...] = ()


def parts(ends: Ends) -> list[str]:
    """What can be changed: the parts with CPU costs, all ciphers as one, rate and round trip."""
    lists = [found for found in (ends.target, ends.initiator) if found is not None]
    own = [cost.part for found in lists for cost in found.costs if not is_cipher(found, cost.part)]
    return [*dict.fromkeys(own), CIPHER, RATE, ROUND_TRIP]


def parse(text: str, ends: Ends) -> list[FasterPart]:
    """``cipher=2x,rtt=0.5x``, or ``2x`` for each part in turn. UsageError for others."""
    known, found = parts(ends), []
    for word in text.split(","):
        name, is_named, factor = word.strip().rpartition("=")
        match = re.fullmatch(r"([0-9]{1,6}(?:\.[0-9]{1,6})?)x", factor)
        if match is None or not float(match[1]):
            raise UsageError(f"--what-if {shown(word)}: expected a factor, such as 2x", hint="try cipher=2x")
        if is_named and name not in known:
            raise unknown_name("part", name, known)
        # A round trip that is twice as fast takes half the time.
        of = [name] if is_named else known
        times = float(match[1])
        found += [
            FasterPart(each, 1 / times if each == ROUND_TRIP and not is_named else times) for each in of
        ]
    return found


def is_cipher(found: CpuCosts, part: str) -> bool:
    """Whether a part of a list is a cipher by itself."""
    return any(cost.part == part and cost.direction == "encrypt" for cost in found.costs)


def with_costs(found: CpuCosts, change: FasterPart) -> CpuCosts:
    """The list after a change."""
    if change.part in (RATE, ROUND_TRIP):
        return found
    made = []
    for cost in found.costs:
        part = CIPHER if is_cipher(found, cost.part) else cost.part
        if part == change.part and cost.per is not Per.ROUND_TRIP:
            times = {name: getattr(cost, name) / change.factor for name in ("low", "ns", "high")}
            cost = msgspec.structs.replace(cost, **times)
        made.append(cost)
    return msgspec.structs.replace(found, costs=tuple(made))


def _linked(link: LinkProfile | None, change: FasterPart) -> LinkProfile | None:
    if link is None or change.part not in (RATE, ROUND_TRIP):
        return link
    if change.part == RATE:
        rate = link.rate_bit_s and round(link.rate_bit_s * change.factor)
        return msgspec.structs.replace(link, rate_bit_s=rate)
    hops = link.hops and msgspec.structs.replace(link.hops, delay_us=link.hops.delay_us * change.factor)
    return msgspec.structs.replace(link, delay_us=link.delay_us * change.factor, hops=hops)


def gain(before: Predicted, after: Predicted, mb_s: float | None, reach: float) -> Interval | None:
    """By what part a cell that was measured with ``mb_s``, or else predicted, is faster after a change, with
    90 %, as two predictions of it say; None without either. ``reach`` is how far their ratio may be off, as a
    logarithm. Nothing becomes faster than the link lets it."""
    if not after.mb_s or not before.mb_s:
        return None
    most, rate = math.inf, mb_s or before.mb_s
    if after.bound_mb_s:
        # What is measured may be a little above what the link was said to carry.
        most = after.bound_mb_s / min(rate, before.bound_mb_s or rate)
    ratio = min(after.mb_s / before.mb_s, most)
    return Interval(ratio / math.exp(reach) - 1, ratio - 1, min(ratio * math.exp(reach), most) - 1, 0.9)


class Variant(NamedTuple):
    """What may be so as well: CPU costs as ``edit`` has them, and I/Os that wait for one another so much
    ``further`` than is likely."""

    edit: Callable[[CpuCost], CpuCost]
    further: float

    def of(self, found: CpuCosts) -> CpuCosts:
        return msgspec.structs.replace(found, costs=tuple(map(self.edit, found.costs)))


AS_IT_IS = Variant(lambda cost: cost, 0.0)

OWN, HALF_WAY = 0.5, 0.5
"""A CPU cost is off by so much of its interval by itself, as those that were fitted together err together;
and several I/Os wait for one another by so much less, or more."""

OF_THE_REST = 0.08
"""By how much the model errs of what takes the place of the time that is saved."""


def variants(known: Iterable[CpuCost]) -> Iterator[tuple[Variant, Variant]]:
    """What may be otherwise, to either side, each independently of the others."""
    for cost in dict.fromkeys(known):
        if cost.low < cost.high:
            yield _moved(cost, cost.low), _moved(cost, cost.high)
    yield Variant(AS_IT_IS.edit, -HALF_WAY), Variant(AS_IT_IS.edit, HALF_WAY)


def _moved(cost: CpuCost, towards_ns: float) -> Variant:
    other = msgspec.structs.replace(cost, ns=cost.ns + OWN * (towards_ns - cost.ns))
    return Variant(lambda each: other if each == cost else each, 0.0)


def missed_of(before: Predicted, mb_s: float | None) -> float:
    """Which part of a cell's time the CPU costs do not account for: what they miss of what was measured, and
    in any case of the middle cell that they are from, because one that they hit is no surer than that."""
    of_middle = before.made_of.get("fit", 0.0) / predicted.WHOLE_OF_MIDDLE
    return max(of_middle, abs(math.log(mb_s / before.mb_s))) if mb_s and before.mb_s else of_middle


def reach_of(
    ratio: Callable[[Variant], float], pairs: Iterable[tuple[Variant, Variant]], missed: float
) -> float:
    """How far the ratio of two predictions may be off with 90 %, as a logarithm: by what may be otherwise, by
    what the model errs, and by what is ``missed`` (``missed_of``)."""
    middle = ratio(AS_IT_IS)
    changed = 1 - min(middle, 1 / middle)
    moved = (max(abs(math.log(ratio(each) / middle)) for each in pair) for pair in pairs)
    return math.hypot(missed, OF_THE_REST * changed, *moved)


class Matrix:
    """Cells, and what is predicted of them; ``rates`` are what was measured, in 10^6 bytes per second."""

    def __init__(
        self,
        ends: Ends,
        network_paths: Sequence[NetworkPath],
        jobs: Sequence[Job],
        rates: Mapping[tuple[str, str], float],
    ) -> None:
        self._ends, self._ways, self._jobs = ends, network_paths, jobs
        lists = [ends.target, *([ends.initiator] if ends.initiator is not None else [])]
        self._found: dict[tuple[FasterPart | None, Variant], list[Predicted]] = {}
        self.base = self.predicted()
        pairs = variants(cost for found in lists for cost in found.costs)
        # Most lists have CPU costs of what no cell has.
        self._pairs = [
            pair for pair in pairs if any(self.predicted(None, each) != self.base for each in pair)
        ]
        self._rates = [rates.get((each.name, each.workload)) for each in self.base]

    def predicted(self, change: FasterPart | None = None, variant: Variant = AS_IT_IS) -> list[Predicted]:
        """All cells after a change, column by column."""
        if (change, variant) not in self._found:
            target, initiator, network_paths = self._ends.target, self._ends.initiator, self._ways
            target, initiator = variant.of(target), initiator and variant.of(initiator)
            if change is not None:
                target, initiator = with_costs(target, change), initiator and with_costs(initiator, change)
                network_paths = [
                    msgspec.structs.replace(network_path, link=_linked(network_path.link, change))
                    for network_path in network_paths
                ]
            ends = Ends(target=target, initiator=initiator)
            self._found[change, variant] = predict(ends, network_paths, self._jobs, further=variant.further)
        return self._found[change, variant]

    def gains(self, change: FasterPart) -> list[Interval | None]:
        """By what part each cell would be faster, with this change alone; None where it has no such part."""
        slower = FasterPart(change.part, MUCH if change.part == ROUND_TRIP else 1 / MUCH)
        has_it = [self._ratio(place, slower) not in (None, 1.0) for place in range(len(self.base))]
        return [self._gain(place, change) if felt else None for place, felt in enumerate(has_it)]

    def _ratio(self, place: int, change: FasterPart, variant: Variant = AS_IT_IS) -> float | None:
        before, after = (self.predicted(each, variant)[place].mb_s for each in (None, change))
        return after / before if before and after else None

    def _gain(self, place: int, change: FasterPart) -> Interval | None:
        before, rate = self.base[place], self._rates[place]
        reach = reach_of(
            lambda variant: self._ratio(place, change, variant) or 1.0,
            self._pairs,
            missed_of(before, rate) * change.saves,
        )
        return gain(before, self.predicted(change)[place], rate, reach)


def of_run(found: Measured, text: str) -> PrintedWhatIf:
    """What the changes of ``text`` would give of the cells of some runs of one kernel, by their own CPU
    costs. UsageError if they have none."""
    ends = Ends(target=demand.costs_of(found, ", ".join(found.runs)))
    plan = demand.joined([*found.plans.values()])
    measured, network_paths, left_out, unknown = {}, [], [], []
    for column in dict.fromkeys(record.column for record in found.records):
        link = link_of(column, plan, found)
        if column.initiators > 1 or plan.has_radio(link):
            left_out.append(column.label)
            continue
        if link is not None and link.interface is not None and link.rate_bit_s is None:
            unknown.append(column.label)
        network_paths.append(NetworkPath(column=column, link=link, proposals=plan.proposals))
        of_column = [record for record in found.records if record.column == column]
        for name in dict.fromkeys(record.workload.name for record in of_column):
            own = [record for record in of_column if record.workload.name == name]
            if rates := [throughput_bytes_s(record) for record in disturbance.counting(own)]:
                mb_s = stats.median(rates) / 1e6
                measured[column.label, name] = MeasuredCell(
                    mb_s=mb_s, is_disturbed=not disturbance.quiet(own)
                )
    made = worked_out(ends, network_paths, plan.jobs, text, measured=measured)
    off = [
        f"{cell.name} {cell.workload}"
        for cell in made.cells
        if cell.predicted_mb_s and abs(math.log(cell.predicted_mb_s / (cell.measured_mb_s or 1.0))) > FAR
    ]
    outside = [*predicted.doubts(ends)]
    if left_out:
        outside.append(
            f"left out, because radios and several initiators have no CPU costs: {listed(left_out)}"
        )
    if unknown:
        outside.append(f"doubtful, because no interface reports their link's rate: {listed(unknown)}")
    if off:
        outside.append(
            f"doubtful, because the CPU costs predict a different figure than measured: {listed(off)}"
        )
    return msgspec.structs.replace(made, outside=tuple(outside))


def link_of(column: Column, plan: Plan, found: Measured) -> LinkProfile | None:
    """A column's link; a real one as it was found with the cells."""
    link = plan.links.get(column.link)
    if link is None or link.interface is None:
        return link
    for each in collect(found.records, found.plans, found.probes):
        if each.column == column and each.rtt_ns is not None:
            return measured_link(link, each.rtt_ns, each.rate_bit_s)
    return link


def worked_out(
    ends: Ends,
    network_paths: Sequence[NetworkPath],
    jobs: Sequence[Job],
    text: str,
    *,
    measured: Mapping[tuple[str, str], MeasuredCell] | None = None,
) -> PrintedWhatIf:
    """What the changes of ``text`` give (``parse``), of all cells or of those that were measured. UsageError
    for others, and if no cell has a prediction."""
    rates = {place: cell.mb_s for place, cell in (measured or {}).items()}
    changes, matrix = parse(text, ends), Matrix(ends, network_paths, jobs, rates)
    if not any(each.mb_s for each in matrix.base):
        why = "; ".join(dict.fromkeys(each.why_not for each in matrix.base))
        raise UsageError(
            f"expected a cell that these CPU costs can predict, found none: {why}",
            hint="harness cpu-cost measures what is missing",
        )
    of_each = {change: matrix.gains(change) for change in dict.fromkeys(changes)}
    cells, worth = [], dict[FasterPart, list[Interval]]()
    for place, each in enumerate(matrix.base):
        cell = None if measured is None else measured.get((each.name, each.workload))
        if measured is not None and cell is None:
            continue
        own = {}
        for change, found in of_each.items():
            if (of_cell := found[place]) is not None:
                own[change.words] = of_cell
                worth.setdefault(change, []).append(of_cell)
        mb_s = (each.mb_s or 0.0) if cell is None else cell.mb_s
        cells.append(
            ChangedCell(
                name=each.name,
                workload=each.workload,
                predicted_mb_s=each.mb_s,
                measured_mb_s=None if cell is None else cell.mb_s,
                is_disturbed=cell is not None and cell.is_disturbed,
                gains={words: g.mid for words, g in own.items()},
                would_be_mb_s={words: mb_s * (1 + g.mid) for words, g in own.items()},
                would_be_low_mb_s={words: mb_s * (1 + g.low) for words, g in own.items()},
                would_be_high_mb_s={words: mb_s * (1 + g.high) for words, g in own.items()},
                why_not=each.why_not,
            )
        )
    return PrintedWhatIf(
        target_cpu_costs=ends.target.name,
        initiator_cpu_costs=(ends.initiator or ends.target).name,
        parts=tuple(sorted(itertools.starmap(_worth, worth.items()), key=lambda each: -each.gain)),
        cells=tuple(cells),
    )


def _worth(change: FasterPart, found: Sequence[Interval]) -> Worth:
    return Worth(
        part=change.part,
        factor=change.factor,
        gain=stats.median([each.mid for each in found]),
        cells=len(found),
        half_width=stats.median([each.half_width for each in found]),
    )


def sentence(found: PrintedWhatIf) -> str:
    """What stands above the lines of a run."""
    return (
        f"{PREDICTED}, not measured: measured MB/s scaled by the predicted speed-up, up to the "
        f"link's goodput; CPU costs of {found.target_cpu_costs}"
    )


def _rate(mb_s: float | None) -> str:
    return "n/a" if mb_s is None else f"{mb_s:.4g}" if mb_s < 1e4 else f"{mb_s:.0f}"


def _percent(part: float, half_width: float) -> str:
    return f"{100 * part:+.1f} ±{100 * half_width:.1f}%"


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
            if name not in cell.gains:
                row.append("")
                continue
            mb_s = cell.measured_mb_s or cell.predicted_mb_s or math.inf
            half_width = (cell.would_be_high_mb_s[name] - cell.would_be_low_mb_s[name]) / 2 / mb_s
            rate = f" {_rate(cell.would_be_mb_s[name])}" if is_measured else ""
            row.append(f"{_percent(cell.gains[name], half_width)}{rate}")
        rows.append(row)
    most, width = max([each.gain for each in found.parts] + [1e-9]), max(map(len, names), default=0)
    said = tabulate(rows, "firstrow", disable_numparse=True, stralign="right").splitlines()
    said += ["", f"{PREDICTED}, median over the cells, ± half of the 90 % interval:"]
    for each in found.parts:
        bar = "#" * round(WIDEST * max(0.0, each.gain) / most)
        said.append(f"{each.words:{width}}  {_percent(each.gain, each.half_width):>14}  {bar}".rstrip())
    return said
