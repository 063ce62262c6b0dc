"""CPU cost files (``profiles/cpu-costs/*.toml``): checked when read, and written so that diff(1) can compare
two of them."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from harness.analysis.cpu_costs import VERSION, CpuCosts
from harness.parse import profiles
from harness.parse.files import TomlFile, read_text

KIND = "CPU cost file"
HEAD = """\
# What operations cost a processor: ns of a core for each, most likely and with 90 % from low to high.
# docs/cpu-costs.md says what each part is. at: which end's core; both: one kernel has both ends.
"""


def load_cpu_costs(name: str, folders: Sequence[Path] | None = None) -> CpuCosts:
    """The CPU cost file of that name, or at a path ``NAME.toml``. UsageError if it is unknown or wrong."""
    if folders is None:
        folders = profiles.search_folders(*profiles.FOLDERS[KIND])
    path = Path(name) if name.endswith(".toml") else profiles.find(KIND, name, folders, known=())
    # Files of the last version have the key ``prices``.
    file = TomlFile(KIND, path, re.sub(r"(?m)^prices(?= *=)", "costs", read_text(path, KIND)))
    found = file.load_named(CpuCosts)
    if found.version != VERSION:
        raise file.refuse("version", f"expected {VERSION}, found {found.version}", "measure it again")
    seen = set()
    for cost in found.costs:
        if (key := (cost.at, cost.operation)) in seen:
            raise file.refuse("costs", f"{cost.part} for each {cost.per} appears twice", "remove one")
        seen.add(key)
    return found


def written(found: CpuCosts) -> str:
    """The file's text."""
    return HEAD + "\n".join(_lines(msgspec.to_builtins(found))) + "\n"


def _lines(data: Mapping[str, Any]) -> Iterator[str]:
    tables = {name: value for name, value in data.items() if isinstance(value, dict)}
    for name, value in data.items():
        if name not in ("name", "costs", *tables) and value is not None:
            yield f"{name} = {_value(value)}"
    for name, value in tables.items():
        yield f"{name} = {_value(value)}"
    # One line for each, so that diff(1) shows which differ.
    yield "costs = ["
    for cost in data["costs"]:
        yield f"  {_value({key: value for key, value in cost.items() if value != ''})},"
    yield "]"


def _value(value: Any) -> str:
    """TOML's inline form. Its basic strings are JSON's, where all is ASCII."""
    if isinstance(value, Mapping):
        return (
            "{ " + ", ".join(f"{_key(name)} = {_value(of)}" for name, of in value.items()) + " }"
            if value
            else "{}"
        )
    return f"{value:.4g}" if isinstance(value, float) and 1e-3 <= value < 1e4 else json.dumps(value)


def _key(name: str) -> str:
    return name if name.replace("_", "").replace("-", "").isalnum() and name.isascii() else json.dumps(name)
