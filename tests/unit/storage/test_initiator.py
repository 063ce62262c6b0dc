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
from harness.storage.iscsi.initiator import IscsidService, SocketActivatedIscsid, configuration
from tests.unit.fakes import Command, World
from tests.unit.fakes.answers import DONE, NO, Answer
from tests.unit.storage.files import lines, scripts

OURS = "iqn.2026-11.net.storage-harness:beef.initiator"
ASKED = f"sh -c {initiator.RUNS}"
START, STOP = "systemctl start iscsid.service", "sh -c sh"

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
WOKEN = SocketActivatedIscsid(initiator.SOCKET)


@pytest.mark.parametrize(
    ("states", "finds", "steps"),
    [
        ("active inactive", "", [START, "use", f"{STOP} iscsid.service"]),
        # An earlier harness left it so.
        ("inactive failed", "", [START, "use", f"{STOP} iscsid.socket iscsid.service"]),
        ("active active", "", ["use"]),
        ("active activating", "", ["use"]),
        ("", "", ["daemon iscsid --foreground", "use"]),
        ("none none", "", ["daemon iscsid --foreground", "use"]),
        # Without D-Bus the iscsid that the socket starts is asked to end, unless it is the user's.
        ("", "its socket", [ASKED, "use", "sh -c"]),
        ("", "its socket and an iscsid", [ASKED, "use"]),
    ],
)
def test_an_iscsid_of_the_user_s_is_left_and_what_the_run_starts_is_ended(
    tmp_path: Path, states: str, finds: str, steps: list[str]
) -> None:
    """``states`` are those of the socket and the service. Without any there is no systemd, or it cannot be
    asked; "none" is a unit that there is not."""
    shown = "\n".join(
        f"Id=iscsid.{unit}\nLoadState={'not-found' if state == 'none' else 'loaded'}\n"
        f"ActiveState={'inactive' if state == 'none' else state}\n"
        for unit, state in zip(("socket", "service"), states.split(), strict=False)
    )
    answers: list[tuple[tuple[str, ...], Answer]] = [
        (("ls", initiator.SYSTEMD), (0, "system\n", "") if states else (2, "", "")),
        (initiator.STATES, (0, shown, "")),
        (("sh", "-c", initiator.RUNS), DONE if "an iscsid" in finds else NO),
    ]
    world = World(answers=answers)
    if finds:
        world.secret_files["/proc/net/unix"] = initiator.SOCKET
    journal, host = Journal(tmp_path / "journal.jsonl"), world.host("initiator")
    given: dict[str, Any] = {"chap_user": "me", "secrets": Secrets(own="s"), "log": tmp_path / "log"}
    with initiator.iscsid(journal, host, initiator_iqn=OURS, **given):
        world.commands.append(Command("initiator", ("use",)))
    assert not journal.leaks and not world.left
    done = [" ".join(word for word in c.argv if "\n" not in word) for c in world.commands]
    assert done[4 if states else 3 :] == steps


def undo(here: Path, of: IscsidService | SocketActivatedIscsid, *, stopped: int = 0) -> tuple[int, list[str]]:
    """How it ends, and what systemctl(1) and iscsiadm(8) of a folder are told, where there are sessions and
    processes."""
    scripts(here, {"systemctl": SYSTEMCTL, "udevadm": UDEVADM, "iscsiadm": ISCSIADM})
    (log := here / "said").unlink(missing_ok=True)
    (step,) = of.undo()
    script = step.argv[2].replace("/sys/class/iscsi_session", f"{here}/sessions")
    argv = [*step.argv[:2], script.replace("/proc/", f"{here}/processes/"), *step.argv[3:]]
    env = {"PATH": f"{here}:{os.environ['PATH']}", "HERE": str(here), "STOPPED": str(stopped)}
    done = subprocess.run(argv, env=env, check=False, stderr=subprocess.DEVNULL)
    return done.returncode, log.read_text(encoding="utf-8").splitlines()


def test_units_are_stopped_unless_somebody_has_come_to_need_them_and_no_failure_stays(tmp_path: Path) -> None:
    settled = "udevadm settle"
    stop, reset = (f"{do} --quiet iscsid.socket iscsid.service" for do in ("stop", "reset-failed"))
    (tmp_path / "sessions/session4").mkdir(parents=True)
    lines(tmp_path, {"processes/4711/comm": "iscsid"})
    assert undo(tmp_path, SERVICE) == undo(tmp_path, WOKEN) == (0, [settled])
    (tmp_path / "sessions/session4").rmdir()
    assert undo(tmp_path, SERVICE) == (0, [settled, stop, reset])
    assert undo(tmp_path, SERVICE, stopped=5) == (5, [settled, stop]), "it is reported"
    # Without D-Bus iscsid itself is asked, once.
    assert undo(tmp_path, WOKEN) == (0, [settled, "iscsiadm --killiscsid 0"])
    assert undo(tmp_path, WOKEN) == (0, [settled]), "it has gone"


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
    for _ in range(2):
        chap.take()
        assert chap.known() == Secrets(own="sesame") and chap.VARIABLE not in os.environ


def test_sessions_and_discovery_authenticate_alike() -> None:
    none = configuration("", None)
    assert "node.session.auth.authmethod = None" in none and "password" not in none
    both = configuration("me", chap.parse("sesame\nnas open\n"))
    for of in ("node.session", "discovery.sendtargets"):
        for line in ("authmethod = CHAP", "username = me", "password = sesame", "username_in = nas"):
            assert f"{of}.auth.{line}\n" in both
        assert f"{of}.auth.password_in = open\n" in both
