"""The program of a session, which iscsid opens. It ends by the iscsid that knows it, or the kernel; what is
absent is no error."""

from __future__ import annotations

import json
import os
import re
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from harness.hosts import programs
from harness.hosts.programs.answering import NOT_REACHED

pytestmark = pytest.mark.thorough

IQN = "iqn.2026-11.net.storage-harness:beef.wired.off"
REQUEST: dict[str, Any] = {
    "iqn": IQN,
    "portal": "198.18.0.2:3260",
    "interface": "harness-me",
    "bound_to": "",
    "initiator_iqn": "iqn.x:me",
    "lun": 0,
    "within_s": 8,
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
*"iface "*"--op new") exit "$(cat "$HERE/new")";;
*--login) exit "$(cat "$HERE/login")";;
*"--interface harness-me")
    head -n 1 "$HERE/records"
    sed -i 1d "$HERE/records";;
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
            (folder / "ifacename").write_text("harness-me\n", encoding="utf-8")

    def answer(
        self,
        *,
        logout: tuple[int, ...] = (0,),
        delete: int = 0,
        new: int = 0,
        login: int = 0,
        unknown: int = 0,
    ) -> None:
        """Exit statuses; and how many records are made before iscsid has told where its configuration is."""
        records = "# BEGIN RECORD 2.1.8\n" * unknown + "node.conn[0].timeo.login_timeout = 8\n"
        (self.here / "records").write_text(records, encoding="utf-8")
        (self.here / "new").write_text(str(new), encoding="utf-8")
        (self.here / "login").write_text(str(login), encoding="utf-8")
        (self.here / "logout").write_text("".join(f"{status}\n" for status in logout), encoding="utf-8")
        (self.here / "delete").write_text(str(delete), encoding="utf-8")

    def run_iscsid(self) -> None:
        (self.here / "unix").write_text("0: 2 0 0 @ISCSIADM_ABSTRACT_NAMESPACE\n", encoding="utf-8")

    def log_out(self, *, deadline_s: float = 60.0, **changes: Any) -> tuple[int, str]:
        status, said, error = self.carry_out("disconnect", deadline_s=deadline_s, **changes)
        assert said == ("null" if status == 0 else "")
        return status, error

    def carry_out(
        self, do: str, *, deadline_s: float = 60.0, record_s: float = 60.0, **changes: Any
    ) -> tuple[int, str, str]:
        source = programs.source("harness.storage.iscsi", "session")
        for path, name in (
            ("/sys/class/iscsi_session", "sessions"),
            ("/sys/class/iscsi_connection", "connections"),
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
        source = source.replace("RECORD_S = 60.0", f"RECORD_S = {record_s}")
        request = json.dumps(REQUEST | {"do": do} | changes)
        done = subprocess.run(
            [programs.PYTHON, "-I", "-S", "-c", source],
            input=request,
            capture_output=True,
            text=True,
            env={"PATH": f"{self.here}:{os.environ['PATH']}", "HERE": str(self.here)},
            timeout=120,
            check=False,
        )
        return done.returncode, done.stdout, done.stderr

    @property
    def said(self) -> list[str]:
        file = self.here / "said"
        return file.read_text(encoding="utf-8").splitlines() if file.exists() else []


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    for name, text in (
        ("iscsiadm", ISCSIADM),
        ("multipath", MULTIPATH),
        ("unshare", 'shift\nexec "$@"\n'),
        ("mount", "exit 1\n"),
    ):
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


# Opened


ASKED: dict[str, Any] = {"parameters": {}, "within_s": 8, "bound_to": "eth0"}
IFACE_MADE = [*MADE, f"{IFACE} --op update --name iface.net_ifacename --value eth0"]
SECRET_NAME = re.compile("password|secret")


def test_a_session_has_an_iface_record_that_names_it_whoever_logs_it_in(machine: Machine) -> None:
    assert machine.carry_out("connect", **ASKED) == (0, "null", "")
    assert machine.said == [*IFACE_MADE, f"{NODE} --op new", NODE, f"{NODE} --login"]


def test_the_initiator_asks_before_it_logs_in(machine: Machine) -> None:
    asked = {"node.session.iscsi.MaxBurstLength": "65536", "node.session.iscsi.InitialR2T": "No"}
    assert machine.carry_out("connect", **ASKED | {"parameters": asked}) == (0, "null", "")
    updates = [f"{NODE} --op update --name {name} --value {value}" for name, value in asked.items()]
    assert machine.said[-3:] == [*updates, f"{NODE} --login"]


def test_a_record_that_was_made_before_iscsid_answered_is_made_again(machine: Machine) -> None:
    """A second without an answer gives one without CHAP, with a login that is tried eight times for 15 s."""
    machine.answer(unknown=2)
    assert machine.carry_out("connect", **ASKED)[0] == 0
    again = [f"{NODE} --op new", NODE, f"{NODE} --op delete"]
    assert machine.said == [*IFACE_MADE, *again, *again, f"{NODE} --op new", NODE, f"{NODE} --login"]
    assert not SECRET_NAME.search(" ".join(machine.said)), "others can read a command line"


def test_an_iscsid_that_never_answers_is_named(machine: Machine) -> None:
    machine.answer(unknown=1_000)
    status, _, error = machine.carry_out("connect", record_s=0.3, **ASKED)
    assert status == 1 and "expected iscsid to answer within 0.3 s" in error
    assert "systemctl status iscsid" in error


@pytest.mark.parametrize(("status", "is_taken"), [(15, True), (6, False)])
def test_a_record_that_is_left_of_an_earlier_cell_is_taken(
    machine: Machine, status: int, is_taken: bool
) -> None:
    machine.answer(new=status)
    ended, *_ = machine.carry_out("connect", **ASKED)
    assert (ended == 0) is is_taken
    assert len(machine.said) == (6 if is_taken else 1)


@pytest.mark.parametrize(("status", "ends"), [(8, NOT_REACHED), (4, NOT_REACHED), (24, 1)])
def test_a_portal_that_does_not_answer_is_distinguished_from_one_that_refuses(
    machine: Machine, status: int, ends: int
) -> None:
    machine.answer(login=status)
    assert machine.carry_out("connect", **ASKED)[0] == ends


def session(machine: Machine, name: str) -> str:
    """A session with a disk, by its initiator's name; the disk."""
    machine.have_sessions(IQN)
    folder = machine.here / "sessions/session1"
    (folder / "initiatorname").write_text(f"{name}\n", encoding="utf-8")
    (folder / "erl").write_text("0\n", encoding="utf-8")
    disk = folder / "device/target0:0:0/0:0:0:0/block/sda"
    (disk / "queue").mkdir(parents=True)
    (disk / "queue/scheduler").write_text("[none]\n", encoding="utf-8")
    connection = machine.here / "connections/connection1:0"
    connection.mkdir(parents=True)
    (connection / "header_digest").write_text("\n", encoding="utf-8")
    return str(disk)


FILES: Any = (("erl", "recovery_tmo"), ("header_digest",), ("queue/scheduler",))


def test_what_a_session_has_come_to_is_told(machine: Machine) -> None:
    disk = session(machine, "iqn.x:me")
    status, said, _ = machine.carry_out("tell", files=FILES)
    assert status == 0 and json.loads(said) == {
        "session": str(machine.here / "sessions/session1"),
        "disk": disk,
        "agreed": {"erl": "0", "scheduler": "[none]"},
    }


@pytest.mark.parametrize("name", ["iqn.1993-08.org.debian:01:abc", ""])
def test_a_session_under_another_name_is_not_taken(machine: Machine, name: str) -> None:
    session(machine, name)
    status, _, error = machine.carry_out("tell", files=FILES)
    assert status == 1
    assert f"expected session1 to be iqn.x:me's, found {name or 'no name'}" in error


def test_a_session_that_gets_no_disk_or_is_none_is_reported(machine: Machine) -> None:
    assert "the kernel has no such session" in machine.carry_out("tell", files=FILES)[2]
    (Path(session(machine, "iqn.x:me")) / "queue/scheduler").unlink()
    (machine.here / "sessions/session1/device/target0:0:0/0:0:0:0/block/sda/queue").rmdir()
    assert (
        f"LUN 0 of {IQN} did not become a disk" in machine.carry_out("tell", deadline_s=0.1, files=FILES)[2]
    )


def test_a_session_of_the_user_s_to_the_same_target_is_not_ours(machine: Machine) -> None:
    machine.have_sessions(IQN, IQN)
    (machine.here / "sessions/session1/ifacename").write_text("default\n", encoding="utf-8")
    machine.run_iscsid()
    machine.answer(logout=(2,))
    status, said = machine.log_out()
    assert status == 1 and "session2 to " in said
    assert (machine.here / "sessions/session1").exists()


SHOWN = """\
192.0.2.2:3260,1 iqn.x:a
[fd00::2]:3260,1 iqn.x:a
192.0.2.2:3260,1 iqn.x:b
"""


@pytest.mark.parametrize(
    ("status", "ends", "word"),
    [(0, 0, ""), (8, NOT_REACHED, "8 s"), (11, NOT_REACHED, "8 s"), (24, 1, "refuses")],
)
def test_a_portal_is_asked_for_its_targets(machine: Machine, status: int, ends: int, word: str) -> None:
    answer = f"case \"$*\" in *discovery*) printf '{SHOWN}'; exit {status};; esac\n"
    (machine.here / "iscsiadm").write_text(f"#!/bin/sh\n{answer}{ISCSIADM}", encoding="utf-8")
    ended, said, error = machine.carry_out("discover")
    assert ended == ends and word in error
    if not status:
        assert json.loads(said)["targets"] == {
            "iqn.x:a": ["192.0.2.2:3260", "[fd00::2]:3260"],
            "iqn.x:b": ["192.0.2.2:3260"],
        }
        assert machine.said == [*MADE, f"{IFACE} --op delete"]


def test_the_luns_of_a_session_are_its_disks(machine: Machine) -> None:
    """Of tgt's target LUN 0 is a controller, of type 12."""
    machine.have_sessions(IQN)
    connection = machine.here / "connections/connection1:0"
    connection.mkdir(parents=True)
    for name, text in (("address", "192.0.2.130"), ("port", "3261")):
        (connection / name).write_text(f"{text}\n", encoding="utf-8")
    for lun, kind in ((0, 12), (1, 0), (2, 0)):
        unit = machine.here / f"sessions/session1/device/target2:0:0/2:0:0:{lun}"
        (unit / f"block/sd{lun}/queue").mkdir(parents=True)
        (unit / "type").write_text(f"{kind}\n", encoding="utf-8")
        (unit / f"block/sd{lun}/size").write_text("2048\n", encoding="utf-8")
    _, said, _ = machine.carry_out("luns")
    found = json.loads(said)
    assert (found["address"], found["port"]) == ("192.0.2.130", 3261)
    assert [(unit["lun"], unit["node"], unit["sectors"]) for unit in found["luns"]] == [
        (1, "/dev/sd1", "2048"),
        (2, "/dev/sd2", "2048"),
    ]
