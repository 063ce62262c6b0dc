"""Integration tests: every test below boots the lab and runs the real stack in it.

Where the lab cannot run they are skipped, and the reason names all that is missing; where the
environment variable CI is set, that is a failure, so that a green check always means they ran.
"""

from __future__ import annotations

import os
import shutil

import pytest

from harness import doctor, lab


def missing() -> list[str]:
    """All that the lab would need here and does not find, in words."""
    packages = [p.name for p in doctor.missing_packages() if "lab" in p.needed_by]
    found = [f"packages: {', '.join(packages)}"] if packages else []
    if shutil.which(lab.KERNEL) is None and "user-mode-linux" not in packages:
        found.append(f"the program {lab.KERNEL}")
    return found + [f.text for f in doctor.findings() if f.where == "lab" and not f.ok]


@pytest.fixture(scope="session", autouse=True)
def lab_is_ready() -> None:
    lacking = missing()
    if lacking and os.environ.get("CI", "").lower() not in ("", "0", "false"):
        pytest.fail(f"the lab has to run on CI, but lacks {'; '.join(lacking)}", pytrace=False)
    if lacking:
        pytest.skip(f"the lab lacks {'; '.join(lacking)}")
