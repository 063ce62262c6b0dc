"""What only links with some kind of hops have: their modifiers, and what a file says of them.

A module for each such kind offers its ``HopWords``.
"""

from __future__ import annotations

from harness.model import Hops
from harness.model.offered import offered
from harness.parse.of_hops.words import HopWords

ALL: tuple[HopWords, ...] = tuple(offered(__name__))


def of(hops: Hops) -> HopWords:
    """Those of a link's hops; of most kinds there are none."""
    return next((each for each in ALL if each.kind == hops.kind), HopWords())
