"""The lab under the limits of containers, each imposed by hand: a run, or one true sentence."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.lab.cli import HARNESS, Done, ended

pytestmark = pytest.mark.lab

CONTAINER = """\
set -e
mount --bind /dev/null /proc/timer_list
mount --bind /proc/sys /proc/sys
mount -o remount,bind,ro /proc/sys
mount -t tmpfs -o size=64m,noexec shm /dev/shm
exec setpriv --bounding-set -sys_admin --inh-caps -all "$@"
"""
"""Root without the right to mount, parts of whose /proc are hidden, as by Docker and Podman; for sh(1)."""

FILTER = """
import os, sys
from harness.testbeds.lab.boot.programs import confine
confine.FORBIDDEN = tuple(map(int, sys.argv[1].split(",")))
confine.libc.prctl(confine.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
confine.forbid_calls()
os.execv(sys.argv[2], sys.argv[2:])
"""
"""A seccomp filter that refuses some system calls, for python: their numbers, and a command."""

REACH = """\
for root in /proc/[0-9]*/root; do echo escaped >"$root$0/escaped"; done 2>/dev/null
read -r _ _ _ parent _ </proc/self/stat
echo "tried; process $$ is $parent"
"""
"""Reach a folder through other processes, for sh(1); then tell its own number, and that which /proc has."""

IN_SANDBOX = """
import subprocess, sys
from pathlib import Path
from harness.testbeds.lab.boot import sandbox
folder, victim, reach = sys.argv[1:]
way = sandbox.wrapper([Path(folder)])
sys.exit(subprocess.run([*way, "sh", "-c", reach, victim]).returncode)
"""


def contained(*words: str) -> Done:
    spaces = ("--map-root-user", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc")
    return ended(["unshare", *spaces, "sh", "-c", CONTAINER, "sh", *words])


def test_it_boots_where_parts_of_proc_are_hidden() -> None:
    done = contained(HARNESS, "doctor")
    assert "it boots and writes to its results folder" in done.out, done
    assert "a folder for its memory: /dev/shm" not in done.out


def test_with_the_first_proc_it_reaches_no_process_outside(tmp_path: Path) -> None:
    results, victim = tmp_path / "results", tmp_path / "victim"
    results.mkdir()
    victim.mkdir()
    done = contained(sys.executable, "-c", IN_SANDBOX, str(results), str(victim), REACH)
    assert "tried; process" in done.out, done
    own, in_proc = (int(word) for word in done.out.split() if word.isdigit())
    assert own != in_proc, "/proc should have been the container's"
    assert list(victim.iterdir()) == []


@pytest.mark.parametrize(
    ("calls", "sentence"),
    [
        pytest.param("272", "forbids unshare(2) here", id="unshare"),
        pytest.param("165", "in a user namespace this machine refuses them: unshare: ", id="mount"),
        pytest.param("442", "the lab cannot be confined: mount_setattr: Operation", id="mount_setattr"),
        pytest.param("101", "a filter or Yama forbids ptrace(2)", id="ptrace"),
    ],
)
def test_a_filter_that_refuses_what_it_needs_is_named(calls: str, sentence: str) -> None:
    done = contained(sys.executable, "-c", FILTER, calls, HARNESS, "doctor")
    assert (done.status, sentence in done.out) == (2, True), done
    assert done.out.endswith("the lab is not ready\n")


def test_no_further_user_namespaces_are_the_reason_that_is_reported() -> None:
    none = 'echo 0 >/proc/sys/user/max_user_namespaces; exec "$@"'
    place = ["unshare", "--map-root-user", "--mount", "sh", "-c", none, "sh"]
    limits = ["setpriv", "--bounding-set", "-sys_admin", "--inh-caps", "-all"]
    done = ended([*place, *limits, HARNESS, "doctor"])
    assert "user namespaces, so that nothing of it can outlive it, but they are refused here" in done.out
    assert "max_user_namespaces=" in done.out


def test_root_without_capabilities_is_reported_to_be_another_user() -> None:
    done = contained("setpriv", "--bounding-set", "-all", HARNESS, "doctor")
    assert "CAP_SETFCAP, which is missing" in done.out and "--user 1000:1000" in done.out, done
