"""Completion: what the last word can become, and that the shells ask for it."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
import typer

from harness.cli import COMMANDS, app
from harness.model import TRANSPORTS
from tests.unit.command import harness
from tests.unit.hosts.test_hosts import executable

pytestmark = pytest.mark.thorough


def offered(cwd: Path, *words: str) -> list[str]:
    """What fish is told, which takes one candidate a line."""
    asked = {"_HARNESS_COMPLETE": "complete_fish", "_TYPER_COMPLETE_FISH_ACTION": "get-args"}
    with mock.patch.dict(os.environ, asked, _TYPER_COMPLETE_ARGS=" ".join(["harness", *words])):
        done = harness(cwd=cwd)
    assert done.stderr == ""
    return [line.partition("\t")[0] for line in done.stdout.split("\n") if line]


PROBES = "iscsi-ipsec openflow openflow-tenth packet-rate pppoe switches"


@pytest.mark.parametrize(
    ("typed", "found"),
    [
        ("do", "doctor"),
        ("lab sta", "start status"),
        ("lab start --id", "--idle"),
        ("run --link wifi-", "wifi-ac wifi-ax wifi-b"),
        ("run --link z", "zebra"),  # the user's own
        ("run --link wired --protect macsec+null", "macsec+null-sha256"),
        ("run --ipsec off,null", "off,null-sha256"),
        ("run --ipsec wireg", ""),
        ("run --transport ", " ".join(TRANSPORTS)),
        ("run --profile ", "basic modern"),
        ("run --workload seq-read-1", "seq-read-128k-qd8"),
        ("run --disk n", "nvme"),
        ("explain --reference iscsi-ipsec", "iscsi-ipsec"),
        ("probe --profile ", PROBES),
        ("run --auth ", "psk cert"),
        ("run --results ", ""),
        ("table results", ""),
        ("no-such-command --x", ""),
    ],
)
def test_the_last_word_becomes_what_may_stand_there(typed: str, found: str, tmp_path: Path) -> None:
    (tmp_path / "profiles" / "links").mkdir(parents=True)
    (tmp_path / "profiles" / "links" / "zebra.toml").touch()
    assert offered(tmp_path, *typed.split(" ")) == found.split()


@pytest.mark.parametrize("name", COMMANDS)
def test_every_option_of_every_command_is_offered(name: str, tmp_path: Path) -> None:
    main: Any = typer.main.get_command(app)
    command = main.commands[name].real
    subs = getattr(command, "commands", {})
    for words, each in [([], command), *(([sub], each) for sub, each in subs.items())]:
        shown = [option for option in each.params if not getattr(option, "hidden", False)]
        flags = {flag for option in shown for flag in (*option.opts, *option.secondary_opts)}
        found = set(offered(tmp_path, name, *words, "-"))
        assert found == {flag for flag in flags if flag.startswith("-")} | {"--help"}
        assert not words or words[0] in offered(tmp_path, name, "")


BASH = """
eval "$(_HARNESS_COMPLETE=source_bash harness)"
COMP_WORDS=(harness lab sta) COMP_CWORD=2
_harness_completion harness
echo "${COMPREPLY[@]}"
"""
FISH = """
_HARNESS_COMPLETE=source_fish harness | source
complete -C "harness lab sta" | cut -f 1 | string join " "
"""
ZSH = """
compdef() { :; }
_arguments() { echo $1; }
eval "$(_HARNESS_COMPLETE=source_zsh harness)"
words=(harness lab sta) CURRENT=3
_harness_completion
"""


@pytest.mark.parametrize(("shell", "script"), [("bash", BASH), ("fish", FISH), ("zsh", ZSH)])
def test_shells_offer_it(tmp_path: Path, shell: str, script: str) -> None:
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is not installed")
    executable(tmp_path / "harness", f'exec {sys.executable} -m harness "$@"')
    path = {"PATH": f"{tmp_path}:{os.environ['PATH']}", "PYTHONPATH": str(Path(__file__).parents[3])}
    env = {**os.environ, **path, "HOME": str(tmp_path)}
    done = subprocess.run([shell, "-c", script], env=env, capture_output=True, text=True, check=True)
    assert set(re.findall(r"\bsta\w+", done.stdout)) == {"start", "status"}, done
