"""The help of commands: by click's plain formatter, with each heading's options below it.

Not by rich (``rich_markup_mode``), as Typer would: to import that takes as long as a small table.
"""

from __future__ import annotations

from typing import Any

from typer.core import TyperCommand, TyperGroup

from harness.cli.streams import tell
from harness.planning import renamed

SECOND_COLUMN = 22
"""The widest option that has its words in the same line."""


class Command(TyperCommand):
    """A command, its options under the headings that they declare (``rich_help_panel``)."""

    def format_options(self, ctx: Any, formatter: Any) -> None:
        for heading, parameters in headings(self).items():
            with formatter.section(heading):
                formatter.write_dl([each.get_help_record(ctx) for each in parameters], col_max=SECOND_COLUMN)


class Group(TyperGroup):
    """Commands, each with the whole of what it does. Old names on the command line become new ones."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if ctx.parent is None and not ctx.resilient_parsing:
            args, notes = renamed.current(args)
            for note in notes:
                tell(f"harness: {note}")
        return super().parse_args(ctx, args)

    def format_options(self, _ctx: Any, formatter: Any) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, summary(each)) for name, each in self.commands.items()])


def summary(command: Any) -> str:
    """The first paragraph of what a command does, on one line."""
    return " ".join((command.help or "").partition("\n\n")[0].split())


def headings(command: Any) -> dict[str, list[Any]]:
    """A command's arguments and options, by their heading in the help."""
    found: dict[str, list[Any]] = {}
    for each in command.params:
        if getattr(each, "hidden", False):
            continue
        usual = f"{each.param_type_name}s".capitalize()
        found.setdefault(getattr(each, "rich_help_panel", None) or usual, []).append(each)
    return found
