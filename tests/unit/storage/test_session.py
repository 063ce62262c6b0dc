"""The program of a session, which iscsid opens. It ends by the iscsid that knows it, or the kernel; what is
absent is no error."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from harness.hosts import programs
from harness.hosts.programs.answering import NOT_REACHED
from tests.unit.storage.files import lines, scripts

pytestmark = pytest.mark.thorough

IQN = "iqn.2026-11.net.storage-harness:beef.wired.off"
REQUEST: dict[str, Any] = {"iqn": IQN, "portal": "198.18.0.2:3260", "interface": "harness-me"}
REQUEST |= {"bound_to": "", "initiator_iqn": "iqn.x:me", "lun": 0, "within_s": 8, "is_mutual": False}
NODE = f"--mode node --targetname {IQN} --portal 198.18.0.2:3260 --interface harness-me"
NEW, LOGIN, LOGOUT, DELETE = (f"{NODE} {do}" for do in ("--op new", "--login", "--logout", "--op delete"))
IFACE = "--mode iface --interface harness-me"
MADE = [f"{IFACE} --op new", f"{IFACE} --op update --name iface.initiatorname --value iqn.x:me"]
"""Its iface record may have gone with a killed run; without it iscsiadm says 3, and not 21, of a node record
that is not there."""
BOUND = [*MADE, f"{IFACE} --op update --name iface.net_ifacename --value eth0"]
FORGOTTEN = [DELETE, f"{IFACE} --op delete"]
BURST, R2T = "node.session.iscsi.MaxBurstLength", "node.session.iscsi.InitialR2T"
UPDATES = [f"{NODE} --op update --name {BURST} --value 65536", f"{NODE} --op update --name {R2T} --value No"]
FILES: Any = (("erl", "recovery_tmo"), ("header_digest",), ("queue/scheduler",))
SHOWN = "192.0.2.2:3260,1 iqn.x:a\n[fd00::2]:3260,1 iqn.x:a\n192.0.2.2:3260,1 iqn.x:b\n"

ISCSIADM = """\
echo "$*" >> "$HERE/said"
case "$*" in
*--logout)
    status=$(head -n 1 "$HERE/logout")
    sed -i 1d "$HERE/logout"
    test "$status" = "$(cat "$HERE/gone")" && rm -r "$HERE"/sessions/session1
    exit "$status";;
*"node "*"--op delete") exit "$(cat "$HERE/delete")";;
*discovery*) sleep "$(cat "$HERE/silent")"; exit 4;;
*"iface "*"--op new") exit "$(cat "$HERE/new")";;
*--login) exit "$(cat "$HERE/login")";;
*"--interface harness-me")
    head -n 1 "$HERE/records"
    sed -i 1d "$HERE/records";;
esac
"""
PLACES = {
    "/sys/class/iscsi_session": "sessions",
    "/sys/class/iscsi_connection": "connections",
    "/proc/net/unix": "unix",
    "/etc/iscsi": "etc",
    "/var/lib/iscsi": "var",
    "/etc/multipath/wwids": "wwids",
    # Absent: a session of this machine's own kernel is never to be touched.
    "/sys/class/iscsi_transport/tcp/handle": "handle",
}


@dataclass
class Machine:
    """Sessions, sockets and open-iscsi's programs, all in a folder."""

    here: Path

    def have_sessions(self, *iqns: str) -> Path:
        """The folder of the first one."""
        for number, iqn in enumerate(iqns, 1):
            lines(self.here / f"sessions/session{number}", {"targetname": iqn, "ifacename": "harness-me"})
        return self.here / "sessions/session1"

    def answer(self, *, logout: tuple[int, ...] = (0,), unknown: int = 0, **statuses: Any) -> None:
        """Exit statuses; and how many records are made before iscsid has told where its configuration is.

        ``gone`` is that of the logout after which the session is gone.
        """
        records = "# BEGIN RECORD 2.1.8\n" * unknown + "node.conn[0].timeo.login_timeout = 8"
        said = {"records": records, "logout": "\n".join(map(str, logout))}
        lines(self.here, {"new": 0, "login": 0, "delete": 0, "gone": 0, "silent": 0} | said | statuses)

    def have_sessions_of_iscsid(self, *iqns: str, **answers: Any) -> Path:
        lines(self.here, {"unix": "0: 2 0 0 @ISCSIADM_ABSTRACT_NAMESPACE"})
        self.answer(**answers)
        return self.have_sessions(*iqns or [IQN])

    def log_out(self, *, deadline_s: float = 60.0, **changes: Any) -> tuple[int, str]:
        status, said, error = self.carry_out("disconnect", deadline_s=deadline_s, **changes)
        assert said == ("null" if status == 0 else "")
        return status, error

    def carry_out(
        self, do: str, *, deadline_s: float = 60.0, record_s: float = 60.0, **changes: Any
    ) -> tuple[int, str, str]:
        source = programs.source("harness.storage.iscsi", "session")
        for path, name in PLACES.items():
            assert source.count(f'"{path}"') == 1
            source = source.replace(f'"{path}"', f'"{self.here / name}"')
        source = source.replace("DEADLINE_S = 10.0", f"DEADLINE_S = {deadline_s}")
        source = source.replace("RECORD_S = 60.0", f"RECORD_S = {record_s}")
        env = {"PATH": f"{self.here}:{os.environ['PATH']}", "HERE": str(self.here)}
        argv, asked = [programs.PYTHON, "-I", "-S", "-c", source], json.dumps(REQUEST | {"do": do} | changes)
        done = subprocess.run(argv, input=asked, capture_output=True, text=True, env=env, timeout=120)
        return done.returncode, done.stdout, done.stderr

    @property
    def said(self) -> list[str]:
        file = self.here / "said"
        return file.read_text(encoding="utf-8").splitlines() if file.exists() else []


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    multipath = 'echo "multipath $*" >> "$HERE/said"\n'
    namespace = {"unshare": 'shift\nexec "$@"\n', "mount": "exit 1\n"}
    scripts(tmp_path, {"iscsiadm": ISCSIADM, "multipath": multipath, **namespace})
    (tmp_path / "etc").mkdir()
    (tmp_path / "unix").touch()
    (made := Machine(tmp_path)).answer()
    return made


@pytest.mark.parametrize(
    ("answers", "asked", "said"),
    [
        ({}, {}, [*MADE, NEW, LOGOUT, *FORGOTTEN]),
        ({}, {"bound_to": "eth0"}, [*BOUND, NEW, LOGOUT, *FORGOTTEN]),
        # Once it is connected anew; once iscsid has found it; it has just ended.
        ({"logout": (32, 32, 0)}, {}, [*MADE, NEW, LOGOUT, LOGOUT, LOGOUT, *FORGOTTEN]),
        ({"logout": (2, 32, 0)}, {}, [*MADE, NEW, LOGOUT, LOGOUT, LOGOUT, *FORGOTTEN]),
        ({"logout": (21,), "delete": 21, "gone": 21}, {}, [*MADE, NEW, LOGOUT, *FORGOTTEN]),
    ],
)
def test_a_session_is_ended_by_the_iscsid_that_runs(
    machine: Machine, answers: dict[str, Any], asked: dict[str, Any], said: list[str]
) -> None:
    machine.have_sessions_of_iscsid(**answers)
    assert machine.log_out(**asked) == (0, "") and machine.said == said
    assert list((machine.here / "etc").iterdir()) == []


def test_records_that_are_there_are_not_made_again(machine: Machine) -> None:
    for times, folder in enumerate(("etc", "var"), 1):
        machine.have_sessions_of_iscsid()
        lines(machine.here / folder / "ifaces", {REQUEST["interface"]: ""})
        assert machine.log_out() == (0, "") and machine.said == times * [LOGOUT, *FORGOTTEN]
        shutil.rmtree(machine.here / folder / "ifaces")


@pytest.mark.parametrize("listed", [True, False])
def test_multipathd_lets_go_of_the_disk_that_it_took(machine: Machine, listed: bool) -> None:
    disk = machine.have_sessions_of_iscsid() / "device/target0:0:0/0:0:0:0"
    lines(disk, {"wwid": "naa.60014ab", "block/sdq/size": 8})
    lines(machine.here, {"wwids": f"# Valid WWIDs:\n/3600aaaa/\n/360014{'ab' if listed else 'ff'}/"})
    assert machine.log_out() == (0, "")
    steps = ["multipath -f 360014ab", "multipath -w /dev/sdq"] if listed else []
    assert machine.said == [*MADE, NEW, *steps, LOGOUT, *FORGOTTEN]


def test_without_an_iscsid_it_is_the_kernel_s_to_end(machine: Machine) -> None:
    """To have it do so is tests/lab/inside/killed_host_run.py's."""
    machine.have_sessions(IQN)
    status, said = machine.log_out()
    assert status == 1 and "and the kernel did not end it: " in said and "No such file" in said
    assert machine.said == [*MADE, NEW], "without its record it could not be ended later"


def test_sessions_to_others_are_left_alone_and_what_is_absent_needs_no_ending(machine: Machine) -> None:
    machine.answer(delete=21)
    assert machine.log_out() == (0, "") and machine.said == [*MADE, *FORGOTTEN]
    machine.answer()
    machine.have_sessions("iqn.2020-01.org.example:mine", f"{IQN}.more", IQN[:-1])
    assert machine.log_out() == (0, "") and machine.said == 2 * [*MADE, *FORGOTTEN]
    assert len(list((machine.here / "sessions").iterdir())) == 3
    # A record that stays is reported.
    machine.answer(delete=6)
    assert machine.log_out() == (1, f"the record of {IQN} could not be deleted (iscsiadm said 6)\n")


@pytest.mark.parametrize(
    ("status", "times", "and_then"),
    [
        (8, 1, ""),
        (21, 1, ""),
        (32, 99, ""),
        # The machine's iscsid has lost it, so the kernel is to end it.
        (2, 99, ", and the kernel did not end it: .*No such file.*"),
    ],
)
def test_a_session_that_stays_is_reported(machine: Machine, status: int, times: int, and_then: str) -> None:
    machine.have_sessions_of_iscsid(logout=(status,) * times)
    ended, said = machine.log_out(deadline_s=1.0)
    reported = rf"session1 to {IQN} could not be logged out \(iscsiadm said {status}\){and_then}\n"
    assert ended == 1 and re.fullmatch(reported, said), said
    tries = machine.said.count(LOGOUT)
    assert tries == 1 if times == 1 else 1 < tries < 99, "it is not tried for ever"
    assert DELETE not in machine.said, "without its record it could not be ended later"


def connect(machine: Machine, parameters: dict[str, str] | None = None, **more: Any) -> tuple[int, str, str]:
    return machine.carry_out("connect", parameters=parameters or {}, bound_to="eth0", **more)


def test_a_session_has_an_iface_record_that_names_it_whoever_logs_it_in(machine: Machine) -> None:
    steps: list[str] = []
    for parameters, unknown, said in (
        ({}, 0, [NEW, NODE, LOGIN]),
        ({BURST: "65536", R2T: "No"}, 0, [NEW, NODE, *UPDATES, LOGIN]),
        # A second without an answer gives one without CHAP, with a login that is tried eight times for 15 s.
        ({}, 2, [NEW, NODE, DELETE, NEW, NODE, DELETE, NEW, NODE, LOGIN]),
    ):
        machine.answer(unknown=unknown)
        steps += [*BOUND, *said]
        assert connect(machine, parameters) == (0, "null", "") and machine.said == steps
    assert not re.search("password|secret", " ".join(machine.said)), "others can read a command line"


def test_an_iscsid_that_never_answers_is_named(machine: Machine) -> None:
    machine.answer(unknown=1_000)
    status, _, error = connect(machine, record_s=0.3)
    assert status == 1 and "answer within 0.3 s" in error and "systemctl status iscsid" in error


def test_a_record_that_is_left_is_taken_and_no_answer_is_distinguished_from_a_refusal(
    machine: Machine,
) -> None:
    for step, status, ends, steps in (
        ("new", 15, 0, 6),  # it is left of an earlier cell
        ("new", 6, 1, 1),
        *(("login", 8, NOT_REACHED, 6), ("login", 4, NOT_REACHED, 6), ("login", 24, 1, 6)),
    ):
        machine.answer()
        lines(machine.here, {step: status})
        (machine.here / "said").unlink(missing_ok=True)
        assert connect(machine)[0] == ends and len(machine.said) == steps, (step, status)


@pytest.mark.parametrize(
    ("status", "is_mutual", "words"),
    [
        (24, False, "or an ACL with this initiator's name, iqn.x:me"),
        (24, True, "or an ACL with this initiator's name, iqn.x:me"),
        (19, False, "it ended the login: perhaps it requires CHAP"),
        (19, True, "could not prove the second secret"),
        (21, False, "shows no target to this initiator, iqn.x:me"),
    ],
)
def test_who_ended_a_login_is_told_as_far_as_it_is_known(
    machine: Machine, status: int, is_mutual: bool, words: str
) -> None:
    machine.answer(login=status)
    ended, _, error = machine.carry_out("connect", parameters={}, is_mutual=is_mutual)
    assert ended == 1 and words in error and "Error" not in error


def session(machine: Machine, name: str) -> Path:
    """A session with a disk, by its initiator's name; the disk."""
    folder = lines(machine.have_sessions(IQN), {"initiatorname": name, "erl": 0})
    lines(machine.here / "connections/connection1:0", {"header_digest": ""})
    return lines(folder / "device/target0:0:0/0:0:0:0/block/sda", {"queue/scheduler": "[none]"})


def test_what_a_session_has_come_to_is_told_unless_it_is_under_another_name(machine: Machine) -> None:
    disk = session(machine, "iqn.x:me")
    status, said, _ = machine.carry_out("tell", files=FILES)
    found = {"session": f"{machine.here}/sessions/session1", "disk": str(disk)}
    assert status == 0 and json.loads(said) == found | {"agreed": {"erl": "0", "scheduler": "[none]"}}
    for name in ("iqn.1993-08.org.debian:01:abc", ""):
        session(machine, name)
        status, _, error = machine.carry_out("tell", files=FILES)
        assert status == 1 and f"session1 to be iqn.x:me's, found {name or 'no name'}" in error


def test_a_session_that_gets_no_disk_or_is_none_is_reported(machine: Machine) -> None:
    assert "the kernel has no such session" in machine.carry_out("tell", files=FILES)[2]
    shutil.rmtree(session(machine, "iqn.x:me") / "queue")
    error = machine.carry_out("tell", deadline_s=0.1, files=FILES)[2]
    assert f"LUN 0 of {IQN} did not become a disk" in error


def test_a_session_of_the_user_s_to_the_same_target_is_not_ours(machine: Machine) -> None:
    first = lines(machine.have_sessions_of_iscsid(IQN, IQN, logout=(2,)), {"ifacename": "default"})
    status, said = machine.log_out(deadline_s=1.0)
    assert status == 1 and "session2 to " in said and first.exists()


def test_a_portal_is_asked_for_its_targets(machine: Machine) -> None:
    answers = ((0, 0, ""), (8, NOT_REACHED, "answered"), (11, NOT_REACHED, "answered"), (24, 1, "refuses"))
    for status, ends, word in answers:
        answer = f"case \"$*\" in *discovery*) printf '{SHOWN}'; exit {status};; esac\n"
        scripts(machine.here, {"iscsiadm": answer + ISCSIADM})
        ended, said, error = machine.carry_out("discover")
        assert ended == ends and word in error
        if not status:
            two, one = ["192.0.2.2:3260", "[fd00::2]:3260"], ["192.0.2.2:3260"]
            assert json.loads(said)["targets"] == {"iqn.x:a": two, "iqn.x:b": one}
            assert machine.said == [*MADE, f"{IFACE} --op delete"]


def test_the_luns_of_a_session_are_its_disks(machine: Machine) -> None:
    """Of tgt's target LUN 0 is a controller, of type 12."""
    units = machine.have_sessions(IQN) / "device/target2:0:0"
    lines(machine.here / "connections/connection1:0", {"address": "192.0.2.130", "port": 3261})
    for lun, kind in ((0, 12), (1, 0), (2, 0)):
        block = f"block/sd{lun}"
        lines(units / f"2:0:0:{lun}", {"type": kind, f"{block}/size": 2048, f"{block}/queue/rotational": 0})
    found = json.loads(machine.carry_out("luns")[1])
    assert (found["address"], found["port"]) == ("192.0.2.130", 3261)
    listed = [(unit["lun"], unit["node"], unit["sectors"]) for unit in found["luns"]]
    assert listed == [(1, "/dev/sd1", "2048"), (2, "/dev/sd2", "2048")]


@pytest.mark.parametrize(("silent", "least_s"), [(0, 0.0), (60, 0.6)])
def test_a_portal_that_shows_no_targets_in_time_is_silent(
    machine: Machine, silent: int, least_s: float
) -> None:
    """It is told how long that was: up to three times a login's time."""
    machine.answer(silent=silent)
    status, said, error = machine.carry_out("discover", within_s=0.2)
    stated = re.fullmatch(r"nothing answered within ([\d.]+) s\n", error)
    assert (status, said) == (NOT_REACHED, "") and stated is not None and float(stated[1]) >= least_s
    assert machine.said[-1] == f"{IFACE} --op delete"
