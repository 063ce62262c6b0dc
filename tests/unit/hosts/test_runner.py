"""The one place that starts programs: what they get, how they fail, and that they end."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from harness.hosts import Daemon, NamespaceHost, _Child
from harness.hosts.runner import Completed, await_condition, piped, run, tail
from harness.model.errors import CommandFailed, RequirementError


def alive(pid: int) -> bool:
    """Whether a process runs; one that has ended and waits for its parent does not."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return False
    return fields[0] not in "ZX"


PATIENCE_S = 30.0
"""A busy machine has nothing to do at once."""


def soon(condition: Callable[[], bool]) -> bool:
    end = time.monotonic() + PATIENCE_S
    while not condition() and time.monotonic() < end:
        time.sleep(0.005)
    return condition()


def pid_in(file: Path) -> int:
    assert soon(lambda: file.exists() and file.read_text(encoding="utf-8").endswith("\n"))
    return int(file.read_text(encoding="utf-8"))


# run()


def test_a_program_that_ends_well_gives_its_output() -> None:
    done = run(["sh", "-c", "echo out; echo err >&2"])
    assert (done.status, done.stdout, done.stderr) == (0, "out\n", "err\n")
    assert done.argv == ("sh", "-c", "echo out; echo err >&2")


def test_a_program_that_fails_is_an_error_with_its_command_line_and_last_words() -> None:
    with pytest.raises(CommandFailed) as failed:
        run(["sh", "-c", "for n in 1 2 3 4 5; do echo line $n >&2; done; exit 7", "it's me"])
    assert failed.value.message == (
        "`sh -c 'for n in 1 2 3 4 5; do echo line $n >&2; done; exit 7' 'it'\"'\"'s me'` "
        "ended with status 7: line 3 / line 4 / line 5"
    )
    assert failed.value.exit_code == 1


@pytest.mark.parametrize(
    ("script", "words"),
    [("echo only this; exit 1", "only this"), ("exit 1", "it printed nothing")],
)
def test_without_an_error_message_other_words_have_to_do(script: str, words: str) -> None:
    with pytest.raises(CommandFailed, match=f"status 1: {words}$"):
        run(["sh", "-c", script])


def test_a_failure_can_be_asked_for_instead() -> None:
    assert run(["sh", "-c", "exit 3"], check=False).status == 3


def test_death_by_a_signal_is_a_negative_status() -> None:
    assert run(["sh", "-c", "kill -9 $$"], check=False).status == -9


@pytest.mark.parametrize("name", ["no-such-program-at-all", "FOLDER/not-executable"])
def test_a_program_that_cannot_be_started_is_a_requirement(tmp_path: Path, name: str) -> None:
    (tmp_path / "not-executable").write_text("#!/bin/sh\n", encoding="utf-8")
    argv = [name.replace("FOLDER", str(tmp_path)), "argument"]
    with pytest.raises(RequirementError) as missing:
        run(argv, check=False)
    assert argv[0] in missing.value.message
    assert "doctor" in (missing.value.hint or "")


def test_arguments_pass_no_shell() -> None:
    words = ["; reboot", "$(id)", "a b", "", "*", "-n"]
    assert run(["printf", "%s|", *words]).stdout == "".join(f"{word}|" for word in words)


def test_standard_input_is_empty_unless_it_is_given() -> None:
    assert run(["cat"], timeout_s=5).stdout == ""
    assert run(["readlink", "/proc/self/fd/0"]).stdout == "/dev/null\n"
    assert run(["cat"], input="a\nß").stdout == "a\nß"


def test_programs_get_the_c_locale_and_the_system_folders(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LC_ALL", "de_DE.UTF-8")
    monkeypatch.setenv("LANGUAGE", "de")
    monkeypatch.setenv("KEPT", "yes")
    script = 'echo "$LC_ALL|$LANGUAGE|$KEPT|$EXTRA|$PATH"'
    locale, language, kept, extra, path = run(["sh", "-c", script], env={"EXTRA": "x"}).stdout.split("|")
    assert (locale, language, kept, extra) == ("C.UTF-8", "", "yes", "x")
    assert path.strip().endswith(":/usr/sbin:/sbin")
    assert os.environ["LC_ALL"] == "de_DE.UTF-8"


def test_output_that_is_no_utf8_is_kept_readable() -> None:
    assert run(["printf", r"a\377b"]).stdout == "a\N{REPLACEMENT CHARACTER}b"


def test_a_program_that_does_not_end_is_killed_with_its_children(tmp_path: Path) -> None:
    script = 'sleep 60 & echo $! > "$1"; wait'
    pid = tmp_path / "pid"
    pid.touch()
    for timeout_s in (0.3, 10.0):  # on a busy machine it may not have begun so soon
        began = time.monotonic()
        with pytest.raises(CommandFailed, match=rf"`sh -c .*` did not end within {timeout_s:g} s"):
            run(["sh", "-c", script, "sh", str(pid)], timeout_s=timeout_s, check=False)
        assert time.monotonic() - began < PATIENCE_S
        if pid.read_text(encoding="utf-8"):
            break
    child = pid_in(pid)
    assert soon(lambda: not alive(child))


def test_an_interrupted_program_is_killed_with_its_children(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(*_args: object, **_kwargs: object) -> tuple[str, str]:
        pid_in(tmp_path / "pid")
        raise KeyboardInterrupt

    monkeypatch.setattr("subprocess.Popen.communicate", interrupt)
    with pytest.raises(KeyboardInterrupt):
        run(["sh", "-c", 'sleep 60 & echo $! > "$1"; wait', "sh", str(tmp_path / "pid")])
    child = pid_in(tmp_path / "pid")
    assert soon(lambda: not alive(child))


def test_success_is_returned_and_failure_raised_by_what_completed() -> None:
    good = Completed(argv=("true",), status=0, stdout="", stderr="")
    assert good.require_success() is good
    with pytest.raises(CommandFailed, match="`false` ended with status -15: it printed nothing"):
        Completed(argv=("false",), status=-15, stdout="", stderr=" \n").require_success()


# A host's daemons

HERE = NamespaceHost("target")


def of(daemon: Daemon) -> subprocess.Popen[bytes]:
    assert isinstance(daemon, _Child)
    return daemon.process


def test_a_daemon_is_entered_when_it_is_ready_and_stopped_at_the_end(tmp_path: Path) -> None:
    log, mark = tmp_path / "log", tmp_path / "ready"
    log.write_text("before\n", encoding="utf-8")
    script = 'echo starting; echo oops >&2; sleep 0.05; touch "$1"; exec sleep 60'
    argv = ["sh", "-c", script, "sh", str(mark)]
    with HERE.daemon(argv, log=log, ready=mark.exists, deadline_s=PATIENCE_S) as process:
        assert mark.exists()
        assert alive(of(process).pid)
        assert os.getsid(of(process).pid) == of(process).pid
    assert not alive(of(process).pid)
    assert log.read_text(encoding="utf-8") == "before\nstarting\noops\n"


def test_a_daemons_output_can_be_kept_apart_from_its_errors(tmp_path: Path) -> None:
    log, output = tmp_path / "log", tmp_path / "output"
    script = "echo err >&2; printf data; exec sleep 60"
    with HERE.daemon(
        ["sh", "-c", script],
        log=log,
        output=output,
        ready=lambda: output.read_bytes() == b"data",
        deadline_s=PATIENCE_S,
    ):
        pass
    assert log.read_text(encoding="utf-8") == "err\n"


def test_a_daemon_is_stopped_when_what_it_serves_fails(tmp_path: Path) -> None:
    with (
        pytest.raises(ZeroDivisionError),
        HERE.daemon(["sleep", "60"], log=tmp_path / "log", ready=lambda: True, deadline_s=5) as process,
    ):
        raise ZeroDivisionError
    assert not alive(of(process).pid)


def test_a_daemon_that_does_not_get_ready_is_killed_at_its_deadline(tmp_path: Path) -> None:
    script = 'echo $$ > "$1"; exec sleep 60'
    argv = ["sh", "-c", script, "sh", str(tmp_path / "pid")]
    with (
        pytest.raises(CommandFailed, match=r"waited 0\.2 s in vain for `sh .* on the target to become"),
        HERE.daemon(argv, log=tmp_path / "log", ready=lambda: not pid_in(tmp_path / "pid"), deadline_s=0.2),
    ):
        pytest.fail("it was entered")
    assert not alive(pid_in(tmp_path / "pid"))


def test_a_daemon_that_dies_while_it_starts_says_why(tmp_path: Path) -> None:
    began = time.monotonic()
    with (
        pytest.raises(CommandFailed, match=r"ended while it started: no such socket"),
        HERE.daemon(
            ["sh", "-c", "echo no such socket >&2; exit 5"],
            log=tmp_path / "log",
            ready=lambda: False,
            deadline_s=2 * PATIENCE_S,
        ),
    ):
        pytest.fail("it was entered")
    assert time.monotonic() - began < PATIENCE_S


def test_a_daemon_that_is_not_installed_is_a_requirement(tmp_path: Path) -> None:
    with (
        pytest.raises(RequirementError, match="no-such-daemon"),
        HERE.daemon(["no-such-daemon"], log=tmp_path / "log", ready=lambda: True, deadline_s=1),
    ):
        pytest.fail("it was entered")


def test_a_daemon_that_ignores_the_request_to_end_is_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mark = tmp_path / "ready"
    real_wait = subprocess.Popen.wait
    monkeypatch.setattr(
        "subprocess.Popen.wait",
        lambda self, timeout=None: real_wait(self, 0.1 if timeout is not None else None),
    )
    script = 'trap "" TERM; touch "$1"; while :; do sleep 0.01; done'
    with HERE.daemon(
        ["sh", "-c", script, "sh", str(mark)], log=tmp_path / "log", ready=mark.exists, deadline_s=PATIENCE_S
    ) as process:
        pass
    assert of(process).returncode == -9


def test_a_daemon_that_cannot_be_killed_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As one that waits in the kernel for a disk that does not answer (state D)."""

    def endless(_self: object, timeout: float | None = None) -> int:
        raise subprocess.TimeoutExpired("sleep", timeout or 0)

    real_wait = subprocess.Popen.wait
    with (
        pytest.raises(CommandFailed, match="could not be killed"),
        HERE.daemon(["sleep", "60"], log=tmp_path / "log", ready=lambda: True, deadline_s=5) as process,
    ):
        monkeypatch.setattr("subprocess.Popen.wait", endless)
    monkeypatch.setattr("subprocess.Popen.wait", real_wait)
    assert of(process).wait(timeout=PATIENCE_S) in (-9, -15)


# piped() and its kin


def test_what_a_program_prints_goes_through_a_pipe_into_a_file(tmp_path: Path) -> None:
    console = tmp_path / "console"
    script = "test -p /dev/stdout && echo pipe; echo err >&2"
    with piped(["sh", "-c", script], output=console) as process:
        assert process.wait(timeout=PATIENCE_S) == 0
    assert console.read_text(encoding="utf-8") == "pipe\nerr\n"


def test_leaving_kills_what_still_runs_and_keeps_its_words(tmp_path: Path) -> None:
    console = tmp_path / "console"
    with piped(["sh", "-c", "echo last words; exec sleep 60"], output=console) as process:
        assert soon(lambda: "words" in console.read_text(encoding="utf-8"))
    assert process.returncode == -9
    assert console.read_text(encoding="utf-8") == "last words\n"


def test_a_condition_is_awaited_until_its_deadline() -> None:
    answers = iter([False, False, True])
    await_condition(lambda: next(answers), deadline_s=5, what="the third answer", interval_s=0.001)
    with pytest.raises(CommandFailed, match=r"waited 0\.01 s in vain for the moon"):
        await_condition(lambda: False, deadline_s=0.01, what="the moon", interval_s=0.001)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a\nb\nc\nd\n", "b / c / d"),
        ("one\n", "one"),
        ("\n\n", "its log is empty"),
        (None, "its log is empty"),
    ],
)
def test_the_tail_of_a_log_is_one_line(tmp_path: Path, text: str | None, expected: str) -> None:
    if text is not None:
        (tmp_path / "log").write_text(text, encoding="utf-8")
    assert tail(tmp_path / "log") == expected
