"""Stock machines for the tests: one site for each suite, with what `harness doctor` says installed on it.

What is missing to have a site is named in the skip's reason; where the environment variable CI is set, that is
a failure.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from harness.errors import RequirementError
from tests.lab.cli import ON_CI
from tests.machines import snapshot as snapshot_program
from tests.machines.images import SUITES, disks
from tests.machines.site import Machine, Said, Site, site

ROLES = {"target": "nas", "initiator": "client"}
TOGETHER = ("--target", "ssh://root@nas", "--initiator", "ssh://root@client")
SETTLE_S = 30.0
"""How long a machine may take to put away what a run's connections were."""

Snapshot = dict[str, list[str]]


def lacking(suite: str) -> str:
    """What is missing for machines of a suite, "" if they can be switched on."""
    try:
        if not disks(suite).exists():
            return f"no disks of {suite}: python -m tests.machines.images {suite}"
    except RequirementError as error:
        return f"{error.message}; {error.hint}"
    if shutil.which("unshare") is None or os.geteuid() != 0:
        return (
            "a network namespace of its own: sh tests/lab/apart.sh FOLDER unshare --net pytest tests/machines"
        )
    return ""


def chosen() -> tuple[str, ...]:
    """The suites to try: HARNESS_SUITES (names with commas between), or all."""
    return tuple(os.environ.get("HARNESS_SUITES", ",".join(SUITES)).split(","))


@pytest.fixture(scope="session", params=chosen())
def stock(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """Two machines as an installer leaves them, and nothing done on them yet."""
    suite: str = request.param
    if reason := lacking(suite):
        if ON_CI:
            pytest.fail(f"stock machines have to run on CI, but there is {reason}", pytrace=False)
        pytest.skip(reason)
    with site(disks(suite), tmp_path_factory.mktemp(suite)) as found:
        yield found


@pytest.fixture(scope="session")
def installed(stock: Site) -> Site:
    """The same machines with what doctor said to install, by the commands that it printed."""
    said = stock.harness("doctor", *TOGETHER)
    for role, command in commands(said):
        done = stock.machine(ROLES[role]).run(command, input="y\n", timeout_s=600)
        assert done.status == 0, f"{role}: {command}: {done.text[-2000:]}"
    return stock


def commands(doctor: Said) -> list[tuple[str, str]]:
    """What doctor says to type, and on which machine, in its order."""
    found, where = [], ""
    for line in doctor.out.splitlines():
        if match := re.match(r"(?:ok|note|missing) +(\S+)", line):
            where = match[1]
        if (match := re.match(r" +mend it: (.*)", line)) and where in ROLES:
            found.append((where, match[1]))
    return found


def snapshot(machine: Machine) -> Snapshot:
    program = Path(snapshot_program.__file__).read_text(encoding="utf-8")
    found: Snapshot = json.loads(machine.sh("python3 -", input=program))
    return found


def snapshots(of: Site) -> dict[str, Snapshot]:
    return {name: snapshot(machine) for name, machine in of.machines.items()}


STAYS: Mapping[str, re.Pattern[str]] = {
    # docs/machines.md, section 4: the kernel keeps what was loaded, and configfs is mounted where LIO is.
    "modules": re.compile(r"(?:brd|algif_aead|af_alg)$"),
}
"""What a run may leave, as the documentation says."""


def differences(before: dict[str, Snapshot], of: Site) -> dict[str, object]:
    """What has come (+) and gone (-) on each machine, once it has settled; empty if nothing has."""
    end = time.monotonic() + SETTLE_S
    while True:
        changed: dict[str, object] = {}
        for name, now in snapshots(of).items():
            for what, lines in before[name].items():
                came = [f"+{line}" for line in now[what] if line not in lines]
                gone = [f"-{line}" for line in lines if line not in now[what]]
                stays = STAYS.get(what)
                came = [line for line in came if stays is None or not stays.match(line[1:])]
                if came or gone:
                    changed[f"{name}: {what}"] = came + gone
        if not changed or time.monotonic() > end:
            return changed
        time.sleep(2)
