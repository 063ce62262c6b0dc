"""What each kind of thing says of itself is found by those who look after all of them."""

from __future__ import annotations

import subprocess
from pathlib import Path

from harness.hosts.footprint import Leftover, search
from harness.model import LabKernel
from harness.network import links
from harness.network.paths.switches import kind as switches
from harness.planning.plan import make_plan
from harness.planning.request import RunRequest
from harness.protection import ipsec
from harness.runs import leftovers, modules
from harness.storage import transports


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
    assert said_by(leftovers.script(), "0000") == [], "of a run that never was nothing is left"


def test_it_is_looked_for_only_where_there_is_something(tmp_path: Path) -> None:
    places = (("a", 'x-"$1"-*'), ("b", "y*"), ("c", "gone"), ("d", "none*"))
    asks = f"{{ echo $1; touch {tmp_path}/asked-%s; }}"
    kinds = [Leftover(what=name, names=asks % name, where=f"{tmp_path}/{where}") for name, where in places]
    for name in ("x-beef-1", "x-beef-2"):
        (tmp_path / name).touch()
    (tmp_path / "y").symlink_to("nowhere")
    assert said_by(search(kinds), "beef") == ["a beef", "b beef"]
    assert sorted(file.name for file in tmp_path.glob("asked-*")) == ["asked-a", "asked-b"]


def test_a_plan_takes_the_modules_of_what_it_brings_up() -> None:
    links_asked = ("wired", "switched:2", "routed")
    made = make_plan(RunRequest(links=links_asked, ipsec=("both",)))
    assert made.setting.lab_kernel is LabKernel.DEBIAN
    both = {*links.MODULES, *ipsec.MODULES, *switches.MODULES}
    assert [set(wanted) for wanted in modules.of(made).values()] == [both, both], "each has a ramdisk"
    of_lio = ("target_core_mod", "iscsi_target_mod", "target_core_iblock")
    assert modules.of_transports(made) == {
        "iscsi": {"initiator": ("iscsi_tcp", "sd_mod"), "target": of_lio},
    }


def test_each_transport_is_known_by_its_name_and_has_a_port_of_its_own() -> None:
    assert all(transports.named(each.name) is each for each in transports.every())
    assert len({each.port for each in transports.every()}) == len(transports.every())
