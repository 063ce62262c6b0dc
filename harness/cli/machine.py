"""The commands for what a run needs: doctor, clean, kernel build, lab exec."""

from __future__ import annotations

import dataclasses
import itertools
import sys
import time
from collections.abc import Iterable
from functools import partial
from pathlib import Path
from typing import Annotated

import typer
from rich.text import Text

from harness.hosts.journal import Journal
from harness.hosts.state import lasting_folder
from harness.model import MOST_INITIATORS, LabKernel, temporary
from harness.model.errors import BusyError, HarnessError, TestbedError, UsageError
from harness.model.escape import printable
from harness.model.units import format_duration
from harness.observe import hops
from harness.parse.hosts import LOCAL, parse_portal
from harness.planning.request import RunRequest
from harness.terminal import options
from harness.terminal.console import holding, tell_recovery
from harness.terminal.progress import bar
from harness.terminal.running import learn_secret
from harness.terminal.streams import err, out, say, tell_error
from harness.testbeds import doctor, portals, testbed
from harness.testbeds.lab import boot, persistent
from harness.testbeds.lab import per_host as several
from harness.testbeds.lab.kernels import ciphers, kernel
from harness.testbeds.lab.kernels import source as sources
from harness.testbeds.participants import Participant, machines
from harness.testbeds.requirements import Asked, asked_for

kernel_app = typer.Typer(no_args_is_help=True, add_completion=False, rich_markup_mode=None)

USUAL = "debian, or custom where that is not installed"
KERNEL = typer.Option(
    "--kernel",
    metavar="KERNEL",
    help="debian, or custom (harness kernel build).",
    show_default=USUAL,
)
MEMORY = typer.Option(metavar="MIB", min=1, max=64 << 10, help="Memory for storage, in MiB.")
MARKS = {
    doctor.FindingState.OK: ("ok     ", "green"),
    doctor.FindingState.NOTE: ("note   ", "yellow"),
    doctor.FindingState.MISSING: ("missing", "red"),
}


@options.taking(
    RunRequest,
    only=(
        *("target", "initiators", "hops", "transports", "protect"),
        *("portal", "iqn", "lun", "chap", "chap_secret"),
    ),
)
def doctor_command(**typed: object) -> None:
    """Check what is missing, and print how to install it.

    If nothing is missing, it boots the lab, which takes some seconds.

    With --target, --initiator and --hop it checks those machines for a run with the same options. If a
    machine lacks nothing, doctor tries each transport and protection there, in seconds, and undoes all of it.

    With --portal it checks the initiator, logs in to that target and out again, and says which LUN a run
    would read and what protects the path. It writes nothing.
    """
    request = RunRequest(**options.given(typed))
    taking_part = _machines(request)
    portal = None if request.portal is None else parse_portal(request.portal)
    asked = asked_for(request.transports, request.protect)
    if portal is not None:
        asked = Asked(transports=(portal.transport,), protections=())
        learn_secret(request)
    for text in request.hops:
        hops.check(text)
    has_machines = bool(taking_part or request.hops)
    found = doctor.findings()
    if has_machines:
        found = itertools.chain(
            doctor.machine_findings(taking_part, asked), doctor.hop_findings(request.hops)
        )
    width = max((len(machine.name) for machine in taking_part), default=5)
    untried = {machine.name for machine in taking_part}

    def reported(findings: Iterable[doctor.Finding]) -> bool:
        """Whether all is well, of what is printed as it is found."""
        is_well = True
        for finding in findings:
            _tell(finding, width)
            is_well = is_well and (finding.ok or finding.where == "host")
            if finding.tried:
                untried.discard(finding.where)
        return is_well

    healthy = reported(found)
    if healthy and portal is not None:
        healthy = reported(
            portals.findings(
                portal,
                name=request.iqn or "",
                lun=request.lun,
                chap_user=request.chap or "",
                iface=None,
                initiator=(request.initiators or (LOCAL,))[0],
            )
        )
    if healthy and not has_machines:
        tried = _try_lab()
        _tell(tried, width)
        healthy = tried.ok
    what = "the machines are" if has_machines else "the lab is"
    if not healthy:
        say(f"{what} not ready")
        raise typer.Exit(2)
    if untried:
        say(f"nothing is missing, but doctor could not try the {' and the '.join(sorted(untried))}")
    else:
        links = " --link local --link wired=INTERFACE" if request.target else ""
        say(f"{what} ready: harness run{options.as_typed(request)}{links}")


def _tell(finding: doctor.Finding, width: int) -> None:
    line = f" {finding.where:{width}} {printable(finding.text)}"
    out().print(Text.assemble(MARKS[finding.state], line), soft_wrap=True)
    if finding.mend:
        say(f"{'':{width + 9}}fix: {finding.mend}")


def _try_lab() -> doctor.Finding:
    """Boot the lab, unless a run is at work in it, which is proof enough."""
    try:
        with holding("harness doctor") as state:
            return doctor.try_lab(state)
    except BusyError as error:
        return doctor.Finding(
            where="lab", state=doctor.FindingState.NOTE, text=f"not booted: {error.message}"
        )


@options.taking(RunRequest, only=("target", "initiators"))
def clean(**typed: object) -> None:
    """Remove what a killed run left behind.

    That is what its journal names, and its own temporary folders. It also stops a lab that `harness lab
    start` started. With --target and --initiator it cleans those machines, by their own journals.
    """
    taking_part = _machines(RunRequest(**options.given(typed)))
    if not taking_part:
        with holding("harness clean") as state:
            removed = ["the persistent lab"] if persistent.stop(state) else []
            more, failed = testbed.recover(state)
            removed += [*more, *temporary.remove_left()]
        tell_recovery(removed, failed)
        if failed:
            raise typer.Exit(1)
        if not removed:
            say("nothing was left behind")
        return
    status = 0
    # The target last: a session can be logged out only as long as its target is there.
    for machine in reversed(taking_part):
        try:
            # Its agent first undoes what a killed one left.
            with (
                temporary.folder() as folder,
                machine.reached("harness clean", folder / "log") as host,
            ):
                found = host.recovered
        except HarnessError as error:
            tell_error(error)
            status = max(status, error.exit_code)
            continue
        tell_recovery(*found, f"{machine.name}: ")
        status = max(status, 1 if found[1] else 0)
        if not any(found):
            say(f"{machine.name}: nothing was left behind")
    if status:
        raise typer.Exit(status)


def _machines(request: RunRequest) -> list[Participant]:
    """The machines that `harness run` would use with the same options."""
    has_machines = request.target is not None or request.portal is not None
    return machines(request.target, request.initiators or ([LOCAL] if has_machines else []))


@kernel_app.command("build")
def build_kernel(
    source: Annotated[
        str | None,
        typer.Option(
            metavar="SOURCE",
            help=f"Linux source: {sources.FORMS}. It is not changed.",
            show_default="Debian's, as installed, or kernel.org's",
        ),
    ] = None,
    simulated: Annotated[
        bool, typer.Option("--simulated-cpu-costs", help="Build the kernel that run --cpu-costs needs.")
    ] = False,
) -> None:
    """Build the custom kernel, unless it is there already.

    The source is Debian's, or kernel.org's where Debian's is not installed. The kernel stays in
    ~/.cache/harness/kernel (or in $XDG_CACHE_HOME), under a key made of all build inputs.
    """
    with bar("checking what the build needs", err()) as report:
        origin = sources.of(source)
        found, new = kernel.build(report, None if source is None else origin, simulated=simulated)
    built = found.built
    took = f"built in {format_duration(built.seconds)}" if new else "was built before"
    at = f", commit {built.commit}" if built.commit else ""
    say(f"kernel {built.release} of {origin.title}{at} {took}: {found.folder}")
    say(f"sha256 of linux: {built.sha256}")
    if lacks := kernel.lacking(built, origin):
        say(lacks)
    if source is not None:
        say(f"to use it: harness run --lab-kernel {built.key}")


@kernel_app.command("ciphers")
def build_ciphers() -> None:
    """Build AES-NI and other ciphers for Debian's user-mode kernel.

    Without them the lab encrypts with generic code on that kernel. It takes a minute, once. apt fetches the
    kernel's source; the modules stay in ~/.cache/harness/kernel/ciphers.
    """
    with bar("checking what the build needs", err()) as report:
        new = ciphers.build(report)
    say(f"{ciphers.WHAT}: {'built' if new else 'were built before'}; runs in the lab use them")


def lab_exec(
    command: Annotated[
        list[str], typer.Argument(metavar="COMMAND…", help="Program and arguments, after --.")
    ],
    writable: Annotated[
        Path | None,
        typer.Option(metavar="FOLDER", help="Folder that the lab may write to, as /run/results."),
    ] = None,
    memory: Annotated[int, MEMORY] = 256,
    kernel_name: Annotated[
        str | None,
        KERNEL,
    ] = None,
    virtual_time: Annotated[
        bool,
        typer.Option("--virtual-time", help="Simulated clock, no CPU time; custom kernel."),
    ] = False,
    per_host: Annotated[
        int,
        typer.Option(
            min=0,
            max=MOST_INITIATORS,
            metavar="N",
            help="Boot a kernel for the target and one for each of N initiators; the command runs on the "
            "first initiator, `ssh target` and `ssh initiator2` reach the others.",
            show_default="one kernel for all",
        ),
    ] = 0,
) -> None:
    """Boot the lab's kernel and run a command in it as root.

    --kernel also takes the key or --source of another build.
    """
    kernel_name = kernel_name or kernel.usual()
    if kernel_name in set(LabKernel):
        chosen = persistent.kernel_of(LabKernel(kernel_name))
    else:
        chosen = kernel.custom_kernel(kernel.named(kernel_name).built.key)
    if virtual_time:
        if kernel_name == LabKernel.DEBIAN:
            raise UsageError(
                "expected the custom kernel for virtual time, found Debian's", hint="add --kernel custom"
            )
        chosen = dataclasses.replace(chosen, options=(*chosen.options, *kernel.VIRTUAL_TIME))
    with holding("harness lab exec") as state:
        journal = Journal(state / "journal-lab-exec.jsonl", lasting=lasting_folder())
        console = state / "lab-exec.log"
        try:
            booting = partial(several.booted, initiators=per_host) if per_host else boot.booted
            with booting(
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
            last = "" if status is not None else booted.last_words()
        finally:
            journal.end()
            for log in state.glob(f"{console.stem}*.log"):
                log.unlink()
    if status is None:
        raise TestbedError(f"the lab ended before the command did: {last}")
    raise typer.Exit(status)


def _copy(booted: boot.Lab, start: int) -> int:
    """Print the lab's output from ``start`` up to its own last words; returns how far that was."""
    said = booted.said().split(boot.EXIT_MARK.encode())[0]
    # The mark is on a line of its own: the newline before it is the lab's.
    whole = said[: max(said.rfind(b"\n"), 0)]
    sys.stdout.buffer.write(whole[start:])
    sys.stdout.buffer.flush()
    return len(whole)
