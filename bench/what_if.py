"""What is a change worth: said from the side before it, against what was measured after it.

    python bench/what_if.py                      # real changes between stored runs (docs/figures)
    python bench/what_if.py --blind FOLDER       # and between the series of bench/predictions.py
    python bench/what_if.py --virtual FOLDER     # and in virtual time by the CPU costs of lab-custom
    python bench/what_if.py --changes            # also a line for each change
    python bench/what_if.py --virtual FOLDER --store     # for docs/scores.md

Two cells are a change if they differ in one thing alone (``kind_of``): the cipher's driver, the kernel, the
link, the transport, a protection, or the depth. Said is what was measured before it, times the ratio of two
predictions, as `harness explain --what-if` does. The CPU costs are those of the side before it, without any
cell that has what is new (of stored runs), or were taken before both sides were measured (``--blind``). Only
what the change itself brings has other CPU costs: ciphers, measured by themselves, for a driver, the
transport's own for a transport, and all of them for a kernel.

The error is in points: of the time that an I/O takes on the slower side, which is 100, how far apart the two
times after the change are, said and measured (Coz gives what a part is worth so, of a program's time). Next
to it is how far the throughput after the change is off, in percent of what was measured. The last columns
are the same where a second measurement is taken for what is said, the odd repeats of both sides for the even
ones: that near is what was measured to itself.

What stored runs say is not blind: the model was made with these runs in view, though not with this ratio.

In virtual time (`harness run --cpu-costs`) the real stack takes what a CPU cost file says and nothing else,
so the closed form alone is tried, to the last digit and on any machine: whether it foretells what queues,
windows, pieces and wake-ups make of a change. A CPU cost that is changed is a change there, as `--what-if`
means it.
"""

from __future__ import annotations

import argparse
import functools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec
from tabulate import tabulate

from bench.in_turns import run_harness
from bench.series import PROJECT, SERIES, cpu_costs_of
from harness.analysis import disturbance, stats
from harness.analysis.cpu_costs import CpuCosts
from harness.analysis.interval import Interval
from harness.analysis.schedule import throughput_bytes_s
from harness.explain import demand, what_if
from harness.explain.predicted import Ends, NetworkPath, Predicted, predict
from harness.explain.what_if import Variant
from harness.model import Column, Job, LinkProfile, Plan
from harness.model.units import format_percent
from harness.parse.cpu_costs import load_cpu_costs, written
from harness.parse.jobfile import described
from harness.results.measured import Measured
from tools import scores

WITHIN = 3.0
"""Points that a change may be off by."""

STORED: Mapping[str, Sequence[str]] = {
    "debian": ("make-run",),
    "debian-generic": ("generic",),
    "custom": ("ladder", "ciphers", "emulation", "protections"),
    "custom-generic": ("ciphers-generic",),
}
"""Runs of docs/figures in real time, by kernel and cipher driver."""

DRIVER, KERNEL, LINK, TRANSPORT, PROTECTION, DEPTH, COST = (
    *("cipher driver", "kernel", "link", "transport"),
    *("protection", "depth", "cost"),
)

STORED_RUNS, BLIND, VIRTUAL = "stored", "blind", "virtual"

LIST = "lab-custom"
FASTER = ("cipher=2x", "ESP=2x", "iscsi=2x", "block layer=2x", "emulated link=2x")
"""CPU costs that are changed in virtual time."""

JOBS = "[global]\ndirect=1\nioengine=libaio\nrw=randread\n" + "".join(
    f"[{size}-depth{depth}]\nbs={size}\niodepth={depth}\n"
    for size, depth in (("4k", 1), ("4k", 8), ("4k", 32), ("64k", 1), ("256k", 1), ("256k", 8))
)
WAYS = ("--link=10g", "--protect=off", "--protect=aes128gcm16", "--transport=iscsi")
MORE_WAYS = ("--link=wired", "--link=wired:rtt=2ms", "--transport=nvme-tcp")
"""Of the run by the list as it is alone."""


@dataclass(frozen=True)
class Cell:
    """What was measured of a column and a workload, and the same of odd and of even repeats, if there are
    both."""

    column: Column
    job: Job
    mb_s: float
    halves: tuple[float, float] | None


class Pool:
    """Runs of one kernel with one cipher driver: cells of undisturbed repeats, and CPU costs. ``faster`` says
    which of these were changed."""

    def __init__(
        self, name: str, folders: Sequence[Path], costs: Path | None = None, faster: str = ""
    ) -> None:
        self.name, self._costs, self.faster = name, costs, faster
        self.kernel, self.driver = (
            name.split("-")[0],
            "generic" if name.endswith("generic") else "accelerated",
        )
        self.whole = Measured.read(folders)
        self.plan: Plan = demand.joined([*self.whole.plans.values()])
        jobs = {job.name: job for job in self.plan.jobs}
        found: dict[tuple[Column, str], tuple[list[float], list[float]]] = {}
        for record in disturbance.quiet(self.whole.records):
            if (rate := throughput_bytes_s(record)) and not self._is_left_out(record.column):
                of_cell = found.setdefault((record.column, record.workload.name), ([], []))
                of_cell[record.repeat % 2].append(rate / 1e6)
        columns = dict.fromkeys(column for column, _ in found)
        self.links = {column: what_if.link_of(column, self.plan, self.whole) for column in columns}
        self.cells = []
        for (column, name), (even, odd) in found.items():
            halves = (stats.median(odd), stats.median(even)) if even and odd else None
            self.cells.append(Cell(column, jobs[name], stats.median([*even, *odd]), halves))

    def _is_left_out(self, column: Column) -> bool:
        """The disk itself, and simulated radios, which have no CPU costs."""
        return column.is_local or self.plan.has_radio(self.plan.links.get(column.link))

    @functools.cache  # noqa: B019
    def costs(self, without: Column | str | None = None) -> CpuCosts:
        """The list that was taken before the run, or that of the run without a column or a workload."""
        if self._costs is not None:
            return load_cpu_costs(str(self._costs))
        records = [r for r in self.whole.records if without not in (r.column, r.workload.name)]
        probes = [probe for probe in self.whole.probes if probe.column != without]
        return demand.costs_of(msgspec.structs.replace(self.whole, records=records, probes=probes))

    def predicted(self, cell: Cell, costs: CpuCosts, further: float) -> Predicted:
        way = NetworkPath(column=cell.column, link=self.links[cell.column], proposals=self.plan.proposals)
        return predict(Ends(target=costs), [way], [cell.job], further=further)[0]


def _speed(link: LinkProfile | None) -> tuple[float, float]:
    """The greater, the faster: by its rate, and then by its round trip."""
    if link is None:
        return 0.0, 0.0
    return float(link.rate_bit_s or math.inf), -link.path_delay_us


def kind_of(before: Pool, a: Cell, after: Pool, b: Cell) -> str:
    """The one thing by which two cells differ, "" if it is none or several.

    The rule was fixed before any result was looked at: generic to accelerated ciphers, Debian's to the custom
    kernel, a link to the next faster one, iSCSI to NVMe/TCP, a protection to none, fewer to more in flight.
    Links, protections and depths are of the same runs.
    """
    work_a, work_b = (msgspec.structs.replace(described(each.job), name="", depth=None) for each in (a, b))
    rest_a, rest_b = (
        msgspec.structs.replace(each.column, link="", protection=(), transport="iscsi", mode=None)
        for each in (a, b)
    )
    depth_a, depth_b = (described(each.job).depth or 1 for each in (a, b))
    has_cipher = bool(a.column.protection or b.column.protection)
    differ = {
        DRIVER: before.driver != after.driver and has_cipher,
        KERNEL: before.kernel != after.kernel,
        LINK: a.column.link != b.column.link,
        TRANSPORT: a.column.transport != b.column.transport,
        PROTECTION: a.column.protection != b.column.protection,
        DEPTH: depth_a != depth_b,
        COST: before.faster != after.faster,
    }
    found = [kind for kind, is_other in differ.items() if is_other]
    if len(found) != 1 or work_a != work_b or rest_a != rest_b:
        return ""
    (kind,) = found
    if kind in (LINK, PROTECTION, DEPTH) and (before is not after or before.faster):
        return ""
    is_so = {
        DRIVER: before.driver == "generic",
        KERNEL: (before.kernel, after.kernel) == ("debian", "custom"),
        LINK: b.column.link == _next_faster(before, a),
        TRANSPORT: (a.column.transport, b.column.transport) == ("iscsi", "nvme-tcp"),
        PROTECTION: not b.column.protection,
        DEPTH: depth_a < depth_b,
        COST: not before.faster,
    }
    return kind if is_so[kind] else ""


def _next_faster(pool: Pool, cell: Cell) -> str | None:
    """Of the links over which the same was measured, the slowest that is faster."""
    links = pool.plan.links
    same = {
        each.column.link
        for each in pool.cells
        if each.job.name == cell.job.name
        and msgspec.structs.replace(each.column, link=cell.column.link) == cell.column
    }
    own = _speed(links.get(cell.column.link))
    return min(
        (name for name in same if _speed(links.get(name)) > own),
        key=lambda name: _speed(links.get(name)),
        default=None,
    )


@dataclass(frozen=True)
class Change:
    """A real change: throughputs in 10^6 bytes per second before, as said, and as measured after it.

    ``where`` it was is ``STORED_RUNS``, ``BLIND`` or ``VIRTUAL``. What is said is with 90 % from ``low_mb_s``
    to ``high_mb_s``. ``again`` is the change of the even repeats, as the odd ones say it."""

    kind: str
    words: str
    where: str
    before_mb_s: float
    said_mb_s: float
    after_mb_s: float
    low_mb_s: float = 0.0
    high_mb_s: float = math.inf
    again: Change | None = None

    @property
    def slower_mb_s(self) -> float:
        return min(self.before_mb_s, self.after_mb_s)

    def worth(self, mb_s: float) -> float:
        """The time that is saved, in points of the slower side's; below 0 if it is lost."""
        return 100 * self.slower_mb_s * (1 / self.before_mb_s - 1 / mb_s)

    @property
    def points(self) -> float:
        return abs(self.worth(self.said_mb_s) - self.worth(self.after_mb_s))

    @property
    def half_width(self) -> float:
        """Of the interval, in points."""
        return (self.worth(self.high_mb_s) - self.worth(self.low_mb_s)) / 2

    @property
    def is_covered(self) -> bool:
        return self.low_mb_s <= self.after_mb_s <= self.high_mb_s

    @property
    def off(self) -> float:
        return abs(self.said_mb_s / self.after_mb_s - 1)


def changes(pools: Sequence[Pool], where: str) -> Iterator[Change]:
    """All real changes between the cells of some pools that CPU costs say something of."""
    for before in pools:
        for after in pools:
            for a in before.cells:
                for b in after.cells:
                    if (kind := kind_of(before, a, after, b)) and (gain := _gain(kind, before, a, after, b)):
                        own = f"{before.name} {a.column.label} {a.job.name}"
                        new = f"{after.name} {b.column.label} {b.job.name} {after.faster}"
                        words = f"{own} -> {new}".rstrip()
                        again = None
                        if a.halves is not None and b.halves is not None:
                            said = a.halves[1] * b.halves[0] / a.halves[0]
                            again = Change(kind, words, where, a.halves[1], said, b.halves[1])
                        said, low, high = (a.mb_s * (1 + part) for part in (gain.mid, gain.low, gain.high))
                        yield Change(kind, words, where, a.mb_s, said, b.mb_s, low, high, again)


def _gain(kind: str, before: Pool, a: Cell, after: Pool, b: Cell) -> Interval | None:
    """What is said of a change."""
    new: Column | str = b.job.name if kind == DEPTH else b.column
    known = before.costs(new if before is after else None)

    def reported(variant: Variant) -> tuple[Predicted, Predicted]:
        own = variant.of(known)
        changed = variant.of(_changed(kind, own, after, b))
        return before.predicted(a, own, variant.further), after.predicted(b, changed, variant.further)

    was, will_be = reported(what_if.AS_IT_IS)
    if not was.mb_s or not will_be.mb_s:
        return None

    def ratio(variant: Variant) -> float:
        was, will_be = reported(variant)
        return (will_be.mb_s or 1.0) / (was.mb_s or 1.0)

    missed = what_if.missed_of(was, a.mb_s) * (_change_of(after, known).saves if kind == COST else 1.0)
    pairs = what_if.variants([*known.costs, *_changed(kind, known, after, b).costs])
    return what_if.gain(was, will_be, a.mb_s, what_if.reach_of(ratio, pairs, missed))


def _change_of(after: Pool, known: CpuCosts) -> what_if.FasterPart:
    (change,) = what_if.parse(after.faster, Ends(target=known))
    return change


def _changed(kind: str, known: CpuCosts, after: Pool, b: Cell) -> CpuCosts:
    """The CPU costs after a change."""
    if kind == KERNEL:
        return after.costs(b.column)
    if kind == COST:
        return what_if.with_costs(known, _change_of(after, known))
    if kind == DRIVER:
        return _with(known, after.costs(), b.column.protection)
    if kind == TRANSPORT and b.column.transport not in known.sessions:
        return _with(known, after.costs(), (b.column.transport or "",))
    return known


def _with(known: CpuCosts, other: CpuCosts, names: Sequence[str]) -> CpuCosts:
    """A list with some parts of another one."""
    kept = [cost for cost in known.costs if cost.part not in names]
    new = [cost for cost in other.costs if cost.part in names]
    sessions = {**other.sessions, **known.sessions}
    return msgspec.structs.replace(known, costs=(*kept, *new), sessions=sessions)


def stored() -> list[Pool]:
    folder = PROJECT / "docs" / "figures"
    return [Pool(name, [folder / run for run in runs]) for name, runs in STORED.items()]


def blind(folder: Path) -> Iterator[Pool]:
    """The series of ``bench/predictions.py`` in the lab that are there, by the CPU costs that came first."""
    for series in SERIES:
        if not series.suite and (results := folder / series.name / "results").is_dir():
            yield Pool(series.name, [results], cpu_costs_of(series, folder))


def virtual(folder: Path) -> Iterator[Pool]:
    """Runs in virtual time by the CPU costs of a list, as they are and with each of ``FASTER``."""
    known = load_cpu_costs(LIST)
    folder.mkdir(parents=True, exist_ok=True)
    (jobs := folder / "jobs.fio").write_text(JOBS, encoding="utf-8")
    for faster in ("", *FASTER):
        changed, ways = known, WAYS if faster else (*WAYS, *MORE_WAYS)
        if faster:
            (change,) = what_if.parse(faster, Ends(target=known))
            changed = what_if.with_costs(known, change)
        results = folder / (faster.partition("=")[0].replace(" ", "-").lower() or "as-it-is")
        costs = results.with_suffix(".toml")
        costs.write_text(written(changed), encoding="utf-8")
        if not results.is_dir():
            words = (
                "--virtual-time",
                f"--cpu-costs={costs}",
                "--runtime=100ms",
                "--repeats=1",
                "--disk=ram",
                *ways,
            )
            run_harness("run", f"--profile={jobs}", *words, f"--results={results}")
        yield Pool("custom", [results], costs, faster)


HEADINGS = (
    *("what changed", "where", "changes", "worth", "median error", "within 3 points", "off, median"),
    *("half width", "within 90 %", "±3 or less", "of these within 3 points"),
    *("measured again: error", "again: within 3 points"),
)


def rows(found: Sequence[Change]) -> Iterator[list[str]]:
    """The score by what changed, and of all."""
    groups: dict[tuple[str, str], list[Change]] = {}
    for each in found:
        for name in (each.kind, "all"):
            groups.setdefault((each.where, name), []).append(each)
    for (where, name), own in sorted(groups.items()):
        again = [each.again for each in own if each.again is not None]
        yield [
            name,
            where,
            str(len(own)),
            f"{stats.median([abs(each.worth(each.after_mb_s)) for each in own]):.1f}",
            *_errors(own),
            format_percent(stats.median([each.off for each in own])),
            f"{stats.median([each.half_width for each in own]):.1f}",
            f"{sum(each.is_covered for each in own) / len(own):.0%}",
            str(len(sure := [each for each in own if each.half_width <= WITHIN])),
            _errors(sure)[1] if sure else "n/a",
            *(_errors(again) if again else ("n/a", "")),
        ]


def _errors(found: Sequence[Change]) -> tuple[str, str]:
    near = sum(each.points <= WITHIN for each in found)
    return f"{stats.median([each.points for each in found]):.1f}", f"{near} ({near / len(found):.0%})"


def line(each: Change) -> list[str]:
    """One change, for people."""
    return [
        each.kind,
        each.words,
        f"{each.before_mb_s:.4g}",
        f"{each.said_mb_s:.4g}",
        f"{each.after_mb_s:.4g}",
        f"{each.worth(each.said_mb_s):+.1f}",
        f"{each.worth(each.after_mb_s):+.1f}",
        f"{each.points:.1f}",
        f"{each.half_width:.1f}",
        "n/a" if each.again is None else f"{each.again.points:.1f}",
        format_percent(each.off),
    ]


OF_EACH = (
    "what",
    "change",
    "before",
    "said",
    "measured",
    "said",
    "measured",
    "points",
    "half width",
    "again",
    "off",
)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--blind", type=Path, help="where bench/predictions.py has its results")
    parser.add_argument("--virtual", type=Path, help="where runs in virtual time are, or go")
    parser.add_argument("--changes", action="store_true", help="also a line for each change")
    parser.add_argument("--store", action="store_true", help="store the table for docs/scores.md")
    asked = parser.parse_args()
    found = [*changes(stored(), STORED_RUNS)]
    if asked.blind is not None:
        found += changes([*blind(asked.blind)], BLIND)
    if asked.virtual is not None:
        found += changes([*virtual(asked.virtual)], VIRTUAL)
    if asked.changes:
        print(tabulate([line(each) for each in found], OF_EACH, disable_numparse=True), end="\n\n")
    made = [*rows(found)]
    print(tabulate(made, HEADINGS, disable_numparse=True))
    if asked.store:
        scores.store("what-if", "python bench/what_if.py --blind FOLDER --virtual FOLDER", HEADINGS, made)
    worst = sorted(found, key=lambda each: -each.points)[:5]
    print("\n" + tabulate([line(each) for each in worst], OF_EACH, disable_numparse=True))


if __name__ == "__main__":
    main()
