"""What the two ends of NBD send for one I/O (doc/proto.md of NetworkBlockDevice/nbd, "Transmission")."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from harness.analysis import theory
from harness.analysis.theory import Burst
from harness.analysis.wire import WireProtocol
from harness.model import ENDS, End
from harness.model.units import positive

REQUEST_BYTES = 28
"""Magic, flags, type, cookie, offset, length; data of a write follows."""

REPLY_BYTES = 16
"""A simple reply: magic, error, cookie; data of a read follows. Linux asks for no structured ones."""


@dataclass(frozen=True, kw_only=True)
class NbdDialogue:
    """Requests of at most ``largest_bytes``, all at once, and their replies.

    Both ends send a header and its data together (MSG_MORE), and a server takes what a write brings. The
    kernel receives in a work queue (recv_work()), and a server is a program.
    """

    threads: ClassVar[tuple[End, ...]] = ENDS
    largest_bytes: int
    window_bytes: int

    def bursts(self, wire: theory.Wire, direction: theory.IoDirection, block_bytes: int) -> list[Burst]:
        starts = range(0, block_bytes, self.largest_bytes)
        pieces = [min(self.largest_bytes, block_bytes - start) for start in starts]

        def sent(by: End, header_bytes: int, *, has_data: bool) -> Burst:
            writes = [(header_bytes + piece * has_data, False) for piece in pieces]
            return theory.sent(wire, self, by, writes, after_disk=by == "target")

        return [
            sent("initiator", REQUEST_BYTES, has_data=direction == "write"),
            sent("target", REPLY_BYTES, has_data=direction == "read"),
        ]


class NbdWire(WireProtocol):
    """By what ``programs/initiator.py`` tells. A larger max_sectors_kb would save a header: 0.1 % of the time
    of 256 KiB over gigabit Ethernet."""

    name: ClassVar[str] = "nbd"

    def most_commands(self, agreed: Mapping[str, str]) -> int:
        return positive(agreed, "nr_requests") * positive(agreed, "connections")

    def header_bytes(self, agreed: Mapping[str, str], data_bytes: int) -> int:
        del agreed, data_bytes  # one reply has it all
        return REPLY_BYTES

    def dialogue(
        self, agreed: Mapping[str, str], direction: theory.IoDirection, window_bytes: int
    ) -> theory.Dialogue | None:
        del direction  # the ends agree on nothing that differs by it
        largest = 1024 * positive(agreed, "max_sectors_kb")
        return NbdDialogue(largest_bytes=largest, window_bytes=window_bytes) if largest else None


OFFERED = (NbdWire(),)
