"""All commands with their functions, by name: what completion and the manual are made of."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import import_module

import typer

from harness.cli import COMMANDS

Function = Callable[..., object]


@dataclass(frozen=True)
class Command:
    """``words`` are what it does."""

    function: Function
    words: str


def commands(name: str) -> Mapping[str, Command]:
    """A command under "", or those of a group by name; empty if there is no such command."""
    if name not in COMMANDS:
        return {}
    module, member = COMMANDS[name][0].split(":")
    found = getattr(import_module(f"{__package__}.{module}"), member)
    if not isinstance(found, typer.Typer):
        return {"": Command(found, inspect.getdoc(found) or "")}
    return {
        info.name or info.callback.__name__.replace("_", "-"): Command(
            info.callback, inspect.cleandoc(info.help or inspect.getdoc(info.callback) or "")
        )
        for info in found.registered_commands
        if info.callback is not None
    }
