"""The command line. Only here does the harness read options, print, and exit."""

from __future__ import annotations

import ast
import errno
import functools
import gc
import sys
from collections.abc import Iterable
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer
from typer.core import TyperCommand, TyperGroup

from harness.model import renamed, signals, unread
from harness.model.errors import HarnessError, Interrupted, Unreadable
from harness.questions import declared
from harness.terminal.streams import (
    complain,
    hint,
    prepare_streams,
    say,
    silence,
    tell,
    tell_error,
    tell_interruption,
)
from harness.version import __version__

INTERRUPTED = 130
"""Exit status after an interruption, whatever its cause: the one that shells use for Ctrl-C."""

NO_ROOM = (errno.ENOSPC, errno.EDQUOT)

MOST_NAMED = 5
"""The most unreadable records that are named one by one."""

SECOND_COLUMN = 22
"""The widest option that has its words in the same line."""


class Command(TyperCommand):
    """Its help by click's plain formatter, with Typer's headings (``rich_help_panel``): Typer prints these
    only by rich, which takes as long to import as a small table."""

    def format_options(self, ctx: Any, formatter: Any) -> None:
        shown = (each for each in self.params if not getattr(each, "hidden", False))
        for heading, parameters in headings(shown, "Options").items():
            with formatter.section(heading):
                formatter.write_dl([each.get_help_record(ctx) for each in parameters], col_max=SECOND_COLUMN)


class Group(TyperGroup):
    """The same. The root group also reads old names."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if ctx.parent is None and not ctx.resilient_parsing:
            args, notes = renamed.current(args)
            for note in notes:
                tell(f"harness: {note}")
        return super().parse_args(ctx, args)

    def format_options(self, _ctx: Any, formatter: Any) -> None:
        first = max(map(len, self.commands))
        for heading, commands in headings(self.commands.values(), "Commands").items():
            with formatter.section(heading):
                width = formatter.width - first - 4
                formatter.write_dl(
                    [(f"{each.name:{first}}", each.get_short_help_str(width)) for each in commands]
                )


def headings(each_of: Iterable[Any], usual: str) -> dict[str, list[Any]]:
    """Commands, or arguments and options, by their heading."""
    found: dict[str, list[Any]] = {"Arguments": []}
    for each in each_of:
        is_argument = getattr(each, "param_type_name", "") == "argument"
        named = "Arguments" if is_argument else getattr(each, "rich_help_panel", None) or usual
        found.setdefault(named, []).append(each)
    return {heading: listed for heading, listed in found.items() if listed}


app = typer.Typer(
    name="harness",
    cls=Group,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    help="""Measure how much throughput storage loses to iSCSI, its link and IPsec, and
    find which layer causes the loss.

    It measures the real LIO, open-iscsi, strongSwan and fio, by default in a
    user-mode kernel that needs no root and cannot touch this machine's disks.""",
    epilog="""\b
Examples:
harness run                             (disk, wired, WiFi; IPsec off and on)
harness run --protect off --protect wireguard --link wired
harness explain results/ --summary      (what each column costs, and why)

Exit status: 0 all cells ok; 1 a cell is not ok, or something was left
behind; 2 wrong usage, or something is missing.
`harness COMMAND --help` has a command's options.""",
)


class LazyCommand(TyperCommand):
    """A command that stands in for one whose module is imported when it is typed.

    All modules together take half a second to import, which `harness --help` need not wait for.
    """

    @functools.cached_property
    def real(self) -> Any:
        """The command itself, with its options; or a group, with its commands."""
        return self.callback()  # type: ignore[misc]  # (each has one: see _add)

    def make_context(self, *args: Any, **more: Any) -> Any:
        return self.real.make_context(*args, **more)


@functools.cache
def _docstrings(module: str) -> dict[str, str]:
    """What the functions of a module say of themselves. To read it takes a few ms, to import it more."""
    tree = ast.parse(
        Path(__file__).parents[1].joinpath(*module.split(".")[1:]).with_suffix(".py").read_bytes()
    )
    return {
        each.name: ast.get_docstring(each) or "" for each in tree.body if isinstance(each, ast.FunctionDef)
    }


def _add(name: str, place: str, heading: str) -> None:
    module, member = place.split(":")

    @app.command(
        name, cls=LazyCommand, help=GROUPS.get(name) or _docstrings(module)[member], rich_help_panel=heading
    )
    def load() -> object:
        found = getattr(import_module(module), member)
        if not isinstance(found, typer.Typer):
            alone = typer.Typer(add_completion=False, rich_markup_mode=None)
            examples = EXAMPLES.get(name)
            alone.command(name, epilog=examples and f"\b\nExamples:\n{examples}")(found)
            found = alone
        found.info.cls = Group
        found.info.help = GROUPS.get(name)
        for command in found.registered_commands:
            command.cls = Command
        return typer.main.get_command(found)


HEADINGS = {
    "Measure": {
        "run": "run:run",
        "probe": "probe:probe",
    },
    "Read results": {
        "table": "table:table",
        "compare": "compare:compare",
        "explain": "explain:explain_command",
        "report": "report:report_command",
        "plot": "report:plot",
        "export": "export:export_command",
        "parse": "parse:parse_app",
    },
    "Predict": {
        "cpu-cost": "cpu_cost:cpu_cost",
    },
    "Set up": {
        "doctor": "machine:doctor_command",
        "list": "listing:list_command",
        "lab": "lab:lab_app",
        "kernel": "machine:kernel_app",
        "clean": "machine:clean",
    },
}
"""Where each command is: module and name, below its heading in ``harness --help``; questions add their own.
What it does is the function's docstring, whose first sentence has room on a line there."""


GROUPS = {
    "lab": "Keep a lab up, or run a command in its kernel.",
    "kernel": "Build the custom kernel, or ciphers for Debian's.",
    "parse": "Print the output of fio, ping, iperf or hping3 as JSON.",
}
"""The same of those that are several commands."""

EXAMPLES = {
    "run": """harness run --link wired --protect both --protect wireguard --repeats 6
harness run --target ssh://root@server --link local --link wired=eth0
harness run --volume /mnt/nas/bench.img --size 4G   (or --portal nas.lan)""",
    "probe": """harness probe --link wired --ipsec both
harness probe --profile switches --count 5000""",
    "table": """harness table results/ --metric p99 --ratio unprotected
harness table results/RUN --format markdown""",
    "compare": "harness compare results/A results/B --fail-if-slower 5%",
    "explain": """harness explain results/RUN --summary
harness explain --reference iscsi-ipsec""",
    "report": """harness report results/RUN -o report.html
harness report results/ --watch            (during a run)""",
    "plot": """harness plot answer results/RUN -o answer.png
harness plot roofline results/RUN -o roofline.svg""",
    "cpu-cost": """harness cpu-cost -o lab.toml
harness cpu-cost ssh://server             (single operations, without root)
harness cpu-cost monday.toml tuesday.toml (compare two)""",
    "export": "harness export results/ --format parquet -o results.parquet",
    "list": """harness list links
harness list protections --format json""",
    "doctor": """harness doctor --target ssh://root@server --initiator local
harness doctor --portal nas.lan""",
}
"""Below each command's help, a line each; questions add their own."""

for _question, _declared in declared().items():
    for _command in _declared.commands:
        HEADINGS.setdefault(_command.heading, {})[_command.name] = f"{_question}.{_command.place}"
        EXAMPLES[_command.name] = _command.examples
    for _name, _lines in _declared.examples.items():
        EXAMPLES[_name] += f"\n{_lines}"

COMMANDS = {
    name: place if "." in place else f"{__package__}.{place}"
    for commands in HEADINGS.values()
    for name, place in commands.items()
}

for _heading, _commands in HEADINGS.items():
    for _name in _commands:
        _add(_name, COMMANDS[_name], _heading)


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
    # Records have no cycles, and looking for them takes half of the time that reading some takes.
    gc.set_threshold(100_000)
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
    """The status of the command. What it could not read and went on without is named below all else."""
    with unread.noted() as lost:
        status = _command_typed(lost)
    for error in lost[:MOST_NAMED]:
        tell_error(error)
    if len(lost) > MOST_NAMED:
        complain(f"harness: and {len(lost) - MOST_NAMED} more files that are not readable")
    return status or (1 if lost else 0)


def _command_typed(lost: list[Unreadable]) -> int:
    try:
        try:
            app(prog_name="harness")
        finally:
            sys.stdout.flush()
    except SystemExit as ended:
        return ended.code if isinstance(ended.code, int) else 0
    except HarnessError as error:
        lost[:] = [other for other in lost if other.message != error.message]
        tell_error(error)
        return error.exit_code
    except UnicodeEncodeError as error:
        # A file name may be any bytes; the harness writes UTF-8 into its results.
        complain(f"harness: expected a name in UTF-8, found {error.object}")
        hint("rename the file or folder")
        return HarnessError.exit_code
    except BrokenPipeError:
        # The reader of the output has gone (`| head`): nothing more can be printed.
        silence(sys.stdout)
        return 1
    except OSError as error:
        silence(sys.stdout)
        where = f"{error.filename}: " if error.filename else ""
        complain(f"harness: {where}{error.strerror or error}")
        if error.errno in NO_ROOM:
            hint("is the disk full, or out of inodes? See df and df -i")
        elif error.errno == errno.EBADF:
            hint("standard output is closed: send it to a file, or to /dev/null")
        elif not _here():
            hint("the current folder has been removed: change to another one")
        return 1
    return 0


def _here() -> bool:
    """Whether the working directory still exists."""
    try:
        Path.cwd()
    except OSError:
        return False
    return True
