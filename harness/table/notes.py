"""The text around the matrix: where its figures come from, why one is missing, what to doubt."""

from __future__ import annotations

import itertools
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeVar

import msgspec

from harness.analysis import disturbance
from harness.analysis.stats import FEWEST, MARGIN, Decision, Difference
from harness.analysis.theory import Wire
from harness.model import (
    CIPHERS_CLOSED_SINCE,
    COMPLETION,
    PER_JOB,
    Column,
    Plan,
    Record,
    Setting,
    Status,
    StoppingRule,
)
from harness.model.lines import counted, listed
from harness.parse.jobfile import is_past_page_cache
from harness.results import machine
from harness.results.metrics import Direction, Metric, Of
from harness.table.options import RatioTo, Table, TableCell, TableColumn

DISTURBED_SIGN = "!"
"""Next to a disturbed value."""

LAB_SIGN = "lab"
"""Next to a value that the lab limits, not the emulated link."""

SIGNS: Mapping[Difference | None, str] = {
    Difference.EQUIVALENT: "\N{ALMOST EQUAL TO}",
    Difference.INCONCLUSIVE: "?",
}
"""Next to a value that is not shown to differ from the same link unprotected."""

T = TypeVar("T")
_FIGURE = re.compile(r"\b\d+(?:\.\d+)?(?:e[-+]?\d+)?\b")  # and none in a name
_GRAVITY = (Status.FAILED, Status.INVALID, Status.SKIPPED)
_MOST_WARNINGS = 10
_MOST_NAMES = 3

_FACTS = {"cpu": "processor", "clocksource": "clock source", "governor": "frequency governor"}


class Context(msgspec.Struct, frozen=True, kw_only=True):
    """The records of a table and what is known of their runs."""

    records: Sequence[Record]
    plans: Sequence[Plan]
    environments: Sequence[Mapping[str, Any]]


def sign_of(cell: TableCell) -> str:
    """The sign of a value that is not shown to differ from the same link unprotected; empty for others."""
    return SIGNS.get(cell.difference_from_unprotected, "")


def caution(cell: TableCell) -> str:
    """The sign of a value that is not what it seems to be: a disturbed one, or the lab's own; else empty."""
    return DISTURBED_SIGN if cell.is_disturbed else LAB_SIGN if cell.is_lab_limited else ""


def gravest(records: Iterable[Record]) -> Status:
    """The status of a cell without an ok repeat."""
    found = {record.status for record in records}
    return next(status for status in _GRAVITY if status in found)


def reasons(records: Sequence[Record]) -> tuple[str, ...]:
    """Why repeats do not count: each reason once, with the number of repeats that it concerns."""
    good = [record for record in records if record.status is Status.OK]
    left_out = len(good) - len(disturbance.counting(good))
    found = Counter(
        (record.status, record.reason or "no reason given")
        for record in records
        if record.status is not Status.OK
    )
    return tuple(
        f"{status}: {reason}"
        if count == len(records)
        else f"{count} of {len(records)} repeats {status}: {reason}"
        for (status, reason), count in found.items()
    ) + ((f"{left_out} of {len(records)} repeats left out: disturbed",) if left_out else ())


def lacking(metric: Metric, good: Iterable[Record], count: int, repeats: int) -> str:
    """Why so many of a cell's repeats have no value, though they are ok."""
    sums = (io for record in good for io in (record.read, record.write) if io is not None)
    if metric.figure.is_percentile and any(io.latency.percentiles == PER_JOB for io in sums):
        return f"fio reported {metric} per job: only histograms (--output-format=json+) combine it"
    if metric.figure.of is Of.RECORD:
        return f"{metric.figure.title}: unknown in {count} of {repeats} repeats"
    return f"fio reported no {metric} in {count} of {repeats} repeats"


def marked(table: Table) -> Table:
    """The table with footnotes: the number of one in every cell that has reasons; equal reasons share it."""
    texts: dict[str, int] = {}

    def mark(cell: TableCell | None) -> TableCell | None:
        if cell is None or not cell.reasons:
            return cell
        return msgspec.structs.replace(cell, mark=texts.setdefault("; ".join(cell.reasons), len(texts) + 1))

    cells = tuple(tuple(map(mark, line)) for line in table.cells)
    return msgspec.structs.replace(table, cells=cells, footnotes=tuple(texts))


def title(table: Table) -> str:
    """The metric, and how many samples a value is made of."""
    cells = [cell for _, _, cell in placed(table)]
    # Repeats that failed or were disturbed are left out of the value.
    samples = {cell.n for cell in cells if cell.n} or {cell.repeats for cell in cells}
    meaning = table.options.metric.figure.meaning
    if samples == {1}:
        return f"{meaning}, one sample per cell"
    count = " to ".join(dict.fromkeys(map(str, (min(samples), max(samples)))))
    runs = max(len(cell.runs) for cell in cells)
    pooled = f", {runs} runs pooled" if runs > 1 else ""
    return f"{meaning}, median of {count} samples{pooled}"


def marks(context: Context, table: Table) -> tuple[str, ...]:
    """What each sign means that stands in a cell, the most important first; each begins with its sign."""
    return (*_disturbed(context, table), *_lab_limited(table), *_signs(table))


def legend(context: Context, table: Table) -> tuple[str, ...]:
    """Everything that a reader must know to use the figures, the most important first."""
    reference = table.options.reference
    return (
        *_memory(table),
        *_rereads(context),
        *file_systems(context.records, context.plans),
        *one_end(context.records),
        *_goodputs(context, table),
        *origins(context),
        *differences(context.plans, context.environments),
        *_gaps(context),
        *([f"{reference.title}: {reference.source}."] if reference else []),
        *completions(context.records, table.options.metric),
        *_warnings(table),
    )


def placed(table: Table) -> Iterable[tuple[str, TableColumn, TableCell]]:
    """The cells that were measured, row by row: the name of each, its column, and itself."""
    for row, line in zip(table.rows, table.cells, strict=True):
        for column, cell in zip(table.columns, line, strict=True):
            if cell is not None:
                yield f"{column.label} {row.workload}", column, cell


def completions(records: Iterable[Record], metric: Metric) -> Iterable[str]:
    """Which latencies are of another kind than the others; fio leaves the choice to its user."""
    columns = dict.fromkeys(
        record.column.label
        for record in records
        for io in (record.read, record.write)
        if io is not None and io.latency.percentiles == COMPLETION
    )
    if columns and metric.figure.is_percentile:
        yield (
            f"{metric} of {_listed(list(columns), 'column')} is completion latency (fio's clat), without "
            "submission time; means, and percentiles of other columns, are total latency (lat)."
        )


def _memory(table: Table) -> Iterable[str]:
    if any(column.is_memory for column in table.columns):
        yield "memory: the storage is a ramdisk, so no figure is a disk's."


def _rereads(context: Context) -> Iterable[str]:
    """Of reads that may have come from a target's memory, what tells so."""
    found = [record.reread for record in context.records if record.reread is not None]
    for words in dict.fromkeys(reread.words for reread in found if reread.is_from_memory):
        yield f"Reads may not have come from the disk: {words}."


def file_systems(records: Iterable[Record], plans: Iterable[Plan]) -> Iterable[str]:
    """Of files on another machine's file system, whose memory may answer."""
    found = dict.fromkeys(
        (record.column.label, record.run_id)
        for record in records
        if record.column.filesystem and record.setting.is_harness
    )
    if not found:
        return
    runs = {run_id for _, run_id in found}
    jobs = [job for plan in plans if plan.run_id in runs for job in plan.jobs]
    buffered = dict.fromkeys(job.name for job in jobs if not is_past_page_cache(job))
    but = f", but for {listed([*buffered])}, which this machine's page cache may answer" if buffered else ""
    names = listed([*dict.fromkeys(label for label, _ in found)])
    yield (
        f"{names}: a file of another machine, opened with O_DIRECT (past this machine's page cache){but}. "
        "The server's memory may answer reads, and writes if the export is async; a block target has its "
        "own caches. So a difference between the two may come from caches."
    )


def one_end(records: Sequence[Record]) -> Iterable[str]:
    """Which columns were proved at the initiator alone, because of the target only the portal is known, or it
    has booted; and of which programs tunnels are."""
    columns: dict[bool, dict[str, None]] = {False: {}, True: {}}
    for record in records:
        for proof in (record.proof, *(part.proof for part in record.clients)):
            if proof is not None and proof.at_one_end:
                columns[bool(record.column.protection)][record.column.label] = None
    for is_protected, words in (
        (False, "this end's counters cover all bytes read, and the capture shows the portal's segments"),
        (
            True,
            "this end's counters show all bytes read as protected, and the capture shows none in clear",
        ),
    ):
        if labels := ", ".join(columns[is_protected]):
            yield (
                f"Proved at one end ({labels}): {words}; only the target's portal is known, or the target "
                "has booted, and its counters began again."
            )
    yield from _tunnels(records)


def _tunnels(records: Iterable[Record]) -> Iterable[str]:
    """By its own counters such a tunnel carried all, but what left by the interface below is not told."""
    found = {
        f"{record.column.label}: {agreed['tunnel']}"
        for record in records
        for agreed in record.agreed.values()
        if "tunnel" in agreed
    }
    for words in sorted(found):
        yield (
            f"{words}: its packets are not counted, and whether it encrypts is unknown. The capture shows "
            "only that none of the portal's own segments was on the link."
        )


def _goodputs(context: Context, table: Table) -> Iterable[str]:
    """What each emulated link carries at most; of a real one a plan does not say it."""
    links = {column.column.link for column in table.columns}
    profiles = {name: link for plan in context.plans for name, link in plan.links.items() if name in links}
    most = {
        name: Wire(link=link).goodput_bytes_s for name, link in profiles.items() if link.interface is None
    }
    rates = [f"{name} {rate / 1e6:.4g} MB/s" for name, rate in most.items() if rate]
    if rates and table.options.metric in (Metric.MB_S, Metric.MIB_S):
        yield f"Goodput of each link (calculated maximum): {', '.join(rates)}."


def _disturbed(context: Context, table: Table) -> Iterable[str]:
    found = [
        (cell.disturbed or 0.0, cell.cause, place) for place, _, cell in placed(table) if cell.is_disturbed
    ]
    if found:
        most, cause, worst = max(found)
        cells = _named([place for _, _, place in found])
        is_repeated = any(plan.retries for plan in context.plans)
        again = "'harness run --resume' measures" if is_repeated else "With --retries 1 a new run measures"
        yield (
            f"{DISTURBED_SIGN}: disturbed, do not use ({cells}): "
            f"{disturbance.in_words(most, f'in {worst}: {cause}')}. {again} these cells again."
        )


def _lab_limited(table: Table) -> Iterable[str]:
    if any(cell.is_lab_limited for _, _, cell in placed(table)):
        yield (
            f"{LAB_SIGN}: the lab limits this figure, not the emulated link, so it says nothing about such "
            "a link or its protection ('harness explain' shows where the time goes)."
        )


def _signs(table: Table) -> Iterable[str]:
    cells, ratio = [cell for _, _, cell in placed(table)], table.options.ratio
    spreads = [cell.n for cell in cells if cell.spread is not None]
    if spreads and ratio is RatioTo.NONE:
        bound = "far end of its 95 % interval"
        if max(spreads) < FEWEST:
            bound = "farthest sample"
        elif min(spreads) < FEWEST:
            bound += f" (under {FEWEST} samples: to the farthest sample)"
        yield f"±: distance from the median to the {bound}."
    found = {cell.difference_from_unprotected for cell in cells}
    held_to = "the same link unprotected (95 % interval of the ratios within rounds)"
    if Difference.EQUIVALENT in found:
        yield f"{SIGNS[Difference.EQUIVALENT]}: equivalent (within {MARGIN:.0%}) to {held_to}."
    if Difference.INCONCLUSIVE in found:
        sign = SIGNS[Difference.INCONCLUSIVE]
        yield f"{sign}: difference neither shown nor ruled out, compared with {held_to}."
    if ratio is not RatioTo.NONE:
        yield f"\N{MULTIPLICATION SIGN}: ratio to the value of {ratio.baseline}, same workload."
    if any(row.direction is Direction.BOTH for row in table.rows):
        yield "(read+write): the sum of both directions of a mixed workload."


def origins(context: Context) -> Iterable[str]:
    """Where the records are from: testbeds, machines, files, and what their figures stand for."""
    by_setting: dict[Setting, list[str]] = {}
    found = {(r.setting, r.run_id): r for r in reversed(context.records)}
    for record in reversed(found.values()):
        by_setting.setdefault(record.setting.distinct, []).append(record.run_id)
    plans = {plan.run_id: plan for plan in context.plans}
    for setting in sorted(by_setting):
        runs = by_setting[setting]
        if not setting.is_harness:
            yield f"{setting.name}: {_listed(runs, 'file')}; the testbed is unknown."
            yield from _repeats(record for record in context.records if record.setting.distinct == setting)
            continue
        profiles = dict.fromkeys(plans[run].profile for run in runs if run in plans)
        about = [f"profile {', '.join(profiles)}"] if profiles else []
        disks = dict.fromkeys(plans[run].storage.disk for run in runs if run in plans)
        about += [f"disk {disk.title}: {disk.description}" for disk in disks if disk is not None]
        where = setting.name if machine.side_of(setting) else f"Testbed {setting.name}"
        yield f"{where}: {'; '.join([_listed(runs, 'run'), *about])}."
    for text in dict.fromkeys(text for record in context.records for text in record.overrides):
        yield f"Warning: a user's file replaced a shipped one: {text}."
    if lists := [setting.predicted_from for setting in sorted(by_setting) if setting.predicted_from]:
        yield (
            "Predicted, not measured: virtual time with processor work from a CPU cost "
            f"file ({', '.join(lists)}); see docs/cpu-costs.md for what it leaves out."
        )
    if any(setting.is_virtual and not setting.predicted_from for setting in by_setting):
        yield (
            "Virtual time: processor work takes no time, only links and disks do. These figures are the "
            "costs of the protocols, not measurements of a machine."
        )
    if any(setting.ciphers for setting in by_setting):
        yield (
            "Generic ciphers: the kernel encrypts without the processor's crypto instructions, so "
            "protection costs more than on most machines."
        )
    kernels = _each(context.environments, "kernel", below=False)
    if any(setting.ciphers and not setting.kernel for setting in by_setting) and not (
        kernels and all(map(_keeps_ciphers_closed, kernels))
    ):
        yield "'harness kernel ciphers' builds accelerated ciphers for Debian's kernel in a minute."
    alike = (machine.without_side(setting) for setting in by_setting)
    if len({msgspec.structs.replace(setting, ciphers=None) for setting in alike}) > 1:
        yield "Different testbeds have separate columns: do not compare their figures."
    if kernels:
        yield f"Kernel: {', '.join(kernels)}."
    yield from dict.fromkeys(machines(context.environments))
    governors = [name for name in _each(context.environments, "governor") if name != "performance"]
    if governors:
        yield f"Warning: the frequency governor is {', '.join(governors)}; 'performance' varies less."


def _repeats(records: Iterable[Record]) -> Iterable[str]:
    """Which fio outputs of others were taken for repeats, by their names and jobs alone."""
    places: dict[tuple[Column, str], dict[str, None]] = {}
    for record in records:
        places.setdefault((record.column, record.workload.name), {})[record.run_id] = None
    files = dict.fromkeys(run for runs in places.values() if len(runs) > 1 for run in runs)
    if files:
        yield (
            f"Repeats: the names of {_listed(list(files), 'file')} differ only in a number and their jobs "
            "are the same, so they count as repeats. If they are from different disks or machines, name "
            "them so."
        )


def machines(environments: Iterable[Mapping[str, Any]]) -> Iterable[str]:
    """A sentence about each machine of a run."""
    for environment in environments:
        found = machine.machines_of(environment)
        for hosts, facts in found.items():
            whose = f" ({hosts})" if len(found) > 1 else ""
            yield f"Machine{whose}: {facts.in_words()}."


def _listed(names: Sequence[str], noun: str) -> str:
    several = f"{counted(len(names), noun)} ({listed(names, _MOST_NAMES)})"
    return several if len(names) > 1 else f"{noun} {names[0]}"


def _facts(environment: Mapping[str, Any], *names: str, below: bool = True) -> Iterable[tuple[str, str, str]]:
    """What the hosts of a run report: host, fact and answer. Of a kernel it is the release.

    ``below``: include the machine that the lab runs on.
    """
    hosts = environment.get("hosts")
    asked = dict(hosts) if isinstance(hosts, Mapping) else {}
    if below:
        asked[machine.MACHINE] = environment.get(machine.MACHINE)
    for host, facts in asked.items():
        for name in names if isinstance(facts, Mapping) else ():
            answer = str(facts.get(name, ""))
            if name == "kernel":
                # The third word of /proc/version.
                answer = " ".join(answer.removeprefix("Linux version ").split()[:1])
            if answer:
                yield host, name, answer


def _each(environments: Iterable[Mapping[str, Any]], fact: str, *, below: bool = True) -> list[str]:
    """Every answer of any host of any run, each once."""
    found = (_facts(environment, fact, below=below) for environment in environments)
    return list(dict.fromkeys(answer for _, _, answer in itertools.chain.from_iterable(found)))


def _keeps_ciphers_closed(release: str) -> bool:
    words = release.split(".")[:2]
    return all(map(str.isdecimal, words)) and tuple(map(int, words)) >= CIPHERS_CLOSED_SINCE


def differences(plans: Sequence[Plan], environments: Sequence[Mapping[str, Any]]) -> Iterable[str]:
    """What differs between runs whose samples share cells or are compared."""
    variants: dict[tuple[str, str], set[object]] = {}
    for plan in plans:
        backing, disk = plan.storage.backing, plan.storage.disk
        for what, chosen in (
            *((f"workload {job.name}", job.options) for job in plan.jobs),
            *((f"link {name}", link) for name, link in plan.links.items()),
            ("backing storage", (backing.kind, backing.size_bytes, backing.path)),
            *([(f"disk {disk.name}", disk)] if disk is not None else []),
            ("runtime", plan.runtime_s),
            ("authentication", plan.ike_auth),
            ("version of the harness", plan.harness_version),
        ):
            variants.setdefault((what, ""), set()).add(chosen)
    # Two hosts of one run may well be unlike.
    for environment in environments:
        kernels = _facts(environment, "kernel", below=False)
        for host, fact, answer in (*kernels, *_facts(environment, *_FACTS)):
            variants.setdefault((_FACTS.get(fact, fact), host), set()).add(answer)
    unlike = dict.fromkeys(what for (what, _), found in variants.items() if len(found) > 1)
    if unlike:
        yield f"The runs differ in: {', '.join(unlike)}."


def kernels_of(plans: Iterable[Plan]) -> str:
    """The lab's kernels of some runs, with the commits that they were built of; empty outside the lab."""
    return " and ".join(
        dict.fromkeys(_kernel_of(plan) for plan in plans if plan.setting.lab_kernel is not None)
    )


def _kernel_of(plan: Plan) -> str:
    if (other := plan.setting.other_kernel) is None:
        return "the custom kernel" if plan.setting.is_custom else "Debian's kernel"
    return other.name + (f" (commit {other.commit})" if other.commit else "")


def _gaps(context: Context) -> Iterable[str]:
    measured: dict[str, list[Record]] = {plan.run_id: [] for plan in context.plans}
    for record in context.records:
        measured.get(record.run_id, []).append(record)
    for plan in context.plans:
        records = measured[plan.run_id]
        if plan.stop is not None:
            yield from _undecided(plan, plan.stop, records)
            continue
        planned = len(plan.places) * plan.repeats
        if len(records) < planned:
            yield (
                f"Run {plan.run_id} is unfinished: {len(records)} of {counted(planned, 'measurement')} made "
                f"('harness run --resume' makes the rest)."
            )


def _undecided(plan: Plan, rule: StoppingRule, records: Sequence[Record]) -> Iterable[str]:
    """The cells of a run with a stopping rule whose interval is still wide: that is a result as well."""
    from harness.analysis import schedule  # here, because most runs have no such rule

    wide: dict[Decision, list[str]] = {}
    for (column, workload), decision in schedule.decisions(plan, records).items():
        wide.setdefault(decision, []).append(f"{column.label} {workload}")
    wide.pop(Decision.NARROW, None)
    if unfinished := wide.pop(Decision.GO_ON, []):
        yield (
            f"Run {plan.run_id} is unfinished: {_named(unfinished)} not measured often enough yet "
            f"('harness run --resume' makes the rest)."
        )
    for decision, cells in wide.items():
        yield (
            f"Inconclusive ({_named(cells)}): {decision} before the 95 % interval was within "
            f"{100 * rule.width:g} % of the median, as --confidence asked for."
        )


def _named(cells: Sequence[str], columns: Iterable[str] = ()) -> str:
    """A few cells by their names, others by their count, and by their column if they are all of one."""
    if len(cells) <= _MOST_NAMES:
        return ", ".join(cells)
    found = [*dict.fromkeys(columns)]
    return f"{len(cells)} cells{f' of {found[0]}' if len(found) == 1 else ''}"


def _warnings(table: Table) -> Iterable[str]:
    few = [
        place
        for place, column, cell in placed(table)
        # More repeats are possible, and would differ: virtual time repeats exactly.
        if 0 < cell.n < FEWEST
        and (setting := column.setting) is not None
        and setting.is_harness
        and not setting.is_virtual
    ]
    if few:
        yield (
            f"Warning: {_named(few)} {'has' if len(few) == 1 else 'have'} fewer than {FEWEST} usable "
            "repeats, too few for a 95 % interval: try --confidence 5%."
        )
    places = alike(
        (warning, (place, column.label)) for place, column, cell in placed(table) for warning in cell.warnings
    )
    for warning, where in list(places.items())[:_MOST_WARNINGS]:
        cells = dict(where)  # a workload may have two rows
        yield f"Warning ({_named(list(cells), cells.values())}): {warning}"
    if len(places) > _MOST_WARNINGS:
        yield f"{counted(len(places) - _MOST_WARNINGS, 'more warning')}: see --format json."


def alike(warned: Iterable[tuple[str, T]]) -> dict[str, list[T]]:
    """The places of each warning. Those that differ in figures alone are one, with the figures of the first;
    behind it stands that they are."""
    found: dict[str, dict[str, list[T]]] = {}
    for warning, place in warned:
        found.setdefault(_FIGURE.sub("#", warning), {}).setdefault(warning, []).append(place)
    return {
        next(iter(same)) + (" (figures of the first)" if len(same) > 1 else ""): list(
            itertools.chain.from_iterable(same.values())
        )
        for same in found.values()
    }
