"""The counts of tools/identity.py."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tools import identity

pytestmark = pytest.mark.thorough

SPELLS = """
class Cell(msgspec.Struct):
    link: str
    ipsec: str = "off"
    clock: Clock
    repeat: int

class Two(Protocol):
    link: str
    disk: str
"""


def test_what_spells_the_identity_asks_for_the_testbed_and_is_loaded_is_counted() -> None:
    assert list(identity.spelling(SPELLS)) == [("Cell", ["clock", "link", "protection"])]
    asking = "if plan.setting.testbed is TestbedKind.LAB:\n    testbed = made\nif kernels_apart: pass\n"
    assert identity.asking(asking) == 2
    for package in ("report", "table", "explain", "results", "api"):
        assert identity.loaded(f"harness.{package}") == [], "who reads loads nothing of what measures"


def test_what_a_change_touches_of_the_product(tmp_path: Path) -> None:
    def git(*words: str) -> None:
        who = ("-c", "user.name=a", "-c", "user.email=a@example.org")
        subprocess.run(["git", *who, *words], cwd=tmp_path, check=True, capture_output=True)

    git("init", "-q")
    git("commit", "-q", "--allow-empty", "-m", "first")
    for name in ("harness/a.py", "tests/b.py", "packages.txt", "docs/c.md"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("x\n")
    git("add", ".")
    git("commit", "-q", "-m", "second")
    assert identity.touched("HEAD~1..HEAD", tmp_path) == ["harness/a.py", "packages.txt"]
