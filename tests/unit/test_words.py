"""The words are the glossary's: none that it rules out is in a message, an option or a key, and none has two
meanings.
"""

from __future__ import annotations

import ast
import json
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
import typer.main

from harness.cli import app
from harness.planning.probe_plan import ProbeRequest
from harness.planning.request import RunRequest
from harness.table.export import COLUMNS
from tests.unit import sources

PROJECT = Path(__file__).parents[2]
HARNESS = PROJECT / "harness"
GLOSSARY = (PROJECT / "docs" / "glossary.md").read_text(encoding="utf-8")
ROWS = re.compile(r"^\| (?:\*\*)?([^|*`]+?)(?:\*\*)?(?:, or \*\*([^*]+)\*\*)? \|", re.MULTILINE)
DEFINED, RULED_OUT = (
    [word for row in ROWS.findall(part) for word in row if word and not set(word) <= {"-"}]
    for part in GLOSSARY.split("## Words that are not used")
)
NOT_USED = [word for word in RULED_OUT if word not in ("not", "name")]
NAMES = set(re.findall(r"`(\w+)`", " ".join(re.findall(r"^\| (`[^|]+`) \|", GLOSSARY, re.MULTILINE))))
"""Ruled out as a class, a constant or a key, since each is also a word of the language."""

MEANT_BY_OTHERS = (
    'losses "beside the local disk", which is memory',  # of an earlier version, quoted
    '"no difference shown" of cells of which',  # the same
    "xen oracle qemu",  # makers of hypervisors
    "write_barrier",  # an option of fio
)

SEVERAL_TYPES = {
    *("cells", "direction", "disk", "hops", "initiators", "ip", "kind", "links"),
    *("proof", "round_trips", "time_ns", "type", "workload"),
    *("a", "b", "metric", "reference", "verdict"),
}
"""Keys of one thing in several shapes: its name or the whole, how many or which, with its range or alone, of
cells or of probes, measured or published by others."""


WORD = re.compile(rf"(?<![a-z])(?:{'|'.join(map(re.escape, NOT_USED))})(?![a-z])", re.IGNORECASE)


def commands(command: Any, name: str) -> Iterator[tuple[str, Any]]:
    command = getattr(command, "real", command)  # its module is imported when it is typed
    yield name, command
    for inner, each in getattr(command, "commands", {}).items():
        yield from commands(each, f"{name} {inner}")


COMMANDS = dict(commands(typer.main.get_command(app), "harness"))


def keys(schema: Any) -> Iterator[str]:
    if isinstance(schema, dict):
        yield from schema.get("properties", {})
        for each in schema.values():
            yield from keys(each)
    elif isinstance(schema, list):
        for each in schema:
            yield from keys(each)


FILES = sorted((PROJECT / "docs" / "schemas").glob("*.json"))
SCHEMAS = {file.stem: json.loads(file.read_text(encoding="utf-8")) for file in FILES}


def repeated(words: Iterable[str]) -> list[str]:
    return [word for word, times in Counter(words).items() if times > 1]


def test_the_glossary_defines_each_word_once_and_two_classes_have_no_name_in_common() -> None:
    assert {"target", "cleartext canary", "positive control", "telemetry"} <= set(DEFINED)
    assert {"beside", "told", "standing lab", "nexus", "leads_out"} <= set(NOT_USED)
    assert {"Reading", "alone_mb_s", "Others"} <= NAMES and len(NAMES) > 20
    found = [bool(WORD.search(text)) for text in ("it is told", "is_labs_own", "besides, a stronghold")]
    assert found == [True, True, False]
    assert repeated(DEFINED) == ["word"], "the heading of each of its tables"
    assert not set(DEFINED) & set(NOT_USED)
    assert repeated(name for file in HARNESS.rglob("*.py") for name in sources.read(file).classes) == []


PACKAGES = sorted(path.name for path in HARNESS.iterdir() if path.is_dir() and path.name != "__pycache__")
OLD_NAMES = {HARNESS / "results" / "upgrade.py", HARNESS / "model" / "renamed.py"}
"""They read what earlier versions wrote, and what their users type."""


@pytest.mark.parametrize("package", PACKAGES)
def test_messages_have_no_such_word(package: str) -> None:
    files = sorted({*(HARNESS / package).rglob("*.py")} - OLD_NAMES)
    found = [
        f"{file.relative_to(PROJECT)}:{line}: {text[:80]}"
        for file in files
        for line, text in sources.read(file).strings
        if WORD.search(text) and not any(each in text for each in MEANT_BY_OTHERS)
    ]
    assert found == []


ADJECTIVE = "unseen"  # names of code may have it
SPLIT = {tuple(re.split(r"[ _-]", word.lower())) for word in NOT_USED if word != ADJECTIVE}


def parts(name: str) -> tuple[str, ...]:
    """The words of a name: those of ``await_calm``, ``AwaitCalm`` and ``AWAIT_CALM`` are alike."""
    words = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower().split("_")
    return tuple(word for word in words if word)


def is_ruled_out(name: str) -> bool:
    found = parts(name)
    plain = tuple(re.sub(r"(?<=[a-z])e?s$", "", word) for word in found)
    return (name in NAMES and (name != name.lower() or "_" in name)) or any(
        words[place : place + len(old)] == old
        for old in SPLIT
        for words in (found, plain)
        for place in range(len(words))
    )


def names(file: Path) -> Iterator[str]:
    """What a module defines: itself, classes, functions, their parameters, variables and fields."""
    yield file.stem
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        match node:
            case ast.ClassDef(name=name) | ast.FunctionDef(name=name) | ast.arg(arg=name):
                yield name
            case ast.Name(id=name, ctx=ast.Store()) | ast.Attribute(attr=name, ctx=ast.Store()):
                yield name


@pytest.mark.parametrize("package", PACKAGES)
def test_names_of_code_have_no_such_word(package: str) -> None:
    files = sorted({*(HARNESS / package).rglob("*.py")} - OLD_NAMES)
    found = {
        f"{file.relative_to(PROJECT)}: {name}" for file in files for name in names(file) if is_ruled_out(name)
    }
    assert sorted(found) == []


def test_an_old_name_is_found_in_each_spelling() -> None:
    old = (
        "nexus",
        "Nexuses",
        "BaitSeen",
        "_witnesses",
        "await_calm",
        "ALONE",
        "Whose",
        "is_as_found",
        "StandingLab",
    )
    assert [name for name in old if not is_ruled_out(name)] == []
    assert [
        name for name in ("alone", "baited_s", "reading", "whose", "roomy", "kept") if is_ruled_out(name)
    ] == []


@pytest.mark.parametrize("name", COMMANDS)
def test_options_and_their_help_have_no_such_word(name: str) -> None:
    command = COMMANDS[name]
    words = [command.help or "", command.epilog or ""]
    for each in command.params:
        words += [*each.opts, *each.secondary_opts, getattr(each, "help", None) or "", each.metavar or ""]
    assert [text for text in words if WORD.search(text)] == []


def test_keys_of_json_options_in_files_and_columns_of_exports_have_no_such_word() -> None:
    names = {*RunRequest.__struct_fields__, *ProbeRequest.__struct_fields__, *COLUMNS}
    for of, found in {
        "options and columns": names,
        **{name: set(keys(SCHEMAS[name])) for name in SCHEMAS},
    }.items():
        assert (
            found and [key for key in found if WORD.search(key) or key in NAMES or is_ruled_out(key)] == []
        ), of


def shape(schema: dict[str, Any]) -> str:
    """What a key holds, in a word: numbers are alike, and so are a value and the same or null."""
    if "$ref" in schema:
        return str(schema["$ref"])
    if "anyOf" in schema:
        return "|".join(sorted({shape(each) for each in schema["anyOf"]} - {"null"}))
    if "enum" in schema:
        return f"one of {schema['enum']}"
    kind = schema.get("type")
    if kind == "array":
        items = schema.get("items", {})
        return f"array of {shape(items) if items else 'several'}"
    return "number" if kind in ("integer", "number") else str(kind)


def test_a_key_has_one_type_unless_it_is_one_thing_in_several_shapes() -> None:
    found: dict[str, set[str]] = defaultdict(set)
    # What tools printed has their words.
    for schema in (each for name, each in SCHEMAS.items() if not name.startswith("parse-")):
        for definition in schema["$defs"].values():
            # The rows of flat tables have names and texts of what records have whole.
            is_flat = definition["title"] in ("ExportRow", "PrintedRow")
            for key, each in ({} if is_flat else definition.get("properties", {})).items():
                found[key].add(shape(each))
    several = {key for key, shapes in found.items() if len(shapes) > 1}
    questions = {file.parent.name for file in (HARNESS / "questions").glob("*/README.md")}
    assert several - questions == SEVERAL_TYPES
