"""The program that ends a session: by the iscsid that knows it, or the kernel; what is absent is no error."""

from __future__ import annotations

import json
import os
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest

from harness.hosts import programs

IQN = "iqn.2026-11.net.storage-harness:beef.wired.off"
REQUEST = {
    "iqn": IQN,
    "portal": "198.18.0.2:3260",
    "interface": "harness-me",
    "bound_to": "",
    "initiator_iqn": "iqn.x:me",
}
NODE = f"--mode node --targetname {IQN} --portal 198.18.0.2:3260 --interface harness-me"
IFACE = "--mode iface --interface harness-me"
MADE = [f"{IFACE} --op new", f"{IFACE} --op update --name iface.initiatorname --value iqn.x:me"]
"""Its iface record may have gone with a killed run; without it iscsiadm says 3, and not 21, of a node record
that is not there."""
GONE = f"{IFACE} --op delete"

ISCSIADM = """\
echo "$*" >> "$HERE/said"
case "$*" in
*--logout)
    status=$(head -n 1 "$HERE/logout")
    sed -i 1d "$HERE/logout"
    test "$status" = 0 && rm -r "$HERE"/sessions/session1
    exit "$status";;
*"node "*"--op delete") exit "$(cat "$HERE/delete")";;
esac
"""
MULTIPATH = """\
echo "multipath $*" >> "$HERE/said"
"""


@dataclass
class Machine:
    """Sessions, sockets and open-iscsi's programs, all in a folder."""

    here: Path

    def have_sessions(self, *iqns: str) -> None:
        for number, iqn in enumerate(iqns, 1):
            folder = self.here / "sessions" / f"session{number}"
            folder.mkdir(parents=True)
            (folder / "targetname").write_text(f"{iqn}\n", encoding="utf-8")

    def answer(self, *, logout: tuple[int, ...] = (0,), delete: int = 0) -> None:
        (self.here / "logout").write_text("".join(f"{status}\n" for status in logout), encoding="utf-8")
        (self.here / "delete").write_text(str(delete), encoding="utf-8")

    def run_iscsid(self) -> None:
        (self.here / "unix").write_text("0: 2 0 0 @ISCSIADM_ABSTRACT_NAMESPACE\n", encoding="utf-8")

    def log_out(self, *, deadline_s: float = 60.0, **changes: str) -> tuple[int, str]:
        source = programs.source("harness.storage.iscsi", "logout")
        for path, name in (
            ("/sys/class/iscsi_session", "sessions"),
            ("/proc/net/unix", "unix"),
            ("/etc/iscsi", "etc"),
            ("/var/lib/iscsi", "var"),
            ("/etc/multipath/wwids", "wwids"),
            # Absent: a session of this machine's own kernel is never to be touched.
            ("/sys/class/iscsi_transport/tcp/handle", "handle"),
        ):
            assert source.count(f'"{path}"') == 1
            source = source.replace(f'"{path}"', f'"{self.here / name}"')
        source = source.replace("DEADLINE_S = 10.0", f"DEADLINE_S = {deadline_s}")
        request = json.dumps(REQUEST | changes)
        done = subprocess.run(
            [programs.PYTHON, "-I", "-S", "-c", source],
            input=request,
            capture_output=True,
            text=True,
            env={"PATH": f"{self.here}:{os.environ['PATH']}", "HERE": str(self.here)},
            timeout=120,
            check=False,
        )
        assert done.stdout == ""
        return done.returncode, done.stderr

    @property
    def said(self) -> list[str]:
        file = self.here / "said"
        return file.read_text(encoding="utf-8").splitlines() if file.exists() else []


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    for name, text in (("iscsiadm", ISCSIADM), ("multipath", MULTIPATH)):
        (tmp_path / name).write_text(f"#!/bin/sh\n{text}", encoding="utf-8")
        (tmp_path / name).chmod(0o755)
    (tmp_path / "etc").mkdir()
    (tmp_path / "unix").write_text("", encoding="utf-8")
    made = Machine(tmp_path)
    made.answer()
    return made


def test_a_session_is_ended_by_the_iscsid_that_runs(machine: Machine) -> None:
    machine.have_sessions(IQN)
    machine.run_iscsid()
    assert machine.log_out() == (0, "")
    assert machine.said == [*MADE, f"{NODE} --op new", f"{NODE} --logout", f"{NODE} --op delete", GONE]
    assert list((machine.here / "etc").iterdir()) == []


@pytest.mark.parametrize("folder", ["etc", "var"])
def test_records_that_are_there_are_not_made_again(machine: Machine, folder: str) -> None:
    machine.have_sessions(IQN)
    machine.run_iscsid()
    record = machine.here / folder / "ifaces" / REQUEST["interface"]
    record.parent.mkdir(parents=True)
    record.touch()
    assert machine.log_out() == (0, "")
    assert machine.said == [f"{NODE} --logout", f"{NODE} --op delete", GONE]


@pytest.mark.parametrize(
    ("listed", "steps"),
    [("/360014ab/", ["multipath -f 360014ab", "multipath -w /dev/sdq"]), ("/360014ff/", [])],
)
def test_multipathd_lets_go_of_the_disk_that_it_took(machine: Machine, listed: str, steps: list[str]) -> None:
    machine.have_sessions(IQN)
    machine.run_iscsid()
    disk = machine.here / "sessions/session1/device/target0:0:0/0:0:0:0"
    (disk / "block/sdq").mkdir(parents=True)
    (disk / "wwid").write_text("naa.60014ab\n", encoding="utf-8")
    (machine.here / "wwids").write_text(f"# Valid WWIDs:\n/3600aaaa/\n{listed}\n", encoding="utf-8")
    assert machine.log_out() == (0, "")
    assert machine.said == [
        *MADE,
        f"{NODE} --op new",
        *steps,
        f"{NODE} --logout",
        f"{NODE} --op delete",
        GONE,
    ]


def test_without_an_iscsid_it_is_the_kernel_s_to_end(machine: Machine) -> None:
    """To have it do so is tests/lab/inside/killed_host_run.py's."""
    machine.have_sessions(IQN)
    status, said = machine.log_out()
    assert status == 1 and "and the kernel did not end it: " in said and "No such file" in said
    assert machine.said == [*MADE, f"{NODE} --op new"], "without its record it could not be ended later"


def test_sessions_to_others_are_left_alone(machine: Machine) -> None:
    machine.have_sessions("iqn.2020-01.org.example:mine", f"{IQN}.more", IQN[:-1])
    assert machine.log_out() == (0, "")
    assert machine.said == [*MADE, f"{NODE} --op delete", GONE]
    assert len(list((machine.here / "sessions").iterdir())) == 3


def test_what_is_absent_needs_no_ending(machine: Machine) -> None:
    machine.answer(delete=21)
    assert machine.log_out() == (0, "")
    assert machine.said == [*MADE, f"{NODE} --op delete", GONE]


def test_a_session_that_has_just_ended_is_no_error(machine: Machine) -> None:
    machine.have_sessions(IQN)
    machine.run_iscsid()
    machine.answer(logout=(21,), delete=21)
    script = machine.here / "iscsiadm"
    text = script.read_text(encoding="utf-8").replace('test "$status" = 0 &&', 'test "$status" = 21 &&')
    script.write_text(text, encoding="utf-8")
    assert machine.log_out() == (0, "")


def test_a_session_that_is_being_connected_anew_is_waited_for(machine: Machine) -> None:
    machine.have_sessions(IQN)
    machine.run_iscsid()
    machine.answer(logout=(32, 32, 0))
    assert machine.log_out() == (0, "")
    assert machine.said.count(f"{NODE} --logout") == 3


@pytest.mark.parametrize(("statuses", "reported"), [((8,), 8), ((21,), 21), ((32,) * 99, 32)])
def test_a_session_that_does_not_end_is_reported_and_its_record_stays(
    machine: Machine, statuses: tuple[int, ...], reported: int
) -> None:
    machine.have_sessions(IQN)
    machine.run_iscsid()
    machine.answer(logout=statuses)
    status, said = machine.log_out(deadline_s=1.0)
    assert (status, said) == (1, f"session1 to {IQN} could not be logged out (iscsiadm said {reported})\n")
    assert machine.said.count(f"{NODE} --logout") < 99, "it is not tried for ever"
    assert f"{NODE} --op delete" not in machine.said, "without its record it could not be ended later"


def test_a_session_that_the_machine_s_iscsid_has_lost_is_the_kernel_s_to_end(machine: Machine) -> None:
    machine.have_sessions(IQN)
    machine.run_iscsid()
    machine.answer(logout=(2,) * 99)
    status, said = machine.log_out(deadline_s=1.0)
    assert status == 1 and machine.said.count(f"{NODE} --logout") > 1
    assert "(iscsiadm said 2), and the kernel did not end it: " in said and "No such file" in said


def test_a_session_that_an_iscsid_is_about_to_find_is_waited_for(machine: Machine) -> None:
    machine.have_sessions(IQN)
    machine.run_iscsid()
    machine.answer(logout=(2, 32, 0))
    assert machine.log_out() == (0, "")


def test_a_record_that_stays_is_reported(machine: Machine) -> None:
    machine.answer(delete=6)
    assert machine.log_out() == (1, f"the record of {IQN} could not be deleted (iscsiadm said 6)\n")


def test_a_session_that_was_bound_to_an_interface_is_found_by_that(machine: Machine) -> None:
    machine.have_sessions(IQN)
    machine.run_iscsid()
    assert machine.log_out(bound_to="eth0") == (0, "")
    assert machine.said == [
        *MADE,
        f"{IFACE} --op update --name iface.net_ifacename --value eth0",
        f"{NODE} --op new",
        f"{NODE} --logout",
        f"{NODE} --op delete",
        GONE,
    ]
