"""What the two ends of NVMe/TCP send for one I/O."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from harness.analysis import theory
from harness.analysis.theory import Burst
from harness.analysis.wire import WireProtocol
from harness.model import ENDS, End
from harness.model.units import positive, whole

CAPSULE_BYTES = 8 + 64
"""NVMe/TCP Transport Specification 1.0, section 3.6.2.1: of a command capsule, a header and the command."""

HEADER_BYTES = 24
"""The same, sections 3.6.2.2 to 3.6.2.5: of a response capsule, of an R2T, and before data either way."""

RECORD_HEADER_BYTES, TYPE_BYTES, TAG_BYTES = 5, 1, 16
RECORD_BYTES = 1 << 14
"""RFC 8446, section 5.2: what a record has around up to 2**14 bytes of a stream."""


def in_records(stream_bytes: int) -> int:
    """What so many bytes of a stream take, written at once."""
    records = -(-stream_bytes // RECORD_BYTES)
    return stream_bytes + records * (RECORD_HEADER_BYTES + TYPE_BYTES + TAG_BYTES)


@dataclass(frozen=True, kw_only=True)
class NvmeDialogue:
    """What the ends agreed on and send: Linux sends all that one end has to say at once (MSG_MORE).

    Without ``disable_sqflow`` each read's data is followed by a response capsule. Digests are off.
    ``in_capsule_bytes`` is as in ``initiator.negotiated``, ``window_bytes`` as in ``theory.Dialogue``. With
    ``tls`` all of it is in records, as few as can be. Both ends receive in a work queue (nvme_tcp_io_work(),
    nvmet_tcp_io_work()).
    """

    threads: ClassVar[tuple[End, ...]] = ENDS
    in_capsule_bytes: int
    window_bytes: int
    tls: bool = False

    def bursts(self, wire: theory.Wire, direction: theory.IoDirection, block_bytes: int) -> list[Burst]:
        def sent(by: End, length: int, *, after_disk: bool = False) -> Burst:
            if self.tls:
                length = in_records(length)
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


class NvmeWire(WireProtocol):
    """By ``initiator.negotiated()``."""

    name: ClassVar[str] = "nvme-tcp"
    remedy: ClassVar[str] = "a larger param_inline_data_size of nvmet's port"

    def most_commands(self, agreed: Mapping[str, str]) -> int:
        # The kernel counts the admin queue as well, and sqsize from 0.
        queues, size = positive(agreed, "queue_count"), positive(agreed, "sqsize")
        return max(0, queues - 1) * (size + 1) if size else 0

    def header_bytes(self, agreed: Mapping[str, str], data_bytes: int) -> int:
        del agreed, data_bytes  # one PDU has it all
        return HEADER_BYTES

    def dialogue(
        self, agreed: Mapping[str, str], direction: theory.IoDirection, window_bytes: int
    ) -> NvmeDialogue | None:
        del direction  # the ends agree on nothing that differs by it
        at_once = whole(agreed, "in_capsule_bytes")
        if at_once is None:
            return None
        return NvmeDialogue(in_capsule_bytes=at_once, window_bytes=window_bytes, tls="tls" in agreed)


OFFERED = (NvmeWire(),)
