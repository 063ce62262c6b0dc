"""The rule that keeps the initiator's machine from what is on somebody else's disk."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import Any

import pytest

from harness.hosts.black_box import BlackBoxHost
from harness.model import BackingKind, BlackBoxTarget
from harness.storage.iscsi.transport import IscsiSides
from harness.storage.transport import Lun
from harness.storage.udev import MAKE, REMOVE, UdevRule
from tests.unit.fakes import World
from tests.unit.storage.exports import sides, wanted


def text(rule: UdevRule) -> str:
    rule.acquire((world := World()).host("initiator"))
    (command,) = world.commands
    assert command.argv[-1] == rule.path
    return command.input or ""


def test_every_jump_has_its_end_and_nothing_else_is_looked_at() -> None:
    lines = text(UdevRule("harness-beef-192.0.2.1-3260", 'KERNELS=="session[0-9]*"')).splitlines()
    end = "harness_beef_192_0_2_1_3260_end"
    assert {*re.findall(r'GOTO="(.*?)"', "".join(lines))} == {end} and lines[-1] == f'LABEL="{end}"'
    closes = 'ACTION=="add", PROGRAM=="/bin/sh -c \'blockdev --setro $devnode\'"'
    assert lines.index(f'ENV{{HARNESS_READS}}!="1", GOTO="{end}"') < lines.index(closes)
    # Of a disk of the run closing it alone is no event.
    own = text(UdevRule("harness-beef-0", 'KERNEL=="sd*"', is_own=True))
    assert own == 'ACTION!="remove", SUBSYSTEM=="block", KERNEL=="sd*", OPTIONS:="nowatch"\n'


def test_the_rule_goes_with_its_folder_and_leaves_others(tmp_path: Path) -> None:
    mine, other = tmp_path / "rules.d" / "00-a.rules", tmp_path / "rules.d" / "other.rules"
    for rules in ([mine], [mine, other]):
        for file in rules:
            file.parent.mkdir(exist_ok=True)
            file.write_text("")
        subprocess.run(["sh", "-euc", REMOVE, "sh", str(mine)], check=True, env={"PATH": "/usr/bin:/bin"})
        assert not mine.exists() and mine.parent.exists() is (other in rules)
    subprocess.run(["sh", "-euc", REMOVE, "sh", str(mine)], check=True)


@pytest.mark.skipif(Path("/run/udev").is_dir(), reason="this machine has udev")
def test_without_udev_nothing_is_made(tmp_path: Path) -> None:
    subprocess.run(["sh", "-euc", MAKE, "sh", str(tmp_path / "a" / "b")], check=True)
    assert not list(tmp_path.iterdir())


def test_it_stands_before_the_login_to_somebody_else_s_target() -> None:
    world = World()
    theirs: dict[str, Any] = {"address": "192.0.2.1", "port": 3260}
    reached = BlackBoxTarget(transport="iscsi", typed="nas", **theirs, name="iqn.2001-04.org.example:a")
    both = sides(world, target=BlackBoxHost(), luns=(), black_box=reached)
    sides_up = IscsiSides(both, secret="s", nonce="n", own_names=("iqn.own",))  # noqa: S106 (of no target)
    lun = Lun(serial="", kind=BackingKind.BLOCK, path="", size_bytes=0)
    rule, session = sides_up.connections(wanted(world, lun=lun, target=BlackBoxHost(), **theirs))
    assert isinstance(rule, UdevRule) and not isinstance(session, UdevRule)
    assert f'-qxF {rule.name} /sys/class/iscsi_session/%b/ifacename"' in rule.match


def of_columns(world: World, of: Any) -> None:
    """Each column of an initiator has a rule of its own: the first that goes down would take that of the
    others with it."""
    rules = {of.connections(wanted(world, name=name))[0].path for name in ("wired.off", "wired.aes128gcm16")}
    assert len(rules) == 2
