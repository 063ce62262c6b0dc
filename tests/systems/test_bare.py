"""What the README says, done on systems that have only git, make, Python and sudo: from nothing to a table.

It needs root, who may mount, and mmdebstrap. The roots are kept in the user's cache folder.
"""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path

import pytest

from tests.lab.cli import ended

TRY_ON = Path(__file__).parents[2] / "tools" / "try-on.sh"


def lacking() -> str:
    """What is missing to enter a root file system, "" if nothing is."""
    if os.geteuid() != 0:
        return "the rights of root"
    if shutil.which("mmdebstrap") is None:
        return "mmdebstrap"
    # In a container, root may lack them.
    spaces = ("--mount", "--uts", "--ipc", "--pid", "--fork")
    done = ended(["unshare", *spaces, "mount", "-t", "proc", "proc", "/mnt"])
    return f"the right to mount ({done.err.strip()})" if done.status else ""


LACKING = lacking()
pytestmark = pytest.mark.skipif(bool(LACKING), reason=f"missing: {LACKING}")

PLAN = """\
set -e
make install
.venv/bin/harness doctor
.venv/bin/harness run --link wired --ipsec both --workload rand-read-4k --repeats 1 --runtime 0.5s --retries 0
"""
"""For sh(1): all but the ciphers and the other cells of `make run`."""

DEADLINE_S = 3600
"""A root is installed first, if there is none; the machine may be busy and the mirror far."""


def tried(suite: str, who: str, plan: str) -> str:
    """What a bare system prints on standard output, when a shell there has done this."""
    argv = [str(TRY_ON), "--as", who, "--stale", suite, "sh", "-c", plan]
    done = ended(argv, deadline_s=DEADLINE_S)
    assert done.status == 0, done.out[-2000:] + done.err[-4000:]
    return done.out


KNOWN = {"bookworm": "Debian 12", "trixie": "Debian 13", "testing": "Debian testing"}
REST = (("bookworm", "sudoer"), ("trixie", "root"), ("testing", "root"), ("testing", "sudoer"))
OTHERS = [pytest.param(suite, who, marks=pytest.mark.long) for suite, who in REST]


@pytest.mark.parametrize(("suite", "who"), [("bookworm", "root"), ("trixie", "sudoer"), *OTHERS])
def test_a_bare_system_gets_to_a_table_with_ipsec(suite: str, who: str) -> None:
    said = tried(suite, who, PLAN)
    assert f"the harness was tried on {KNOWN[suite]}" in said
    assert "the lab is ready: harness run" in said
    (row,) = (line for line in said.splitlines() if line.startswith("rand-read-4k "))
    assert len(re.findall(r"\d+\.\d+", row)) >= 2, "without IPsec and with it"
