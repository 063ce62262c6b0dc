"""Stock machines for the tests: one site for each suite, with what `harness doctor` says installed on it.

HARNESS_HARDWARE is `uml` (unless it is set) or `qemu`. What is missing to have a site is named in the skip's
reason; where the environment variable CI is set, that is a failure.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from harness.model.errors import RequirementError
from tests.lab.cli import lacks
from tests.machines.images import HARDWARE, SUITES, UML, Hardware, disks
from tests.machines.runs import TOGETHER
from tests.machines.site import Machine, Said, Site, site

ROLES = {"target": "server", "initiator": "client", "initiator2": "client2"}


def lacking(suite: str, hardware: Hardware) -> str:
    """What is missing for machines of a suite, "" if they can be switched on."""
    try:
        if not disks(suite, hardware).exists():
            return f"no disks of {suite}: python -m tests.machines.images {hardware.name} {suite}"
    except RequirementError as error:
        return f"{error.message}; {error.hint}"
    if not Path("/dev/net/tun").exists():
        return "no /dev/net/tun, by which the machines are plugged in (modprobe tun)"
    apart = (
        "a network namespace of its own: sh tests/lab/isolated.sh FOLDER unshare --net pytest tests/machines"
    )
    return apart if shutil.which("unshare") is None or os.geteuid() != 0 else ""


def chosen() -> tuple[str, ...]:
    """The suites to try: HARNESS_SUITES (names with commas between), or all."""
    return tuple(os.environ.get("HARNESS_SUITES", ",".join(SUITES)).split(","))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Where each release takes minutes and would show the same, CI has the one that is named."""
    for item in items:
        named = item.get_closest_marker("on_ci")
        if named and isinstance(item, pytest.Function) and item.callspec.params["stock"] not in named.args:
            item.add_marker(pytest.mark.long)


@pytest.fixture(scope="session", params=chosen())
def stock(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """Two machines as an installer leaves them, and nothing done on them yet."""
    suite: str = request.param
    hardware = HARDWARE[os.environ.get("HARNESS_HARDWARE", UML.name)]
    if reason := lacking(suite, hardware):
        lacks(reason)
    with site(disks(suite, hardware), tmp_path_factory.mktemp(suite)) as found:
        yield found


@pytest.fixture(scope="session")
def installed(stock: Site) -> Site:
    """The same machines with what doctor said to install, by the commands that it printed."""
    install(stock, *TOGETHER)
    return stock


def install(on: Site, *words: str) -> None:
    """Ask doctor, and type on each machine what it says, unless what that makes of it was kept."""
    todo: dict[str, list[str]] = {}
    for role, command in commands(on.harness("doctor", *words)):
        todo.setdefault(ROLES[role], []).append(command)
    digests = {name: hashlib.sha256(repr(lines).encode()).hexdigest()[:12] for name, lines in todo.items()}
    stages = {name: f"installed-{digest}" for name, digest in digests.items()}
    new = [name for name, stage in stages.items() if not on.machines[name].go_on_from(stage)]
    with ThreadPoolExecutor() as pool:  # on all of them at once, for it takes minutes
        list(pool.map(lambda name: _type(on.machines[name], todo[name]), new))
    for name, stage in stages.items():
        on.machines[name].await_ssh()
        on.machines[name].keep(stage)


def _type(machine: Machine, lines: list[str]) -> None:
    for line in lines:
        done = machine.run(line, input="y\n", timeout_s=1800)
        assert done.status == 0, f"{machine.name}: {line}: {done.text[-2000:]}"


def commands(doctor: Said) -> list[tuple[str, str]]:
    """What doctor says to type, and on which machine, in its order."""
    found, where = [], ""
    for line in doctor.out.splitlines():
        if match := re.match(r"(?:ok|note|missing) +(\S+)", line):
            where = match[1]
        if (match := re.match(r" +fix: (.*)", line)) and where in ROLES:
            found.append((where, match[1]))
    return found
