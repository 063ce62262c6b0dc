"""The published JSON Schemas are those of the types, and what is stored and printed is as they say."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import jsonschema_rs
import msgspec
import pytest

from harness.results import store
from tests.unit.command import harness
from tools import schemas

FIGURES = Path(__file__).parents[2] / "docs" / "figures"
PUBLIC = FIGURES.parents[1] / "profiles" / "references" / "public"
STORED: dict[str, Callable[[], Iterable[Any]]] = {
    "record": lambda: store.open_results([FIGURES]),
    "probe-record": lambda: store.open_probes([FIGURES]),
    "plan": lambda: store.open_plans([FIGURES]).values(),
}


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
    assert done.returncode == 0, done.stderr
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
def test_what_is_stored_is_as_published(name: str) -> None:
    validator, found = strict(name), list(STORED[name]())
    assert found
    for each in found:
        validator.validate(json.loads(msgspec.json.encode(each)))


@pytest.mark.parametrize("name", ["make-run", "protections", "document-003-virtual", "scale-virtual"])
@pytest.mark.parametrize("command", ["table", "explain"])
def test_what_is_printed_is_as_published(command: str, name: str) -> None:
    printed(command, command, str(FIGURES / name))


def test_so_is_what_was_published_by_others_or_not_measured() -> None:
    found = printed("table", "table", str(FIGURES / "make-run"), "--reference", "document-003")
    assert found["reference"]["cells"]
    del found["cells"][0]["unit"]
    with pytest.raises(jsonschema_rs.ValidationError, match='"unit" is a required property'):
        strict("table").validate(found)
    found = printed("predict", "predict", "--machine", "lab-debian")
    assert found["predicted"] is True and len(found["cells"]) == 40
    found = printed("predict-score", "predict", "--score")
    assert {each["limits"]: each["cells"] for each in found["kinds"]}["all"] > 200 and found["worst"]
    for words in (f"explain {FIGURES}/ladder --what-if 2x", "predict --machine lab-own --what-if cipher=2x"):
        found = printed("what-if", *words.split())
        assert found["predicted"] and found["cells"], words
    assert printed("explain-figures", "explain", "--figures", str(PUBLIC / "libreswan-252.toml"))["figures"]
