"""What the two ends of iSCSI send for one I/O (RFC 7143)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from harness.analysis.theory import Burst, IoDirection, Wire, sent
from harness.analysis.wire import WireProtocol
from harness.model import ISCSI, End
from harness.model.units import positive, whole

BHS_BYTES = 48
"""RFC 7143, section 11.2.1: the basic header segment of every PDU. The harness uses no digests and no AHS."""

LEAST_LENGTH = 512
"""RFC 7143, sections 13.12 to 13.14: of a segment, a burst, and the first burst."""

PAGE_BYTES = 4096
"""How much LIO hands TCP at a time (iscsit_fe_sendpage_sg())."""

WINDOW_BYTES = 204_000
"""open-iscsi asks for 512 KiB (node.conn[0].tcp.window_size), of which net.core.rmem_max and wmem_max allow
208. Of these Linux 6.1 announces this much (docs/theory.md); since 6.6 it is a quarter more."""


@dataclass(frozen=True, kw_only=True)
class IscsiDialogue:
    """What the two ends negotiated (RFC 7143, section 13), and the window that TCP has reached.

    ``max_recv_bytes`` is the MaxRecvDataSegmentLength of the receiver. ``window_bytes`` is what the target
    may have in flight: the smaller of the initiator's receive window and its own congestion window.
    ``outstanding_r2ts`` is MaxOutstandingR2T: the target asks for so many bursts at a time.
    LIO receives in a thread (iscsi_target_rx_thread()), open-iscsi in TCP's callback
    (iscsi_sw_tcp_data_ready()).
    """

    threads: ClassVar[tuple[End, ...]] = ("target",)
    initial_r2t: bool
    immediate_data: bool
    first_burst_bytes: int
    max_burst_bytes: int
    max_recv_bytes: int
    window_bytes: int
    outstanding_r2ts: int = 1

    def bursts(self, wire: Wire, direction: IoDirection, block_bytes: int) -> list[Burst]:
        """The dialogue of one SCSI command, in order (RFC 7143, sections 4.2.5 and 11)."""

        def burst(by: End, writes: Sequence[tuple[int, bool]], **more: bool) -> Burst:
            return sent(wire, self, by, writes, **more)

        if direction == "read":
            answer: list[tuple[int, bool]] = []
            for length in cut(block_bytes, min(self.max_recv_bytes, self.max_burst_bytes)):
                # Data-In; the last one carries the status (section 11.7.3). First the header, then the pages.
                answer += [(BHS_BYTES, False), *((page, False) for page in cut(length, PAGE_BYTES))]
            return [
                burst("initiator", [(BHS_BYTES, False)]),
                burst("target", answer, after_disk=True),
            ]
        found = []
        immediate = 0
        if self.immediate_data:
            immediate = min(block_bytes, self.first_burst_bytes, self.max_recv_bytes)
        sending = _pdu(immediate)
        done = immediate
        if not self.initial_r2t:
            # Section 13.10: unsolicited Data-Out may follow, up to FirstBurstLength in all.
            for length in cut(min(block_bytes, self.first_burst_bytes) - immediate, self.max_recv_bytes):
                sending += _pdu(length)
                done += length
        found.append(burst("initiator", sending))
        # So many R2Ts at a time (section 13.17), each for at most MaxBurstLength (section 13.13).
        lengths = [*cut(block_bytes - done, self.max_burst_bytes)]
        while lengths:
            asked, lengths = lengths[: self.outstanding_r2ts], lengths[self.outstanding_r2ts :]
            found.append(burst("target", [(BHS_BYTES, False)] * len(asked)))
            parts = [_pdu(part) for length in asked for part in cut(length, self.max_recv_bytes)]
            found.append(burst("initiator", [write for part in parts for write in part]))
        found.append(burst("target", [(BHS_BYTES, False)], after_disk=True))
        return found


def _pdu(data_bytes: int) -> list[tuple[int, bool]]:
    """A PDU of open-iscsi: its header is sent alone, its data as a whole (iscsi_sw_tcp_xmit_segment())."""
    return [(BHS_BYTES, False), *([(data_bytes, False)] if data_bytes else [])]


def cut(length: int, largest: int) -> Iterator[int]:
    """``length`` bytes in parts of the largest size and a remainder."""
    for begin in range(0, length, largest):
        yield min(largest, length - begin)


class IscsiWire(WireProtocol):
    """By ``initiator.negotiated()``, which has the kernel's names."""

    name: ClassVar[str] = ISCSI
    remedy: ClassVar[str] = "longer --iscsi FirstBurstLength and MaxBurstLength, InitialR2T=No"
    window_bytes: ClassVar[int | None] = WINDOW_BYTES

    def dialogue(
        self, agreed: Mapping[str, str], direction: IoDirection, window_bytes: int
    ) -> IscsiDialogue | None:
        """None also for less than two ends can agree on."""
        receiver = "max_recv_dlength" if direction == "read" else "max_xmit_dlength"
        flags = [whole(agreed, name) for name in ("initial_r2t", "immediate_data")]
        lengths = [positive(agreed, name) for name in ("first_burst_len", "max_burst_len", receiver)]
        if min(lengths) < LEAST_LENGTH or None in flags:
            return None
        return IscsiDialogue(
            initial_r2t=flags[0] != 0,
            immediate_data=flags[1] != 0,
            first_burst_bytes=lengths[0],
            max_burst_bytes=lengths[1],
            max_recv_bytes=lengths[2],
            window_bytes=window_bytes,
            outstanding_r2ts=positive(agreed, "max_outstanding_r2t") or 1,
        )

    def most_commands(self, agreed: Mapping[str, str]) -> int:
        return positive(agreed, "queue_depth")

    def header_bytes(self, agreed: Mapping[str, str], data_bytes: int) -> int:
        pdu = positive(agreed, "max_recv_dlength") or data_bytes
        return BHS_BYTES * -(-data_bytes // pdu)


OFFERED = (IscsiWire(),)
