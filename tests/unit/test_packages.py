"""What packages say of themselves is so: what they import, and their examples."""

from __future__ import annotations

import doctest
import re
from importlib.util import find_spec
from pathlib import Path

import pytest

from harness.testbeds import entry_points
from harness.testbeds.lab import boot
from tests.unit import sources
from tools import packages
from tools.identity import MEASURING

PROJECT = Path(__file__).parents[2]
PACKAGE = PROJECT / "harness"
STARTS = r"subprocess\.([a-z_]+|Popen)$"
READMES = sorted(PACKAGE.glob("*/README.md"))


def test_each_package_is_in_one_layer_says_what_it_imports_and_has_its_tests_in_a_folder_of_its_name() -> (
    None
):
    assert not packages.differing(), "python -m tools.packages --write makes them anew"
    names = [file.parent.name for file in READMES]
    assert sorted(package for layer in packages.layers() for package in layer) == names
    folders = {file.parent for file in (PROJECT / "tests" / "unit").glob("*/test_*.py")}
    assert sorted(folder.name for folder in folders) == names
    assert all((folder / "__init__.py").exists() for folder in folders)


@pytest.mark.parametrize("file", READMES, ids=lambda file: file.parent.name)
def test_a_package_names_modules_that_it_has_and_its_example_runs(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, said, _ = file.read_text(encoding="utf-8").split("\n\n", 2)
    here = {path.name.partition(".")[0] for path in file.parent.rglob("*")}
    assert set(re.findall(r"`([a-z_]+)(?:\.c)?/?`", said)) <= here
    monkeypatch.chdir(PROJECT)
    assert not doctest.testfile(str(file), module_relative=False).failed


def test_one_module_starts_programs() -> None:
    """Apart from those that run by themselves on a host."""
    calls = {path: sources.read(path).calls for path in PACKAGE.rglob("*.py")}
    starting = {path for path, of in calls.items() if any(map(re.compile(STARTS).match, of))}
    found = [path for path in starting if path.parent.name != "programs"]
    assert found == [PACKAGE / "hosts" / "runner.py"]


def named(path: Path) -> set[str]:
    """The modules of the harness that are named in the strings and commands of a file."""
    if path.suffix == ".py":
        words = [text for _, text in sources.read(path).strings if not text.count(" ")]
    else:
        lines = path.read_text(encoding="utf-8").splitlines()
        words = [line for line in lines if not line.lstrip().startswith(("#", "*"))]
    found = {name for word in words for name in re.findall(r"\bharness\.[a-z_]+(?:\.[a-z_]+)*", word)}
    return {name for name in found if (PACKAGE / name.split(".")[1]).is_dir()}


def test_a_module_is_named_by_a_string_in_one_place() -> None:
    """An import that is written as a string is one that the import rules do not see."""
    files = [path for suffix in ("py", "sh", "c") for path in PACKAGE.rglob(f"*.{suffix}")]
    by_name = {str(path.relative_to(PACKAGE)): names for path in files if (names := named(path))}
    declared = {entry_points.EXECUTOR, entry_points.WORKER, entry_points.LAB_DAEMON}
    assert by_name == {"testbeds/entry_points.py": declared}
    for name in declared:
        assert find_spec(name) is not None and name.split(".")[1] in MEASURING


def test_the_lab_has_what_programs_in_it_look_for() -> None:
    script = (boot.HERE / "init.sh").read_text(encoding="utf-8")
    assert f"$root{entry_points.RESULTS} " in script and f"$root{entry_points.EXCHANGE} " in script
    assert f'{entry_points.EARLY}="$EARLY"' in script
