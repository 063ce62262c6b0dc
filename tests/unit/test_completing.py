"""Completion: what the last word can become, and that the shells ask for it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from harness.cli import COMMANDS, completing
from harness.cli.help import parameters
from harness.cli.tree import commands
from harness.model import TRANSPORTS
from harness.parse.jobfile import load_jobs


def offered(*words: str) -> list[str]:
    return [word for word, _ in completing.candidates(words)]


@pytest.mark.parametrize(
    ("typed", "found"),
    [
        (["doc"], ["documents", "doctor"]),
        (["lab", "sta"], ["start", "status"]),
        (["lab", "start", "--id"], ["--idle"]),
        (["run", "--link", "wifi-"], ["wifi-ac", "wifi-ax"]),
        (["run", "--link=wifi-"], ["--link=wifi-ac", "--link=wifi-ax"]),
        (["run", "--link", "=", "wifi-"], ["wifi-ac", "wifi-ax"]),
        (["run", "--link", "="], offered("run", "--link", "")),
        (["run", "--link", "wired", "--protect", "macsec+null"], ["macsec+null-sha256"]),
        (["run", "--ipsec", "off,null"], ["off,null-sha256"]),
        (["run", "--ipsec", "wireg"], []),
        (["run", "--transport", ""], list(TRANSPORTS)),
        (["run", "--profile", ""], ["document", "modern"]),
        (["run", "--profile", "modern", "--workload", ""], [w.name for w in load_jobs("modern")[1]]),
        (["run", "--profile", "./none.fio", "--workload", ""], []),
        (
            ["probe", "--profile", "document-00"],
            [f"document-00{n}" for n in ("0", "1", "1-tenth", "2", "3", "4")],
        ),
        (["run", "--auth", ""], ["psk", "cert"]),
        (["run", "--results", ""], []),
        (["table", "results"], []),
        (["no-such-command", "--x"], []),
    ],
)
def test_the_last_word_becomes_what_may_stand_there(typed: list[str], found: list[str]) -> None:
    assert offered(*typed) == found


@pytest.mark.parametrize("name", COMMANDS)
def test_every_option_of_every_command_is_offered(name: str) -> None:
    for sub, command in commands(name).items():
        flags = [flag for option in parameters(command.function)[1] for flag in option.flags]
        words = [name, sub] if sub else [name]
        assert set(offered(*words, "-")) == {*flags, "--help"}
        assert all(flag.startswith("-") for flag in flags) and (sub == "" or sub in offered(name, ""))


def test_links_of_the_users_are_offered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "profiles" / "links").mkdir(parents=True)
    (tmp_path / "profiles" / "links" / "zebra.toml").touch()
    assert offered("run", "--link", "z") == ["zebra"]


BASH = """
eval "$(_HARNESS_COMPLETE=bash harness)"
COMP_WORDS=(harness lab sta) COMP_CWORD=2
_harness harness
echo "${COMPREPLY[@]}"
"""
FISH = '_HARNESS_COMPLETE=fish harness | source; complete -C "harness lab sta" | cut -f 1 | string join " "'
ZSH = """
compdef() { :; }
_describe() { echo ${${(P)2}%%:*}; }
eval "$(_HARNESS_COMPLETE=zsh harness)"
words=(harness lab sta) CURRENT=3
_harness
"""


@pytest.mark.parametrize(("shell", "script"), [("bash", BASH), ("fish", FISH), ("zsh", ZSH)])
def test_shells_offer_it(tmp_path: Path, shell: str, script: str) -> None:
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is not installed")
    command = tmp_path / "harness"
    command.write_text(f'#!/bin/sh\nexec {sys.executable} -m harness "$@"\n', encoding="utf-8")
    command.chmod(0o755)
    project = str(Path(__file__).parents[2])
    env = {
        **os.environ,
        "PATH": f"{tmp_path}:{os.environ['PATH']}",
        "PYTHONPATH": project,
        "HOME": str(tmp_path),
    }
    done = subprocess.run([shell, "-c", script], env=env, capture_output=True, text=True, check=True)
    assert done.stdout == "start status\n", done


def test_what_nobody_knows_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert completing.main("tcsh", []) == 2
    assert capsys.readouterr().err == "expected _HARNESS_COMPLETE to be bash, fish, zsh or words\n"
