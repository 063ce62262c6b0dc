"""Temporary folders: gone when their use ends, found when it was killed, and nobody else's."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import pytest

from harness.model import temporary


def test_what_a_killed_command_left_is_removed_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    old_s = 1_000_000_000
    for name in ("harness-mine", f"{temporary.PREFIX}unlocked", f"{temporary.PREFIX}killed"):
        (tmp_path / name).mkdir()
    (tmp_path / f"{temporary.PREFIX}killed" / temporary.LOCK).touch()
    (tmp_path / f"{temporary.PREFIX}link").symlink_to(f"{temporary.PREFIX}killed")
    with temporary.folder() as used:
        assert used.stat().st_mode & 0o777 == 0o700
        (used / "file").touch()
        assert temporary.remove_left() == [], "they are younger than a minute"
        for each in tmp_path.iterdir():
            os.utime(each, (old_s, old_s), follow_symlinks=False)
        assert temporary.remove_left() == [str(tmp_path / f"{temporary.PREFIX}killed")]
        assert temporary.remove_left() == [] and (used / "file").exists()
    assert not used.exists() and {each.name for each in tmp_path.iterdir()} == {
        *("harness-mine", f"{temporary.PREFIX}unlocked", f"{temporary.PREFIX}link")
    }
