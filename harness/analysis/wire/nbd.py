"""What the two ends of NBD send for one I/O (doc/proto.md of NetworkBlockDevice/nbd, "Transmission")."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from harness.analysis import theory
from harness.analysis.theory import Burst
from harness.model import NBD, End
from harness.model.units import positive

REQUEST_BYTES = 28
"""Magic, flags, type, cookie, offset, length; data of a write follows."""

REPLY_BYTES = 16
"""A simple reply: magic, error, cookie; data of a read follows. Linux asks for no structured ones."""


@dataclass(frozen=True, kw_only=True)
class Dialogue:
    """One request and one reply: both ends send header and data at once (MSG_MORE), and a server has to take
    what a write brings."""

    window_bytes: int

    def bursts(self, wire: theory.Wire, direction: theory.Direction, block_bytes: int) -> list[Burst]:
        def sent(by: End, length: int, *, after_disk: bool = False) -> Burst:
            return theory.sent(wire, self, by, [(length, False)], after_disk=after_disk)

        asked, answered = (block_bytes, 0) if direction == "write" else (0, block_bytes)
        return [
            sent("initiator", REQUEST_BYTES + asked),
            sent("target", REPLY_BYTES + answered, after_disk=True),
        ]


@dataclass(frozen=True, kw_only=True)
class Overheads:
    """See ``bounds.Overheads``; ``agreed`` is what ``programs/initiator.py`` tells."""

    agreed: Mapping[str, str]

    @property
    def most_commands(self) -> int:
        return positive(self.agreed, "nr_requests") * positive(self.agreed, "connections")

    def write_round_trips(self, command_bytes: int) -> int:
        del command_bytes  # all of it goes with its command
        return 1

    def header_bytes(self, data_bytes: int) -> int:
        del data_bytes  # one reply has it all
        return REPLY_BYTES


class Nbd:
    """See ``wire.Transport``."""

    name: ClassVar[str] = NBD
    remedy: ClassVar[str] = "larger blocks: NBD has no setting of its own"
    window_bytes: ClassVar[int | None] = None

    def dialogue(
        self, agreed: Mapping[str, str], direction: theory.Direction, window_bytes: int
    ) -> theory.Dialogue | None:
        del agreed, direction  # nothing that the ends agree on makes it another
        return Dialogue(window_bytes=window_bytes)

    def overheads(self, agreed: Mapping[str, str]) -> Overheads:
        return Overheads(agreed=agreed)


OFFERED = (Nbd(),)
