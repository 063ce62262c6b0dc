"""Nested protections: which orders are possible, and how a stack is typed."""

from __future__ import annotations

import enum
from collections.abc import Sequence

from harness.model import MACSEC, MACSEC_MKA, PROTECTION_OFF, WIREGUARD
from harness.model.errors import UsageError

SEPARATOR = "+"
"""Between the protections of a stack, as typed."""


class Place(enum.IntEnum):
    """The place of a protection in a stack, from the outside to the inside."""

    LINK = 0
    """Over Ethernet, so outermost."""
    NETWORK = 1
    """Over IP, as an interface of its own."""
    INNERMOST = 2
    """It keeps the path's addresses, so a protection within it could not be recognised."""


_PLACES = {MACSEC: Place.LINK, MACSEC_MKA: Place.LINK, WIREGUARD: Place.NETWORK}


def place_of(name: str) -> Place:
    """A name that is not an interface's kind is an ESP proposal."""
    return _PLACES.get(name, Place.INNERMOST)


def check(protection: Sequence[str]) -> None:
    """UsageError for an impossible order: the link's comes first, IPsec last, each once at most."""
    places = [place_of(name) for name in protection]
    if places != sorted(set(places)):
        raise UsageError(
            f"{SEPARATOR.join(protection)}: expected {MACSEC} before {WIREGUARD} before an ESP proposal, "
            "each at most once: the outermost on the wire comes first",
            hint=f"try {MACSEC}{SEPARATOR}aes128gcm16",
        )


def split(text: str) -> tuple[str, ...]:
    """A stack as typed, ``macsec+aes128gcm16``; empty for ``off``. UsageError for an impossible order."""
    names = () if text == PROTECTION_OFF else tuple(text.split(SEPARATOR))
    check(names)
    return names
