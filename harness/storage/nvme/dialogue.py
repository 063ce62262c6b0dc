"""What the two ends of NVMe/TCP send for one I/O."""

from __future__ import annotations

from dataclasses import dataclass

from harness.analysis import theory
from harness.analysis.theory import Burst
from harness.model import End

CAPSULE_BYTES = 8 + 64
"""NVMe/TCP Transport Specification 1.0, section 3.6.2.1: of a command capsule, a header and the command."""

HEADER_BYTES = 24
"""The same, sections 3.6.2.2 to 3.6.2.5: of a response capsule, of an R2T, and before data either way."""


@dataclass(frozen=True, kw_only=True)
class Dialogue:
    """What the ends agreed on and send: Linux sends all that one end has to say at once (MSG_MORE).

    Without ``disable_sqflow`` each read's data is followed by a response capsule. Digests are off.
    ``in_capsule_bytes`` and ``window_bytes`` are as in ``initiator.negotiated`` and ``theory.Dialogue``.
    """

    in_capsule_bytes: int
    window_bytes: int

    def bursts(self, wire: theory.Wire, direction: theory.Direction, block_bytes: int) -> list[Burst]:
        def sent(by: End, length: int, *, after_disk: bool = False) -> Burst:
            return theory.sent(wire, self, by, [(length, False)], after_disk=after_disk)

        if direction == "read":
            answer = HEADER_BYTES + block_bytes + HEADER_BYTES
            return [sent("initiator", CAPSULE_BYTES), sent("target", answer, after_disk=True)]
        done = sent("target", HEADER_BYTES, after_disk=True)
        if block_bytes <= self.in_capsule_bytes:
            return [sent("initiator", CAPSULE_BYTES + block_bytes), done]
        return [
            sent("initiator", CAPSULE_BYTES),
            sent("target", HEADER_BYTES),
            sent("initiator", HEADER_BYTES + block_bytes),
            done,
        ]
