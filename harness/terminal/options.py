"""The options of a command, from the struct that declares them (``planning.request``)."""

from __future__ import annotations

import inspect
import shlex
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Annotated, Any, TypeVar, get_args, get_origin, get_type_hints

import msgspec
import typer

from harness.model.choices import offering
from harness.planning.request import PANELS, Option

Command = TypeVar("Command", bound=Callable[..., None])


def taking(
    request: type[msgspec.Struct],
    only: Collection[str] | None = None,
    hidden: Collection[str] = (),
) -> Callable[[Command], Command]:
    """Make a command take the options that ``request`` declares, before its own.

    It gets them as keywords: None for options that were not typed, a list for repeatable ones. With ``only``
    it takes those of these fields. Those that are ``hidden`` it refuses in a sentence, and its help does not
    list them.
    """
    defaults = {field.name: field.default for field in msgspec.structs.fields(request)}

    def decorated(command: Command) -> Command:
        declarations = [
            _parameter(
                *field,
                defaults[field[0]],
                getattr(request, "shown_defaults", {}).get(field[0]),
                is_hidden=field[0] in hidden,
            )
            for field in _fields(request)
            if only is None or field[0] in only
        ]
        own = inspect.signature(command, eval_str=True)
        more = [each for each in own.parameters.values() if each.kind is not inspect.Parameter.VAR_KEYWORD]
        return _with_parameters(command, [*declarations, *more])

    return decorated


def adding(more: Mapping[str, Any]) -> Callable[[Command], Command]:
    """Make a command take further options behind its own, by name and annotation; it gets them as keywords,
    None where they were not typed."""

    def decorated(command: Command) -> Command:
        own = inspect.signature(command, eval_str=True).parameters.values()
        kept = [each for each in own if each.kind is not inspect.Parameter.VAR_KEYWORD]
        keyword = inspect.Parameter.KEYWORD_ONLY
        kept += [inspect.Parameter(name, keyword, default=None, annotation=of) for name, of in more.items()]
        return _with_parameters(command, kept)

    return decorated


def _with_parameters(command: Command, found: Sequence[inspect.Parameter]) -> Command:
    """What typer reads of a command."""
    command.__signature__ = inspect.Signature(found)  # type: ignore[attr-defined]
    command.__annotations__ = {each.name: each.annotation for each in found}
    return command


def given(typed: Mapping[str, object]) -> dict[str, Any]:
    """The typed options, as the fields of a request."""
    return {name: tuple(v) if isinstance(v, list) else v for name, v in typed.items() if v is not None}


def touching_real_hardware(request: msgspec.Struct) -> list[tuple[str, str]]:
    """The typed options that reach outside the lab, each with its value."""
    return [(flag, value) for flag, value, option in _typed(request) if option.touches_real_hardware]


def as_typed(request: msgspec.Struct) -> str:
    """The options of ``request`` for a shell, each after a blank; empty if all are at their defaults."""
    flags = ((flag,) if value == str(True) else (flag, value) for flag, value, _ in _typed(request))
    return "".join(f" {shlex.join(words)}" for words in flags)


def _typed(request: msgspec.Struct) -> Iterator[tuple[str, str, Option]]:
    defaults = type(request)()
    for name, _, option in _fields(type(request)):
        value = getattr(request, name)
        if value != getattr(defaults, name):
            for each in value if isinstance(value, tuple) else (value,):
                yield _flag(name, option), str(each), option


def that_touch_real_hardware(request: type[msgspec.Struct]) -> set[str]:
    """The fields whose options reach outside the lab."""
    return {name for name, _, option in _fields(request) if option.touches_real_hardware}


def _flag(name: str, option: Option) -> str:
    return option.flag or f"--{name.replace('_', '-')}"


def _fields(request: type[msgspec.Struct]) -> Iterator[tuple[str, Any, Option]]:
    """Name, type and declaration of each field that is typed, in the order of ``PANELS``."""
    plain = get_type_hints(request)
    # A derived request may give a field another default, without declaring the option again.
    declared = {
        name: get_args(hint)[-1]
        for base in reversed(request.__mro__)
        for name, hint in get_type_hints(base, include_extras=True).items()
        if get_origin(hint) is Annotated
    }
    found = [(name, plain[name], option) for name, option in declared.items() if isinstance(option, Option)]
    yield from sorted(found, key=lambda field: PANELS.index(field[2].panel))


def _parameter(
    name: str, kind: Any, option: Option, default: object, shown: str | None, *, is_hidden: bool
) -> inspect.Parameter:
    # A tuple is for a repeatable option.
    is_repeatable = get_origin(kind) is tuple
    kind = list[get_args(kind)[0]] if is_repeatable else kind  # type: ignore[misc]
    shown = shown or option.default
    if shown is None and default not in (None, (), False):
        shown = str(default)
    flag = _flag(name, option)
    metavar = option.metavar
    if metavar is None and kind == list[str]:
        metavar = flag[2:].upper()
    info = typer.Option(
        flag,
        help=f"{option.help} [{shown}]" if shown else option.help,
        metavar=f"{metavar}…" if metavar and is_repeatable else metavar,
        show_default=False,
        hidden=is_hidden,
        rich_help_panel=option.panel,
        autocompletion=offering(option.known) if option.known else None,
    )
    return inspect.Parameter(
        name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=Annotated[kind | None, info]
    )
