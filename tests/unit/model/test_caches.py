"""The folder of what can be made again."""

from __future__ import annotations

import os
from pathlib import Path
from unittest.mock import Mock

import pytest

from harness.model import caches
from harness.model.errors import RequirementError


@pytest.mark.parametrize("umask", [0o000, 0o022, 0o077])
def test_it_is_its_owner_s_alone(own_cache: Path, monkeypatch: pytest.MonkeyPatch, umask: int) -> None:
    before = os.umask(umask)
    try:
        made = caches.make("kernel", "sources")
    finally:
        os.umask(before)
    assert made == own_cache / "kernel" / "sources"
    assert [at.stat().st_mode & 0o777 for at in (own_cache, made.parent, made)] == [0o700] * 3
    own_cache.chmod(0o755)  # as earlier versions left it
    caches.make()
    assert own_cache.stat().st_mode & 0o777 == 0o700
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")
    assert caches.folder() == Path.home() / ".cache" / "harness"


def test_without_a_home_the_reason_is_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setattr(Path, "home", Mock(side_effect=RuntimeError("Could not determine home directory.")))
    with pytest.raises(RequirementError, match="expected a home folder"):
        caches.folder("kernel")
