"""What the modules of the product name, say and import; each is read once for all tests that ask."""

from __future__ import annotations

import ast
import functools
from pathlib import Path
from typing import NamedTuple


class Source(NamedTuple):
    """A module. ``strings`` are those that are no docstring, with their lines; ``calls`` are of an attribute
    of a name, as in ``subprocess.run``."""

    strings: tuple[tuple[int, str], ...]
    names: tuple[str, ...]
    imports: tuple[str, ...]
    classes: tuple[str, ...]
    calls: tuple[str, ...]


def parse(text: str) -> Source:
    strings: list[tuple[int, str]] = []
    names, imports, classes, calls = [], [], [], []
    prose: set[ast.AST] = set()
    # An expression comes before the constant in it.
    for node in ast.walk(ast.parse(text)):
        match node:
            case ast.Expr():
                prose.add(node.value)
            case ast.Constant(value=str() as value) if node not in prose:
                strings.append((node.lineno, value))
            case ast.Name():
                names.append(node.id)
            case ast.Import():
                imports += [each.name for each in node.names]
            case ast.ImportFrom():
                imports += [f"{node.module or ''}.{each.name}" for each in node.names]
            case ast.ClassDef():
                classes.append(node.name)
            case ast.Call(func=ast.Attribute(value=ast.Name(id=owner), attr=name)):
                calls.append(f"{owner}.{name}")
    return Source(tuple(strings), tuple(names), tuple(imports), tuple(classes), tuple(calls))


@functools.cache
def read(file: Path) -> Source:
    return parse(file.read_text(encoding="utf-8"))
