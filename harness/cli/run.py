"""The commands ``harness run`` and ``harness config check``."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Annotated

import msgspec
import typer

from harness.analysis.schedule import Schedule
from harness.cli.console import (
    carry_out,
    holding,
    print_plan,
    results_of,
    tell,
    tell_recovery,
    tell_start,
)
from harness.cli.progress import process_started_s
from harness.cli.results import print_table
from harness.hosts import NamespaceHost
from harness.model import BackingKind, IkeAuth, IpsecMode, Plan, Security, TestbedKind
from harness.model.errors import Interrupted, UsageError
from harness.model.units import check_name
from harness.results import planned
from harness.results.store import RunFolder
from harness.runs import plan
from harness.storage.backing import require_device
from harness.table import Options, TableFormat
from harness.testbeds import testbed

DEFAULTS = plan.Request()
MACHINES = "Real machines"
AGAIN = {
    "testbed": "--testbed",
    "target": "--target",
    "initiators": "--initiator",
    "hops": "--hop",
    "links": "--link",
    "backing": "--backing",
    "local_device": "--local-device",
    "destroy": "--destroy",
}
"""The options that reach outside the lab. They must be typed again with --resume, whoever made the folder."""

OWN_KERNEL = "The lab's own kernel (harness kernel build)"


def run(
    link: Annotated[
        list[str] | None,
        typer.Option(
            help="A link: local, wired, wifi, another of profiles/links/, or a file. Repeatable. "
            "Modifiers: wired:unshaped, wired:jumbo, wired:mtu=9000. With --target, an interface of the "
            "initiator: wired=eth0, wifi=wlan0@TARGET-ADDRESS. [dim]default: local, wired, wifi[/]",
            show_default=False,
        ),
    ] = None,
    ipsec: Annotated[
        list[str] | None,
        typer.Option(
            help="off, on (aes128gcm16), both, or a proposal of ipsec/. Repeatable. [dim]default: both[/]",
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
        list[str] | None, typer.Option(help="Only this workload of the profile. Repeatable.")
    ] = None,
    repeats: Annotated[
        int | None,
        typer.Option(
            help="How often each cell is measured; with --confidence, the least.",
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
            help="With --confidence: begin no repeat once all cells together took this long, e.g. 30m.",
        ),
    ] = None,
    retries: Annotated[
        int | None,
        typer.Option(
            help="How often a cell that other programs disturbed is measured again, once they are calm.",
            show_default=str(DEFAULTS.retries),
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
        str | None, typer.Option(help="How much of the storage is used, e.g. 1G.", show_default=DEFAULTS.size)
    ] = None,
    local_device: Annotated[
        str | None,
        typer.Option(
            help="A disk of the initiator's for the column local, instead of the target's storage: "
            "/dev/NAME, file:/PATH.",
            rich_help_panel=MACHINES,
        ),
    ] = None,
    destroy: Annotated[
        list[str] | None,
        typer.Option(metavar="DEVICE", help="Consent to lose what is on a block device: its name again."),
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
            help="A real machine as an initiator: local, ssh://… Repeatable, for several at once.",
            show_default="local",
            rich_help_panel=MACHINES,
        ),
    ] = None,
    hops: Annotated[
        list[str] | None,
        typer.Option(
            "--hop",
            help="A router or switch between the ends: ssh://[USER@]HOST[:PORT]. The run reads its counters, "
            "which needs no root. Repeatable.",
            show_default=False,
            rich_help_panel=MACHINES,
        ),
    ] = None,
    shared_lun: Annotated[
        bool | None,
        typer.Option(
            "--shared-lun",
            help="All initiators read one LUN, instead of one each.",
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
            help="Processor work takes no time, only links and disks do: what the protocols cost. Every run "
            "gives the same figures.",
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
            help="auto takes the lab's own, if it is built, for links with a radio: its WiFi is 802.11, "
            "Debian's is emulated.",
            show_default=DEFAULTS.lab_kernel.value,
            rich_help_panel=OWN_KERNEL,
        ),
    ] = None,
    wifi_security: Annotated[
        Security | None,
        typer.Option(
            help="WiFi security, on the lab's own kernel.",
            show_default=DEFAULTS.wifi_security.value,
            rich_help_panel=OWN_KERNEL,
        ),
    ] = None,
    ipsec_mode: Annotated[
        IpsecMode | None, typer.Option(help="ESP mode.", show_default=DEFAULTS.ipsec_mode.value)
    ] = None,
    auth: Annotated[
        IkeAuth | None,
        typer.Option(help="How the two charons authenticate.", show_default=DEFAULTS.auth.value),
    ] = None,
    iscsi: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=VALUE",
            help="A parameter that both ends must agree on: InitialR2T, ImmediateData, FirstBurstLength, "
            "MaxBurstLength, MaxRecvDataSegmentLength. Repeatable.",
            show_default="what the two ends negotiate",
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
        int | None, typer.Option(help="Seed of the order of cells and of offsets.", show_default="random")
    ] = None,
    results: Annotated[
        str | None, typer.Option(metavar="FOLDER", help="Where results go.", show_default=DEFAULTS.results)
    ] = None,
    config: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="A TOML file with these options; options that are typed override it.",
        ),
    ] = None,
    resume: Annotated[
        str | None,
        typer.Option(metavar="RUN", help="Finish a run: measure what is missing, and what was disturbed."),
    ] = None,
    plan_only: Annotated[
        bool, typer.Option("--plan", help="Print what would run and how long it takes, and do nothing.")
    ] = False,
) -> None:
    """Measure every workload on every column, repeatedly, in a random order that is stored."""
    started_s = process_started_s()
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
        "retries": retries,
        "runtime": runtime,
        "seed": seed,
        "size": size,
        "backing": backing,
        "local_device": local_device,
        "destroy": destroy,
        "target": target,
        "initiators": initiators,
        "hops": hops,
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
    # Typed options override the file's.
    given = {name: tuple(v) if isinstance(v, list) else v for name, v in typed.items() if v is not None}
    request = msgspec.structs.replace(request, **given)
    if resume is not None and (config is not None or given.keys() - {"results", *AGAIN}):
        raise UsageError(
            "expected no other options with --resume, because a resumed run follows its plan",
            hint="leave them out, or begin a new run without --resume",
        )
    if resume is None:
        made = plan.make_plan(request)
        folder = RunFolder(Path(request.results) / made.run_id)
    else:
        folder = _resumed(resume, Path(request.results))
        made = folder.load_plan()
        if made.probing:
            raise UsageError(
                f"expected a run of cells, found a run of probes: {folder.path}",
                hint="finish it with harness probe --resume",
            )
        again = [(option, given.get(name, ())) for name, option in AGAIN.items()]
        planned.require_typed(
            made,
            resume,
            [
                (option, str(v))
                for option, typed in again
                for v in (typed if isinstance(typed, tuple) else [typed])
            ],
        )
        if not plan_only:
            print_plan(made, tell)
    testbed.require_rights(made)
    if plan_only:
        _require_device(made)
        print_plan(made)
        return
    with holding(made.run_id) as state:
        tell_recovery(*testbed.recover(state))
        _require_device(made)
        with results_of(made, folder, resumed=resume is not None):
            try:
                status = _run(made, folder, state, started_s)
            except Interrupted as interruption:
                interruption.hint = planned.resume_command(made, str(folder.path))
                raise
    raise typer.Exit(status)


def _require_device(made: Plan) -> None:
    """Ask the guard here too: from inside, the machine's other mount namespaces cannot be seen."""
    if made.backing.kind is BackingKind.BLOCK and made.testbed is TestbedKind.HOST:
        require_device(NamespaceHost(name="machine"), made.backing)


def _resumed(name: str, results: Path) -> RunFolder:
    path = Path(name) if "/" in name else results / check_name("run", name)
    return RunFolder(path)


def _run(made: Plan, folder: RunFolder, state: Path, started_s: float) -> int:
    schedule = Schedule(made, folder.load_records())
    cells = schedule.expected
    if next(iter(schedule), None) is None:
        print_table([folder.path], Options(), TableFormat.PLAIN)
        tell("nothing is left to measure")
        return 0
    tell_start(made, folder, f"{'about ' if made.stop else ''}{cells} cells")
    outcome = carry_out(made, folder, state, started_s, cells=cells, cell_estimate_s=plan.mean_cell_s(made))
    print_table([folder.path], Options(), TableFormat.PLAIN)
    for line in outcome.summary():
        tell(line)
    if outcome.disturbed and made.retries:
        again = planned.resume_command(made, str(folder.path))
        tell(f"measure them again on a quieter machine: {again}")
    tell(f"the table again: harness table {shlex.quote(str(folder.path))}")
    return outcome.exit_code


def check_config(file: Annotated[Path, typer.Argument(help="A configuration file (TOML).")]) -> None:
    """Check a configuration file as `harness run --config` would, and print what it would run."""
    print_plan(plan.make_plan(plan.load_request(file)))
