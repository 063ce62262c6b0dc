"""The command line. Only here does the harness read options, print, and exit."""

from __future__ import annotations

import errno
import sys
from pathlib import Path
from typing import Annotated, NoReturn

import typer

from harness import __version__
from harness.cli import machine, parse, probe, results, run
from harness.cli.console import (
    hint,
    prepare_streams,
    say,
    silence,
    tell,
    tell_error,
    tell_interruption,
)
from harness.hosts import signals
from harness.model.errors import HarnessError, Interrupted

INTERRUPTED = 130
"""Exit status after an interruption, whatever its cause: the one that shells use for Ctrl-C."""

NO_ROOM = (errno.ENOSPC, errno.EDQUOT)

app = typer.Typer(
    name="harness",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    help="""What a volume loses on iSCSI, over which link, with IPsec on, and which layer causes it.

    All figures are measured on the real kernel stack: LIO, open-iscsi, strongSwan with ESP, fio. The default
    testbed is the lab, a user-mode kernel that needs no root and cannot touch this machine's disks.""",
    epilog="""[bold]Examples[/]

    harness run [dim](the whole matrix: local, wired, wifi, without and with IPsec)[/]

    harness run --ipsec on --link wifi [dim](one column)[/]

    harness run --link wired --ipsec null-sha256 --ipsec on --profile modern

    harness table results/

    harness table results/ --ratio local [dim](each figure as a ratio to the local one)[/]

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
        say(f"harness {__version__}")
        raise typer.Exit


@app.callback()
def _main(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    del version


def main() -> NoReturn:
    """Run the command that was typed, and exit with its status. Errors become a sentence, never a
    traceback."""
    signals.unwind()
    prepare_streams()
    try:
        try:
            status = _carry_out()
        finally:
            signals.ignore()
    except Interrupted as interruption:
        tell_interruption(interruption)
        status = INTERRUPTED
    sys.exit(status)


def _carry_out() -> int:
    try:
        try:
            app(prog_name="harness")
        finally:
            sys.stdout.flush()
    except SystemExit as ended:
        return ended.code if isinstance(ended.code, int) else 0
    except HarnessError as error:
        tell_error(error)
        return error.exit_code
    except UnicodeEncodeError as error:
        # A file name may be any bytes; the harness writes UTF-8 into its results.
        tell(f"harness: expected a name in UTF-8, found {error.object}")
        hint("rename the file or folder")
        return HarnessError.exit_code
    except BrokenPipeError:
        # The reader of the output has gone (`| head`): nothing more can be printed.
        silence(sys.stdout)
        return 1
    except OSError as error:
        silence(sys.stdout)
        _tell_os_error(error)
        return 1
    return 0


def _tell_os_error(error: OSError) -> None:
    where = f"{error.filename}: " if error.filename else ""
    tell(f"harness: {where}{error.strerror or error}")
    if error.errno in NO_ROOM:
        hint("is the disk full, or out of inodes? See df and df -i")
    elif not _here():
        hint("the current folder has been removed: change to another one")


def _here() -> bool:
    """Whether the working directory still exists."""
    try:
        Path.cwd()
    except OSError:
        return False
    return True
