"""The map of CONTRIBUTING.md is what the rooms are, and what they import."""

from __future__ import annotations

import ast
import re
from importlib.util import find_spec
from pathlib import Path

from harness.testbeds import started
from harness.testbeds.lab import boot
from tools import rooms
from tools.identity import MEASURING

PROJECT = Path(__file__).parents[2]
PACKAGE = PROJECT / "harness"
ROW = re.compile(r"^\| `(\w+)/` \|.*\|(.*)\|$", re.MULTILINE)
EVERYBODYS = "model"


def told() -> dict[str, set[str]]:
    rows = ROW.findall((PROJECT / "CONTRIBUTING.md").read_text(encoding="utf-8"))
    return {room: set(re.findall(r"`(\w+)`", imports)) for room, imports in rows}


def test_each_room_is_there_with_what_it_imports() -> None:
    assert told() == {room: below - {EVERYBODYS} for room, below in rooms.imports().items()}


def test_the_picture_is_that_of_the_imports() -> None:
    drawn = rooms.PICTURE.read_text(encoding="utf-8")
    assert drawn == rooms.svg(), "python -m tools.rooms --write draws it anew"


def test_rooms_stand_in_the_order_of_their_layers() -> None:
    assert list(told()) == [room for layer in rooms.layers() for room in layer]


def starts_programs(path: Path) -> bool:
    """Whether a module calls a function of ``subprocess`` or its ``Popen``."""
    calls = (node.func for node in ast.walk(ast.parse(path.read_text("utf-8"))) if isinstance(node, ast.Call))
    return any(re.match(r"subprocess\.([a-z_]+|Popen)$", ast.unparse(call)) for call in calls)


def test_one_module_starts_programs() -> None:
    """Apart from those that run by themselves on a host."""
    modules = [path for path in PACKAGE.rglob("*.py") if path.parent.name != "programs"]
    assert list(filter(starts_programs, modules)) == [PACKAGE / "hosts" / "runner.py"]


def named(path: Path) -> set[str]:
    """The modules of the harness that are named in the strings and commands of a file."""
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".py":
        strings = [node.value for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Constant)]
        words = [word for word in strings if isinstance(word, str) and not word.count(" ")]
    else:
        words = [line for line in text.splitlines() if not line.lstrip().startswith(("#", "*"))]
    found = {name for word in words for name in re.findall(r"\bharness\.[a-z_]+(?:\.[a-z_]+)*", word)}
    return {name for name in found if (PACKAGE / name.split(".")[1]).is_dir()}


def test_a_module_is_named_by_a_string_in_one_place() -> None:
    """An import that is written as a string is one that the import rules do not see."""
    files = [path for suffix in ("py", "sh", "c") for path in PACKAGE.rglob(f"*.{suffix}")]
    by_name = {str(path.relative_to(PACKAGE)): names for path in files if (names := named(path))}
    declared = {started.INSIDE, started.WAITING, started.KEEPER}
    assert by_name == {"testbeds/started.py": declared}
    for name in declared:
        assert find_spec(name) is not None and name.split(".")[1] in MEASURING


def test_the_lab_has_what_programs_in_it_look_for() -> None:
    script = (boot.HERE / "init.sh").read_text(encoding="utf-8")
    assert f"$root{started.RESULTS} " in script and f"$root{started.EXCHANGE} " in script
    assert f'{started.EARLY}="$EARLY"' in script
