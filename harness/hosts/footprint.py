"""What a kind of thing says of itself to those who look after it: what it leaves, which messages tell of it.

Each module that brings something up has what concerns it: ``LEAVES``, ``TROUBLES``, and as ``MODULES`` the
kernel's that it needs, by modprobe(8)'s names. Nobody has a list of everybody's.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

Trouble = tuple[re.Pattern[str], str]
"""A line of the kernel's log that makes a measurement invalid, and what it is called in the reason."""


@dataclass(frozen=True, kw_only=True)
class Leftover:
    """``what`` may be left of a run, and the pipeline of sh that prints the names of such things.

    There ``$1`` is the run's tag.
    """

    what: str
    names: str


def search(leftovers: Iterable[Leftover]) -> str:
    """The script that prints a phrase for each thing that is left; its argument is the run's tag."""
    lines = [f"{each.names} | tell '{each.what}'" for each in leftovers]
    return "\n".join(['tell() { while read -r line; do echo "$1 $line"; done; }', *lines, "exit 0", ""])
