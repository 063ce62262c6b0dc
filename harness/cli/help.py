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
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from types import UnionType
from typing import Annotated, Any, Union, get_args, get_origin, get_type_hints

from typer.core import TyperCommand
from typer.models import ArgumentInfo, OptionInfo

WIDEST = 100
"""Longer lines are hard to read."""

_BESIDE = 24
"""Where the words of an option begin; a longer one has a line of its own."""

_COMMANDS = 13
"""The same for a command."""

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
        told = [*lines(inspect.unwrap(self.callback), ctx.command_path, width, self.help or "")]
        if self.epilog:
            told += ["", "Examples:", *(f"  {line}" for line in self.epilog.splitlines())]
        formatter.write("\n".join(told) + "\n")


@dataclass(frozen=True)
class Parameter:
    """``left`` is what is typed, ``words`` what it does."""

    left: str
    words: str
    group: str
    is_repeatable: bool

    @property
    def flags(self) -> list[str]:
        """All that an option is typed as."""
        typed = (word.rstrip(",") for word in self.left.split())
        return [flag for word in typed if word.startswith("-") for flag in word.split("/")]

    @property
    def value(self) -> str:
        """What follows an option, as it is shown; empty for a switch."""
        last = self.left.split()[-1]
        return "" if last.startswith("-") else last.removesuffix(_REPEATED)


def lines(command: Callable[..., object], name: str, width: int, words: str) -> Iterator[str]:
    """The help of a command's function, in lines of ``width`` characters where its options allow it.

    ``words`` are what it does.
    """
    arguments, options = parameters(command)
    yield " ".join(("Usage:", name, *(["[OPTIONS]"] if options else []), *(each.left for each in arguments)))
    for paragraph in inspect.cleandoc(words).split("\n\n"):
        yield ""
        yield from textwrap.wrap(plain(paragraph), width)
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


def of_group(name: str, words: str, commands: Mapping[str, str], epilog: str) -> Iterator[str]:
    """The help of a group: what it is for, and its commands with what they do."""
    width = min(shutil.get_terminal_size().columns, WIDEST)
    yield f"Usage: {name} COMMAND [OPTIONS]"
    for paragraph in inspect.cleandoc(words).split("\n\n"):
        yield ""
        yield from textwrap.wrap(plain(paragraph), width)
    yield from ("", "Commands:")
    for command, does in commands.items():
        yield from _beside(Parameter(command, plain(does.partition("\n\n")[0]), "", False), width, _COMMANDS)
    if epilog:
        examples, _, rest = epilog.partition("\n\n")
        yield from ("", "Examples:", *(f"  {line}" for line in examples.splitlines()))
        yield from ("", *rest.splitlines())


def parameters(command: Callable[..., object]) -> tuple[list[Parameter], list[Parameter]]:
    """The arguments and the options of a command's function."""
    command = inspect.unwrap(command)
    arguments: list[Parameter] = []
    options: list[Parameter] = []
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


def _made(name: str, kind: Any, several: bool, info: OptionInfo | ArgumentInfo, default: object) -> Parameter:
    value = info.metavar or _value(name, kind)
    words = plain(info.help or "")
    shown = info.show_default
    if shown is True and default not in (None, False, inspect.Parameter.empty):
        shown = str(getattr(default, "value", default))
    if isinstance(shown, str) and shown:
        words += f" [{shown}]"
    if isinstance(info, ArgumentInfo):
        left = value if default is inspect.Parameter.empty else f"[{value}]"
        return Parameter(f"{left}{_REPEATED if several else ''}", words, "", several)
    # In Annotated the first flag is where a default would be.
    typed = [flag for flag in (info.default, *(info.param_decls or ())) if isinstance(flag, str)]
    flags = ", ".join(sorted(typed or [f"--{name.replace('_', '-')}"], key=len))
    left = flags if kind is bool else f"{flags} {value}{_REPEATED if several else ''}"
    return Parameter(left, words, info.rich_help_panel or _OTHERS, several)


def _value(name: str, kind: Any) -> str:
    if isinstance(kind, type) and issubclass(kind, enum.Enum):
        return "|".join(str(each.value) for each in kind)
    return "N" if kind is int else name.upper().replace("_", "-").removesuffix("S")


def plain(text: str) -> str:
    """On one line, without markup."""
    return " ".join(_MARKUP.sub("", text).split())


def _beside(each: Parameter, width: int, beside: int = _BESIDE) -> Iterator[str]:
    words = textwrap.wrap(each.words, max(20, width - beside), break_on_hyphens=False)
    left = f"  {each.left}"
    if len(left) > beside - 2 or not words:
        yield left
    else:
        yield f"{left:<{beside}}{words.pop(0)}"
    yield from (" " * beside + line for line in words)
