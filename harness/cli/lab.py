"""The commands ``harness lab start``, ``stop``, ``status`` and ``exec``."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Annotated

import typer

from harness.cli import machine
from harness.cli.machine import KERNEL, MEMORY
from harness.hosts.state import state_folder
from harness.model import LabKernel
from harness.model.units import format_duration, format_size, parse_duration_s
from harness.results.store import RESULTS
from harness.terminal.console import holding
from harness.terminal.streams import say
from harness.testbeds import testbed
from harness.testbeds.lab import boot, persistent
from harness.testbeds.lab.kernels import kernel as kernels

lab_app = typer.Typer(no_args_is_help=True, add_completion=False, rich_markup_mode=None)
lab_app.command("exec", context_settings={"ignore_unknown_options": True})(machine.lab_exec)


@lab_app.command()
def start(
    results: Annotated[Path, typer.Option(metavar="FOLDER", help="Folder for results.")] = Path(RESULTS),
    memory: Annotated[int, MEMORY] = 256,
    kernel: Annotated[
        LabKernel | None,
        KERNEL,
    ] = None,
    idle: Annotated[str, typer.Option(metavar="TIME", help="Stop after this time without a run.")] = "30m",
) -> None:
    """Keep a lab up, in which runs begin at once.

    The lab may write to all of the results folder. A run that needs another kernel, more memory, another
    results folder, virtual time or several kernels says so and boots its own.
    """
    idle_s = parse_duration_s(idle)
    with holding("harness lab start") as state:
        testbed.recover(state)
        if (lab_state := persistent.ask(state, is_waiting=False)) is not None:
            say(f"a lab is up already: {_described(lab_state)}")
            say("harness lab stop ends it")
            raise typer.Exit(1)
        results.mkdir(parents=True, exist_ok=True)
        boot.require_visible(results.resolve(), "the results folder")
        name = kernel or kernels.usual()
        lab_state = persistent.start(
            state, persistent.terms(name, persistent.kernel_of(name), memory << 20, results), idle_s
        )
    say(f"the lab is up: {_described(lab_state)}")
    say(f"it ends with harness lab stop, or when it was unused for {format_duration(round(idle_s))}")


@lab_app.command()
def stop() -> None:
    """Stop the lab that is up."""
    with holding("harness lab stop") as state:
        found = persistent.stop(state)
    say("the lab has ended" if found else "no lab is up")


@lab_app.command()
def status() -> None:
    """Show whether a lab is up, and which runs can use it.

    The exit status is 1 if none is up.
    """
    state = state_folder()
    lab_state = persistent.ask(state, is_waiting=False)
    if lab_state is None:
        with contextlib.suppress(OSError):
            state.rmdir()  # if only looking made it
        say("no lab is up")
        raise typer.Exit(1)
    say(f"a lab is up: {_described(lab_state)}")
    if lab_state.before:
        say(f"the kernel before it was given up: {lab_state.before}")
    if lab_state.fault:
        say(f"it has no kernel until the harness is edited: {lab_state.fault}")
    left_s = lab_state.idle_limit_s - lab_state.idle_s
    say(f"runs in it so far: {lab_state.runs}; if unused it ends in {format_duration(max(0, round(left_s)))}")


def _described(lab_state: persistent.LabState) -> str:
    terms = lab_state.terms
    return (
        f"kernel {terms.kernel}, {format_size(terms.storage_bytes)} for storage, processor {terms.core}, "
        f"results in {terms.results}"
    )
