"""The fuzzer finds what a shared run should not have."""

from __future__ import annotations

import json

import pytest

from harness.model import texts
from harness.questions.share import cleaned
from tests.fuzz.driver import Broken, Case
from tests.fuzz.folders import RESULTS, RUN
from tests.fuzz.mutate import places
from tests.fuzz.questions.shares import Secret, Shares


def test_a_secret_that_is_shared_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    plan = json.loads((RESULTS / RUN / "plan.json").read_text())
    keys = [key for holder, key in places(plan) if isinstance(holder[key], str)]
    title = Secret("plan.json", (keys.index("title") + 0.5) / len(keys), "{0} {1}", "host")
    case = Case("matrix: table", (title,))
    Shares().check(case)
    monkeypatch.setitem(cleaned.RULES, cleaned.title_of(texts.Title), lambda _cleaner, text: text)
    with pytest.raises(Broken, match="a secret is shared"):
        Shares().check(case)
