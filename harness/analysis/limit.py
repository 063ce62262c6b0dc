"""What may limit a cell: stations of its path, what may be in flight, or something not told apart."""

from __future__ import annotations

import enum


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
