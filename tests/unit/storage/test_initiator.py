"""The initiator: whose name a session says, and which iscsid logs it in."""

from __future__ import annotations

import os
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest

from harness.hosts.journal import Journal
from harness.storage.chap import Secrets
from harness.storage.iscsi import initiator
from harness.storage.iscsi.initiator import IscsidService, WokenIscsid
from tests.unit.fakes import Command, World

OURS = "iqn.2026-11.net.storage-harness:beef.initiator"


# Which iscsid


def states(**active: str) -> str:
    """What systemctl(1) shows; a unit without a state is one that there is not."""
    blocks = [
        f"Id=iscsid.{unit}\nLoadState={'loaded' if state else 'not-found'}\nActiveState={state or 'inactive'}"
        for unit, state in active.items()
    ]
    return "\n\n".join(blocks) + "\n"


def use_iscsid(tmp_path: Path, shown: str, *, listens: bool = False, runs: bool = False) -> list[str]:
    """What is done, from the question on, on a machine whose systemd says that; "": there is none, or it
    cannot be asked. ``listens``: there is iscsid's socket. ``runs``: an iscsid, too."""
    world = World(
        answers=[
            (("ls", initiator.SYSTEMD), (0, "system\n", "") if shown else (2, "", "")),
            (initiator.STATES, (0, shown, "")),
            (("sh", "-c", initiator.RUNS), (0 if runs else 1, "", "")),
        ]
    )
    if listens:
        world.secret_files["/proc/net/unix"] = initiator.SOCKET
    host = world.host("initiator")
    journal = Journal(tmp_path / "journal.jsonl")
    with initiator.iscsid(
        journal, host, initiator_iqn=OURS, chap_user="me", secrets=Secrets(own="s"), log=tmp_path / "log"
    ):
        world.commands.append(Command("initiator", ("use",)))
    assert not journal.leaks and not world.left
    return [" ".join(word for word in c.argv if "\n" not in word) for c in world.commands][
        4 if shown else 3 :
    ]


def test_a_unit_that_was_inactive_is_started_and_stopped(tmp_path: Path) -> None:
    assert use_iscsid(tmp_path, states(socket="active", service="inactive")) == [
        "systemctl start iscsid.service",
        "use",
        "sh -c sh iscsid.service",
    ]


def test_a_unit_that_an_earlier_harness_left_failed_is_started_all_the_same(tmp_path: Path) -> None:
    assert use_iscsid(tmp_path, states(socket="inactive", service="failed")) == [
        "systemctl start iscsid.service",
        "use",
        "sh -c sh iscsid.socket iscsid.service",
    ]


@pytest.mark.parametrize("active", ["active", "activating"])
def test_an_iscsid_that_is_the_user_s_is_used_and_left(tmp_path: Path, active: str) -> None:
    assert use_iscsid(tmp_path, states(socket="active", service=active)) == ["use"]


@pytest.mark.parametrize("shown", ["", states(socket="", service="")])
def test_where_systemd_does_not_know_of_one_the_run_brings_its_own(tmp_path: Path, shown: str) -> None:
    assert use_iscsid(tmp_path, shown) == ["daemon iscsid --foreground", "use"]


ASKED = f"sh -c {initiator.RUNS}"


def test_without_d_bus_the_iscsid_that_the_socket_starts_is_asked_to_end(tmp_path: Path) -> None:
    assert use_iscsid(tmp_path, "", listens=True) == [ASKED, "use", "sh -c"]
    assert use_iscsid(tmp_path, "", listens=True, runs=True) == [ASKED, "use"], "it is the user's"


SYSTEMCTL = """\
#!/bin/sh
echo "$*" >> "$HERE/said"
case "$1" in
stop) exit "$STOPPED";;
reset-failed) echo "Failed to reset failed state: Unit not loaded." >&2; exit 1;;
esac
"""


UDEVADM = '#!/bin/sh\necho "udevadm $1" >> "$HERE/said"; exit 1'
ISCSIADM = '#!/bin/sh\necho "iscsiadm $*" >> "$HERE/said"; : > "$HERE/processes/4711/comm"'


SERVICE = IscsidService("iscsid.service", ("iscsid.socket", "iscsid.service"))


@dataclass
class Machine:
    """A systemctl(1) and an iscsiadm(8) that write down what they are told, a folder of sessions, and one of
    processes, where an iscsid runs."""

    here: Path

    def undo(self, of: IscsidService | WokenIscsid = SERVICE, *, stopped: int = 0) -> tuple[int, list[str]]:
        (step,) = of.undo()
        script = step.argv[2].replace("/sys/class/iscsi_session", str(self.here / "sessions"))
        script = script.replace("/proc/", f"{self.here}/processes/")
        done = subprocess.run(
            [*step.argv[:2], script, *step.argv[3:]],
            env={
                "PATH": f"{self.here}:{os.environ['PATH']}",
                "HERE": str(self.here),
                "STOPPED": str(stopped),
            },
            check=False,
            stderr=subprocess.DEVNULL,
        )
        log = self.here / "said"
        return done.returncode, log.read_text(encoding="utf-8").splitlines() if log.exists() else []


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    for name, text in (("systemctl", SYSTEMCTL), ("udevadm", UDEVADM), ("iscsiadm", ISCSIADM)):
        (tmp_path / name).write_text(text, encoding="utf-8")
        (tmp_path / name).chmod(0o755)
    (tmp_path / "sessions").mkdir()
    (tmp_path / "processes/4711").mkdir(parents=True)
    (tmp_path / "processes/4711/comm").write_text("iscsid\n", encoding="ascii")
    return Machine(tmp_path)


SETTLED = "udevadm settle"
STOPPED = "stop --quiet iscsid.socket iscsid.service"


def test_units_are_stopped_and_no_failure_of_theirs_stays(machine: Machine) -> None:
    assert machine.undo() == (0, [SETTLED, STOPPED, "reset-failed --quiet iscsid.socket iscsid.service"])


def test_a_unit_that_does_not_stop_is_reported(machine: Machine) -> None:
    assert machine.undo(stopped=5) == (5, [SETTLED, STOPPED])


def test_without_d_bus_iscsid_itself_is_asked(machine: Machine) -> None:
    assert machine.undo(WokenIscsid(initiator.SOCKET)) == (0, [SETTLED, "iscsiadm --killiscsid 0"])
    assert machine.undo(WokenIscsid(initiator.SOCKET)) == (
        0,
        [SETTLED, "iscsiadm --killiscsid 0", SETTLED],
    ), "it has gone"


def test_an_iscsid_that_somebody_has_come_to_need_goes_on(machine: Machine) -> None:
    (machine.here / "sessions" / "session4").mkdir()
    assert machine.undo() == (0, [SETTLED])
    assert machine.undo(WokenIscsid(initiator.SOCKET)) == (0, [SETTLED, SETTLED])
