"""What each kind of resource may leave behind, and which kernel messages concern it.

Each module that brings something up has its own ``LEAVES``, ``TROUBLES``, and ``MODULES`` (the kernel modules
that it needs, each in modprobe(8)'s words: a name and perhaps parameters). There is no central list.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass


def module_name(words: str) -> str:
    """Of a module in modprobe(8)'s words, ``nbd nbds_max=0``."""
    return words.partition(" ")[0]


Trouble = tuple[re.Pattern[str], str]
"""A line of the kernel's log that makes a measurement invalid, and its name in the reason."""


@dataclass(frozen=True, kw_only=True)
class Leftover:
    """``what`` may be left of a run, and the pipeline of sh that prints the names of such things.

    In it ``$1`` is the run's tag. ``where`` is a pattern of sh's for files: if no such file exists, none of
    its programs is started, each of which takes its time in the lab.
    """

    what: str
    names: str
    where: str = ""


def search(leftovers: Iterable[Leftover]) -> str:
    """The script that prints a phrase for each leftover; its argument is the run's tag."""
    lines = [
        (f"if there {each.where}; then {asked}; fi" if each.where else asked)
        for each in leftovers
        for asked in [f"{each.names} | tell '{each.what}'"]
    ]
    return "\n".join(
        [_THERE, 'tell() { while read -r line; do echo "$1 $line"; done; }', *lines, "exit 0", ""]
    )


# An unmatched pattern stays as it is.
_THERE = 'there() { test -e "$1" || test -L "$1"; }'
