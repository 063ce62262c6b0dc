"""The one place that starts programs: what they get, how they fail, and that they end.

What a host does with them is in test_hosts (``HostContract``).
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from unittest.mock import Mock

import pytest

from harness.hosts import NamespaceHost, _Child
from harness.hosts.runner import Completed, piped, run, tail
from harness.model.errors import CommandFailed
from tests.unit.hosts.test_hosts import PATIENCE_S, is_alive, pid_in, wait_for

HERE = NamespaceHost("target")


def test_a_program_that_fails_is_an_error_with_its_command_line_and_last_words() -> None:
    with pytest.raises(CommandFailed) as failed:
        run(["sh", "-c", "for n in 1 2 3 4 5; do echo line $n >&2; done; exit 7", "it's me"])
    program = "`sh -c 'for n in 1 2 3 4 5; do echo line $n >&2; done; exit 7' 'it'\"'\"'s me'`"
    assert failed.value.message == f"{program} ended with status 7: line 3 / line 4 / line 5"
    assert failed.value.exit_code == 1
    # Without an error message other words have to do.
    for script, words in (("echo only this; exit 1", "only this"), ("exit 1", "it printed nothing")):
        with pytest.raises(CommandFailed, match=f"status 1: {words}$"):
            run(["sh", "-c", script])
    # A failure can be asked for instead, and death by a signal is a negative status.
    for script, status in (("exit 3", 3), ("kill -9 $$", -9)):
        assert run(["sh", "-c", script], check=False).status == status
    good = Completed(argv=("true",), status=0, stdout="", stderr="")
    assert good.require_success() is good
    with pytest.raises(CommandFailed, match="`false` ended with status -15: it printed nothing"):
        Completed(argv=("false",), status=-15, stdout="", stderr=" \n").require_success()


def test_programs_get_the_c_locale_and_the_system_folders(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LC_ALL", "de_DE.UTF-8")
    monkeypatch.setenv("LANGUAGE", "de")
    monkeypatch.setenv("KEPT", "yes")
    script = 'echo "$LC_ALL|$LANGUAGE|$KEPT|$EXTRA|$PATH"'
    locale, language, kept, extra, path = run(["sh", "-c", script], env={"EXTRA": "x"}).stdout.split("|")
    assert (locale, language, kept, extra) == ("C.UTF-8", "", "yes", "x")
    assert path.strip().endswith(":/usr/sbin:/sbin")
    assert os.environ["LC_ALL"] == "de_DE.UTF-8"


def test_an_interrupted_program_is_killed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*_args: object, **_kwargs: object) -> tuple[str, str]:
        pid_in(tmp_path / "pid")
        raise KeyboardInterrupt

    monkeypatch.setattr("subprocess.Popen.communicate", interrupt)
    with pytest.raises(KeyboardInterrupt):
        run(["sh", "-c", 'sleep 60 & echo $! > "$1"; wait', "sh", str(tmp_path / "pid")])
    child = pid_in(tmp_path / "pid")
    wait_for(lambda: not is_alive(child), "the child's end")


def test_a_daemon_that_ignores_sigterm_is_killed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log, mark, real_wait = tmp_path / "log", tmp_path / "ready", subprocess.Popen.wait
    monkeypatch.setattr("subprocess.Popen.wait", lambda self, timeout=None: real_wait(self, timeout and 0.1))
    argv = ["sh", "-c", 'trap "" TERM; touch "$1"; while :; do sleep 0.01; done', "sh", str(mark)]
    with HERE.daemon(argv, log=log, ready=mark.exists, deadline_s=PATIENCE_S) as daemon:
        pass
    assert isinstance(daemon, _Child) and daemon.process.returncode == -9


def test_a_daemon_that_cannot_be_killed_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As one that waits in the kernel for a disk that does not answer (state D)."""
    real_wait, endless = subprocess.Popen.wait, Mock(side_effect=subprocess.TimeoutExpired("sleep", 0))
    with (
        pytest.raises(CommandFailed, match="could not be killed"),
        HERE.daemon(["sleep", "60"], log=tmp_path / "log", ready=lambda: True, deadline_s=5) as daemon,
    ):
        monkeypatch.setattr("subprocess.Popen.wait", endless)
    monkeypatch.setattr("subprocess.Popen.wait", real_wait)
    assert isinstance(daemon, _Child) and daemon.process.wait(timeout=PATIENCE_S) in (-9, -15)


def test_what_a_program_prints_goes_through_a_pipe_into_a_file(tmp_path: Path) -> None:
    console = tmp_path / "console"
    script = "test -p /dev/stdout && echo pipe; echo err >&2"
    with piped(["sh", "-c", script], output=console) as process:
        assert process.wait(timeout=PATIENCE_S) == 0
    assert console.read_text(encoding="utf-8") == "pipe\nerr\n"
    # Leaving kills what still runs, and keeps its words.
    with piped(["sh", "-c", "echo last words; exec sleep 60"], output=console) as process:
        wait_for(lambda: "words" in console.read_text(encoding="utf-8"), "its words")
    assert process.returncode == -9
    assert console.read_text(encoding="utf-8") == "pipe\nerr\nlast words\n"


def test_the_tail_of_a_log_is_one_line(tmp_path: Path) -> None:
    log = tmp_path / "log"
    assert tail(log) == "its log is empty"
    for text, expected in (("a\nb\nc\nd\n", "b / c / d"), ("one\n", "one"), ("\n\n", "its log is empty")):
        log.write_text(text, encoding="utf-8")
        assert tail(log) == expected, text
