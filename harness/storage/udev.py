"""Disks that no program of the initiator's machine may touch: other people's from their first event on, the
run's own while they are measured.

A disk that appears is looked at by udev(7) at once: arrays are assembled, which writes to each of their
members, volume groups are activated, file systems are mounted. A rule that comes before all others makes
somebody else's disk read-only in the kernel, partitions included, and says that it is nobody's.

Each close of a disk that was written to makes an event as well, as 60-block.rules has udev watch it: all
rules once more, and reads of the disk, next to what is measured then. ``:=`` is the last word about that.
"""

from __future__ import annotations

import re

import msgspec

from harness.hosts import Host
from harness.hosts.undo import UndoStep

MAKE = """
test -d /run/udev || exit 0
mkdir -p "${1%/*}"
cat >"$1"
udevadm control --reload || true
"""
"""For sh(1): without udev nobody looks. udev itself looks for new rules every three seconds only."""
REMOVE = """
test -e "$1" || exit 0
rm -f "$1"
rmdir --ignore-fail-on-non-empty "${1%/*}"
"""
"""udev sees within three seconds that it is gone; until then it matches nothing, as the run's names are."""

UNWATCHED = """\
ACTION!="remove", SUBSYSTEM=="block", {match}, OPTIONS:="nowatch"
"""

READ_ONLY = """\
ACTION=="remove", GOTO="{name}_end"
SUBSYSTEM!="block", GOTO="{name}_end"
{match}, ENV{{HARNESS_READS}}="1"
ENV{{HARNESS_READS}}!="1", GOTO="{name}_end"
ACTION=="add", PROGRAM=="/bin/sh -c 'blockdev --setro $devnode'"
ENV{{UDEV_DISABLE_PERSISTENT_STORAGE_RULES_FLAG}}="1", ENV{{SYSTEMD_READY}}="0"
ENV{{UDISKS_IGNORE}}="1", ENV{{DM_MULTIPATH_DEVICE_PATH}}="0", OPTIONS:="nowatch"
LABEL="{name}_end"
"""


class UdevRule(msgspec.Struct, frozen=True):
    """The disks that ``match``, in words of udev(7), are only read, unless they are the run's own. ``name``
    is a word."""

    name: str
    match: str
    is_own: bool = False

    @property
    def path(self) -> str:
        return f"/run/udev/rules.d/00-{self.name}.rules"

    def acquire(self, host: Host) -> None:
        text = (UNWATCHED if self.is_own else READ_ONLY).format(
            name=re.sub(r"\W", "_", self.name), match=self.match
        )
        host.run(["sh", "-euc", MAKE, "sh", self.path], input=text)

    def undo(self) -> tuple[UndoStep, ...]:
        return (UndoStep(("sh", "-euc", REMOVE, "sh", self.path)),)
