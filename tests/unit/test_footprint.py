"""What each kind of thing says of itself is found by those who look after all of them."""

from __future__ import annotations

import subprocess

from harness.hosts.footprint import Leftover, search
from harness.model import LabKernel
from harness.network import links
from harness.network.paths import openflow, pppoe
from harness.protection import ipsec
from harness.runs import leftovers, modules
from harness.runs.plan import make_plan
from harness.runs.request import Request
from harness.storage.iscsi import initiator, target


def said_by(script: str, tag: str) -> list[str]:
    done = subprocess.run(["sh", "-euc", script, "sh", tag], capture_output=True, text=True, check=True)
    assert done.stderr == ""
    return done.stdout.splitlines()


def test_each_name_that_is_printed_becomes_a_phrase() -> None:
    kinds = [
        Leftover(what="the link", names='printf "%s\\n" "$1-a" "$1-b c"'),
        Leftover(what="the rule", names="false"),
        Leftover(what="the target", names='echo "$1"'),
    ]
    assert said_by(search(kinds), "beef") == ["the link beef-a", "the link beef-b c", "the target beef"]


def test_of_a_run_that_never_was_nothing_is_left() -> None:
    assert said_by(leftovers.SCRIPT, "0000") == []


def test_a_plan_takes_the_modules_of_what_it_brings_up() -> None:
    made = make_plan(Request(links=("wired", "pppoe", "openflow"), ipsec=("both",)))
    assert made.lab_kernel is LabKernel.DEBIAN
    wanted = modules.of(made)
    both = {*links.MODULES, *ipsec.MODULES, *pppoe.MODULES, *openflow.MODULES}
    assert set(wanted["initiator"]) == both | {*initiator.MODULES}
    assert set(wanted["target"]) == both | {*target.MODULES, *target.BLOCK_MODULES, *modules.ONLY_LOOKED_FOR}
