"""Help by click's plain formatter, with Typer's headings (``rich_help_panel``): Typer prints these only by
rich, which takes as long to import as a small table. The root group also reads old names."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from typer.core import TyperCommand, TyperGroup

from harness.model import renamed
from harness.terminal.streams import tell

SECOND_COLUMN = 22
"""The widest option that has its words in the same line."""


class Command(TyperCommand):
    def format_options(self, ctx: Any, formatter: Any) -> None:
        shown = (each for each in self.params if not getattr(each, "hidden", False))
        for heading, parameters in headings(shown, "Options").items():
            with formatter.section(heading):
                formatter.write_dl([each.get_help_record(ctx) for each in parameters], col_max=SECOND_COLUMN)


class Group(TyperGroup):
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
