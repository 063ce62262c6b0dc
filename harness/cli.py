"""The command line. Only here does the harness read options, print, and exit."""

from __future__ import annotations

import dataclasses
import json
import os
import shlex
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Annotated, NoReturn

import msgspec
import typer

from harness import (
    __version__,
    cli_probe,
    comparison,
    doctor,
    explain,
    export,
    lab,
    plan,
    references,
    remote,
    report,
    testbed,
)
from harness import run as runner
from harness.backing import require_device
from harness.console import (
    Interrupted,
    carry_out,
    err,
    out,
    prepare_results,
    print_view,
    tell_recovery,
    tell_start,
)
from harness.errors import HarnessError, TestbedError, UsageError
from harness.explain import published, twin
from harness.explain.evidence import collect, goodputs_of
from harness.hosts import NamespaceHost
from harness.journal import Journal
from harness.lab import kernel
from harness.model import (
    LINK_LOCAL,
    BackingKind,
    IkeAuth,
    IpsecMode,
    LabKernel,
    Plan,
    Security,
    TestbedKind,
)
from harness.parse import fio, hping3, iperf2, iperf3, ping
from harness.probes import store
from harness.profiles import load_link
from harness.progress import Outcome, bar, process_started_unix_s
from harness.results import (
    RunFolder,
    open_environments,
    open_plans,
    open_results,
    open_runs,
    write_atomically,
)
from harness.schedule import Schedule
from harness.state import exclusive
from harness.stats import FEWEST
from harness.table import Metric, Options, Ratio, TableFormat, build, cached, render
from harness.units import check_name, format_duration, format_size, parse_percent, shown
from harness.views import View

DEFAULTS = plan.Request()
MACHINES = "Real machines"
OWN_KERNEL = "The lab's own kernel (harness kernel build)"
app = typer.Typer(
    name="harness",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    help="""What a volume loses on iSCSI, over which link, with IPsec on, and which layer is to blame.

    Everything is measured on the real kernel stack: LIO, open-iscsi, strongSwan with ESP, fio. The default
    testbed is the lab, a user-mode kernel that needs no root and cannot touch this machine's disks.""",
    epilog="""[bold]Examples[/]

    harness run [dim](the whole matrix: local, wired, wifi, without and with IPsec)[/]

    harness run --ipsec on --link wifi [dim](one column)[/]

    harness run --link wired --ipsec null-sha256 --ipsec on --profile modern

    harness table results/

    harness table results/ --ratio local [dim](each figure's part of the local one)[/]

    harness table results/ --reference document-003

    [bold]Exit status[/]: 0 all cells ok; 1 some cell is not; 2 wrong usage or a missing requirement.""",
)
lab_app = typer.Typer(no_args_is_help=True, help="Use the lab's kernel by hand.")
parse_app = typer.Typer(no_args_is_help=True, help="Print what is understood of a tool's output, as JSON.")
kernel_app = typer.Typer(no_args_is_help=True, help="The lab's own kernel: WiFi, disks, virtual time.")
config_app = typer.Typer(no_args_is_help=True, help="Configuration files for `harness run --config`.")
app.add_typer(lab_app, name="lab")
app.add_typer(kernel_app, name="kernel")
app.add_typer(config_app, name="config")
app.add_typer(parse_app, name="parse")


def _version(wanted: bool) -> None:
    if wanted:
        out.print(f"harness {__version__}")
        raise typer.Exit


@app.callback()
def _main(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    del version


@app.command()
def run(
    link: Annotated[
        list[str] | None,
        typer.Option(
            help="A link: local, wired, wifi, another of profiles/links/, or a file. Again for more. "
            "Modifiers: wired:unshaped, wired:jumbo, wired:mtu=9000. With --target, an interface of the "
            "initiator: wired=eth0, wifi=wlan0@TARGET-ADDRESS. [dim]default: local, wired, wifi[/]",
            show_default=False,
        ),
    ] = None,
    ipsec: Annotated[
        list[str] | None,
        typer.Option(
            help="off, on (aes128gcm16), both, or a proposal of ipsec/. Again for more. "
            "[dim]default: both[/]",
            show_default=False,
        ),
    ] = None,
    profile: Annotated[
        str | None,
        typer.Option(
            help="Workloads: document, modern, or a fio job file of your own.",
            show_default=DEFAULTS.profile,
        ),
    ] = None,
    workload: Annotated[
        list[str] | None, typer.Option(help="Only this workload of the profile. Again for more.")
    ] = None,
    repeats: Annotated[
        int | None,
        typer.Option(
            help="How often each cell is measured; with --confidence, at least.",
            show_default=str(DEFAULTS.repeats),
        ),
    ] = None,
    confidence: Annotated[
        str | None,
        typer.Option(
            metavar="PERCENT",
            help="Repeat each cell until the 95 % interval of its median is within this of it, e.g. 5%.",
        ),
    ] = None,
    max_repeats: Annotated[
        int | None,
        typer.Option(
            help="With --confidence: the most repeats of a cell.", show_default=str(plan.DEFAULT_MAX_REPEATS)
        ),
    ] = None,
    max_time: Annotated[
        str | None,
        typer.Option(
            metavar="TIME",
            help="With --confidence: begin no further repeat when all cells took so long together, e.g. 30m.",
        ),
    ] = None,
    runtime: Annotated[
        str | None, typer.Option(help="How long fio measures each cell, e.g. 5s.", show_default="profile's")
    ] = None,
    testbed_name: Annotated[
        str | None,
        typer.Option(
            "--testbed",
            help="auto, lab, or host (this machine's own kernel; needs root).",
            show_default=DEFAULTS.testbed,
        ),
    ] = None,
    backing: Annotated[
        str | None,
        typer.Option(
            help="The target's storage: ramdisk, file, file:/PATH, block:/dev/NAME.",
            show_default="ramdisk; a file in /var/tmp with --target",
        ),
    ] = None,
    size: Annotated[
        str | None, typer.Option(help="How much of it is used, e.g. 1G.", show_default=DEFAULTS.size)
    ] = None,
    local_device: Annotated[
        str | None,
        typer.Option(
            help="A disk of the initiator's for the column local, in place of the target's storage: "
            "/dev/NAME, file:/PATH.",
            rich_help_panel=MACHINES,
        ),
    ] = None,
    destroy: Annotated[
        list[str] | None,
        typer.Option(metavar="DEVICE", help="Consent to losing what is on a block device: its name again."),
    ] = None,
    target: Annotated[
        str | None,
        typer.Option(
            help="A real machine as the target: ssh://[USER@]HOST[:PORT], or local.", rich_help_panel=MACHINES
        ),
    ] = None,
    initiators: Annotated[
        list[str] | None,
        typer.Option(
            "--initiator",
            help="A real machine as an initiator: local, ssh://… Again for more at once.",
            show_default="local",
            rich_help_panel=MACHINES,
        ),
    ] = None,
    shared_lun: Annotated[
        bool | None,
        typer.Option(
            "--shared-lun",
            help="All initiators read one LUN, in place of one each.",
            rich_help_panel=MACHINES,
        ),
    ] = None,
    kernels: Annotated[
        plan.Kernels | None,
        typer.Option(
            help="Whether the lab's target and initiators share a kernel.",
            show_default=DEFAULTS.kernels.value,
        ),
    ] = None,
    lab_initiators: Annotated[
        int | None,
        typer.Option(help="How many initiators the lab has, with --kernels apart.", show_default="1"),
    ] = None,
    virtual_time: Annotated[
        bool | None,
        typer.Option(
            "--virtual-time",
            help="The processor costs nothing, only links and disks do: what the protocols cost, "
            "the same again in every run.",
            rich_help_panel=OWN_KERNEL,
        ),
    ] = None,
    disk: Annotated[
        str | None,
        typer.Option(
            help="The target's disk: hdd-7200, sata-ssd, nvme, ram, another of profiles/disks/, or a file.",
            show_default=f"none; in virtual time {plan.DEFAULT_VIRTUAL_DISK}",
            rich_help_panel=OWN_KERNEL,
        ),
    ] = None,
    lab_kernel: Annotated[
        plan.KernelChoice | None,
        typer.Option(
            help="auto takes the lab's own, if it is built, for links with a radio: its wifi is 802.11, "
            "Debian's is emulated.",
            show_default=DEFAULTS.lab_kernel.value,
            rich_help_panel=OWN_KERNEL,
        ),
    ] = None,
    wifi_security: Annotated[
        Security | None,
        typer.Option(
            help="What protects the air, on the lab's own kernel.",
            show_default=DEFAULTS.wifi_security.value,
            rich_help_panel=OWN_KERNEL,
        ),
    ] = None,
    ipsec_mode: Annotated[
        IpsecMode | None, typer.Option(help="ESP mode.", show_default=DEFAULTS.ipsec_mode.value)
    ] = None,
    auth: Annotated[
        IkeAuth | None,
        typer.Option(help="How the two charons prove themselves.", show_default=DEFAULTS.auth.value),
    ] = None,
    iscsi: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=VALUE",
            help="A parameter that both ends are to agree on: InitialR2T, ImmediateData, FirstBurstLength, "
            "MaxBurstLength, MaxRecvDataSegmentLength. Again for more.",
            show_default="what the two ends agree on by themselves",
        ),
    ] = None,
    probes: Annotated[
        bool | None,
        typer.Option(
            "--probes/--no-probes",
            help="Measure round trips, processors and interfaces beside each cell, and TCP once per column.",
            show_default="probes; in virtual time none",
        ),
    ] = None,
    seed: Annotated[
        int | None, typer.Option(help="Order of cells and offsets in them.", show_default="random")
    ] = None,
    results: Annotated[
        str | None, typer.Option(metavar="FOLDER", help="Where results go.", show_default=DEFAULTS.results)
    ] = None,
    config: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="These options, written down (TOML); what is typed as well goes before what is written.",
        ),
    ] = None,
    resume: Annotated[
        str | None, typer.Option(metavar="RUN", help="Finish an interrupted run; nothing is measured twice.")
    ] = None,
    plan_only: Annotated[
        bool, typer.Option("--plan", help="Print what would run and how long it takes, and do nothing.")
    ] = False,
) -> None:
    """Measure: every workload on every column, repeated, in a random order that is kept."""
    started_unix_s = process_started_unix_s()
    request = DEFAULTS if config is None else plan.load_request(config)
    typed: dict[str, object] = {
        "links": link,
        "ipsec": ipsec,
        "profile": profile,
        "workloads": workload,
        "testbed": testbed_name,
        "repeats": repeats,
        "confidence": confidence,
        "max_repeats": max_repeats,
        "max_time": max_time,
        "runtime": runtime,
        "seed": seed,
        "size": size,
        "backing": backing,
        "local_device": local_device,
        "destroy": destroy,
        "target": target,
        "initiators": initiators,
        "shared_lun": shared_lun,
        "kernels": kernels,
        "lab_initiators": lab_initiators,
        "lab_kernel": lab_kernel,
        "virtual_time": virtual_time,
        "disk": disk,
        "wifi_security": wifi_security,
        "probes": probes,
        "ipsec_mode": ipsec_mode,
        "auth": auth,
        "iscsi": iscsi,
        "results": results,
    }
    # What was typed goes before what the file says.
    given = {name: tuple(v) if isinstance(v, list) else v for name, v in typed.items() if v is not None}
    request = msgspec.structs.replace(request, **given)
    if resume is not None and (config is not None or given.keys() - {"results"}):
        raise UsageError(
            "a resumed run goes on as it was planned, but other options were given as well",
            hint="leave them out, or begin a new run without --resume",
        )
    if resume is None:
        made = plan.make_plan(request)
        folder = RunFolder(Path(request.results) / made.run_id)
    else:
        folder = _resumed(resume, Path(request.results))
        made = folder.load_plan()
    testbed.require_rights(made)
    if plan_only:
        _require_device(made)
        _print_plan(made)
        return
    with exclusive(made.run_id) as state:
        tell_recovery(*testbed.recover(state))
        _require_device(made)
        prepare_results(folder.path)
        if resume is None:
            folder.save_plan(made)
        try:
            raise typer.Exit(_run(made, folder, state, started_unix_s))
        except Interrupted as interruption:
            interruption.hint = f"harness run --resume {shlex.quote(str(folder.path))}"
            raise


def _require_device(made: Plan) -> None:
    """Ask the guard here as well as inside, whence the machine's other mount namespaces are out of sight."""
    if made.backing.kind is BackingKind.BLOCK and made.testbed is TestbedKind.HOST:
        require_device(NamespaceHost(name="machine"), made.backing)


def _resumed(name: str, results: Path) -> RunFolder:
    path = Path(name) if "/" in name else results / check_name("run", name)
    return RunFolder(path)


def _run(made: Plan, folder: RunFolder, state: Path, started_unix_s: float) -> int:
    schedule = Schedule(made, folder.load_records())
    cells = schedule.expected
    if next(iter(schedule), None) is None:
        _print_table([folder.path], Options(), TableFormat.PLAIN)
        err.print("nothing is left to measure")
        return 0
    tell_start(made, folder, f"{'about ' if made.stop else ''}{cells} cells")
    outcome = _carry_out(made, folder, state, started_unix_s, cells)
    _print_table([folder.path], Options(), TableFormat.PLAIN)
    for line in outcome.summary():
        err.print(line, soft_wrap=True)
    err.print(f"the table again: harness table {shlex.quote(str(folder.path))}", soft_wrap=True)
    return outcome.exit_code


def _carry_out(made: Plan, folder: RunFolder, state: Path, started_unix_s: float, cells: int) -> Outcome:
    """Have the testbed measure what is left of a plan, and show how it goes; HarnessError if it could not."""
    cell_s = sum(plan.cell_s(made, w) + plan.CELL_OVERHEAD_S for w in made.workloads) / len(made.workloads)
    return carry_out(made, folder, state, started_unix_s, cells=cells, cell_estimate_s=cell_s)


def _print_plan(made: Plan) -> None:
    storage = made.backing.kind if made.disk is None else f"{made.disk.name} ({made.disk.title})"
    kernel_name = "" if made.lab_kernel is None else f" with {plan.KERNEL_WORDS[made.lab_kernel]}"
    clock = ", virtual time" if made.virtual_time else ""
    out.print(
        f"testbed {made.testbed}{kernel_name}{clock}, storage {storage} "
        f"of {format_size(made.backing.size_bytes)}, seed {made.seed}",
    )
    out.print("columns:   " + ", ".join(column.label for column in made.columns), soft_wrap=True)
    out.print("workloads: " + ", ".join(workload.name for workload in made.workloads), soft_wrap=True)
    block, rule = len(made.columns) * len(made.workloads), made.stop
    fewest = made.repeats if rule is None else max(made.repeats, FEWEST)
    counts = [fewest] if rule is None else [fewest, rule.max_repeats]
    times = [plan.estimate_s(made, repeats) for repeats in counts]
    if rule is not None and rule.max_s is not None:
        # No cell is begun after that, and each is measured once.
        least = plan.estimate_s(made, 1)
        times = [max(least, min(time_s, rule.max_s + plan.START_S)) for time_s in times]
    out.print(
        f"cells:     {len(made.columns)} columns x {len(made.workloads)} workloads x "
        f"{' to '.join(map(str, counts))} repeats = {' to '.join(str(block * count) for count in counts)}, "
        f"about {' to '.join(dict.fromkeys(format_duration(round(time_s)) for time_s in times))}",
        markup=False,
    )
    if rule is not None:
        out.print(
            f"until:     the 95 % interval of a cell's median is within {100 * rule.width:g} % of it",
            markup=False,
        )


app.command("probe")(cli_probe.probe)


@config_app.command("check")
def check_config(file: Annotated[Path, typer.Argument(help="A configuration file (TOML).")]) -> None:
    """Check a configuration file as `harness run --config` would, and print what it would run."""
    _print_plan(plan.make_plan(plan.load_request(file)))


@app.command()
def table(
    paths: Annotated[
        list[Path] | None,
        typer.Argument(
            help="Run folders, folders of runs, records, or plain fio JSON outputs.", show_default="results/"
        ),
    ] = None,
    metric: Annotated[
        str, typer.Option(help="MB/s, MiB/s, IOPS, mean, p50, p99 or p99.9 (latency).")
    ] = "MB/s",
    format: Annotated[str, typer.Option(help="plain, github, html, csv, latex or json.")] = "plain",
    ratio: Annotated[
        str,
        typer.Option(help="none, local (each figure's part of the local one) or ipsec (of the one without)."),
    ] = "none",
    view: Annotated[
        str | None,
        typer.Option(help=f"Of probes, in place of the matrix: {', '.join(View)}.", show_default=False),
    ] = None,
    reference: Annotated[
        str | None,
        typer.Option(help=f"Published figures beside: {', '.join(references.names())}.", show_default=False),
    ] = None,
) -> None:
    """Print the matrix of a run, of several, or of fio outputs that you already have; or a view of probes."""
    if view is None and reference is not None:
        view = references.view_of(reference)
    if view is not None:
        if (Metric(metric), Ratio(ratio)) != (Metric.MB_S, Ratio.NONE):
            raise UsageError("--metric and --ratio are of the matrix, but a view was asked for")
        print_view(paths or [Path(DEFAULTS.results)], View(view), reference, TableFormat(format))
        return
    options = Options(
        metric=Metric(metric),
        ratio=Ratio(ratio),
        reference=references.load_reference(reference) if reference else None,
    )
    _print_table(paths or [Path(DEFAULTS.results)], options, TableFormat(format))


@app.command()
def compare(
    a: Annotated[Path, typer.Argument(metavar="A", help="Results: what `harness table` takes.")],
    b: Annotated[Path, typer.Argument(metavar="B", help="Results to hold against A.")],
    fail_if_slower: Annotated[
        str | None,
        typer.Option(
            metavar="PERCENT",
            help="Exit with 1 if a cell is shown to be slower, and by so much or more: 5%.",
            show_default=False,
        ),
    ] = None,
    metric: Annotated[
        str, typer.Option(help="MB/s, MiB/s, IOPS, mean, p50, p99 or p99.9 (latency).")
    ] = "MB/s",
    format: Annotated[str, typer.Option(help="plain, json or github.")] = "plain",
) -> None:
    """Say of each cell whether B is faster or slower than A, and by how much, or that it cannot be told."""
    chosen, shape = Metric(metric), comparison.CompareFormat(format)
    margin = parse_percent(fail_if_slower, what="--fail-if-slower") if fail_if_slower else None
    found = comparison.compare(_side(a), _side(b), chosen, margin or comparison.MARGIN)
    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else None
    sys.stdout.write(comparison.render(found, shape, width) + "\n")
    slower = found.slower_by(margin) if margin else []
    if slower:
        names = ", ".join(cell.name for cell in slower)
        err.print(f"slower by {fail_if_slower} or more: {names}", markup=False, soft_wrap=True)
        raise typer.Exit(1)


RESULTS_HELP = "Run folders, folders of runs, records, or plain fio JSON outputs."
METRIC_HELP = "MB/s, MiB/s, IOPS, mean, p50, p99 or p99.9 (latency)."


@app.command("explain")
def explain_command(
    paths: Annotated[list[Path] | None, typer.Argument(help=RESULTS_HELP, show_default="results/")] = None,
    format: Annotated[str, typer.Option(help="text or json.")] = "text",
    summary: Annotated[
        bool, typer.Option("--summary", help="One sentence for each column with IPsec.")
    ] = False,
    with_twin: Annotated[
        bool,
        typer.Option(
            "--twin",
            help="Measure each run's digital twin first, in virtual time, if it has none: the rest is "
            "the processors'.",
        ),
    ] = False,
    reference: Annotated[
        str | None,
        typer.Option(help="A published matrix, in place of results: what can be concluded from it."),
    ] = None,
) -> None:
    """Say of each cell what limits it, how sure that is, where the time goes, and what would help."""
    shape = explain.ExplainFormat(format)
    if reference is not None:
        if paths:
            raise UsageError("results and a published matrix were both named", hint="leave one out")
        sys.stdout.write(_concluded(reference, shape) + "\n")
        return
    files = paths or [Path(DEFAULTS.results)]
    if with_twin:
        for run in open_runs(files):
            _measure_twin(run)
    cells = report.load(files).explained()
    if shape is explain.ExplainFormat.JSON:
        sys.stdout.write(explain.as_json(cells).decode() + "\n")
    else:
        sys.stdout.write((explain.summary(cells) if summary else explain.text(cells)) + "\n")


def _measure_twin(run: RunFolder) -> None:
    """Measure a run's twin, unless it has one, or is in virtual time itself."""
    plan_of_run = run.load_plan()
    goodputs = goodputs_of(store.load(run))
    evidence = collect(run.load_records(), {plan_of_run.run_id: plan_of_run}, goodputs)
    made = twin.plan_of(plan_of_run, evidence)
    if made is None or twin.is_current(run, made):
        return
    folder = twin.folder_of(run)
    with exclusive(made.run_id) as state:
        tell_recovery(*testbed.recover(state))
        prepare_results(folder.path)
        folder.save_plan(made)
        err.print(f"the twin of {made.run_id} in virtual time, kept in {folder.path}", soft_wrap=True)
        outcome = _carry_out(
            made, folder, state, process_started_unix_s(), Schedule(made, folder.load_records()).expected
        )
    for line in outcome.summary():
        err.print(line, soft_wrap=True)


def _concluded(name: str, shape: explain.ExplainFormat) -> str:
    if references.view_of(name) is not None:
        raise UsageError(
            f"{shown(name)} has figures of paths, and to explain takes a matrix of storage",
            hint="try --reference document-003",
        )
    matrix = references.load_reference(name)
    links = {column.link for column in matrix.columns} - {LINK_LOCAL}
    found = published.conclude(matrix, {link: load_link(link) for link in sorted(links)})
    return published.as_json(found).decode() if shape is explain.ExplainFormat.JSON else published.text(found)


@app.command("report")
def report_command(
    paths: Annotated[list[Path] | None, typer.Argument(help=RESULTS_HELP, show_default="results/")] = None,
    output: Annotated[Path, typer.Option("--output", "-o", metavar="FILE", help="The page.")] = Path(
        "report.html"
    ),
) -> None:
    """Write one page to look at: matrix, distributions, roofline, environment. It needs no network."""
    page = report.render(report.load(paths or [Path(DEFAULTS.results)]))
    _write(output, page.encode())
    err.print(f"the report: {output}", markup=False, soft_wrap=True)


@app.command()
def plot(
    kind: Annotated[str, typer.Argument(metavar="KIND", help=f"{', '.join(report.Kind)}.")],
    paths: Annotated[list[Path] | None, typer.Argument(help=RESULTS_HELP, show_default="results/")] = None,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="FILE", help="FILE.svg or FILE.png.")
    ] = None,
    metric: Annotated[str, typer.Option(help=f"Of matrix and bars: {METRIC_HELP}")] = "MB/s",
) -> None:
    """Draw one of the report's pictures as SVG or PNG."""
    chosen = report.Kind(kind)
    file = output or Path(f"{chosen}.svg")
    results = report.load(paths or [Path(DEFAULTS.results)])
    _write(file, report.picture(chosen, results, Metric(metric), file))
    err.print(f"the picture: {file}", markup=False, soft_wrap=True)


@app.command("export")
def export_command(
    paths: Annotated[list[Path] | None, typer.Argument(help=RESULTS_HELP, show_default="results/")] = None,
    to: Annotated[str, typer.Option(help=f"{', '.join(export.ExportFormat)}.")] = "csv",
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", metavar="FILE", help="Where to.", show_default="standard output"),
    ] = None,
) -> None:
    """Print all records, a row for each direction, for programs that draw or store them."""
    format = export.ExportFormat(to)
    if output is None and format is export.ExportFormat.PARQUET and sys.stdout.isatty():
        raise UsageError("Parquet is not for a terminal", hint="name a file with -o")
    data = export.encode(open_results(paths or [Path(DEFAULTS.results)]), format)
    if output is None:
        sys.stdout.buffer.write(data)
    else:
        _write(output, data)


def _write(file: Path, data: bytes) -> None:
    """A file that a user named, whole or not at all."""
    try:
        write_atomically(file, data)
    except (OSError, ValueError) as error:
        said = error.strerror if isinstance(error, OSError) else str(error)
        raise UsageError(
            f"{file} was expected to take the output, but: {said}", hint="name another file with -o"
        ) from error


def _side(path: Path) -> comparison.Side:
    return comparison.Side(
        records=open_results([path]), plans=open_plans([path]), environments=open_environments([path])
    )


def _print_table(paths: list[Path], options: Options, format: TableFormat) -> None:
    found = cached(
        paths,
        options,
        lambda: build(open_results(paths), options, open_plans(paths), open_environments(paths)),
    )
    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else None
    sys.stdout.write(render(found, format, width).rstrip("\n") + "\n")


PARSERS: dict[str, tuple[Callable[[bytes], object], str]] = {
    "fio": (lambda text: fio.as_json(fio.parse(text)), "fio: JSON of any version since 2.1"),
    "ping": (ping.parse, "ping: iputils, busybox, macOS, BSD"),
    "iperf3": (iperf3.parse, "iperf3: JSON or text, of client, server or both"),
    "iperf2": (iperf2.parse, "iperf2: text of client, server or both"),
    "hping3": (hping3.parse, "hping3, with or without the output of time"),
}


def _add_parser(tool: str, understand: Callable[[bytes], object], what: str) -> None:
    @parse_app.command(tool, help=f"Print what is understood of the output of {what}.")
    def parse_file(file: Annotated[Path, typer.Argument(help="A file with the output.")]) -> None:
        try:
            text = file.read_bytes()
        except OSError as error:
            raise UsageError(
                f"a file with the output of {tool} was expected, but {file}: {error.strerror}",
                hint="check the name",
            ) from error
        sys.stdout.write(json.dumps(msgspec.to_builtins(understand(text)), indent=2) + "\n")


for _tool, (_understand, _what) in PARSERS.items():
    _add_parser(_tool, _understand, _what)


TargetOption = Annotated[
    str | None,
    typer.Option("--target", help="A run's target: ssh://[USER@]HOST[:PORT], or local.", show_default=False),
]
InitiatorsOption = Annotated[
    list[str] | None,
    typer.Option(
        "--initiator",
        help="A run's initiator: local, ssh://… Again for more. [dim]default: local, if there is a target[/]",
        show_default=False,
    ),
]
MARKS = {
    doctor.Verdict.OK: "[green]ok     [/]",
    doctor.Verdict.NOTE: "[yellow]note   [/]",
    doctor.Verdict.MISSING: "[red]missing[/]",
}


@app.command("doctor")
def doctor_command(target: TargetOption = None, initiators: InitiatorsOption = None) -> None:
    """Say what each testbed can do here, all that is missing, and the command that mends it.

    With --target and --initiator, say so of those machines instead. Nothing is changed on them.
    """
    taking_part = _machines(target, initiators)
    found = doctor.machine_findings(taking_part) if taking_part else doctor.findings()
    width = max((len(machine.name) for machine in taking_part), default=5)
    healthy = True
    for finding in found:
        out.print(f"{MARKS[finding.verdict]} {finding.where:{width}}", end=" ")
        out.print(finding.text, markup=False, soft_wrap=True)
        if finding.mend:
            out.print(f"{'':{width + 9}}mend it: {finding.mend}", markup=False, soft_wrap=True)
        healthy = healthy and (finding.ok or finding.where == "host")
    if taking_part:
        out.print("the machines are ready: harness run" if healthy else "the machines are not ready")
    else:
        out.print("the lab is ready: harness run" if healthy else "the lab is not ready")
    if not healthy:
        raise typer.Exit(2)


@app.command()
def clean(target: TargetOption = None, initiators: InitiatorsOption = None) -> None:
    """Remove what a killed run left behind: exactly what its journal names.

    With --target and --initiator, on those machines instead, by their own journals.
    """
    taking_part = _machines(target, initiators)
    if not taking_part:
        with exclusive("harness clean") as state:
            removed, failed = testbed.recover(state)
        tell_recovery(removed, failed)
        if failed:
            raise typer.Exit(1)
        if not removed:
            out.print("nothing was left behind")
        return
    status = 0
    # The target last: a session can be logged out for as long as its target is there.
    for machine in reversed(taking_part):
        try:
            removed, failed = _recover_on(machine)
        except HarnessError as error:
            _tell_error(error)
            status = max(status, error.exit_code)
            continue
        tell_recovery(
            [f"{machine.name}: {line}" for line in removed], [f"{machine.name}: {line}" for line in failed]
        )
        status = max(status, 1 if failed else 0)
        if not removed and not failed:
            out.print(f"{machine.name}: nothing was left behind", markup=False)
    if status:
        raise typer.Exit(status)


def _recover_on(machine: doctor.Machine) -> tuple[list[str], list[str]]:
    """What a machine's agent, which begins with that, removed of a killed one's, and what it could not."""
    with (
        tempfile.TemporaryDirectory(prefix="harness-") as folder,
        remote.connect(
            machine.address,
            role=machine.role,
            name=machine.name,
            run_id="harness clean",
            log=Path(folder, "log"),
        ) as host,
    ):
        return list(host.recovered[0]), list(host.recovered[1])


def _machines(target: str | None, initiators: list[str] | None) -> list[doctor.Machine]:
    """Those that `harness run` would use with the same options."""
    return doctor.machines(target, initiators or (["local"] if target else []))


@kernel_app.command("build")
def build_kernel() -> None:
    """Build the lab's own kernel from Debian's linux-source-6.1, unless it is there already.

    It is kept in ~/.cache/harness/kernel (or below $XDG_CACHE_HOME) by all that went into it.
    """
    with bar("looking for what it needs", err) as report:
        found, new = kernel.build(report)
    built = found.built
    took = f"built in {format_duration(built.seconds)}" if new else "was built before"
    out.print(
        f"kernel {built.release} of {kernel.SOURCE_PACKAGE} {built.source_version} {took}: {found.folder}",
        soft_wrap=True,
    )
    out.print(f"sha256 of linux: {built.sha256}", soft_wrap=True)


@lab_app.command("exec", context_settings={"ignore_unknown_options": True})
def lab_exec(
    command: Annotated[list[str], typer.Argument(help="A program and its arguments, after --.")],
    writable: Annotated[
        Path | None, typer.Option(help="A folder that the lab may write to, as /run/results.")
    ] = None,
    memory: Annotated[int, typer.Option(min=0, max=64 << 10, help="MiB of memory for storage.")] = 256,
    kernel_name: Annotated[
        LabKernel, typer.Option("--kernel", help="debian, or own (made by `harness kernel build`).")
    ] = LabKernel.DEBIAN,
    virtual_time: Annotated[
        bool,
        typer.Option("--virtual-time", help="Its clock passes only while all wait; with --kernel own."),
    ] = False,
    apart: Annotated[
        int,
        typer.Option(
            min=0,
            max=lab.MOST_INITIATORS,
            metavar="N",
            help="Boot a kernel for the target and one for each of N initiators, and run the command in the "
            "first initiator's, where `ssh target` and `ssh initiator2` reach the others.",
            show_default="one kernel for all",
        ),
    ] = 0,
) -> None:
    """Boot the lab's kernel, run a command in it as root, and print what it says."""
    chosen = kernel.own_kernel() if kernel_name is LabKernel.OWN else None
    if virtual_time:
        if chosen is None:
            raise UsageError(
                "virtual time needs the lab's own kernel, but Debian's was chosen", hint="add --kernel own"
            )
        chosen = dataclasses.replace(chosen, options=kernel.VIRTUAL_TIME)
    with exclusive("harness lab exec") as state:
        journal = Journal(state / "journal-lab-exec.jsonl")
        console = state / "lab-exec.log"
        try:
            boot = partial(lab.boot_apart, initiators=apart) if apart else lab.boot
            with boot(
                command,
                journal=journal,
                console=console,
                results=writable,
                storage_bytes=memory << 20,
                kernel=chosen,
            ) as booted:
                shown = 0
                while booted.process.poll() is None:
                    shown = _copy(booted, shown)
                    time.sleep(testbed.POLL_S)
            _copy(booted, shown)
            status = booted.exit_status()
            last = "" if status is not None else runner.tail(console)
        finally:
            journal.end()
            for log in state.glob(f"{console.stem}*.log"):
                log.unlink()
    if status is None:
        raise TestbedError(f"the lab ended before the command did: {last}")
    raise typer.Exit(status)


def _copy(booted: lab.Lab, start: int) -> int:
    """Print what a lab says from ``start`` up to its own last words; returns how far that was."""
    said = booted.said().split(lab.EXIT_MARK.encode())[0]
    # The mark stands on a line of its own: the newline before it is the lab's.
    whole = said[: max(said.rfind(b"\n"), 0)]
    sys.stdout.buffer.write(whole[start:])
    sys.stdout.buffer.flush()
    return len(whole)


def _interrupted(_number: int, _frame: FrameType | None) -> None:
    # Once: a second signal must not stop the unwinding that the first began.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda _number, _frame: None)
    raise Interrupted


def _silence_stdout() -> None:
    """What Python still holds for a standard output that takes nothing must not fail again at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _tell_error(error: HarnessError) -> None:
    err.print(f"harness: {error.message}", markup=False, soft_wrap=True)
    if error.hint:
        err.print(f"  hint: {error.hint}", markup=False, soft_wrap=True)


def main() -> NoReturn:
    """Entry point: errors become one sentence and an exit status, never a traceback."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, _interrupted)
    if sys.stdout is None:  # closed by the caller
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115, PTH123 (for as long as the process lives)
    try:
        try:
            app()
        finally:
            sys.stdout.flush()
    except HarnessError as error:
        _tell_error(error)
        sys.exit(error.exit_code)
    except Interrupted as interruption:
        err.print("harness: interrupted; everything has been taken down")
        if interruption.hint:
            err.print(f"  hint: {interruption.hint}", markup=False, soft_wrap=True)
        sys.exit(130)
    except BrokenPipeError:
        # The reader of a table has gone (`| head`): nothing left to say, and nowhere to say it.
        _silence_stdout()
        sys.exit(1)
    except OSError as error:
        _silence_stdout()
        where = f"{error.filename}: " if error.filename else ""
        err.print(f"harness: {where}{error.strerror or error}", markup=False, soft_wrap=True)
        err.print("  hint: is the disk full, or the output closed?")
        sys.exit(1)
    sys.exit(0)
