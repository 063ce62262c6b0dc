"""How right is `harness predict`? CPU costs are taken, a prediction is written down, and only then measured.

    python bench/predictions.py --results FOLDER           # all series, 6 to 9 minutes each
    python bench/predictions.py --results FOLDER --only own
    python bench/predictions.py --results FOLDER --write   # what `harness predict --score` prints
    sh tests/lab/isolated.sh APART \
      unshare --net python bench/predictions.py --results FOLDER --only trixie --repeats 2

A series takes a CPU cost file of a kernel of the lab (FOLDER/SERIES/lab-SERIES.toml), writes what it predicts
of cells at other blocks, depths and links than those that the CPU costs rest on (prediction.json), and then
measures these (results/). The last is of two stock machines (user-mode kernels of Debian 13, a wire between
them; tests/machines), with the CPU costs of each end. Printed are errors, widths and coverage of the 90 %
intervals, by what limits, and what the bounds of the link alone would have said. It is a score, and no test.

`--held-out` needs no lab: of stored runs on a quiet machine (docs/figures) each column is left out in turn,
the CPU costs come from the others, and what they predict of it is compared with what was measured. The column
local is not, because no other has the CPU cost of a local disk alone.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec
from tabulate import tabulate

from bench.in_turns import run_harness
from bench.series import PROJECT, SERIES, UNSHAPED, Series, cpu_costs_of
from harness.analysis import disturbance, stats
from harness.analysis.cpu_costs import CpuCosts, WhichEnd
from harness.analysis.interval import Interval
from harness.analysis.limit import Limit
from harness.analysis.schedule import throughput_bytes_s
from harness.explain import demand
from harness.explain.evidence import collect, measured_link
from harness.explain.predicted import Ends, NetworkPath, Predicted, predict
from harness.model import Column, Record, Workload
from harness.model.units import format_percent
from harness.parse.cpu_costs import load_cpu_costs
from harness.parse.jobfile import described
from harness.parse.profiles import data_folder
from harness.questions.predict import score as scored
from harness.questions.predict.printed import PrintedPrediction
from harness.questions.predict.score import Kind, Score
from harness.results.measured import Measured
from tests.lab.machine import below
from tests.machines.conftest import install
from tests.machines.images import UML, disks
from tests.machines.runs import TOGETHER
from tests.machines.site import Machine, site
from tools import scores

JOBS = "[global]\ndirect=1\ntime_based\nruntime=500ms\n" + "".join(
    f"[{rw}-{bs}-qd{depth}]\nrw=rand{rw}\nbs={bs}\nioengine={engine}\niodepth={depth}\n"
    for rw, bs, depth, engine in (
        ("read", "8k", 1, "psync"),
        ("write", "16k", 2, "libaio"),
        ("read", "64k", 1, "psync"),
        ("write", "4k", 32, "libaio"),
        ("read", "1m", 2, "libaio"),
        ("read", "16k", 1, "libaio"),
        ("read", "16k", 8, "libaio"),
        ("write", "128k", 1, "libaio"),
        ("write", "128k", 4, "libaio"),
        ("read", "4k", 4, "libaio"),
    )
)
"""Blocks of 4K to 1M and depths of 1 to 32: none of them is a cell of profiles/cpu-costs/cpu-cost.fio. Two
differ from another one in the depth alone."""

REPEATS = 4
"""Of each cell, in the CPU cost file and in the run. CPU costs are those of the lower quartile of the
undisturbed ones, and so is what was measured: other programs can only add to what an I/O takes."""


@dataclass(frozen=True, kw_only=True)
class Cell:
    """A cell that was predicted, and then measured, or held out. ``name`` is the CPU cost file's.

    ``predicted`` is for a core of which others take what they took while the cell was measured, and
    ``committed_mb_s`` what was written down before that, for one that nobody disturbs.
    """

    series: str
    name: str
    column: Column
    workload: Workload
    predicted: Predicted
    mb_s: float
    is_quiet: bool
    is_held_out: bool = False
    committed_mb_s: float | None = None

    @property
    def error(self) -> float:
        return abs((self.predicted.mb_s or 0.0) / self.mb_s - 1)

    @property
    def is_covered(self) -> bool:
        rate = self.predicted.rate_mb_s
        return rate is not None and rate.has(self.mb_s)

    @property
    def half_width(self) -> float:
        rate = self.predicted.rate_mb_s
        return 0.0 if rate is None else rate.half_width / rate.mid

    @property
    def bounds_error(self) -> float | None:
        bound = self.predicted.bound_mb_s
        return None if bound is None else abs(bound / self.mb_s - 1)


def cells(series: Series, folder: Path, repeats: int) -> list[Cell]:
    """Take CPU costs, predict, measure, in this order, unless that is there."""
    base = (folder / series.name).absolute()
    with contextlib.ExitStack() as stack:
        wire = []
        if series.suite and not (base / "results").is_dir():
            place = Path(stack.enter_context(tempfile.TemporaryDirectory()))
            machines = stack.enter_context(site(disks(series.suite, UML), place))
            install(machines, *TOGETHER)
            for core, machine in enumerate(machines.machines.values()):
                _bind(machine, core)
                stack.enter_context(_awake(machine))
            wire = [f"--link=wired={machines.wire}"]
        return _cells(series, base, repeats, wire)


def _bind(machine: Machine, core: int) -> None:
    """Give a machine a processor for itself, as far as there are enough: moved to and fro, two machines on
    two processors do not repeat themselves (8K was read slower without a protection than with one)."""
    cores = sorted(os.sched_getaffinity(0))
    for process in _processes(machine):
        for task in Path("/proc", str(process), "task").glob("*"):
            with contextlib.suppress(ProcessLookupError):
                os.sched_setaffinity(int(task.name), {cores[core % len(cores)]})


SIGNALS = """
import os, signal, sys, time
while True:
    os.kill(int(sys.argv[1]), signal.SIGIO)
    time.sleep(float(sys.argv[2]))
"""

AWAKE_S = 0.002
"""A packet that a user-mode machine has not heard of waits no longer."""


@contextlib.contextmanager
def _awake(machine: Machine) -> Iterator[None]:
    """Have a machine's kernel look for packets now and then. A tap signals a packet before it wakes who waits
    for its descriptor (``tun_net_xmit()``), so on another processor the signal may be handled too early; then
    the packet was heard of with the next one, at depth 1 after TCP's timeout of 200 ms (one of 500 commands).
    """
    _, own, *_ = _processes(machine)  # below a shell
    with subprocess.Popen([sys.executable, "-c", SIGNALS, str(own), str(AWAKE_S)]) as sender:
        try:
            yield
        finally:
            sender.kill()


def _processes(machine: Machine) -> list[int]:
    """Those below the one that was started: a kernel leaves its process group."""
    assert machine.process is not None
    return below(machine.process.pid)


def _cells(series: Series, base: Path, repeats: int, wire: Sequence[str]) -> list[Cell]:
    """The same, where the machines of a series are on. ``wire`` is theirs, as an option."""
    results, costs, said = base / "results", cpu_costs_of(series, base.parent), base / "prediction.json"
    jobs, costed_run = base / "jobs.fio", base / "cpu-costs"
    base.mkdir(parents=True, exist_ok=True)
    jobs.write_text(JOBS, encoding="utf-8")
    often = [f"--repeats={repeats}", "--retries=0"]
    if not costs.exists():
        kept = f"--results={costed_run}"
        run_harness("cpu-cost", *series.words, *series.of_both, *wire, *often, kept, "-o", str(costs))
    rtt_ns = _wire_s_rtt_ns(costed_run) if series.suite else None
    matrix, links = [f"--profile={jobs}", *series.of_both], [f"--link={name}" for name in series.links]
    if not results.is_dir():
        if rtt_ns is not None:
            links = [f"--link={UNSHAPED},rtt={rtt_ns.mid / 1000:.0f}us"]
        said.write_text(
            run_harness("predict", f"--cpu-costs={costs}", *matrix, *links, "--format=json"), encoding="utf-8"
        )
        run_harness(
            "run", *matrix, *series.words, *(wire or links), *often, f"--results={results}", may_fail=True
        )
    return list(_compared(series.name, load_cpu_costs(str(costs)), said, Measured.read([results]), rtt_ns))


def _wire_s_rtt_ns(folder: Path) -> Interval:
    """A round trip of the wire between two machines, from the middle one of their CPU costs' cells."""
    whole = Measured.read([folder])
    found = collect(whole.records, whole.plans, whole.probes)
    known = [each.rtt_ns for each in found if each.rtt_ns is not None]
    return sorted(known, key=lambda span: span.mid)[len(known) // 2]


def _compared(
    series: str, known: CpuCosts, said: Path, whole: Measured, rtt_ns: Interval | None = None
) -> Iterator[Cell]:
    """What was said of each cell, for a core of which others take what they took while it was measured.
    ``rtt_ns`` is a real link's, which others are not asked about."""
    predictions = msgspec.json.decode(said.read_bytes(), type=PrintedPrediction).cells
    links = {each.name.partition("+")[0] for each in predictions}
    # A wire between machines has the name that the run gives it.
    is_wire = len(links) == 1

    def named(label: str) -> str:
        return label.partition("+")[2] if is_wire else label

    committed = {(named(each.name), each.workload): each.mb_s for each in predictions}
    cells: dict[tuple[Column, str], list[Record]] = {}
    for record in whole.records:
        cells.setdefault((record.column, record.workload.name), []).append(record)
    (plan,) = whole.plans.values()
    jobs = {job.name: job for job in plan.jobs}
    for (column, workload), repeats in cells.items():
        counting = [record for record in disturbance.counting(repeats) if throughput_bytes_s(record)]
        if not counting:
            continue
        fast = _fast(counting)
        taken = disturbance.share(fast) or 0.0
        link = plan.links.get(column.link)
        link = link and measured_link(link, rtt_ns, None)
        network_path = NetworkPath(column=column, link=link, proposals=plan.proposals)
        (then,) = predict(Ends(target=_of_a_busy_core(known, taken)), [network_path], [jobs[workload]])
        if then.mb_s is not None:
            yield Cell(
                series=series,
                name=known.name,
                column=column,
                workload=described(jobs[workload]),
                predicted=then,
                committed_mb_s=committed.get((named(column.label), workload)),
                mb_s=(throughput_bytes_s(fast) or 0.0) / 1e6,
                is_quiet=bool(disturbance.quiet(counting)),
            )


def _fast(repeats: Sequence[Record]) -> Record:
    """The one at the upper quartile."""
    return sorted(repeats, key=lambda record: throughput_bytes_s(record) or 0.0)[-1 - len(repeats) // 4]


def _of_a_busy_core(known: CpuCosts, taken: float) -> CpuCosts:
    """The same machine while others take a part of its cores: all work takes as much longer."""
    times = 1 / (1 - min(0.9, taken))
    made = [
        each
        if each.at is WhichEnd.NONE
        else msgspec.structs.replace(each, ns=each.ns * times, low=each.low * times, high=each.high * times)
        for each in known.costs
    ]
    return msgspec.structs.replace(known, costs=tuple(made))


STORED: Mapping[str, Sequence[str]] = {
    "lab-debian": ("make-run",),
    "lab-custom": ("ladder", "ciphers", "emulation", "protections"),
}
"""Stored runs of one kernel each, which the shipped lists are from as well."""


def held_out(name: str) -> Iterator[Cell]:
    """The cells of each column, as the CPU costs of all other columns predict them."""
    whole = Measured.read([PROJECT / "docs" / "figures" / run for run in STORED[name]])
    links = {name: link for plan in whole.plans.values() for name, link in plan.links.items()}
    proposals = {name: each for plan in whole.plans.values() for name, each in plan.proposals.items()}
    jobs = {job.name: job for plan in whole.plans.values() for job in plan.jobs}
    for column in dict.fromkeys(record.column for record in whole.records):
        link = links.get(column.link)
        if column.is_local or (name == "lab-custom" and link is not None and link.radio is not None):
            continue  # simulated radios have no CPU costs either
        without = [record for record in whole.records if record.column != column]
        probes = [probe for probe in whole.probes if probe.column != column]
        known = demand.costs_of(msgspec.structs.replace(whole, records=without, probes=probes), name)
        network_path = NetworkPath(column=column, link=link, proposals=proposals)
        own = [record for record in whole.records if record.column == column]
        asked = [jobs[workload] for workload in dict.fromkeys(record.workload.name for record in own)]
        for each in predict(Ends(target=known), [network_path], asked):
            quiet = [
                record
                for record in disturbance.quiet(own)
                if record.workload.name == each.workload and throughput_bytes_s(record)
            ]
            if quiet and each.mb_s is not None:
                yield Cell(
                    series="held out",
                    name=name,
                    column=column,
                    workload=described(jobs[each.workload]),
                    predicted=each,
                    mb_s=(throughput_bytes_s(_fast(quiet)) or 0.0) / 1e6,
                    is_quiet=True,
                    is_held_out=True,
                )


def kinds(found: Sequence[Cell]) -> Iterator[Kind]:
    """The score by what limits, and of all."""
    names = list(dict.fromkeys(str(cell.predicted.limited_by) for cell in found))
    groups = {name: [cell for cell in found if cell.predicted.limited_by == name] for name in sorted(names)}
    for name, own in {**groups, "all": list(found)}.items():
        errors = sorted(cell.error for cell in own)
        bounds = [error for cell in own if (error := cell.bounds_error) is not None]
        yield Kind(
            limits=name,
            cells=len(own),
            median_error=round(stats.median(errors), 4),
            p90_error=round(errors[min(len(errors) - 1, round(0.9 * len(errors)))], 4),
            half_width=round(stats.median([cell.half_width for cell in own]), 4),
            covered=round(sum(cell.is_covered for cell in own) / len(own), 4),
            bounds_error=round(stats.median(bounds), 4) if bounds else None,
            bounds_cells=len(bounds),
        )


def score(found: Sequence[Cell]) -> Score:
    """All that is stored of it. What others disturbed was not measured, and is no part of it."""
    found = [cell for cell in found if cell.is_quiet]
    worst = sorted(found, key=lambda cell: -cell.error)[:5]
    after = sum(not cell.is_held_out for cell in found)
    held = len(found) - after
    words = [f"{after} cells were measured after they had been predicted, undisturbed"]
    words += [f"{held} cells are those of stored runs whose column was held out of the CPU costs"]
    columns = [cell.column for cell in found]
    return Score(
        measured="; ".join(words[1:] if not after else words[: 1 + bool(held)]),
        cpu_costs=tuple(dict.fromkeys(cell.name for cell in found)),
        links=tuple(dict.fromkeys(column.link for column in columns)),
        protections=tuple(dict.fromkeys(name for column in columns for name in column.protection)),
        transports=tuple(dict.fromkeys(column.transport or "" for column in columns)),
        deepest=max(cell.workload.in_flight or 1 for cell in found),
        largest_block_bytes=max(cell.workload.block_bytes or 0 for cell in found),
        worst=tuple(
            f"{cell.series}, {cell.name}: {cell.predicted.name} {cell.predicted.workload}: predicted "
            f"{cell.predicted.mb_s:.4g}, measured {cell.mb_s:.4g} MB/s"
            for cell in worst
        ),
        kinds=tuple(kinds(found)),
    )


BY_SERIES = (
    "series",
    "cells",
    "undisturbed",
    "median error",
    "where a core limits",
    "half width",
    "within 90 %",
)


def by_series(name: str, cells: Sequence[Cell]) -> list[str]:
    """A row of the score by series."""
    of = {each.limits: each for each in kinds([cell for cell in cells if cell.is_quiet])}
    core, every = of.get(Limit.CPU), of["all"]
    return [
        name,
        str(len(cells)),
        str(every.cells),
        format_percent(every.median_error),
        f"{format_percent(core.median_error)} of {core.cells}" if core else "n/a",
        format_percent(every.half_width),
        format_percent(every.covered),
    ]


def written(found: Score) -> str:
    """As ``profiles/predictions.toml``."""
    data = msgspec.to_builtins(found)
    head = "# How right predictions were (`harness predict --score`): by `python bench/predictions.py`.\n"
    lines = [f"{name} = {json.dumps(value)}" for name, value in data.items() if name != "kinds"]
    for kind in data["kinds"]:
        known = {name: value for name, value in kind.items() if value is not None}
        lines += ["", "[[kinds]]", *(f"{name} = {json.dumps(value)}" for name, value in known.items())]
    return head + "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--results", type=Path, help="where the series are; without, none is measured")
    parser.add_argument("--repeats", type=int, default=REPEATS)
    parser.add_argument("--held-out", action="store_true", help="also columns of stored runs, held out")
    parser.add_argument("--only", action="append", choices=[each.name for each in SERIES])
    parser.add_argument("--cells", action="store_true", help="also a line for each cell")
    parser.add_argument("--write", action="store_true", help="into profiles/predictions.toml")
    parser.add_argument("--store", action="store_true", help="store the score by series for docs/scores.md")
    asked = parser.parse_args()
    wanted = [each for each in SERIES if not asked.only or each.name in asked.only]
    found = (
        [cell for series in wanted for cell in cells(series, asked.results, asked.repeats)]
        if asked.results
        else []
    )
    found += [cell for name in STORED for cell in held_out(name)] if asked.held_out else []
    if asked.cells:
        rows = [
            [
                cell.series,
                cell.predicted.name,
                cell.predicted.workload,
                f"{cell.committed_mb_s or 0:.4g}",
                f"{rate.mid:.4g}",
                f"{rate.low:.4g} to {rate.high:.4g}",
                f"{cell.mb_s:.4g}",
                f"{rate.mid / cell.mb_s:.2f}",
                "" if cell.is_covered else "outside",
                f"{cell.predicted.limited_by}",
                "" if cell.is_quiet else "disturbed",
            ]
            for cell in found
            if (rate := cell.predicted.rate_mb_s) is not None
        ]
        print(tabulate(rows, disable_numparse=True), end="\n\n")
    made = score(found)
    print(scored.text(made))
    if asked.store:
        of = {series: [cell for cell in found if cell.series == series.name] for series in SERIES}
        rows = [by_series(series.title, theirs) for series, theirs in of.items() if theirs]
        of_lab = [cell for series, theirs in of.items() if not series.suite for cell in theirs]
        rows += [by_series("all of the lab", of_lab)] if of_lab else []
        scores.store("predictions", "python bench/predictions.py --results FOLDER", BY_SERIES, rows)
    if asked.write:
        data_folder().joinpath(*scored.FILE).write_text(written(made), encoding="utf-8")


if __name__ == "__main__":
    main()
