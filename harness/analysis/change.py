"""What may be changed of a cell, by whoever asks what would help."""

from __future__ import annotations

import enum

import msgspec


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
