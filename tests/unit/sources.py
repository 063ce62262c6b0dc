"""What the modules of the product name, say and import; each is read once for all tests that ask."""

from __future__ import annotations

import ast
import functools
from pathlib import Path
from typing import NamedTuple


class Source(NamedTuple):
    """A module. ``strings`` are those that are no docstring, with their lines; ``calls`` are of an attribute
    of a name, as in ``subprocess.run``."""

    strings: list[tuple[int, str]]
    names: list[str]
    imports: list[str]
    classes: list[str]
    calls: list[str]


def parse(text: str) -> Source:
    found, prose = Source([], [], [], [], []), set[ast.AST]()
    # An expression comes before the constant in it.
    for node in ast.walk(ast.parse(text)):
        match node:
            case ast.Expr():
                prose.add(node.value)
            case ast.Constant(value=str() as value) if node not in prose:
                found.strings.append((node.lineno, value))
            case ast.Name():
                found.names.append(node.id)
            case ast.Import():
                found.imports.extend(each.name for each in node.names)
            case ast.ImportFrom():
                found.imports.extend(f"{node.module or ''}.{each.name}" for each in node.names)
            case ast.ClassDef():
                found.classes.append(node.name)
            case ast.Call(func=ast.Attribute(value=ast.Name(id=owner), attr=name)):
                found.calls.append(f"{owner}.{name}")
    return found


@functools.cache
def read(file: Path) -> Source:
    return parse(file.read_text(encoding="utf-8"))
