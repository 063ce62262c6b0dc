"""What goes over the wire for one I/O, in closed form: by transport, and by protection (``framing``).

Pure: nothing here runs, reads or asks anything. Whoever reads results needs it, and whoever measures.
"""

from __future__ import annotations

import abc
from collections.abc import Mapping
from typing import ClassVar

from harness.analysis import theory
from harness.model import kinds
from harness.model.offered import OfKinds


class WireProtocol(abc.ABC):
    """What the two ends of a transport send, by what they agreed on, in the transport's own words.

    ``remedy`` says by which setting fewer round trips or headers would do, for one I/O; "" if none helps.
    ``window_bytes`` is what a connection has in flight at most by Linux's defaults, because the initiator
    sets the size of its buffers; None: they grow as they have to. A parameter that is unknown counts as if it
    let everything through.
    """

    name: ClassVar[str]
    remedy: ClassVar[str] = ""
    window_bytes: ClassVar[int | None] = None

    @abc.abstractmethod
    def dialogue(
        self, agreed: Mapping[str, str], direction: theory.IoDirection, window_bytes: int
    ) -> theory.Dialogue | None:
        """What the two ends send for one I/O; None if too little of what they agreed on is known."""

    @abc.abstractmethod
    def most_commands(self, agreed: Mapping[str, str]) -> int:
        """How many commands may be in flight; 0: unknown."""

    @abc.abstractmethod
    def header_bytes(self, agreed: Mapping[str, str], data_bytes: int) -> int:
        """The transport's headers for this much data, in its direction."""


_BY_NAME: OfKinds[WireProtocol] = OfKinds(__name__, kinds.folders(kinds.TRANSPORTS))


class UnknownWire(WireProtocol):
    """Of results whose transport is not here: nothing is known of what goes over the wire."""

    name = ""

    def dialogue(self, agreed: Mapping[str, str], direction: theory.IoDirection, window_bytes: int) -> None:
        del agreed, direction, window_bytes

    def most_commands(self, agreed: Mapping[str, str]) -> int:
        del agreed
        return 0

    def header_bytes(self, agreed: Mapping[str, str], data_bytes: int) -> int:
        del agreed, data_bytes
        return 0


def transport(name: str) -> WireProtocol:
    return _BY_NAME.get(name) or UnknownWire()
