"""The command ``harness probe``."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import msgspec
import typer

from harness.analysis import disturbance
from harness.cli.console import (
    carry_out,
    holding,
    machines_of,
    print_view,
    results_of,
    say,
    tell,
    tell_recovery,
    tell_start,
)
from harness.cli.progress import process_started_s
from harness.model import IkeAuth, IpsecMode, Plan, Security
from harness.model.errors import Interrupted, UsageError
from harness.model.units import check_name, format_duration, parse_duration_s
from harness.results import planned, probe_store
from harness.results.store import RunFolder
from harness.runs import probe_plan
from harness.runs.plan import KernelChoice, Kernels, Request
from harness.runs.prober import questions
from harness.table.views import View
from harness.testbeds import testbed

DEFAULTS = Request()


def probe(
    link: Annotated[
        list[str] | None,
        typer.Option(help="A link as for `harness run`, but not local. Repeatable."),
    ] = None,
    ipsec: Annotated[
        list[str] | None,
        typer.Option(help="off, on, both, or a proposal of ipsec/. Repeatable.", show_default="off"),
    ] = None,
    probe: Annotated[
        list[str] | None,
        typer.Option(
            help=f"{', '.join(probe_plan.KINDS)}. Repeatable.",
            show_default=", ".join(probe_plan.DEFAULT_PROBES),
        ),
    ] = None,
    profile: Annotated[
        str | None,
        typer.Option(
            help=f"An experiment: {', '.join(probe_plan.names())}, or a TOML file with paths and probes.",
            show_default=False,
        ),
    ] = None,
    count: Annotated[
        int | None, typer.Option(help="How many pings or round trips, instead of each probe's own number.")
    ] = None,
    duration: Annotated[
        str | None,
        typer.Option(
            help="How long tcp, udp and floods take, e.g. 3s.", show_default="10s; 3s; in virtual time 1s"
        ),
    ] = None,
    udp_rate: Annotated[
        str | None,
        typer.Option(
            help="What iperf3 sends over UDP, e.g. 100M bit/s.", show_default="10G; in virtual time 1G"
        ),
    ] = None,
    repeats: Annotated[
        int | None, typer.Option(help="How often each probe is made.", show_default="1")
    ] = None,
    target: Annotated[
        str | None, typer.Option(help="A real machine as the target: ssh://[USER@]HOST[:PORT], or local.")
    ] = None,
    initiator: Annotated[
        str | None, typer.Option(help="A real machine as the initiator.", show_default="local")
    ] = None,
    hops: Annotated[
        list[str] | None,
        typer.Option(
            "--hop",
            help="A router or switch between the ends; its counters are read: ssh://… Repeatable.",
            show_default=False,
        ),
    ] = None,
    testbed_name: Annotated[
        str, typer.Option("--testbed", help="auto, lab, or host (this machine's own kernel; needs root).")
    ] = DEFAULTS.testbed,
    kernels: Annotated[
        Kernels, typer.Option(help="Whether the lab's hosts share a kernel.")
    ] = DEFAULTS.kernels,
    lab_kernel: Annotated[
        KernelChoice, typer.Option(help="Which kernel the lab boots.")
    ] = DEFAULTS.lab_kernel,
    virtual_time: Annotated[
        bool, typer.Option("--virtual-time", help="Processor work takes no time, only links do.")
    ] = False,
    wifi_security: Annotated[
        Security, typer.Option(help="WiFi security, on the lab's own kernel.")
    ] = DEFAULTS.wifi_security,
    ipsec_mode: Annotated[IpsecMode, typer.Option(help="ESP mode.")] = DEFAULTS.ipsec_mode,
    auth: Annotated[IkeAuth, typer.Option(help="How the two charons authenticate.")] = DEFAULTS.auth,
    results: Annotated[str, typer.Option(metavar="FOLDER", help="Where results go.")] = DEFAULTS.results,
    resume: Annotated[
        str | None, typer.Option(metavar="RUN", help="Finish an interrupted run of probes.")
    ] = None,
    plan_only: Annotated[
        bool, typer.Option("--plan", help="Print what would be probed, and do nothing.")
    ] = False,
) -> None:
    """Measure paths without storage: ping, TCP, UDP, packets per second, UDP round trips."""
    started_s = process_started_s()
    asked = probe_plan.load_profile(profile) if profile is not None else None
    if asked is not None and probe:
        raise UsageError("--profile has its own probes, but --probe was given as well", hint="leave one out")
    request = msgspec.structs.replace(
        DEFAULTS,
        links=tuple(link or (asked.links if asked is not None else ())),
        ipsec=tuple(ipsec or (asked.ipsec if asked is not None else ())),
        repeats=repeats if repeats is not None else asked.repeats if asked is not None else 1,
        target=target,
        initiators=(initiator,) if initiator is not None else (),
        hops=tuple(hops or ()),
        testbed=testbed_name,
        kernels=kernels,
        lab_kernel=lab_kernel,
        virtual_time=virtual_time,
        wifi_security=wifi_security,
        ipsec_mode=ipsec_mode,
        auth=auth,
        results=results,
    )
    if resume is None:
        rate_bit_s = None if udp_rate is None else probe_plan.parse_rate(udp_rate)
        seconds = None if duration is None else _whole_seconds(duration)
        names = probe or probe_plan.DEFAULT_PROBES
        probes = asked.probe if asked is not None else probe_plan.named(names, virtual_time=virtual_time)
        made = probe_plan.make_plan(
            request,
            probe_plan.changed(probes, count=count, duration_s=seconds, rate_bit_s=rate_bit_s),
            profile or probe_plan.NO_PROFILE,
        )
        folder = RunFolder(Path(results) / made.run_id)
    else:
        folder = RunFolder(Path(resume) if "/" in resume else Path(results) / check_name("run", resume))
        made = folder.load_plan()
        if not made.probing:
            raise UsageError(
                f"expected a run of probes, found a run of cells: {folder.path}",
                hint="finish it with harness run --resume",
            )
        typed = [
            ("--testbed", None if testbed_name == DEFAULTS.testbed else testbed_name),
            ("--target", target),
            ("--initiator", initiator),
            *(("--hop", text) for text in hops or ()),
            *(("--link", text) for text in link or ()),
        ]
        planned.require_typed(made, resume, [(option, text) for option, text in typed if text is not None])
        if not plan_only:
            _print_plan(made, tell)
    testbed.require_rights(made)
    if plan_only:
        _print_plan(made)
        return
    with holding(made.run_id) as state:
        tell_recovery(*testbed.recover(state))
        with results_of(made, folder, resumed=resume is not None):
            try:
                status = _run(made, folder, state, started_s, asked)
            except Interrupted as interruption:
                interruption.hint = planned.resume_command(made, str(folder.path))
                raise
    if status:
        raise typer.Exit(status)


def _run(
    made: Plan, folder: RunFolder, state: Path, started_s: float, asked: probe_plan.ProbeProfile | None
) -> int:
    done = {record.key for record in probe_store.load(folder) if disturbance.is_final(record, made)}
    left = sum(question.key not in done for question in questions(made))
    status = 0
    lines = ["nothing is left to probe"]
    if left:
        tell_start(made, folder, f"{left} probes")
        each_s = probe_plan.estimate_s(made) / len(questions(made))
        outcome = carry_out(made, folder, state, started_s, cells=left, cell_estimate_s=each_s)
        status, lines = outcome.exit_code, outcome.summary("probes")
    again = f"harness table {shlex.quote(str(folder.path))}"
    for view, reference in _views(made, asked):
        print_view([folder.path], view, reference)
        sys.stdout.write("\n")
        lines.append(
            f"the table again: {again} --view {view}{f' --reference {reference}' if reference else ''}"
        )
    for line in lines:
        tell(line)
    return status


def _views(made: Plan, asked: probe_plan.ProbeProfile | None) -> list[tuple[View, str | None]]:
    """The view of the run's profile, with its reference; without a profile, the views of its probes."""
    # A resumed run's profile may have been a file, and a folder of results must not choose which file is
    # read.
    if asked is None and made.profile in probe_plan.names():
        asked = probe_plan.load_profile(made.profile)
    if asked is not None:
        return [(View(asked.view), asked.reference)]
    return [(view, None) for view in probe_plan.views(made.probing)]


def _whole_seconds(text: str) -> int:
    seconds = parse_duration_s(text, what="duration")
    if seconds != int(seconds):
        raise UsageError(f"expected whole seconds for iperf3, found {text}", hint="try --duration 3s")
    return int(seconds)


def _print_plan(made: Plan, to: Callable[[str], None] = say) -> None:
    to(f"testbed: {made.testbed}")
    if made.machines is not None:
        to("machines: " + machines_of(made.machines))
    to("columns: " + ", ".join(map(made.shown, made.columns)))
    to("probes:  " + ", ".join(probe.name for probe in made.probing))
    to(
        f"in all:  {len(questions(made))}, about {format_duration(round(probe_plan.estimate_s(made)))}",
    )
    sys.stdout.flush()
