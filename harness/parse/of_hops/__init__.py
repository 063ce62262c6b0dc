"""What only links with some kind of hops have: their modifiers, and what a file says of them.

A module for each such kind offers its ``HopWords``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import ClassVar

from harness.model import Hops, LinkProfile
from harness.model.kinds import HOPS, OfKinds, folders
from harness.parse.ranges import Refuse

Load = Callable[[str], LinkProfile]
"""Loads the profile of a link's name."""


class HopWords:
    """``patterns``: what is typed, by what it changes; the group is the value. ``example`` is one of them.
    ``ranges`` are the least and the most of numbers."""

    name: ClassVar[str] = ""
    patterns: ClassVar[Mapping[str, str]] = {}
    ranges: ClassVar[Mapping[str, tuple[int, int]]] = {}
    example: ClassVar[str] = ""

    def expected(self, hops: Hops) -> dict[str, str]:  # noqa: ARG002
        """What these hops take, as errors say it; what has the same text excludes each other."""
        return {}

    def applied(self, hops: Hops, asked: Mapping[str, str], load: Load) -> tuple[Hops, str, str]:  # noqa: ARG002
        """The hops as asked for, and what is added to the link's name and title."""
        return hops, "", ""

    def unshaped(self, hops: Hops) -> Hops:
        return hops

    def check(self, hops: Hops, refuse: Refuse) -> None:
        """Raise ``refuse``'s error for what no such hops have. It is asked of hops of all kinds."""


OF_KINDS: OfKinds[HopWords] = OfKinds(__name__, folders(HOPS))


def of(hops: Hops) -> HopWords:
    """Those of a link's hops; of most kinds there are none."""
    return OF_KINDS.get(hops.kind) or HopWords()
