"""The help of a command: its options in groups, each beside its words, in lines that fit the terminal.

It is made of the declarations (``typer.Option``), not of what Typer makes of them, which differs between
versions.
"""

from __future__ import annotations

import enum
import inspect
import re
import shutil
import textwrap
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from types import UnionType
from typing import Annotated, Any, Union, get_args, get_origin, get_type_hints

from typer.core import TyperCommand
from typer.models import ArgumentInfo, OptionInfo

WIDEST = 100
"""Longer lines are hard to read."""

_BESIDE = 24
"""Where the words of an option begin; a longer one has a line of its own."""

_OTHERS = "Options"
_REPEATED = "…"
_MARKUP = re.compile(r"\[/?(?:bold|dim)?\]")


class Readable(TyperCommand):
    """A command with such a help."""

    def format_help(self, ctx: Any, formatter: Any) -> None:
        width = min(shutil.get_terminal_size().columns, WIDEST)
        if self.callback is None:
            raise AssertionError(f"{self.name} does nothing")
        # Its function, without Typer's wrapper: that one takes whatever was typed.
        told = [*lines(inspect.unwrap(self.callback), ctx.command_path, width)]
        if self.epilog:
            told += ["", "Examples:", *(f"  {line}" for line in self.epilog.splitlines())]
        formatter.write("\n".join(told) + "\n")


@dataclass(frozen=True)
class _Parameter:
    """``left`` is what is typed, ``words`` what it does."""

    left: str
    words: str
    group: str
    is_repeatable: bool


def lines(command: Callable[..., object], name: str, width: int) -> Iterator[str]:
    """The help of a command's function, in lines of ``width`` characters where its options allow it."""
    arguments, options = _parameters(command)
    yield " ".join(("Usage:", name, *(["[OPTIONS]"] if options else []), *(each.left for each in arguments)))
    for paragraph in inspect.cleandoc(command.__doc__ or "").split("\n\n"):
        yield ""
        yield from textwrap.wrap(_plain(paragraph), width)
    if arguments:
        yield ""
    for each in arguments:
        yield from _beside(each, width)
    repeatable = any(each.is_repeatable for each in options)
    for place, group in enumerate(dict.fromkeys(each.group for each in options)):
        yield ""
        note = f" ({_REPEATED} may be typed several times; [default])" if repeatable and not place else ""
        yield f"{group}{note}:"
        for each in options:
            if each.group == group:
                yield from _beside(each, width)


def _parameters(command: Callable[..., object]) -> tuple[list[_Parameter], list[_Parameter]]:
    """The arguments and the options of a command's function."""
    arguments: list[_Parameter] = []
    options: list[_Parameter] = []
    hints = get_type_hints(command, include_extras=True)
    for name, parameter in inspect.signature(command).parameters.items():
        if get_origin(hints.get(name)) is not Annotated:
            continue
        kind, info = get_args(hints[name])[:2]
        made = _made(name, *_kind(kind), info, parameter.default)
        (arguments if isinstance(info, ArgumentInfo) else options).append(made)
    return arguments, options


def _kind(hint: Any) -> tuple[Any, bool]:
    """The type of one value, and whether there may be several."""
    if get_origin(hint) in (Union, UnionType):
        (hint,) = (part for part in get_args(hint) if part is not type(None))
    several = get_origin(hint) is list
    return (get_args(hint)[0] if several else hint), several


def _made(
    name: str, kind: Any, several: bool, info: OptionInfo | ArgumentInfo, default: object
) -> _Parameter:
    value = info.metavar or _value(name, kind)
    words = _plain(info.help or "")
    shown = info.show_default
    if shown is True and default not in (None, False, inspect.Parameter.empty):
        shown = str(getattr(default, "value", default))
    if isinstance(shown, str) and shown:
        words += f" [{shown}]"
    if isinstance(info, ArgumentInfo):
        left = value if default is inspect.Parameter.empty else f"[{value}]"
        return _Parameter(f"{left}{_REPEATED if several else ''}", words, "", several)
    # In Annotated the first flag is where a default would be.
    typed = [flag for flag in (info.default, *(info.param_decls or ())) if isinstance(flag, str)]
    flags = ", ".join(sorted(typed or [f"--{name.replace('_', '-')}"], key=len))
    left = flags if kind is bool else f"{flags} {value}{_REPEATED if several else ''}"
    return _Parameter(left, words, info.rich_help_panel or _OTHERS, several)


def _value(name: str, kind: Any) -> str:
    if isinstance(kind, type) and issubclass(kind, enum.Enum):
        return "|".join(str(each.value) for each in kind)
    return "N" if kind is int else name.upper().replace("_", "-").removesuffix("S")


def _plain(text: str) -> str:
    return " ".join(_MARKUP.sub("", text).split())


def _beside(each: _Parameter, width: int) -> Iterator[str]:
    words = textwrap.wrap(each.words, max(20, width - _BESIDE), break_on_hyphens=False)
    left = f"  {each.left}"
    if len(left) > _BESIDE - 2 or not words:
        yield left
    else:
        yield f"{left:<{_BESIDE}}{words.pop(0)}"
    yield from (" " * _BESIDE + line for line in words)
