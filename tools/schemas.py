"""JSON Schemas of what the harness writes and prints, made from its types.

    python tools/schemas.py            # exits 1 if one in docs/schemas/ is another
    python tools/schemas.py --write    # makes them anew: after each change of a type

What a field means is said where its type's docstring names it. ``tables`` makes a page of the same.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

import msgspec
from msgspec import structs

from harness.explain.printed import PrintedVerdicts
from harness.explain.published import Published
from harness.explain.what_if import PrintedWhatIf
from harness.model import SCHEMA_VERSION, Io, Latency, Plan, Record
from harness.parse import fio
from harness.parse.echo import EchoOutput
from harness.parse.iperf import IperfOutput
from harness.parse.listed import PrintedList
from harness.questions import questions
from harness.results import sections
from harness.results.probe_records import ProbeRecord
from harness.table.export import EXPORTED, ROW
from harness.table.printed import PrintedComparison, PrintedTable, PrintedView

FOLDER = Path(__file__).parents[1] / "docs" / "schemas"

STORED = f", with `schema` {SCHEMA_VERSION}; the harness reads older files as such"


def _parsed_fio() -> type:
    """What ``fio.as_json`` makes of fio's jobs: the same fields, with those of latencies in their place."""

    def fields(of: type[msgspec.Struct], *without: str, prefix: str = "") -> list[tuple[str, Any]]:
        return [
            (f"{prefix}{each.name}", each.type) for each in structs.fields(of) if each.name not in without
        ]

    latency = fields(Latency, "percentiles", prefix="latency_")
    rates = [("bytes_per_s", float), ("iops", float)]
    io = cast(Any, msgspec.defstruct("ParsedIo", [*rates, *fields(Io, "latency"), *latency]))
    sync = cast(Any, msgspec.defstruct("ParsedSync", latency))
    moved = ("read", "write", "trim")
    job = fields(fio.FioJob, *moved, "sync_latency", "read_bins", "write_bins")
    job += [*((name, io | None) for name in moved), ("sync", sync | None)]
    jobs = ("jobs", list[msgspec.defstruct("ParsedJob", job)])  # type: ignore[misc]
    return msgspec.defstruct("ParsedFio", [*fields(fio.FioOutput, "jobs", "disks"), jobs])


TYPES: Mapping[str, tuple[Any, str]] = {
    "record": (Record, f"One cell and repeat of a run: cells/KEY.json{STORED}"),
    "probe-record": (ProbeRecord, f"One probe of one path: probes/KEY.json{STORED}"),
    "plan": (Plan, f"All that a run was to measure: plan.json{STORED}"),
    "table": (PrintedTable, "What `harness table --format json` prints"),
    "view": (PrintedView, "What `harness table --view VIEW --format json` prints"),
    "compare": (PrintedComparison, "What `harness compare --format json` prints"),
    "explain": (PrintedVerdicts, "What `harness explain --format json` prints"),
    "explain-reference": (Published, "What `harness explain --reference NAME --format json` prints"),
    "what-if": (PrintedWhatIf, "What --what-if --format json prints"),
    "parse-fio": (_parsed_fio(), "What `harness parse fio` prints"),
    "parse-ping": (EchoOutput, "What `harness parse ping` and `harness parse hping3` print"),
    "parse-iperf": (IperfOutput, "What `harness parse iperf3` and `harness parse iperf2` print"),
    "list": (PrintedList, "What `harness list WHAT --format json` prints"),
    "export": (
        msgspec.defstruct(
            "ExportRow",
            [(each.name, cast(Any, each.kind) | None) for each in EXPORTED],
            namespace={"__doc__": ROW},
        ),
        "A line of what `harness export --format jsonl` prints",
    ),
    **{name: made[:2] for question in questions() for name, made in question.schemas().items()},
}
"""By name: the type of the whole document, and its title."""


def schema(name: str) -> dict[str, Any]:
    """As JSON Schema 2020-12. Later versions may print more fields, so none of them is forbidden."""
    made, title = TYPES[name]
    found = msgspec.json.schema(made)
    if made is Plan:
        found["$defs"] |= _sections(found["$defs"]["Plan"]["properties"]["sections"])
    if made is PrintedVerdicts:
        types = filter(None, (each.finds() for each in sections.known().values()))
        items, more = msgspec.json.schema_components([*types])
        found["$defs"] |= more
        found["$defs"]["PrintedVerdicts"]["properties"]["tried"]["items"] = (
            {"anyOf": [*items]} if items else {}
        )
    is_stored = made in (Plan, Record, ProbeRecord)
    for definition in found.get("$defs", {}).values():
        if not is_stored:
            definition.pop("additionalProperties", None)  # of a type that is also read from a file
        if "description" in definition:
            said = definition["description"] = _for_json(definition["description"])
            for field, about in definition.get("properties", {}).items():
                if meaning := [each for each in _SENTENCE.split(said) if f"`{field}`" in each]:
                    about["description"] = " ".join(meaning)
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": title,
        **_portable(found, is_stored=is_stored),
    }


def _sections(about: dict[str, Any]) -> dict[str, Any]:
    """Say in a plan's sections which there are. Returns their types, by name."""
    known = sections.known()
    components = msgspec.json.schema_components(each.holds for each in known.values())
    about["properties"] = dict(zip(known, components[0], strict=True))
    about["additionalProperties"] = {"type": "object"}
    return components[1]


_SENTENCE = re.compile(r"(?<=\.) (?=[A-Z`])")


def _for_json(docstring: str) -> str:
    """For readers of JSON, who know no None."""
    return re.sub(r"\bNone\b", "null", " ".join(docstring.replace("``", "`").split()))


def _portable(found: Any, *, is_stored: bool) -> Any:
    """The same with patterns that not only Python knows: ECMA 262 has no such end of a text. What is printed
    has none: of others' outputs of fio it has their files' names."""
    if isinstance(found, list):
        return [_portable(each, is_stored=is_stored) for each in found]
    if not isinstance(found, dict):
        return found
    # Since 0.23, msgspec also says of which enumeration the keys of an object are.
    is_new = "$ref" in (found.get("propertyNames") or {})
    kept = {key: each for key, each in found.items() if not (is_new and key == "propertyNames")}
    made = {key: _portable(each, is_stored=is_stored) for key, each in kept.items()}
    pattern = made.get("pattern")  # or a field of this name
    if not isinstance(pattern, str):
        return made
    without = {key: each for key, each in made.items() if key not in ("pattern", "title")}
    return made | {"pattern": pattern.replace(r"\Z", "$")} if is_stored else without


def tables() -> str:
    """For each type what its docstring says and a table of its fields, in Markdown with MyST's labels."""
    found: dict[str, Any] = {}
    for name in TYPES:
        found |= schema(name)["$defs"]
    return "\n".join(
        _table(name, reported, found) for name, reported in found.items() if "properties" in reported
    )


def _table(name: str, reported: Mapping[str, Any], types: Mapping[str, Any]) -> str:
    fields: Mapping[str, Any] = reported["properties"]
    said = set().union(*(_SENTENCE.split(about.get("description", "")) for about in fields.values()))
    # The sentences that name no field are about all of them.
    general = [each for each in _SENTENCE.split(reported.get("description", "")) if each not in said]
    lines = [
        f"(fields-{name.lower()})=",
        f"### {name}",
        "",
        *general,
        "",
        "| field | type | meaning |",
        "|---|---|---|",
    ]
    for field, about in fields.items():
        lines.append(f"| `{field}` | {_type(about, types)} | {about.get('description', '')} |")
    return "\n".join([*lines, ""])


def _type(about: Mapping[str, Any], types: Mapping[str, Any]) -> str:
    """A type for people: ``list of [Io](#fields-io)``, ``integer or null``, or the values that there are."""
    if "$ref" in about:
        name = about["$ref"].rpartition("/")[2]
        return (
            f"[{name}](#fields-{name.lower()})" if "properties" in types[name] else _type(types[name], types)
        )
    if "anyOf" in about:
        return " or ".join(dict.fromkeys(_type(each, types) for each in about["anyOf"]))
    if "enum" in about:
        return ", ".join(f"`{each}`" for each in about["enum"])
    kind = about.get("type", "any")
    if kind == "array":
        within = about.get("prefixItems", [about.get("items") or {}])
        return "list of " + ", ".join(dict.fromkeys(_type(each, types) for each in within))
    if kind == "object":
        listed = about.get("properties", {}).values() or [about["additionalProperties"]]
        return f"{' or '.join(_type(each, types) for each in listed)} by name"
    return str(kind)


def text(name: str) -> str:
    return _lines(schema(name), DEPTH) + "\n"


DEPTH = 4
"""A file has a line for each field of a type: so deep are its objects spread over lines."""


def _lines(value: Any, depth: int, indent: str = "") -> str:
    if not depth or not isinstance(value, dict) or not any(isinstance(each, dict) for each in value.values()):
        return json.dumps(value, ensure_ascii=False)
    inner = f"{indent} "
    parts = (f"{inner}{json.dumps(key)}: {_lines(each, depth - 1, inner)}" for key, each in value.items())
    return "{\n" + ",\n".join(parts) + f"\n{indent}}}"


def differing() -> list[Path]:
    """Files that are not as the types are now."""
    files = {FOLDER / f"{name}.json": text(name) for name in TYPES}
    return [file for file, made in files.items() if not file.exists() or file.read_text("utf-8") != made]


def main() -> int:
    found = differing()
    for file in found:
        print(file.relative_to(FOLDER.parents[1]))
        if sys.argv[1:] == ["--write"]:
            file.parent.mkdir(exist_ok=True)
            file.write_text(text(file.stem), encoding="utf-8")
    return 1 if found and sys.argv[1:] != ["--write"] else 0


if __name__ == "__main__":
    sys.exit(main())
