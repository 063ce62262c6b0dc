"""The lab where a machine's usual places take nothing: TMPDIR does, and no working directory is needed."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.lab.cli import HARNESS, ended, well

pytestmark = pytest.mark.lab

PLACES = """\
set -e
mount --bind "$1" /mnt
mount --rbind /tmp /tmp
mount -o remount,bind,ro /tmp
if touch /tmp/x 2>/dev/null; then exit 9; fi
export TMPDIR=/mnt
mkdir /mnt/gone
cd /mnt/gone
rmdir /mnt/gone
"$2" doctor
exec "$2" lab exec -- echo it works
"""
"""For sh(1) in a mount namespace of its own. Arguments: a folder, the command. What is mounted below /tmp, as
a clone of the project that lies there, comes along: the kernel would not let it be uncovered."""


def test_a_read_only_tmp_and_a_removed_working_directory(tmp_path: Path) -> None:
    place = ["unshare", "--map-root-user", "--mount", "sh", "-c", PLACES, "sh", str(tmp_path)]
    done = well(ended([*place, HARNESS]), "it works", "it boots and writes to its results folder")
    assert "Traceback" not in done.err
    assert list(tmp_path.iterdir()) == [], "and nothing is left"
