"""Programs that stay: they serve request after request, and whoever cannot is run as before."""

from __future__ import annotations

import os
import select
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.hosts import NamespaceHost, kept, programs
from harness.hosts.kept import Kept
from harness.model.errors import CommandFailed

PATIENCE_S = 60.0

PROGRAM = """
import json, os, sys, time
def serve():
    for line in sys.stdin:
        asked = json.loads(line)
        words = asked["input"]
        if words == "end":
            sys.exit(3)
        if words == "nonsense":
            print("no JSON", flush=True)
            continue
        if words == "sleep":
            time.sleep(600)
        said = f"{os.getpid()} {asked['netns']} {words}"
        print(json.dumps({"status": 1 if words == "fail" else 0, "stderr": said}), flush=True)
if sys.argv[1:] == ["serve"]:
    serve()
"""
ARGV = (programs.PYTHON, "-c", PROGRAM)


@pytest.fixture
def staying() -> Iterator[Kept]:
    made = Kept()
    yield made
    made.end()


def ask(
    staying: Kept, words: str, timeout_s: float = PATIENCE_S, netns: str | None = None
) -> tuple[int, str]:
    done = staying.run(ARGV, netns=netns, input=words, timeout_s=timeout_s)
    assert done is not None and done.argv == ARGV
    return done.status, done.stderr


def test_one_process_answers_all(staying: Kept) -> None:
    status, said = ask(staying, "first", netns="there")
    process, *rest = said.split()
    assert (status, rest) == (0, ["there", "first"])
    assert ask(staying, "fail") == (1, f"{process} None fail")
    assert ask(staying, "line\nbreak") == (0, f"{process} None line\nbreak")
    staying.end()
    with pytest.raises(ProcessLookupError):
        os.kill(int(process), 0)
    assert ask(staying, "again")[1].split()[0] != process


@pytest.mark.parametrize("words", ["end", "nonsense"])
def test_one_that_ends_or_answers_nonsense_is_not_asked_again(staying: Kept, words: str) -> None:
    ask(staying, "well")
    for each in (words, "well"):
        assert staying.run(ARGV, netns=None, input=each, timeout_s=PATIENCE_S) is None


def test_one_that_takes_too_long_is_ended(staying: Kept) -> None:
    process = ask(staying, "well")[1].split()[0]
    began = time.monotonic()
    with pytest.raises(CommandFailed, match=r"did not end within 0\.2 s"):
        staying.run(ARGV, netns=None, input="sleep", timeout_s=0.2)
    assert time.monotonic() - began < PATIENCE_S
    with pytest.raises(ProcessLookupError):
        os.kill(int(process), 0)
    assert ask(staying, "well")[0] == 0


def test_an_interrupted_one_is_ended(staying: Kept, monkeypatch: pytest.MonkeyPatch) -> None:
    process = ask(staying, "well")[1].split()[0]

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as during:
        during.setattr(select, "select", interrupt)
        with pytest.raises(KeyboardInterrupt):
            staying.run(ARGV, netns=None, input="sleep", timeout_s=PATIENCE_S)
    with pytest.raises(ProcessLookupError):
        os.kill(int(process), 0)


@pytest.mark.parametrize(
    "argv", [("true",), (programs.PYTHON, "-c", "print(1)"), (*ARGV, "word"), ("/bin/sh", "-c", PROGRAM)]
)
def test_others_are_run_as_before(staying: Kept, argv: tuple[str, ...]) -> None:
    assert staying.run(argv, netns=None, input="", timeout_s=PATIENCE_S) is None


def test_a_host_lets_it_serve_and_tells_a_failure(monkeypatch: pytest.MonkeyPatch, staying: Kept) -> None:
    monkeypatch.setattr("harness.hosts._kept", lambda: staying)
    host = NamespaceHost("host")
    assert host.run(ARGV, input="well").stderr.endswith("None well")
    with pytest.raises(CommandFailed, match=r"ended with status 1: .* None fail"):
        host.run(ARGV, input="fail")
    assert host.run(ARGV, input="fail", check=False).status == 1


def test_the_program_for_lio_can_stay() -> None:
    assert kept.CAN_STAY in programs.source("harness.storage.iscsi", "lio")
    assert Path(programs.PYTHON).exists()
