"""Which changes of a module do its tests not notice? Mutation testing, with the operators of cosmic-ray.

    pip install cosmic-ray
    python tools/mutants.py harness/analysis/stats.py tests/unit/analysis/test_stats.py

Each mutant is tried in a fork, without a new interpreter: a second each. It prints those that survive, as
differences. Of the other operators that can stand at one place, two are tried. Annotations, imports, heads of
classes with their decorators, and ``strict`` of zip() are left as they are.
"""

from __future__ import annotations

import ast
import contextlib
import difflib
import importlib
import importlib.abc
import importlib.util
import os
import random
import re
import signal
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType

import parso
import pytest
from cosmic_ray.ast import ast_nodes
from cosmic_ray.mutating import mutate_code
from cosmic_ray.plugins import get_operator, operator_names

AT_ONE_PLACE = 2
PATIENCE = 8
"""A mutant that takes so many times as long as the module itself hangs: it is noticed."""


class Mutated(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Imports one module from a text that is not in its file."""

    def __init__(self, file: Path, text: str) -> None:
        self.file, self.text = file, text
        self.name = ".".join(file.with_suffix("").parts)

    def find_spec(self, fullname: str, *_: object) -> ModuleSpec | None:
        if fullname != self.name:
            return None
        return importlib.util.spec_from_loader(fullname, self, origin=str(self.file))

    def exec_module(self, module: ModuleType) -> None:
        module.__file__ = str(self.file.resolve())
        exec(compile(self.text, self.file, "exec"), module.__dict__)  # noqa: S102 -- what it is for


def mutants(text: str) -> Iterator[str]:
    """Texts with one change each, every one of which compiles."""
    kept, found, seen = set(_left_alone(ast.parse(text))), Counter[tuple[str, int, int]](), {text}
    # Those of variables want to be told which.
    names = sorted(name for name in operator_names() if not re.search("Decorator|Variable", name))
    # Which other operators are tried at a place should not depend on their names.
    random.Random(1).shuffle(names)  # noqa: S311 -- no secret
    for name in names:
        operator = get_operator(name)()
        places = [
            place for node in ast_nodes(parso.parse(text)) for place in operator.mutation_positions(node)
        ]
        for number, ((line, column), _) in enumerate(places):
            place = name.partition("_")[0], line, column
            if (line, column) in kept or ("_" in name and found[place] >= AT_ONE_PLACE):
                continue
            mutant = mutate_code(text, operator, number)
            if mutant is None or mutant in seen:
                continue
            seen.add(mutant)
            with contextlib.suppress(SyntaxError):
                compile(mutant, "mutant", "exec")
                found[place] += 1
                yield mutant


def _left_alone(tree: ast.Module) -> Iterator[tuple[int, int]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import | ast.ImportFrom):
            yield from _places(node)
        elif isinstance(node, ast.ClassDef):
            yield from ((node.lineno, column) for column in range(node.col_offset, 200))
            for decorator in node.decorator_list:
                yield from _places(decorator)
        elif isinstance(node, ast.keyword) and node.arg == "strict":
            yield from _places(node.value)
        elif isinstance(node, ast.AnnAssign | ast.arg) and node.annotation:
            yield from _places(node.annotation)
        elif isinstance(node, ast.FunctionDef) and node.returns:
            yield from _places(node.returns)


def _places(node: ast.stmt | ast.expr) -> Iterator[tuple[int, int]]:
    lines = range(node.lineno, (node.end_lineno or node.lineno) + 1)
    yield from ((line, column) for line in lines for column in range(node.col_offset, 200))


def passes(file: Path, text: str, tests: Sequence[str], patience_s: float) -> bool:
    """Whether the tests pass with this text of the module."""
    if not (child := os.fork()):
        os.setpgid(0, 0)
        for stream in range(3):
            os.dup2(os.open(os.devnull, os.O_RDWR), stream)
        status: int = 1
        with contextlib.suppress(BaseException):
            sys.meta_path.insert(0, Mutated(file, text))
            status = pytest.main(["-x", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", *tests])
        os._exit(status)
    end = time.monotonic() + patience_s
    while time.monotonic() < end:
        ended, status = os.waitpid(child, os.WNOHANG)
        if ended:
            return status == 0
        time.sleep(0.02)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return False


def main(file: Path, tests: Sequence[str]) -> int:
    text = file.read_text(encoding="utf-8")
    begun = time.monotonic()
    if not passes(file, text, tests, patience_s=600):
        sys.stderr.write(f"expected the tests to pass with {file} as it is, but they fail\n")
        return 2
    patience_s = max(20.0, PATIENCE * (time.monotonic() - begun))
    tried = survived = 0
    for mutant in mutants(text):
        tried += 1
        if passes(file, mutant, tests, patience_s):
            survived += 1
            change = difflib.unified_diff(text.splitlines(), mutant.splitlines(), lineterm="", n=0)
            print("", *list(change)[2:], sep="\n", flush=True)
    print(f"\n{file}: {survived} of {tried} mutants survive")
    return int(survived > 0)


if __name__ == "__main__":
    sys.path.insert(0, str(Path.cwd()))
    sys.exit(main(Path(sys.argv[1]), sys.argv[2:]))
