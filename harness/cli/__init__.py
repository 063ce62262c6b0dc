"""The command line. Only here does the harness read options, print, and exit."""

from __future__ import annotations

import os
import signal
import sys
from types import FrameType
from typing import Annotated, NoReturn

import typer

from harness import __version__
from harness.cli import machine, parse, probe, results, run
from harness.cli.console import Interrupted, err, out, tell_error
from harness.errors import HarnessError

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
kernel_app = typer.Typer(no_args_is_help=True, help="The lab's own kernel: WiFi, disks, virtual time.")
config_app = typer.Typer(no_args_is_help=True, help="Configuration files for `harness run --config`.")
app.command()(run.run)
app.command()(probe.probe)
app.command()(results.table)
app.command()(results.compare)
app.command("explain")(results.explain_command)
app.command("report")(results.report_command)
app.command()(results.plot)
app.command("export")(results.export_command)
app.command("doctor")(machine.doctor_command)
app.command()(machine.clean)
lab_app.command("exec", context_settings={"ignore_unknown_options": True})(machine.lab_exec)
kernel_app.command("build")(machine.build_kernel)
config_app.command("check")(run.check_config)
app.add_typer(lab_app, name="lab")
app.add_typer(kernel_app, name="kernel")
app.add_typer(config_app, name="config")
app.add_typer(parse.parse_app, name="parse")


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


def _interrupted(_number: int, _frame: FrameType | None) -> None:
    # Once: a second signal must not stop the unwinding that the first began.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda _number, _frame: None)
    raise Interrupted


def _silence_stdout() -> None:
    """What Python still holds for a standard output that takes nothing must not fail again at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


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
        tell_error(error)
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
