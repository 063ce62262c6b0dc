"""Old names work for one release, each with one note."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.model import renamed
from tests.unit.command import harness

NAMES = {
    "measure": "run",
    "--connection": "--link",
    "--link cable": "--link wired",
    "--seeds": "--seed",
    "--protect cleartext": "--protect off",
    "run --to": "run --results",
}


@pytest.fixture(autouse=True)
def names(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(renamed, "RENAMED", NAMES)


@pytest.mark.parametrize(
    ("typed", "means"),
    [
        ("run --link wired", "run --link wired"),
        ("measure --connection cable", "run --link wired"),
        ("--version measure --connection=local,cable -o cable", "--version run --link=local,wired -o cable"),
        ("run --protect cleartext+null --link cleartext", "run --protect off+null --link cleartext"),
        ("export --to csv", "export --to csv"),
        ("table measure --connections", "table measure --connections"),
        ("measure --to here --link wired", "run --results here --link wired"),
        ("share results/RUN --to=run.zip", "share results/RUN --to=run.zip"),
        ("lab exec -- measure --connection cable", "lab exec -- measure --connection cable"),
    ],
)
def test_old_names_become_new_ones(typed: str, means: str) -> None:
    found, notes = renamed.current(typed.split())
    assert " ".join(found) == means
    assert bool(notes) is (typed != means)


def test_each_old_name_has_one_note_on_standard_error(tmp_path: Path) -> None:
    words = ("--plan", "--seed", "7", "--ipsec", "off", "--workload", "rand-read-4k")
    new = harness("run", "--link", "local", "--link", "wired", *words, cwd=tmp_path)
    old = harness("measure", "--connection", "local", "--connection", "cable", *words, cwd=tmp_path)
    assert old.stdout == new.stdout and (old.returncode, new.stderr) == (0, "")
    assert old.stderr.splitlines() == [
        f"harness: {each}; the old name goes with the next release"
        for each in ("measure is now run", "--connection is now --link", "--link cable is now --link wired")
    ]


def test_a_settings_file_may_have_old_names(tmp_path: Path) -> None:
    (tmp_path / "old.toml").write_text('version = 1\nseeds = 7\nprotect = ["cleartext"]\n', encoding="utf-8")
    done = harness("run", "--plan", "--config", "old.toml", "--link", "wired", cwd=tmp_path)
    assert done.returncode == 0 and "seed" in done.stdout, done
    assert done.stderr.splitlines() == [
        f"harness: old.toml: {each}; the old name goes with the next release"
        for each in ("seeds is now seed", "--protect cleartext is now --protect off")
    ]
