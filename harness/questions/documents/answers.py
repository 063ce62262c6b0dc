"""What a published article asked, and what its figures and ours answer: in words, computed from both.

There are three origins of figures: the article, what was measured in real time, and virtual time, where
processor work takes no time, so that only links, disks and protocols do. A figure that other programs
disturbed answers nothing, and neither does a difference that may be chance: single figures are within 15 % of
what they are without disturbance (``disturbance.THRESHOLD``), those of an article within 5 %, cells with
repeats have the table's own test, and a published matrix its own noise (``published``).

How much of a cost is due to links and protocols is the extra time in virtual time as a part of the extra time
that the article had, or where it has no such figures, that ours had: per bit, per packet or per round trip.
That is also the cause: the protocol, or the processors and the software.
"""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Mapping, Sequence

import msgspec

from harness.analysis.stats import Difference
from harness.explain import published
from harness.model import TestbedKind
from harness.model.lines import counted
from harness.parse.profiles import load_link
from harness.parse.references import Ask, LinkChange, LinkMost, LinkSteps, PathReference, Reference
from harness.results.probe_records import ProbeRecord
from harness.table.notes import DISTURBED_SIGN
from harness.table.options import Table, TableCell
from harness.table.views import TOLERANCE, TOLERANCE_POINTS, View, build, differ, unit_of
from harness.table.views.grid import Grid, GridColumn

MB_S = "MB/s"
RATES = ("Mbit/s", "per second", MB_S)
PERCENT = "%"

MEASURED, VIRTUAL = "measured", "in virtual time"

MOSTLY = 0.75
"""From this part of a cost on it is the links' and protocols'; and as much of the rest makes it the
processors'."""

TOLERANCE_PUBLISHED = 0.05
"""An article's machines did nothing else, so its single figures differ by a few percent without a cause."""

SMALLEST_FRAME_BYTES = 60
"""IEEE 802.3's 64 without the check sequence, which a link's profile counts."""


class Figures(msgspec.Struct, frozen=True, kw_only=True):
    """What one origin has for a question: for each row that was asked for, by its name, the figures of the
    paths in the question's order. ``shown`` are the rows in which these differ by more than chance.

    ``why`` says why there are none, and ``alone`` what there is of one path alone; ``is_disturbed``: some
    were, and are left out. ``each`` has what there is to draw, by link or by row. ``slower_by``: rates are
    this many times what was measured (``references.Slower``).
    """

    rows: Mapping[str, tuple[float, ...]] = {}
    each: Mapping[str, float] = {}
    shown: frozenset[str] = frozenset()
    why: str = ""
    alone: str = ""
    is_disturbed: bool = False
    is_lab_limited: bool = False
    slower_by: float = 1.0

    @property
    def is_single(self) -> bool:
        """Whether they are of single measurements, whose row has no name."""
        return "" in self.rows


class Origins(msgspec.Struct, frozen=True, kw_only=True):
    """The figures of a question. ``title`` is the article's."""

    title: str
    published: Figures
    measured: Figures
    virtual: Figures

    @property
    def named(self) -> list[tuple[str, Figures]]:
        return [(MEASURED, self.measured), (VIRTUAL, self.virtual), (f"in {self.title}", self.published)]


class Bars(msgspec.Struct, frozen=True, kw_only=True):
    """What there is to draw of a figure: for each link or row, by its name, the figure of each origin."""

    title: str
    bars: dict[str, dict[str, float]]

    @property
    def origins(self) -> list[str]:
        return list(dict.fromkeys(origin for figures in self.bars.values() for origin in figures))


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """The answer to one question: ``subject`` is what it is about, ``figures`` what each origin says of it,
    ``conclusion`` a sentence on what follows. ``whom`` says in plain words what the cause is, or is
    empty; ``is_free``: neither our figures nor the article's show that anything is lost."""

    subject: str
    figures: tuple[tuple[str, str], ...]
    conclusion: str
    whom: str = ""
    is_free: bool = False
    bars: Bars

    @property
    def sentences(self) -> str:
        """All of it, for people."""
        stated = "; ".join(f"{name} {words}" for name, words in self.figures)
        return f"{self.subject}: {stated}. {self.conclusion}"


def of_paths(reference: PathReference, records: Sequence[ProbeRecord]) -> list[Answer]:
    """An answer to each question about paths, in the reference's order."""
    real, virtual = (
        [r for r in records if r.setting.is_virtual is is_virtual] for is_virtual in (False, True)
    )
    is_lab = all(record.setting.testbed is TestbedKind.LAB for record in real)
    headings = {field.key: _heading(field) for field in build(View(reference.view), []).fields}
    links = [row.link for row in reference.row]
    names = {load_link(r.link).name: r.title for r in reference.row if r.link and links.count(r.link) == 1}
    found = []
    for ask in reference.ask:
        measured = _probed(ask, reference, real, TOLERANCE)
        unreal = _probed(ask, reference, virtual, 0.0)
        known = [(value, unreal.each[link]) for link, value in measured.each.items() if link in unreal.each]
        if is_lab and any(differ(ask.figure, *pair) for pair in known):
            measured = msgspec.structs.replace(measured, is_lab_limited=True)
        origins = Origins(
            title=reference.title, published=_published(ask, reference), measured=measured, virtual=unreal
        )
        found.append(_answer(ask, origins, headings[ask.figure], names))
    return found


def _heading(field: GridColumn) -> str:
    """A column's heading where it stands alone."""
    heading, of = field.heading.replace("|", " "), field.key.partition("_")[0]
    heading = heading if heading.lower().startswith(of) else f"{of.upper()} {heading}"
    return heading + " µs" * field.key.endswith("_us")


def of_matrix(reference: Reference, table: Table | None) -> list[Answer]:
    """The same for a matrix; ``table`` is of MB/s and has the reference's columns, None: nothing is
    measured."""
    noise = published.conclude(reference, {}).noise
    answers = []
    for ask in reference.ask:
        if not isinstance(ask, LinkChange):
            continue
        origins = Origins(
            title=reference.title,
            published=_of_reference(ask, reference, noise),
            measured=_of_cells(ask, table, is_virtual=False),
            virtual=_of_cells(ask, table, is_virtual=True),
        )
        answers.append(_answer(ask, origins, f"{ask.what}, in %"))
    return answers


def _is_shown(ask: Ask, figures: Sequence[float], tolerance: float) -> bool:
    """Whether figures of single measurements differ by more than chance."""
    if isinstance(ask, LinkSteps):
        return all(after > before for before, after in itertools.pairwise(figures))
    if isinstance(ask, LinkMost):
        return True
    of, compared_with = figures
    return differ(ask.figure, of, compared_with, tolerance)


def _unit(ask: Ask) -> str:
    return unit_of(ask.figure) or MB_S


def _single(ask: Ask, each: Mapping[str, float], tolerance: float) -> Figures:
    figures = tuple(each.values())
    shown = frozenset({""} if _is_shown(ask, figures, tolerance) else ())
    return Figures(rows={"": figures}, shown=shown, each=each)


def _published(ask: Ask, reference: PathReference) -> Figures:
    """Packets that were not counted, but taken for twice the replies, do not count if any was lost."""
    found = {}
    for link in ask.links:
        rows = [row for row in reference.row if row.link == link and ask.figure in row.values]
        if isinstance(ask, LinkMost):
            rows = [row for row in rows if not row.values.get("lost_percent")]
        if rows:
            found[link] = max(row.values[ask.figure] for row in rows)
    if len(found) < len(ask.links):
        stated = ", ".join(f"{_shown(value)} {_unit(ask)} of {link}" for link, value in found.items())
        each = {load_link(link).name: value for link, value in found.items()}
        return Figures(why="it has no such figure", alone=stated and f"only {stated}", each=each)
    return _single(ask, {load_link(link).name: value for link, value in found.items()}, TOLERANCE_PUBLISHED)


def _probed(ask: Ask, reference: PathReference, records: Sequence[ProbeRecord], tolerance: float) -> Figures:
    """What the reference's view of these records says, which are of one clock."""
    if not records:
        return Figures(why="there are no figures")
    if len({record.setting.distinct for record in records}) > 1:
        return Figures(why="they come from several testbeds or kernels: name the runs of one")
    found, failed, by = dict[str, float](), list[Figures](), 1.0
    for link in ask.links:
        name, times = load_link(link).name, 1.0
        own = [record for record in records if record.column.link == name and not record.column.protection]
        slower = reference.slower.links.get(link) if _unit(ask) in (*RATES, PERCENT) else None
        if slower and (
            like := [record for record in records if record.column.link == load_link(slower).name]
        ):
            own, times = like, 1.0 if _unit(ask) == PERCENT else reference.slower.by
            by = reference.slower.by
        grid = build(View(reference.view), own)
        entries = [row.entries[ask.figure] for row in grid.rows if ask.figure in row.entries]
        values = [entry for entry in entries if entry.value is not None]
        best = max(values, key=lambda entry: entry.value or 0.0, default=None)
        if best is None:
            failed.append(Figures(why=f"there is no figure of {link}{_reason(grid, ask.figure)}"))
        elif best.sign == DISTURBED_SIGN:
            failed.append(Figures(why=f"other programs disturbed that of {link}", is_disturbed=True))
        else:
            found[name] = times * (best.value or 0.0)
    figures = failed[0] if failed else _single(ask, found, tolerance)
    return msgspec.structs.replace(figures, each=found, slower_by=by)


def _reason(grid: Grid, figure: str) -> str:
    """Why none of the rows has that figure. A row has each footnote once, at its first figure."""
    for row in grid.rows:
        word = row.entries[figure].word if figure in row.entries else None
        alike = [entry.mark for entry in row.entries.values() if word and entry.word == word and entry.mark]
        if alike:
            return f": {grid.footnotes[alike[0] - 1]}"
    return ""


def _of_reference(ask: LinkChange, reference: Reference, noise: dict[str, float]) -> Figures:
    places = {
        f"{column.link}{'+on' if column.protection else ''}": place
        for place, column in enumerate(reference.columns)
    }
    if not {*ask.links} <= places.keys():
        return Figures(why="it has no such column")
    of, compared_with = (places[link] for link in ask.links)
    rows = {workload: (values[of], values[compared_with]) for workload, values in reference.rows.items()}
    least = 1 / noise.get(reference.columns[of].link, 1.0)
    shown = frozenset(row for row, (a, b) in rows.items() if a < least * b)
    return Figures(rows=rows, shown=shown, each=_parts(rows))


def _parts(rows: Mapping[str, tuple[float, ...]]) -> dict[str, float]:
    """The first figure of each row in percent of the second."""
    return {row: 100 * of / compared_with for row, (of, compared_with) in rows.items() if compared_with}


def _of_cells(ask: LinkChange, table: Table | None, *, is_virtual: bool) -> Figures:
    """The figures of the columns of one clock. Their ratio is the table's, within rounds."""
    columns = [
        n
        for n, column in enumerate(table.columns if table is not None else ())
        if column.setting is not None and column.setting.is_virtual is is_virtual
    ]
    if table is None or not columns:
        return Figures(why="there are no figures")
    if len({table.columns[n].setting for n in columns}) > 1:
        return Figures(why="they come from several testbeds, kernels or disks: name the runs of one")
    found: list[int] = []
    for link in ask.links:
        name, _, protection = link.partition("+")
        fitting = [
            n
            for n in columns
            if (column := table.columns[n]).column.link == name
            and bool(column.column.protection) is bool(protection)
            and not (column.key is not None and column.key.is_unencrypted)
        ]
        if len(fitting) != 1:
            return Figures(why=f"expected one column of {link}, found {len(fitting) or 'none'}")
        found += fitting
    rows, shown, disturbed = {}, set(), False
    for row, line in zip(table.rows, table.cells, strict=True):
        of, compared_with = (line[n] for n in found)
        if of is None or compared_with is None or of.value is None or compared_with.value is None:
            continue
        if of.is_disturbed or compared_with.is_disturbed:
            disturbed = True
            continue
        ratio = (
            of.ratio_to_unprotected if "+" in ask.of else of.ratio_to_local
        ) or of.value / compared_with.value
        rows[row.name] = (ratio * compared_with.value, compared_with.value)
        if _differs(of, ratio):
            shown.add(row.name)
    why = "other programs disturbed them" if disturbed else "no workload has both figures"
    return Figures(
        rows=rows,
        shown=frozenset(shown),
        why="" if rows else why,
        is_disturbed=disturbed,
        each=_parts(rows),
    )


def _differs(cell: TableCell, ratio: float) -> bool:
    if cell.difference_from_unprotected is not None:
        return cell.difference_from_unprotected is Difference.DIFFERENT
    return abs(1 - ratio) > TOLERANCE


def _answer(ask: Ask, origins: Origins, heading: str, names: Mapping[str, str] | None = None) -> Answer:
    """``names`` are those of links for people."""
    bars: dict[str, dict[str, float]] = {}
    for origin, figures in origins.named:
        for link, value in figures.each.items():
            bars.setdefault((names or {}).get(link, link), {})[origin] = value
    return Answer(
        subject=ask.what,
        figures=tuple((name, _words(ask, figures)) for name, figures in origins.named),
        conclusion=_conclusion(ask, origins),
        whom=_whom(ask, origins),
        is_free=bool(origins.measured.rows) and not any(_dear(ask, each) for _, each in origins.named),
        bars=Bars(title=heading, bars=bars),
    )


def _words(ask: Ask, figures: Figures) -> str:
    if not figures.rows:
        return "disturbed" if figures.is_disturbed else figures.alone or "no figure"
    unit = _unit(ask)
    if isinstance(ask, LinkMost):
        return f"{_shown(figures.rows[''][0])} {unit}"
    if isinstance(ask, LinkSteps):
        return f"{_shown(_slope(figures.rows['']))} {unit} more"
    changes = sorted(
        (of / compared_with - 1 for of, compared_with in figures.rows.values() if compared_with), reverse=True
    )
    if not figures.is_single:
        span = " to ".join(dict.fromkeys(map(_percent, (changes[0], changes[-1]))))
        return (
            f"{span} in {counted(len(changes), 'workload')} (median {_percent(statistics.median(changes))})"
        )
    of, compared_with = figures.rows[""]
    instead = f"{_shown(of)} instead of {_shown(compared_with)} {unit}"
    return instead if unit == PERCENT or not changes else f"{instead} ({_percent(changes[0])})"


def _shown(value: float) -> str:
    return f"{value:.0f}" if abs(value) >= 100 else f"{value:.3g}"


def _percent(change: float) -> str:
    return f"{round(100 * change):+d} %" if round(100 * change) else "0 %"


def _slope(values: Sequence[float]) -> float:
    """The straight line through equally spaced values: how much it rises from one to the next."""
    return statistics.linear_regression(range(len(values)), values).slope


def _cost(ask: Ask, figures: Sequence[float]) -> float:
    """What the first figure costs compared with the second, or each step: a time, or a part that is lost. Per
    bit or per packet where the figures are rates. Negative: it costs nothing."""
    if isinstance(ask, LinkSteps):
        return _slope(figures)
    of, compared_with = figures
    if _unit(ask) in RATES:
        return 1 / of - 1 / compared_with if of and compared_with else 0.0
    return of - compared_with


def _dear(ask: Ask, figures: Figures) -> list[str]:
    """The rows in which something is shown to cost."""
    if isinstance(ask, LinkMost):
        return []
    return [row for row, found in figures.rows.items() if row in figures.shown and _cost(ask, found) > 0]


def _whom(ask: Ask, origins: Origins) -> str:
    """What the cause is, in plain words; empty if it is unknown."""
    measured, processors = origins.measured, "the cause is the processors and the software"
    if isinstance(ask, LinkMost):
        # Of the smallest frames in a second.
        link = load_link(ask.of)
        ceiling = (link.rate_bit_s or 0) / (8 * (SMALLEST_FRAME_BYTES + link.frame_overhead_bytes))
        if not measured.rows or not ceiling:
            return ""
        is_links = measured.rows[""][0] / ceiling >= MOSTLY
        whom = "the cause is the link" if is_links else f"{processors}, not the link"
        return f"{whom}. {ask.what}: {_words(ask, measured)}, of {ceiling:.0f} that its rate allows"
    name, whole = _whole(ask, origins)
    share = _links_share(ask, origins.virtual, whole)
    if share is None:
        return ""
    if share >= MOSTLY:
        whom = "the cause is the protocol and its links, not a machine"
    elif share <= 1 - MOSTLY:
        whom = f"{processors}, not the protocol"
    else:
        whom = f"{processors}, and the protocol as well"
    free = _words(ask, origins.virtual)
    return f"{whom}. {ask.what}: {free} where processors cost nothing, {_words(ask, whole)} {name}"


def _whole(ask: Ask, origins: Origins) -> tuple[str, Figures]:
    """The figures whose cost is to be explained, with their origin: the article's if it has a cost."""
    if _dear(ask, origins.published):
        return f"in {origins.title}", origins.published
    return "as measured", origins.measured


def _conclusion(ask: Ask, origins: Origins) -> str:
    measured = origins.measured
    if measured.rows and isinstance(ask, LinkMost):
        ours, theirs = origins.measured.rows[""][0], origins.published.rows.get("")
        if theirs is None:
            return f"It is {_shown(ours)} here."
        return f"Ours is {ours / theirs[0]:.2g} times that of {origins.title}."
    dear = _dear(ask, measured)
    parts = [_of_ours(ask, measured, len(dear))]
    if measured.rows and origins.published.rows:
        same = _dear(ask, origins.published)
        parts[0] += _next_to_article(len(same), len(origins.published.rows), origins.title, bool(dear))
    _, whole = _whole(ask, origins)
    share = _links_share(ask, origins.virtual, whole)
    if share is not None:
        whose = "ours" if whole is measured else f"what {origins.title} lost"
        what = "links and protocols" if whole.is_single else "links, disk and protocols"
        part = f"{100 * share:.0f} %" if share >= 0.01 else "less than 1 %"
        rest = f"{part} of {whose}, processors and implementation for the rest"
        parts.append(f"{what} account for {rest if share < 0.995 else f'all of {whose}'}")
    elif measured.is_single and not dear and _dear(ask, origins.virtual):
        parts.append("virtual time, where no processor limits, shows one")
    elif dear and not origins.virtual.rows:
        parts.append("without a run in virtual time, the share of links and protocols is unknown")
    if measured.rows and measured.slower_by != 1:
        parts.append(
            f"ours were measured at 1/{measured.slower_by:g} of each rate, which the lab's one processor can "
            f"forward, and are shown {measured.slower_by:g} times as high"
            if _unit(ask) in RATES
            else f"ours were measured at 1/{measured.slower_by:g} of each rate"
        )
    if measured.is_lab_limited:
        parts.append("the measured figures are limited by the lab, whose one processor does everybody's work")
    return "; ".join(parts) + "."


def _of_ours(ask: Ask, measured: Figures, dear: int) -> str:
    if not measured.rows:
        return f"No answer of our own: {measured.why}"
    left_out = " (disturbed ones are left out)" if measured.is_disturbed else ""
    if dear:
        many = f" in {dear} of our {len(measured.rows)} workloads" if not measured.is_single else ""
        return f"It costs something here{many}{left_out}"
    if isinstance(ask, LinkSteps):
        return "Our figures do not rise with each step, so the cost of one is unknown"
    least = f"{TOLERANCE_POINTS:g}" if _unit(ask) == PERCENT else f"{100 * TOLERANCE:.0f}"
    return f"Our figures show no cost{left_out}: what is below {least} % may be chance"


def _next_to_article(dear: int, of: int, title: str, is_dear: bool) -> str:
    if of > 1:
        return f"; {title} shows a loss in {dear or 'none'} of {of}{', which is only a hint' * (dear == 1)}"
    if dear:
        return f"{', as' if is_dear else '; unlike'} in {title}"
    return f"; the difference in {title} may be chance" if is_dear else f"; neither do those of {title}"


def _links_share(ask: Ask, virtual: Figures, whole: Figures) -> float | None:
    """The part of a cost that virtual time has too, as the median over the rows that cost something; None if
    that is not known. One row of several may be chance."""
    if len(whole.rows) > 1 and len(_dear(ask, whole)) == 1:
        return None
    shares = [
        min(1.0, max(0.0, _cost(ask, virtual.rows[row]) / _cost(ask, whole.rows[row])))
        for row in _dear(ask, whole)
        if row in virtual.rows
    ]
    return statistics.median(shares) if shares else None
