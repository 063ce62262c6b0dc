"""The initiator: which iscsid logs a session in, and CHAP's secrets, which are in nothing that is printed."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from harness.hosts.journal import Journal
from harness.model.errors import UsageError
from harness.storage import chap
from harness.storage.chap import Secrets
from harness.storage.iscsi import initiator
from harness.storage.iscsi.initiator import IscsidService, WokenIscsid, configuration
from tests.unit.fakes import Command, World
from tests.unit.storage.files import lines, scripts

OURS = "iqn.2026-11.net.storage-harness:beef.initiator"


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
    journal, host = Journal(tmp_path / "journal.jsonl"), world.host("initiator")
    given: dict[str, Any] = {"chap_user": "me", "secrets": Secrets(own="s"), "log": tmp_path / "log"}
    with initiator.iscsid(journal, host, initiator_iqn=OURS, **given):
        world.commands.append(Command("initiator", ("use",)))
    assert not journal.leaks and not world.left
    done = [" ".join(word for word in c.argv if "\n" not in word) for c in world.commands]
    return done[4 if shown else 3 :]


ASKED = f"sh -c {initiator.RUNS}"
START, STOP = "systemctl start iscsid.service", "sh -c sh"


@pytest.mark.parametrize(
    ("shown", "listens", "runs", "steps"),
    [
        (states(socket="active", service="inactive"), False, False, [START, "use", f"{STOP} iscsid.service"]),
        (
            # An earlier harness left it so.
            states(socket="inactive", service="failed"),
            *(False, False, [START, "use", f"{STOP} iscsid.socket iscsid.service"]),
        ),
        (states(socket="active", service="active"), False, False, ["use"]),
        (states(socket="active", service="activating"), False, False, ["use"]),
        ("", False, False, ["daemon iscsid --foreground", "use"]),
        (states(socket="", service=""), False, False, ["daemon iscsid --foreground", "use"]),
        # Without D-Bus the iscsid that the socket starts is asked to end, unless it is the user's.
        ("", True, False, [ASKED, "use", "sh -c"]),
        ("", True, True, [ASKED, "use"]),
    ],
)
def test_an_iscsid_of_the_user_s_is_left_and_what_the_run_starts_is_ended(
    tmp_path: Path, shown: str, listens: bool, runs: bool, steps: list[str]
) -> None:
    assert use_iscsid(tmp_path, shown, listens=listens, runs=runs) == steps


SYSTEMCTL = """\
echo "$*" >> "$HERE/said"
case "$1" in
stop) exit "$STOPPED";;
reset-failed) echo "Failed to reset failed state: Unit not loaded." >&2; exit 1;;
esac
"""
UDEVADM = 'echo "udevadm $1" >> "$HERE/said"; exit 1'
ISCSIADM = 'echo "iscsiadm $*" >> "$HERE/said"; : > "$HERE/processes/4711/comm"'
SERVICE = IscsidService("iscsid.service", ("iscsid.socket", "iscsid.service"))
WOKEN = WokenIscsid(initiator.SOCKET)


class Machine:
    """A systemctl(1) and an iscsiadm(8) that write down what they are told, a folder of sessions, and one of
    processes, where an iscsid runs."""

    def __init__(self, here: Path) -> None:
        self.here = here
        scripts(here, {"systemctl": SYSTEMCTL, "udevadm": UDEVADM, "iscsiadm": ISCSIADM})
        (here / "sessions").mkdir()
        lines(here, {"processes/4711/comm": "iscsid"})

    def undo(self, of: IscsidService | WokenIscsid = SERVICE, *, stopped: int = 0) -> tuple[int, list[str]]:
        """How it ends, and what was said meanwhile."""
        log = self.here / "said"
        log.unlink(missing_ok=True)
        (step,) = of.undo()
        script = step.argv[2].replace("/sys/class/iscsi_session", str(self.here / "sessions"))
        script = script.replace("/proc/", f"{self.here}/processes/")
        places = {"PATH": f"{self.here}:{os.environ['PATH']}", "HERE": str(self.here)}
        done = subprocess.run(
            [*step.argv[:2], script, *step.argv[3:]],
            env={**places, "STOPPED": str(stopped)},
            check=False,
            stderr=subprocess.DEVNULL,
        )
        return done.returncode, log.read_text(encoding="utf-8").splitlines()


def test_units_are_stopped_and_no_failure_of_theirs_stays(tmp_path: Path) -> None:
    machine, settled = Machine(tmp_path), "udevadm settle"
    stop, reset = (f"{do} --quiet iscsid.socket iscsid.service" for do in ("stop", "reset-failed"))
    assert machine.undo() == (0, [settled, stop, reset])
    assert machine.undo(stopped=5) == (5, [settled, stop]), "it is reported"
    # Without D-Bus iscsid itself is asked, once.
    assert machine.undo(WOKEN) == (0, [settled, "iscsiadm --killiscsid 0"])
    assert machine.undo(WOKEN) == (0, [settled]), "it has gone"


def test_an_iscsid_that_somebody_has_come_to_need_goes_on(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    (tmp_path / "sessions" / "session4").mkdir()
    assert machine.undo() == machine.undo(WOKEN) == (0, ["udevadm settle"])


# CHAP


@pytest.fixture(autouse=True)
def none_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chap, "_kept", [])


def test_a_file_has_the_secret_of_one_direction_or_of_both_and_no_word_of_it_is_printed() -> None:
    assert chap.parse("sesame\n") == Secrets(own="sesame")
    both = Secrets(own="sesame", target_user="nas", target="open up")
    assert chap.parse("sesame\nnas open up\n") == both
    assert "sesame" not in repr(chap.parse("sesame\nnas sesame\n"))
    for text in ("", "\n", "sesame\nnas\n", "a\nb c\nd\n", "sésame\n", "ses\tame\n"):
        with pytest.raises(UsageError) as refused:
            chap.keep(text)
        assert "same" not in refused.value.message and chap.known() is None


def test_they_are_handed_over_once(monkeypatch: pytest.MonkeyPatch) -> None:
    assert chap.environment() == {} and chap.known() is None
    chap.keep("sesame\n")
    for name, value in chap.environment().items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(chap, "_kept", [])
    chap.take()
    assert chap.known() == chap.Secrets(own="sesame")
    assert chap.VARIABLE not in os.environ
    chap.take()
    assert chap.known() == chap.Secrets(own="sesame")


def test_sessions_and_discovery_authenticate_alike() -> None:
    none = configuration("", None)
    assert "node.session.auth.authmethod = None" in none and "password" not in none
    both = configuration("me", chap.parse("sesame\nnas open\n"))
    for of in ("node.session", "discovery.sendtargets"):
        for line in ("authmethod = CHAP", "username = me", "password = sesame", "username_in = nas"):
            assert f"{of}.auth.{line}\n" in both
        assert f"{of}.auth.password_in = open\n" in both
