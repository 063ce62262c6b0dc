"""CHAP's secrets: read from a file, handed over once, and in nothing that is printed."""

from __future__ import annotations

import os

import pytest

from harness.model.errors import UsageError
from harness.storage import chap
from harness.storage.iscsi.initiator import configuration


@pytest.fixture(autouse=True)
def none_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chap, "_kept", [])


def test_a_file_has_the_secret_of_one_direction_or_of_both() -> None:
    assert chap.parse("sesame\n") == chap.Secrets(own="sesame")
    assert chap.parse("sesame\nnas open up\n") == chap.Secrets(
        own="sesame", target_user="nas", target="open up"
    )
    assert "sesame" not in repr(chap.parse("sesame\nnas sesame\n"))


@pytest.mark.parametrize("text", ["", "\n", "sesame\nnas\n", "a\nb c\nd\n", "sésame\n", "ses\tame\n"])
def test_anything_else_is_refused_without_a_word_of_it(text: str) -> None:
    with pytest.raises(UsageError) as refused:
        chap.keep(text)
    assert "same" not in refused.value.message and chap.known() is None


def test_they_are_handed_over_once(monkeypatch: pytest.MonkeyPatch) -> None:
    assert chap.environment() == {} and chap.known() is None
    chap.keep("sesame\n")
    for name, value in chap.environment().items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(chap, "_kept", [])
    chap.take()
    assert chap.known() == chap.Secrets(own="sesame")
    assert chap.VARIABLE not in os.environ
    chap.take()
    assert chap.known() == chap.Secrets(own="sesame")


def test_sessions_and_discovery_authenticate_alike() -> None:
    none = configuration("", None)
    assert "node.session.auth.authmethod = None" in none and "password" not in none
    both = configuration("me", chap.parse("sesame\nnas open\n"))
    for of in ("node.session", "discovery.sendtargets"):
        for line in ("authmethod = CHAP", "username = me", "password = sesame", "username_in = nas"):
            assert f"{of}.auth.{line}\n" in both
        assert f"{of}.auth.password_in = open\n" in both
