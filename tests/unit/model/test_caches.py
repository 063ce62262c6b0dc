"""The folder of what can be made again."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from harness.model import caches


@pytest.mark.parametrize("umask", [0o000, 0o022, 0o077])
def test_it_is_its_owner_s_alone(own_cache: Path, monkeypatch: pytest.MonkeyPatch, umask: int) -> None:
    before = os.umask(umask)
    try:
        made = caches.make("kernel", "sources")
    finally:
        os.umask(before)
    assert made == own_cache / "kernel" / "sources"
    folders = (own_cache, own_cache / "kernel", made)
    assert [folder.stat().st_mode & 0o777 for folder in folders] == [0o700] * 3
    own_cache.chmod(0o755)  # as earlier versions left it
    caches.make()
    assert own_cache.stat().st_mode & 0o777 == 0o700
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")
    assert caches.folder() == Path.home() / ".cache" / "harness"
