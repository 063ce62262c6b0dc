"""What may limit a cell: stations of its path, what may be in flight, or something not told apart; and what
may be changed of it, by whoever asks what would help."""

from __future__ import annotations

import enum

import msgspec


class Limit(enum.StrEnum):
    """What limits a cell.

    Stations: ``device``, ``link``, ``cpu`` (a core, or its work outside the cipher), ``crypto``; and of the
    link what is not data: ``transport`` (its own round trips and headers) and ``framing``. Waiting:
    ``round-trip``, ``window`` (TCP's), ``lost-packets``, and ``latency``, where each I/O waits for the one
    before it, or too few are in flight, and no part of the time is most of it. ``target``: its disk or its
    processor, which the initiator alone cannot separate. ``lab``: the emulation, not the emulated link.
    """

    DEVICE = "device"
    TARGET = "target"
    LINK = "link"
    ROUND_TRIP = "round-trip"
    WINDOW = "window"
    TRANSPORT = "transport"
    FRAMING = "framing"
    LOST_PACKETS = "lost-packets"
    CRYPTO = "crypto"
    CPU = "cpu"
    LATENCY = "latency"
    LAB = "lab"
    UNKNOWN = "unknown"


class ChangeKind(enum.StrEnum):
    """What is changed."""

    DEPTH = "depth"
    RATE = "rate"
    DEVICE = "device"


class ChangeStep(msgspec.Struct, frozen=True):
    """One thing changed: to ``value`` for a depth, else by this factor."""

    kind: ChangeKind
    value: float

    @property
    def words(self) -> str:
        """``queue depth 8``"""
        return {
            ChangeKind.DEPTH: f"queue depth {self.value:.0f}",
            ChangeKind.RATE: "a link twice as fast",
            ChangeKind.DEVICE: "a device twice as fast",
        }[self.kind]
