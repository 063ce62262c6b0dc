"""The published JSON Schemas are those of the types, and what is stored and printed is as they say."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest
import typer

from harness.cli import app
from harness.cli.compare import NOT_JUDGED
from harness.cli.parse import PARSERS
from harness.model import SCHEMA_VERSION
from harness.model.probing import View
from harness.parse.listed import LISTS
from harness.questions import questions
from harness.results import upgrade
from tests.unit.command import harness
from tools import schemas

FIGURES = Path(__file__).parents[2] / "docs" / "figures"
DATA = FIGURES.parents[1] / "tests" / "data"
STORED: dict[str, tuple[str, upgrade.FileKind]] = {
    "record": ("cells/*.json", "record"),
    "probe-record": ("probes/*.json", "probe"),
    "plan": ("plan.json", "plan"),
}
"""Of each schema its files in a run's folder, and what the upgrade calls them."""

VIEWS = {
    "link": "make-run",
    "pppoe": "make-run",
    "openflow": "make-run",
    "pps": "packet-rate",
    "udp-latency": "switches",
    "scale": "scale-virtual",
    "counters": "protections",
}
"""Of each view a run that it shows."""

PRINTED = {
    "table": "table make-run --reference iscsi-ipsec",
    "compare": "compare ladder protections",
    "explain": "explain make-run",
    "explain-reference": "explain --reference iscsi-ipsec",
    "what-if": "explain ladder --what-if 2x",
    **{f"list {kind}": f"list {kind}" for kind in LISTS},
    **{f"view {view}": f"table --view {view} {run}" for view, run in VIEWS.items()},
    **{name: made.command for question in questions() for name, made in question.schemas().items()},
}
"""Of each schema a command that prints it; of ``view`` and ``list`` one for each."""


def strict(name: str) -> jsonschema_rs.Draft202012Validator:
    """A validator to which a field that the schema does not name is an error."""
    schema = schemas.schema(name)
    for definition in schema["$defs"].values():
        if "properties" in definition:
            definition["additionalProperties"] = False
    jsonschema_rs.meta.validate(schema)
    return jsonschema_rs.Draft202012Validator(schema)


def printed(name: str, *words: str) -> Any:
    """What a command prints as JSON, which is as ``name`` is published."""
    done = harness(*words, "--format", "json", cwd=FIGURES)
    assert done.returncode in (0, NOT_JUDGED), done.stderr
    found = json.loads(done.stdout)
    strict(name).validate(found)
    return found


def test_what_is_published_is_made_from_the_types_with_their_docstrings_and_a_page_has_all_their_fields() -> (
    None
):
    assert not schemas.differing(), "python -m tools.schemas --write makes them anew"
    fields = schemas.schema("record")["$defs"]["Record"]["properties"]
    assert fields["wifi"]["description"] == "`wifi` is the association before, during and after."
    assert "null" in fields["telemetry"]["description"] and "description" not in fields["run_id"]
    assert "<!-- fields -->" in (FIGURES.parent / "results.md").read_text(encoding="utf-8")
    tables = {part.partition("\n")[0]: part for part in schemas.tables().split("\n### ")}
    for name in schemas.TYPES:
        for each, reported in schemas.schema(name)["$defs"].items():
            assert all(f"| `{field}` |" in tables[each] for field in reported.get("properties", ())), each
    assert "[Latency](#fields-latency) |" in tables["Io"]
    assert "| `status` | `failed`, `invalid`, `ok`, `skipped` |" in tables["Record"]


@pytest.mark.parametrize("name", STORED)
def test_what_is_stored_is_as_published_once_it_is_of_this_version(name: str) -> None:
    validator, (files, kind) = strict(name), STORED[name]
    of_version = {}
    for file in (file for at in (FIGURES, DATA) for file in sorted(at.rglob(files))):
        found = json.loads(file.read_bytes())
        of_version[found["schema"]] = {**found}
        validator.validate(upgrade.upgraded(kind, found, found["schema"], SCHEMA_VERSION))
    assert of_version.keys() >= {1, 2} and len(of_version) >= 3
    # A file of another version is not as published, and each schema says of which it is.
    assert f"with `schema` {SCHEMA_VERSION};" in schemas.schema(name)["title"]
    assert not validator.is_valid(of_version[2])


def with_formats(command: Any, *words: str) -> Iterator[tuple[str, list[str]]]:
    """Each command that prints JSON if it is told to, with what its options say of it."""
    command = getattr(command, "real", command)
    for name, each in getattr(command, "commands", {}).items():
        yield from with_formats(each, *words, name)
    said = [str(getattr(each, "help", "")) for each in command.params]
    if found := [each for each in said if re.search(r"\bjsonl?\b", each)]:
        yield " ".join(words), found


def test_each_command_that_prints_json_has_a_schema_and_so_has_each_view() -> None:
    found = {name for name, _ in with_formats(typer.main.get_command(app))}
    titles = [title for _, title in schemas.TYPES.values()]
    assert found >= {"table", "compare", "explain", "export"}
    lacking = {name for name in found if not any(f"`harness {name} " in title for title in titles)}
    assert not lacking, "add the type of what they print to tools/schemas.py, and a command to PRINTED"
    of_files = STORED.keys() | {"export"} | {name for name in schemas.TYPES if name.startswith("parse-")}
    assert {name.partition(" ")[0] for name in PRINTED} == schemas.TYPES.keys() - of_files
    assert VIEWS.keys() == {*View}


@pytest.mark.parametrize("name", PRINTED)
def test_what_each_command_prints_is_as_published(name: str) -> None:
    schema, _, view = name.partition(" ")
    found = printed(schema, *PRINTED[name].split())
    assert any(map(found.get, ("cells", "rows", "figures", "kinds", "items")))
    assert found.get("view", view) == view
    if view and schema == "view":
        about = schemas.schema("view")["$defs"]["PrintedRow"]["properties"]["values"]["description"]
        names = about.partition(f"`values` of {view}: ")[2]
        assert {key for row in found["rows"] for key in row["values"]} <= set(
            re.findall(r"\w+", names.partition("`values`")[0])
        )


@pytest.mark.parametrize("tool", sorted(PARSERS))
def test_so_is_what_is_parsed(tool: str) -> None:
    schema = {"hping3": "parse-ping", "iperf2": "parse-iperf", "iperf3": "parse-iperf"}.get(
        tool, f"parse-{tool}"
    )
    assert f"`harness parse {tool}`" in schemas.TYPES[schema][1]
    validator, parsed = strict(schema), 0
    for file in sorted((DATA / "outputs" / tool).iterdir()):
        done = harness("parse", tool, str(file), cwd=FIGURES)
        if done.returncode == 0:
            validator.validate(json.loads(done.stdout))
            parsed += 1
    assert parsed > 1


def test_so_is_each_exported_line() -> None:
    validator = strict("export")
    done = harness("export", "make-run", "--format", "jsonl", cwd=FIGURES)
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    assert {row["status"] for row in rows} == {"ok"}
    for row in rows:
        validator.validate(row)


@pytest.mark.parametrize("name", ["make-run", "protections", "iscsi-ipsec-virtual", "scale-virtual"])
@pytest.mark.parametrize("command", ["table", "explain"])
def test_what_is_printed_is_as_published(command: str, name: str) -> None:
    printed(command, command, str(FIGURES / name))


def test_a_field_that_is_missing_is_found_and_figures_are_there() -> None:
    found = printed("table", "table", "make-run", "--reference", "iscsi-ipsec")
    assert found["reference"]["cells"]
    del found["cells"][0]["unit"]
    with pytest.raises(jsonschema_rs.ValidationError, match='"unit" is a required property'):
        strict("table").validate(found)
    found = printed("what-if", "explain", "ladder", "--what-if", "2x")
    assert found["predicted"] and found["cells"]
