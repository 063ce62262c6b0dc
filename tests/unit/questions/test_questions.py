"""A question is a folder: nothing outside it names it, and what it adds is there."""

from __future__ import annotations

from pathlib import Path

import pytest

import harness
from harness.questions import Offer, declared, questions

ROOT = Path(harness.__file__).parent


def test_every_folder_is_a_question_with_a_readme() -> None:
    folders = {file.parent.name for file in (ROOT / "questions").glob("*/__init__.py")}
    assert {each.name for each in questions()} | {place.rpartition(".")[2] for place in declared()} == folders
    assert all((ROOT / "questions" / name / "README.md").is_file() for name in folders)


@pytest.mark.parametrize("question", questions(), ids=lambda question: question.name)
def test_what_it_adds_is_there_and_nobody_else_names_it(question: Offer) -> None:
    assert all(each.load() for each in question.explains) and all(question.schemas().values())
    own = ROOT / "questions" / question.name
    named = f"harness.questions.{question.name}"
    others = (file for file in ROOT.rglob("*.py") if not file.is_relative_to(own))
    assert [str(file) for file in others if named in file.read_text(encoding="utf-8")] == []
