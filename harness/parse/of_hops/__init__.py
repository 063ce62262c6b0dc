"""What only links with some kind of hops have: their modifiers, and what a file says of them.

A module for each such kind offers its ``HopWords``.
"""

from __future__ import annotations

from harness.model import Hops
from harness.model.kinds import HOPS, folders
from harness.model.offered import OfKinds
from harness.parse.of_hops.words import HopWords

OF_KINDS: OfKinds[HopWords] = OfKinds(__name__, folders(HOPS))


def of(hops: Hops) -> HopWords:
    """Those of a link's hops; of most kinds there are none."""
    return OF_KINDS.get(hops.kind) or HopWords()
