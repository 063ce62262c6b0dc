"""What goes over the wire for one I/O, in closed form: by transport, and by protection (``framing``).

Pure: nothing here runs, reads or asks anything. Whoever reads results needs it, and whoever measures.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import ClassVar, Protocol

from harness.analysis import bounds, theory
from harness.model.offered import offered


class Transport(Protocol):
    """What the two ends of a transport send, by what they agreed on, in the transport's own words.

    ``remedy`` says by which setting fewer round trips or headers would do, for one I/O; "" if none helps.
    ``window_bytes`` is what a connection has in flight at most by Linux's defaults, because the initiator
    sets the size of its buffers; None: they grow as they have to.
    """

    name: ClassVar[str]
    remedy: ClassVar[str]
    window_bytes: ClassVar[int | None]

    def dialogue(
        self, agreed: Mapping[str, str], direction: theory.Direction, window_bytes: int
    ) -> theory.Dialogue | None:
        """What the two ends send for one I/O; None if too little of what they agreed on is known."""
        ...

    def overheads(self, agreed: Mapping[str, str]) -> bounds.Overheads:
        """What it adds at least."""
        ...


@functools.cache
def _transports() -> dict[str, Transport]:
    return {each.name: each for each in offered(__name__)}


def transport(name: str) -> Transport:
    return _transports()[name]
