"""Which lanes a change can reach. Two of them boot or install whole systems: they run when it can."""

from __future__ import annotations

import fnmatch
import subprocess
from collections.abc import Iterable, Mapping
from pathlib import Path

import grimp

from harness.model import caches

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("harness", "tests", "bench")

_ROOMS = tuple(f"harness/{room}/*" for room in ("testbeds", "hosts", "storage", "protection", "network"))
_TESTS = ("tests/conftest.py", "tests/lanes/*", "tox.ini", ".ci/*")
_SYSTEMS = ("packages*.txt", "releases/*", "tools/*")

WATCHED: Mapping[str, tuple[str, ...]] = {
    "stock": (
        *(*_ROOMS, *_SYSTEMS, *_TESTS),
        *("tests/machines/*", "tests/lab/apart.sh", "docs/machines.md"),
    ),
    "bare": (*_ROOMS, *_SYSTEMS, *_TESTS, "tests/systems/test_bare.py", "Makefile", "pyproject.toml"),
}
"""Lanes that need not always run, and the files that they are about (fnmatch(3), where * matches / too). What
these files import counts as well."""


def reached_by(lane: str, changed: Iterable[str], graph: grimp.ImportGraph) -> str | None:
    """The first changed file that a watched lane is about; None if there is none."""
    imported = _imported(lane, graph)
    for path in changed:
        if _is_watched(lane, path):
            return path
        module = _module(path)
        # Who imported a module that has gone is not known any more.
        if module is not None and (module in imported or module not in graph.modules):
            return path
    return None


def _is_watched(lane: str, path: str) -> bool:
    return not path.endswith("/README.md") and any(
        fnmatch.fnmatchcase(path, pattern) for pattern in WATCHED[lane]
    )


def _module(path: str) -> str | None:
    """The name of a Python file's module; None for another file."""
    if not path.endswith(".py") or path.partition("/")[0] not in PACKAGES:
        return None
    return path.removesuffix(".py").removesuffix("/__init__").replace("/", ".")


def imports() -> grimp.ImportGraph:
    """What imports what, but for what ``import harness`` loads only when a program uses it."""
    graph = grimp.build_graph(*PACKAGES, cache_dir=None)
    graph.remove_import(importer="harness", imported="harness.api")
    return graph


def _imported(lane: str, graph: grimp.ImportGraph) -> set[str]:
    """The modules of a lane's files, and all that these import, with the packages that they are in."""
    todo = [name for name in graph.modules if _is_watched(lane, f"{name.replace('.', '/')}/x.py")]
    todo += [name for name in graph.modules if _is_watched(lane, f"{name.replace('.', '/')}.py")]
    found: set[str] = set()
    while todo:
        name = todo.pop()
        if name in found:
            continue
        found.add(name)
        todo += graph.find_modules_directly_imported_by(name)
        if "." in name:
            todo.append(name.rpartition(".")[0])
    return found


def why_not(lane: str) -> str | None:
    """Why a lane need not run, None if it has to."""
    if lane not in WATCHED or (commit := last_green(lane)) is None:
        return None
    changed = changed_since(commit)
    if changed is None:
        return None
    if changed and reached_by(lane, changed, imports()) is not None:
        return None
    return f"nothing that it is about has changed since {commit[:12]}, with which it was green"


def changed_since(commit: str) -> list[str] | None:
    """The files that differ from a commit's, new ones too; None if it is not in the clone's history."""
    if _git("merge-base", "--is-ancestor", commit, "HEAD") is None:
        return None
    differ, new = (
        _git("diff", "--name-only", "--no-renames", commit),
        _git("ls-files", "--others", "--exclude-standard"),
    )
    return None if differ is None or new is None else [*differ.splitlines(), *new.splitlines()]


def commit_of_clone() -> str:
    """The commit that is checked out; "" if files differ from it, or there is no git."""
    return "" if _git("status", "--porcelain") else (_git("rev-parse", "HEAD") or "").strip()


def _git(*words: str) -> str | None:
    """What git prints; None if it fails."""
    try:
        done = subprocess.run(
            ["git", "-c", "core.quotePath=false", *words],
            cwd=ROOT,
            capture_output=True,
            encoding="utf-8",
            check=False,
        )
    except OSError:
        return None
    return done.stdout if done.returncode == 0 else None


def folder() -> Path:
    """What is kept between runs of CI."""
    return caches.folder("ci")


def last_green(lane: str) -> str | None:
    """The commit with which a lane was green last."""
    try:
        return (folder() / "green" / lane).read_text(encoding="ascii").strip() or None
    except (OSError, ValueError):
        return None


def note_green(lane: str, commit: str) -> None:
    file = folder() / "green" / lane
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(f"{commit}\n", encoding="ascii")
