"""The map of CONTRIBUTING.md is what the rooms are, and what they import."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import grimp

PROJECT = Path(__file__).parents[2]
ROW = re.compile(r"^\| `(\w+)/` \|.*\|(.*)\|$", re.MULTILINE)
EVERYBODYS = "model"


def told() -> dict[str, set[str]]:
    rows = ROW.findall((PROJECT / "CONTRIBUTING.md").read_text(encoding="utf-8"))
    return {room: set(re.findall(r"`(\w+)`", imports)) for room, imports in rows}


def found() -> dict[str, set[str]]:
    graph = grimp.build_graph("harness")
    arrows: dict[str, set[str]] = {name.partition(".")[2]: set() for name in graph.find_children("harness")}
    for module in graph.modules - {"harness"}:
        room = module.split(".")[1]
        imported = {
            name.split(".")[1] for name in graph.find_modules_directly_imported_by(module) if "." in name
        }
        arrows[room] |= imported - {room, EVERYBODYS}
    del arrows["__main__"], arrows["api"]
    return arrows


def test_each_room_is_there_with_what_it_imports() -> None:
    assert told() == found()


def test_rooms_stand_in_the_order_of_their_layers() -> None:
    settings = tomllib.loads((PROJECT / "pyproject.toml").read_text(encoding="utf-8"))
    contract, _ = settings["tool"]["importlinter"]["contracts"]
    assert list(told()) == [room.strip() for layer in contract["layers"] for room in layer.split("|")]
