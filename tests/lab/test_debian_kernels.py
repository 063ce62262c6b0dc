"""The bench's kernel compared with Debian's: in what the harness uses it has the same, or a reason why not.

Under CONFIG_NVME_MULTIPATH, which Debian has, a disk of NVMe/TCP is another thing. The bench lacked it, so
nobody saw that every such column failed on Debian.
"""

from __future__ import annotations

import re
import sys
import tomllib
from pathlib import Path

import pytest

from harness.testbeds.lab.kernels import kernel

pytestmark = [pytest.mark.lab, pytest.mark.custom_kernel]

DATA = Path(__file__).parents[1] / "data" / "debian-kernels"
DEBIANS = {tuple(map(int, file.stem.split("."))): file for file in DATA.glob("*.config")}
"""By version of Linux."""
REASONS = tomllib.loads((DATA / "reasons.toml").read_text(encoding="utf-8"))
SUBSYSTEMS = re.compile("|".join(f"(?:{each})" for each in REASONS["subsystems"]))
OPTION = re.compile(r"CONFIG_(\w+)=[ym]")


def options(text: str) -> set[str]:
    """What a configuration has of these subsystems, built in or as a module."""
    names = (match[1] for line in text.splitlines() if (match := OPTION.fullmatch(line)))
    return {name for name in names if SUBSYSTEMS.fullmatch(name)}


def debian(version: tuple[int, ...]) -> set[str]:
    return options(DEBIANS[version].read_text(encoding="utf-8"))


def asked() -> set[str]:
    return options(kernel.CONFIG.read_text(encoding="utf-8"))


def unexplained(found: set[str], reasons: dict[str, str]) -> set[str]:
    return {name for name in found if not any(re.fullmatch(each, name) for each in reasons)}


@pytest.mark.parametrize("version", sorted(DEBIANS), ids=str)
def test_each_difference_has_a_reason(version: tuple[int, ...]) -> None:
    """Of the built kernel, and of what it would have in a later version of Linux."""
    built = kernel.custom_kernel().modules.with_name("config").read_text(encoding="utf-8")
    release = re.search(r"Linux/\w+ (\d+)\.(\d+)", built)
    assert release is not None
    # What an earlier version than the built one calls by other names, another machine compares.
    version = max(version, min(max(DEBIANS), (int(release[1]), int(release[2]))))
    ours, theirs = options(built) | asked(), debian(version)
    assert {"NVME_MULTIPATH", "INET_ESP", "ISCSI_TARGET", "WIREGUARD", "NET_SCH_NETEM"} <= theirs
    assert unexplained(theirs - ours, REASONS["lacks"]) == set()
    assert unexplained(ours - theirs, REASONS["has"]) == set()


def test_each_reason_is_of_a_difference() -> None:
    theirs = set().union(*map(debian, DEBIANS))
    common = set.intersection(*map(debian, DEBIANS))
    for what, differences in (("lacks", theirs - asked()), ("has", (asked() | theirs) - common)):
        idle = [each for each in REASONS[what] if not any(re.fullmatch(each, name) for name in differences)]
        assert not idle, f"{what}: {idle}"


if __name__ == "__main__":
    sys.stdout.writelines(f"CONFIG_{name}=y\n" for name in sorted(options(sys.stdin.read())))
