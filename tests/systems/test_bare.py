"""What the README says, done on systems that have only git, make, Python and sudo: from nothing to a table.

It needs root, who may mount, and mmdebstrap. The roots are kept in the user's cache folder.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

TRY_ON = Path(__file__).parents[2] / "tools" / "try-on.sh"

pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(os.geteuid() != 0, reason="only root may make and enter a root file system"),
    pytest.mark.skipif(shutil.which("mmdebstrap") is None, reason="mmdebstrap is not installed"),
]

PLAN = """\
set -e
make install
.venv/bin/harness doctor
.venv/bin/harness run --link wired --ipsec both --workload rand-read-4k --repeats 1 --runtime 0.5s --retries 0
"""
"""For sh(1): all but the ciphers and the other cells of `make run`."""

DEADLINE_S = 1800
"""A root is installed first, if there is none; the machine may be busy and the mirror far."""


def tried(suite: str, who: str, plan: str) -> str:
    """What a bare system prints on standard output, when a shell there has done this."""
    done = subprocess.run(
        [str(TRY_ON), "--as", who, "--stale", suite, "sh", "-c", plan],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        encoding="utf-8",
        timeout=DEADLINE_S,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
    return done.stdout


@pytest.mark.parametrize("who", ["root", "sudoer"])
@pytest.mark.parametrize(
    ("suite", "known"),
    [
        ("bookworm", "the harness was tried on Debian 12"),
        ("trixie", "the harness was tried on Debian 13"),
        ("testing", "the harness was tried on Debian testing"),
    ],
)
def test_a_bare_system_gets_to_a_table_with_ipsec(suite: str, known: str, who: str) -> None:
    said = tried(suite, who, PLAN)
    assert known in said
    assert "the lab is ready: harness run" in said
    (row,) = (line for line in said.splitlines() if "Uncached Read [4K blocks]" in line)
    assert len(re.findall(r"\d+\.\d+", row)) >= 2, "without IPsec and with it"
